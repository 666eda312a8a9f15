"""Choose the goal that the rollout asks for: the environment's own, or a visited state in its place."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp

from dcp.interfaces import Representation
from dcp.methods.scores import SCORES, Score
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
        random_order = jax.random.uniform(key, (num_envs, self.pool_size))  # the C highest: drawn without replacement
        candidates = jax.lax.top_k(random_order, self.num_candidates)[1]  # [N, C]
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


def spread(pool: Array) -> Array:
    """Return the root mean square distance of the pool's members [P, G] from their mean: []."""
    off_centre = pool - jnp.mean(pool, axis=0, keepdims=True)
    return jnp.sqrt(jnp.mean(jnp.sum(off_centre**2, axis=-1)))
