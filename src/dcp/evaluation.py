"""Deployment measured: the deterministic policy on fresh environments and goals."""

from functools import partial

import jax
import jax.numpy as jnp

from dcp.deploy.policy import Policy
from dcp.envs.base import Environment, EnvState, judged_step
from dcp.envs.devices import ONE_DEVICE, Split
from dcp.envs.episodes import choose
from dcp.types import Array, Metrics


def rollout(
    env: Environment, policy: Policy, key: Array, num_episodes: int, episode_length: int, split: Split = ONE_DEVICE
) -> tuple[Array, Metrics]:
    """-> observations [T + 1, N, S + G], per-step near_goal, alive and diverged [T, N]

    An episode that ends early adds nothing after its end: `alive` tells which steps count. A step that diverges
    counts no more, and the environment stands still at its last sound state.
    """
    key_reset, key_policy = jax.random.split(key)
    split = split.that_divides(num_episodes)
    first = split.batched(env.reset)(jax.random.split(key_reset, num_episodes))
    alive = jnp.ones(num_episodes, bool)

    def step(carry: tuple[EnvState, object, Array], _: None) -> tuple[tuple[EnvState, object, Array], Metrics]:
        before, policy_state, alive = carry
        policy_state, action = policy.act(policy_state, *env.spec.split(before.obs))
        after, sound = split.batched(partial(judged_step, env))(before, action)
        state = choose(sound, after, before)
        counts = alive & sound
        seen = {"obs": state.obs, "near_goal": state.near_goal & counts, "alive": counts, "diverged": alive & ~sound}
        return (state, policy_state, counts & ~state.done), seen

    _, seen = jax.lax.scan(step, (first, policy.init(key_policy), alive), None, episode_length)
    observations = jnp.concatenate([first.obs[None], seen.pop("obs")])
    return observations, seen


def evaluate(
    env: Environment, policy: Policy, key: Array, num_episodes: int, episode_length: int, split: Split = ONE_DEVICE
) -> Metrics:
    """The paper's two metrics, how far from the goal episodes end, and how many diverged. Success is a fraction."""
    observations, seen = rollout(env, policy, key, num_episodes, episode_length, split)
    state, goal = env.spec.split(observations)  # [T + 1, N, ...]
    last = jnp.sum(seen["alive"], axis=0)  # [N]: index of each episode's final observation
    gap = jnp.linalg.norm(env.spec.achieved(state) - goal, axis=-1)  # [T + 1, N]
    return {
        "time_near_goal": jnp.mean(jnp.sum(seen["near_goal"], axis=0)),
        "success_once": jnp.mean(jnp.any(seen["near_goal"], axis=0)),
        "final_distance": jnp.mean(jnp.take_along_axis(gap, last[None, :], axis=0)),
        "eval_diverged_episodes": jnp.sum(seen["diverged"]),
    }
