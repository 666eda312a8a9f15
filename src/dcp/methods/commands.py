"""Choose the goal that the rollout asks for: the environment's own, or a visited state in its place."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp

from dcp.errors import UserError
from dcp.interfaces import Representation
from dcp.methods.scores import SCORES, TINY, Score, in_spreads
from dcp.types import Array, EnvSpec, Metrics


@dataclass(frozen=True)
class FinalGoal:
    """Ask for the environment's own goal, as CRL does."""

    has_pool: ClassVar[bool] = False

    def init(self, achieved: Array, goal: Array, seed_states: Array | None = None) -> tuple[()]:
        return ()

    def step(
        self, state: tuple[()], achieved: Array, goal: Array, representation: Representation, key: Array
    ) -> tuple[tuple[()], Array]:
        return (), goal

    def metrics(self, state: tuple[()], achieved: Array, goal: Array) -> Metrics:
        return {}


@dataclass(frozen=True)
class SingleGoal:
    """Ask for one hard goal in every episode, as SGCRL does: the maze's goal that is farthest from the start."""

    has_pool: ClassVar[bool] = False

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

    def init(self, achieved: Array, goal: Array, seed_states: Array | None = None) -> tuple[()]:
        return ()

    def step(
        self, state: tuple[()], achieved: Array, goal: Array, representation: Representation, key: Array
    ) -> tuple[tuple[()], Array]:
        assert self.goal is not None
        return (), goal.at[:, : len(self.goal)].set(jnp.asarray(self.goal, goal.dtype))

    def metrics(self, state: tuple[()], achieved: Array, goal: Array) -> Metrics:
        return {}


class PoolState(NamedTuple):
    pool: Array  # [P, G]: achieved goals, a ring shared by all environments
    seeded: Array  # []: the first slots hold seeds and are never overwritten
    head: Array  # []: the next open slot, counted from the end of the seeds
    clock: Array  # []: environment steps since the start; one scalar, so that lax.cond really skips the scoring
    subgoal: Array  # [N, G]: z, as chosen at the last tick
    chosen_for: Array  # [N, G]: the goal that z was chosen for

    same_for_all_seeds = ("clock",)  # see `RunState`


GOAL_TOLERANCE = 1e-5  # of a coordinate's size: goals that differ by less are the same goal

Adjust = Callable[[Array, Array, Array], Array]  # scores [N, C], candidates [N, C], psi_pool [P, D] -> scores [N, C]


@dataclass(frozen=True)
class Pool:
    """Keep a pool of visited states and choose among them: the part that `PooledSubgoal` and `Frontier` share."""

    has_pool: ClassVar[bool] = True
    from_config: ClassVar[tuple[str, ...]] = (
        "pool_size", "num_candidates", "subgoal_period", "pool_refresh_steps", "score", "final_goal_share",
    )  # fmt: skip

    pool_size: int = 512  # P
    num_candidates: int = 32  # C
    subgoal_period: int = 25  # environment steps between two choices
    pool_refresh_steps: int | None = None  # environment steps in which the whole ring is replaced; None: an episode
    score: str | Score = "inner_product"
    final_goal_share: float = 0.0  # share of the environments that are commanded g itself
    threshold: float | None = None  # a state within this distance counts as at z; None: the environment's

    def __post_init__(self) -> None:
        SCORES.find(self.score)
        if (name := SCORES.row_name(self.score)) is not None:  # one form, so that equal commands compare equal
            object.__setattr__(self, "score", name)

    def for_task(self, spec: EnvSpec, episode_length: int) -> Self:
        """Return this command with the defaults that depend on the task."""
        return replace(
            self,
            pool_refresh_steps=self.pool_refresh_steps or episode_length,
            threshold=spec.threshold if self.threshold is None else self.threshold,
        )

    def init(self, achieved: Array, goal: Array, seed_states: Array | None = None) -> PoolState:
        """Fill the pool with the first achieved goals, repeated as needed; seeds take the first slots."""
        num_seeds = 0 if seed_states is None else min(len(seed_states), self.pool_size)
        pool = achieved[jnp.arange(self.pool_size) % achieved.shape[0]]  # [P, G]
        if seed_states is not None:
            pool = pool.at[:num_seeds].set(seed_states[:num_seeds])
        zero = jnp.zeros((), jnp.int32)
        return PoolState(pool, jnp.full((), num_seeds, jnp.int32), zero, zero, goal, goal)

    def visit(self, state: PoolState, achieved: Array, key: Array) -> PoolState:
        """Add achieved goals at random moments, so that the whole ring is replaced in `pool_refresh_steps` steps."""
        key_count, key_who = jax.random.split(key)
        assert self.pool_refresh_steps is not None
        open_slots = self.pool_size - state.seeded
        rate = open_slots / self.pool_refresh_steps  # average entries per step
        most = self.pool_size // self.pool_refresh_steps + 1
        whole = open_slots // self.pool_refresh_steps
        count = whole + (jax.random.uniform(key_count) < rate - whole).astype(jnp.int32)
        who = jax.random.randint(key_who, (most,), 0, achieved.shape[0])
        slots = state.seeded + (state.head + jnp.arange(most)) % jnp.maximum(open_slots, 1)  # [most]
        count = jnp.minimum(count, open_slots)
        enters = jnp.arange(most) < count
        slots = jnp.where(enters, slots, self.pool_size)  # an index out of bounds is dropped
        pool = state.pool.at[slots].set(achieved[who], mode="drop")
        return state._replace(pool=pool, head=(state.head + count) % jnp.maximum(open_slots, 1))

    def select_subgoal(
        self,
        pool: Array,
        achieved: Array,
        goal: Array,
        representation: Representation,
        key: Array,
        adjust: Adjust | None = None,
    ) -> Array:
        """Apply Algorithm 1's SelectSubgoal: the best of C candidates out of P, drawn for each environment.

        The pool is encoded once for all environments, and the candidates are gathered from it.
        `adjust`: what another command makes of the scores.
        """
        num_envs = goal.shape[0]
        random_scores = jax.random.uniform(key, (num_envs, self.pool_size))  # the C highest: a draw without replacement
        candidates = jax.lax.top_k(random_scores, self.num_candidates)[1]  # [N, C]
        psi_pool = representation.encode_goal(pool)  # [P, D]
        psi_state = representation.encode_goal(achieved)  # [N, D]
        psi_goal = representation.encode_goal(goal)  # [N, D]
        scores = SCORES.find(self.score)(representation, psi_state, psi_pool[candidates], psi_goal)  # [N, C]
        if adjust is not None:
            scores = adjust(scores, candidates, psi_pool)
        best = jnp.take_along_axis(candidates, jnp.argmax(scores, axis=-1)[:, None], axis=-1)[:, 0]  # [N]
        return pool[best]  # [N, G]

    def commanded(self, state: PoolState, goal: Array) -> Array:
        """Return z where the environment follows it, else g itself."""
        return jnp.where(self.follows(state, goal)[:, None], state.subgoal, goal)

    def follows(self, state: PoolState, goal: Array) -> Array:
        """Return [N]: False in a share of the environments, and where the goal changed since z was chosen.

        A goal that differs only by rounding, as under a simulator that moves it with its bodies, did not change.
        """
        num_envs = goal.shape[0]
        takes_goal = jnp.arange(num_envs) < round(self.final_goal_share * num_envs)  # [N]
        moved = jnp.abs(goal - state.chosen_for) > GOAL_TOLERANCE * (1.0 + jnp.abs(goal))  # [N, G]
        return ~(takes_goal | jnp.any(moved, axis=-1))

    def metrics(self, state: PoolState, achieved: Array, goal: Array) -> Metrics:
        """Return the pool's width, and where z lies between s and g (in the goal's own coordinates).

        z is the scorer's choice for every environment, even where `final_goal_share` commands g instead.
        """
        to_subgoal = jnp.linalg.norm(state.subgoal - achieved, axis=-1)  # [N]
        return {
            "pool_spread": spread(state.pool),
            "state_to_subgoal": jnp.mean(to_subgoal),
            "subgoal_to_goal": jnp.mean(jnp.linalg.norm(goal - state.subgoal, axis=-1)),
            "time_at_subgoal": jnp.mean(to_subgoal < self.threshold),
        }


@dataclass(frozen=True)
class PooledSubgoal(Pool):
    """Ask for a visited state instead of the goal, as SSGC and DCP do."""

    def step(
        self, state: PoolState, achieved: Array, goal: Array, representation: Representation, key: Array
    ) -> tuple[PoolState, Array]:
        key_pool, key_score = jax.random.split(key)
        state = self.visit(state, achieved, key_pool)

        def select() -> tuple[Array, Array]:
            return self.select_subgoal(state.pool, achieved, goal, representation, key_score), goal

        def keep() -> tuple[Array, Array]:
            return state.subgoal, state.chosen_for

        subgoal, chosen_for = jax.lax.cond(state.clock % self.subgoal_period == 0, select, keep)
        state = state._replace(subgoal=subgoal, chosen_for=chosen_for, clock=state.clock + 1)
        return state, self.commanded(state, goal)


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


def spread(pool: Array) -> Array:
    """Return the root mean square distance of the pool's members [P, G] from their mean: []."""
    off_centre = pool - jnp.mean(pool, axis=0, keepdims=True)
    return jnp.sqrt(jnp.mean(jnp.sum(off_centre**2, axis=-1)))
