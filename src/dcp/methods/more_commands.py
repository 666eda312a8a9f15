"""Commands besides the paper's: states at the frontier (rare, within reach, on the way), or always one hard goal."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp

from dcp.errors import UserError
from dcp.interfaces import Representation
from dcp.methods.commands import FinalGoal, Pool, PoolState, spread
from dcp.methods.scores import TINY, in_spreads
from dcp.types import Array, EnvSpec, Metrics


class FrontierState(NamedTuple):
    pooled: PoolState
    start: Array  # [N, G]: where the environment's episode began
    attempts: Array  # [N]: whether z was out of reach when it was chosen, and commanded until it was reached
    arrived: Array  # [N]: whether z was reached since it was chosen
    exploring: Array  # [N]: steps of random actions that remain
    share_reached: Array  # []: the running share of attempts that arrived
    reach: Array  # []: the share of the candidates, nearest to the start first, that may be chosen
    goal_weight: Array  # []: the weight of the score; that of novelty is 1 minus it
    novelty: Array  # []: of the z chosen last, the mean over environments of -log density
    coverage: Array  # []: at the last choice


@dataclass(frozen=True)
class Frontier(Pool):
    """Ask for visited states that are rare, within reach and on the way to the goal, after MEGA and DISCOVER.

    Rare: of low density in the pool, by a Gaussian kernel in goal coordinates. Within reach: among the share `reach`
    of the candidates that the critic finds nearest to the episode's start. On the way: by the configured score.
    If more than `target_reached` + `tolerance` of the commanded states are reached, `reach` and the score's weight
    rise; if less than `target_reached` - `tolerance`, they fall.
    """

    needs_embedding: ClassVar[bool] = True

    bandwidth: float = 0.1  # of the kernel, in units of the pool's spread
    target_reached: float = 0.5
    tolerance: float = 0.2
    adaptation: float = 0.05  # how far `reach` and the weight move at each choice
    memory: float = 0.9  # of the running share, from one choice to the next
    least_reach: float = 0.1
    explore_after: int = 0  # steps of random actions after arriving at z, at most until the next choice

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.bandwidth > 0.0:
            raise UserError(f"command.bandwidth {self.bandwidth} is too small: use a number above 0")
        if self.explore_after < 0:
            raise UserError(f"command.explore_after {self.explore_after} is too small: use 0 or more")
        for name in ("target_reached", "tolerance", "adaptation", "memory", "least_reach"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise UserError(f"command.{name} {getattr(self, name)} is no share: use a number from 0 to 1")

    def init(self, achieved: Array, goal: Array, seed_states: Array | None = None) -> FrontierState:  # pyright: ignore[reportIncompatibleMethodOverride]
        no, half, zero = jnp.zeros(len(goal), bool), jnp.full((), 0.5), jnp.zeros(())
        pooled = super().init(achieved, goal, seed_states)
        exploring = jnp.zeros(len(goal), jnp.int32)
        target = jnp.full((), self.target_reached)
        return FrontierState(pooled, achieved, no, no, exploring, target, half, half, zero, zero)

    def begin(self, state: FrontierState, achieved: Array, begins: Array) -> FrontierState:
        """Remember where an episode begins: achieved [N, G], begins [N]."""
        return state._replace(
            start=jnp.where(begins[:, None], achieved, state.start), exploring=jnp.where(begins, 0, state.exploring)
        )

    def step(
        self, state: FrontierState, achieved: Array, goal: Array, representation: Representation, key: Array
    ) -> tuple[FrontierState, Array]:
        key_pool, key_score = jax.random.split(key)
        state = state._replace(pooled=self.visit(state.pooled, achieved, key_pool))

        def choose() -> FrontierState:
            return self.choose(self.adapted(state), achieved, goal, representation, key_score)

        state = jax.lax.cond(state.pooled.clock % self.subgoal_period == 0, choose, lambda: state)
        state = self.watched(state, achieved, goal)
        state = state._replace(pooled=state.pooled._replace(clock=state.pooled.clock + 1))
        return state, self.commanded(state.pooled, goal)

    def adapted(self, state: FrontierState) -> FrontierState:
        """Count the attempts since the last choice, and follow the share that arrived."""
        attempts = jnp.sum(state.attempts)
        now = jnp.sum(state.arrived & state.attempts) / jnp.maximum(attempts, 1)
        mixed = self.memory * state.share_reached + (1.0 - self.memory) * now
        share = jnp.where(attempts > 0, mixed, state.share_reached)
        too_easy, too_hard = share > self.target_reached + self.tolerance, share < self.target_reached - self.tolerance
        move = self.adaptation * (too_easy.astype(jnp.float32) - too_hard.astype(jnp.float32))
        return state._replace(
            share_reached=share,
            reach=jnp.clip(state.reach + move, self.least_reach, 1.0),
            goal_weight=jnp.clip(state.goal_weight + move, 0.0, 1.0),
        )

    def choose(
        self, state: FrontierState, achieved: Array, goal: Array, representation: Representation, key: Array
    ) -> FrontierState:
        """Return the state with a new z for every environment."""
        pool, psi_start = state.pooled.pool, representation.encode_goal(state.start)  # [P, G], [N, D]
        novelty = self.novelty(pool)  # [P]

        def adjust(scores: Array, candidates: Array, psi_pool: Array) -> Array:
            distance = representation.steps or representation.distance
            from_start = distance(psi_start[:, None], psi_pool[candidates])  # [N, C]
            cutoff = jnp.quantile(from_start, state.reach, axis=-1, keepdims=True)  # [N, 1]
            w = state.goal_weight
            both = w * in_spreads(scores) + (1.0 - w) * in_spreads(novelty[candidates])
            return jnp.where(from_start <= cutoff, both, -jnp.inf)

        subgoal = self.select_subgoal(pool, achieved, goal, representation, key, adjust)
        pooled = state.pooled._replace(subgoal=subgoal, chosen_for=goal)
        attempts = self.follows(pooled, goal) & ~self.is_at(subgoal, achieved)
        same = jnp.all(subgoal[:, None] == pool[None], axis=-1)  # [N, P]
        of_subgoal = novelty[jnp.argmax(same, axis=-1)]  # [N]
        return state._replace(
            pooled=pooled,
            attempts=attempts,
            arrived=jnp.zeros_like(attempts),
            exploring=jnp.zeros_like(state.exploring),
            novelty=jnp.mean(of_subgoal),
            coverage=self.coverage(pool),
        )

    def watched(self, state: FrontierState, achieved: Array, goal: Array) -> FrontierState:
        """Note who has arrived at z; from there it explores. An attempt ends unfinished if the goal changes."""
        follows = self.follows(state.pooled, goal)
        arrives = follows & ~state.arrived & self.is_at(state.pooled.subgoal, achieved)
        return state._replace(
            attempts=state.attempts & (follows | state.arrived),
            arrived=state.arrived | arrives,
            exploring=jnp.where(arrives, self.explore_after, jnp.maximum(state.exploring - 1, 0)),
        )

    def is_at(self, subgoal: Array, achieved: Array) -> Array:
        assert self.threshold is not None
        return jnp.linalg.norm(subgoal - achieved, axis=-1) < self.threshold

    def explores(self, state: FrontierState) -> Array:
        """Return which environments take a random action now, [N]."""
        return state.exploring > 0

    def novelty(self, pool: Array) -> Array:
        """Return -log of the pool's density at each of its members [P, G] -> [P], up to a constant: from 0 to log P."""
        square = jnp.sum((pool[:, None] - pool[None]) ** 2, axis=-1)  # [P, P]
        width = jnp.maximum(self.bandwidth * spread(pool), TINY)
        return -jax.nn.logsumexp(-0.5 * square / width**2, axis=-1) + jnp.log(len(pool))

    def coverage(self, pool: Array) -> Array:
        """Return how many cells of the threshold's size the pool [P, G] lies in, as a share of P."""
        assert self.threshold is not None
        cells = jnp.floor(pool / self.threshold)
        same = jnp.all(cells[:, None] == cells[None], axis=-1)  # [P, P]
        return jnp.mean(~jnp.any(jnp.tril(same, -1), axis=-1))

    def metrics(self, state: FrontierState, achieved: Array, goal: Array) -> Metrics:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the pool's metrics, what the cutoff and the weight follow, and how far the pool has come."""
        own = ("share_reached", "reach", "goal_weight")
        return {
            **super().metrics(state.pooled, achieved, goal),
            **{name: getattr(state, name) for name in own},
            "subgoal_novelty": state.novelty,
            "pool_coverage": state.coverage,
        }


@dataclass(frozen=True)
class SingleGoal(FinalGoal):
    """Ask for one hard goal in every episode, as SGCRL does: the maze's goal that is farthest from the start."""

    goal: Sequence[float] | None = None  # [G] or its first coordinates; None: the farthest, by the way through the maze

    def for_task(self, spec: EnvSpec, episode_length: int) -> Self:
        """Return this command with the task's farthest goal filled in."""
        if self.goal is not None:
            if not 1 <= len(self.goal) <= spec.goal_size:
                size = f"a goal of {spec.name} has {spec.goal_size}"
                raise UserError(f"command.goal has {len(self.goal)} numbers: {size}")
            return self
        maze = spec.maze
        if maze is None or spec.maze_dims != spec.goal_dims[:2] or not len(maze.cells("g")):
            raise UserError(
                f"the command single_goal asks for a maze's farthest goal, and {spec.name} has no goals in a maze: "
                "set command.goal, or use another command"
            )
        return replace(self, goal=tuple(float(x) for x in maze.farthest_goal()))

    def step(
        self, state: tuple[()], achieved: Array, goal: Array, representation: Representation, key: Array
    ) -> tuple[tuple[()], Array]:
        assert self.goal is not None
        return (), goal.at[:, : len(self.goal)].set(jnp.asarray(self.goal, goal.dtype))
