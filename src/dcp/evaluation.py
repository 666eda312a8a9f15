"""Play episodes of any policy, and measure them. Only the key decides their starts and goals.

Training's evaluations and `dcp eval` compile `Deployment.episodes` alike, so both give the same bits.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.envs.base import Environment, EnvState, choose, step_and_check
from dcp.errors import UserError
from dcp.policies.policy import Policy
from dcp.types import Array, EnvSpec

EVALUATION_STREAM = 0x6576616C  # keeps evaluation's random stream apart from training's
SATURATED = 0.95  # the paper's bound on an action's components
Watch = Callable[[EnvState], Any]
Vmap = Callable[..., Any]  # `jax.vmap`, or a `Split` over devices


def nothing(state: EnvState) -> tuple[()]:
    return ()


class Record(NamedTuple):
    """Hold what the measures need of N episodes of T steps. Observations are kept only if `watch` asks for them."""

    start: Array  # [N, S + G]: the first observations
    distance: Array  # [T + 1, N]: between achieved goal and goal
    near_goal: Array  # [T, N]: after this step, if it counts
    alive: Array  # [T, N]: this step counts
    diverged: Array  # [T, N]: this step diverged, and ended its episode
    saturated: Array  # [T, N]: share of the action's components beyond 0.95
    signs: Array  # int8 [T, N, A]: of the action's components
    watched: Any = ()  # [T + 1, N, ...]


def evaluation_key(seed: int, index: int) -> Array:
    """Return the key of an evaluation: the same episodes for every method, new ones at each index."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), EVALUATION_STREAM), index)


def rollout(
    env: Environment,
    policy: Policy,
    key: Array,
    num_episodes: int,
    episode_length: int,
    vmap: Vmap = jax.vmap,
    watch: Watch = nothing,
) -> Record:
    """Play episodes. The policy does not affect starts and goals, so the same key gives every policy the same episodes.

    Nothing counts after an episode has ended: `alive` says which steps count. A step that diverges does
    not count, and the environment stays at its last sound state. `watch` sees every state; what it returns is kept.
    A policy with `on_host` is called from Python at each step, any other inside one compiled loop.
    """
    key_reset, key_policy = jax.random.split(key)
    if getattr(policy, "on_host", False):
        return _by_host(env, policy, (key_reset, key_policy), (num_episodes, episode_length), vmap, watch)
    first = vmap(env.reset)(jax.random.split(key_reset, num_episodes))

    def step(carry: tuple[EnvState, Any, Array], _: None) -> tuple[tuple[EnvState, Any, Array], Any]:
        before, policy_state, alive = carry
        policy_state, action = policy.act(policy_state, *env.spec.split(before.obs))
        _require_action(env.spec, action)
        state, alive, step_record = _advance(env, vmap, watch, before, action, alive)
        return (state, policy_state, alive), step_record

    start = (first, _for_all(policy, policy.init(key_policy), env.spec.split(first.obs)), jnp.ones(num_episodes, bool))
    _, step_record = jax.lax.scan(step, start, None, episode_length)
    return _record(env.spec, watch, first, step_record)


def _for_all(policy: Policy, state: Any, inputs: tuple[Array, Array]) -> Any:
    """Give a policy's first state the shapes that it has after a step: `init` does not know how many episodes run."""
    if not jax.tree.leaves(state):
        return state
    after = jax.eval_shape(policy.act, state, *inputs)[0]

    def leaf(first: Array, like: Any) -> Array:
        return first if first.shape == like.shape else jnp.broadcast_to(first, like.shape)

    return jax.tree.map(leaf, state, after)


@dataclass(frozen=True)
class Deployment:
    """Set where policies are evaluated, on how many episodes and for how long."""

    env: Environment
    num_episodes: int
    episode_length: int
    vmap: Vmap = jax.vmap

    def episodes(self, policy: Policy, key: Array) -> Record:
        return rollout(self.env, policy, key, self.num_episodes, self.episode_length, self.vmap)


def _require_action(spec: EnvSpec, action: Array) -> None:
    """Refuse a policy whose actions have another size: one number would be broadcast over all of the action."""
    if action.shape[-1] != spec.action_size:
        raise UserError(f"the policy's actions have {action.shape[-1]} numbers, but {spec.name}'s {spec.action_size}")


def _advance(
    env: Environment, vmap: Vmap, watch: Watch, before: EnvState, action: Array, alive: Array
) -> tuple[EnvState, Array, Any]:
    """Take one step of N episodes. -> state, alive before the next step, and what is kept of this one"""
    after, sound = vmap(partial(step_and_check, env))(before, action)
    state = choose(sound, after, before)
    counts = alive & sound  # [N]
    saturated = jnp.mean(jnp.abs(action) > SATURATED, axis=-1)  # [N]
    steps = (state.near_goal & counts, counts, alive & ~sound, saturated, jnp.sign(action).astype(jnp.int8))
    return state, counts & ~state.done, (steps, _distance_to_goal(env.spec, state.obs), jax.vmap(watch)(state))


def _distance_to_goal(spec: EnvSpec, obs: Array) -> Array:
    """[..., S + G] -> [...]"""
    state, goal = spec.split(obs)
    return jnp.linalg.norm(spec.achieved(state) - goal, axis=-1)


def _record(spec: EnvSpec, watch: Watch, first: EnvState, step_records: Any) -> Record:
    steps, distance, watched = step_records  # [T, N, ...]; the last two also have a value for the first state
    at_first = (_distance_to_goal(spec, first.obs), jax.vmap(watch)(first))
    whole = jax.tree.map(lambda one, rest: jnp.concatenate([one[None], rest]), at_first, (distance, watched))
    return Record(first.obs, whole[0], *steps, watched=whole[1])


def _by_host(
    env: Environment, policy: Policy, keys: tuple[Array, Array], sizes: tuple[int, int], vmap: Vmap, watch: Watch
) -> Record:
    """Take the same steps with one program call each, and call the policy in between."""
    num_episodes, episode_length = sizes
    make = _host_programs if isinstance(env, Hashable) else _host_programs.__wrapped__
    reset, step = make(env, vmap, watch)
    state = first = reset(jax.random.split(keys[0], num_episodes))
    policy_state, alive = policy.init(keys[1]), jnp.ones(num_episodes, bool)
    step_records = []
    for _ in range(episode_length):
        policy_state, action = policy.act(policy_state, *env.spec.split(state.obs))
        _require_action(env.spec, action)
        state, alive, step_record = step(state, action, alive)
        step_records.append(step_record)
    return _record(env.spec, watch, first, jax.tree.map(lambda *x: jnp.stack(x), *step_records))


@lru_cache(maxsize=4)
def _host_programs(env: Environment, vmap: Vmap, watch: Watch) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return jax.jit(vmap(env.reset)), jax.jit(partial(_advance, env, vmap, watch))


class Measures(NamedTuple):
    """Hold measures of N episodes of T steps. An episode that never reaches its goal has a first reach of 0."""

    start: np.ndarray  # [N, S + G]: the first observations
    time_near_goal: np.ndarray  # [N]: steps within the threshold
    first_reach: np.ndarray  # [N]: the step that first came within it, from 1; 0 if none did
    final_distance: np.ndarray  # [N]
    start_distance: np.ndarray  # [N]: in a straight line
    saturation: np.ndarray  # [N]: share of action components beyond 0.95
    action_flips: np.ndarray  # [N]: share of action components that change sign from one step to the next
    diverged: np.ndarray  # [N]
    steps: np.ndarray  # [N]: steps that counted
    cumulative_reach: np.ndarray  # [T]: share of episodes that were near their goal by this step

    @property
    def success(self) -> np.ndarray:
        """[N]"""
        return self.first_reach > 0

    def summary(self) -> dict[str, float]:
        """Return one number for each measure. The first four are those of metrics.csv."""
        reached, pairs = self.first_reach[self.success], np.maximum(self.steps - 1, 0)
        return {
            **training_scores(self),
            "saturation": float(np.sum(self.saturation * self.steps) / max(np.sum(self.steps), 1)),
            "action_flips": float(np.sum(self.action_flips * pairs) / max(np.sum(pairs), 1)),
            "median_first_reach": float(np.median(reached)) if len(reached) else float("nan"),
        }


def measure(record: Record) -> Measures:
    near, alive = np.asarray(record.near_goal), np.asarray(record.alive)  # [T, N]
    distance = np.asarray(record.distance, np.float64)  # [T + 1, N]
    steps = alive.sum(axis=0)  # [N]: the index of each episode's final state
    reached = np.logical_or.accumulate(near, axis=0)  # [T, N]
    saturated = np.where(alive, np.asarray(record.saturated, np.float64), 0.0)
    return Measures(
        start=np.asarray(record.start),
        time_near_goal=near.sum(axis=0),
        first_reach=np.where(near.any(axis=0), near.argmax(axis=0) + 1, 0),
        final_distance=np.take_along_axis(distance, steps[None], axis=0)[0],
        start_distance=distance[0],
        saturation=saturated.sum(axis=0) / np.maximum(steps, 1),
        action_flips=action_flips(np.asarray(record.signs), alive),
        diverged=np.any(np.asarray(record.diverged), axis=0, keepdims=True)[0],
        steps=steps,
        cumulative_reach=reached.mean(axis=1),
    )


def action_flips(actions: np.ndarray, alive: np.ndarray) -> np.ndarray:
    """Return the share [N] of action components [T, N, A] that change sign from one step to the next: chatter.

    A zero between two signs hides no change. Steps that are not `alive` [T, N] do not count.
    """
    last, flips = np.sign(actions[0]), np.zeros(alive.shape[1])
    for now, counts in zip(np.sign(actions[1:]), alive[1:], strict=True):
        flips += np.mean(now * last < 0, axis=-1) * counts
        last = np.where(now, now, last)
    return flips / np.maximum(alive.sum(axis=0) - 1, 1)


def training_scores(measures: Measures) -> dict[str, float]:
    """Return the columns of metrics.csv. Success is a fraction."""
    return {
        "time_near_goal": float(np.mean(measures.time_near_goal)),
        "success_once": float(np.mean(measures.success)),
        "final_distance": float(np.mean(measures.final_distance)),
        "eval_diverged_episodes": int(np.sum(measures.diverged)),
    }
