"""Deployment measured: the deterministic policy on fresh environments and goals."""

import jax
import jax.numpy as jnp

from dcp.deploy.policy import Policy
from dcp.envs.base import Environment, EnvState
from dcp.types import Array, Metrics


def rollout(
    env: Environment, policy: Policy, key: Array, num_episodes: int, episode_length: int
) -> tuple[Array, Metrics]:
    """-> observations [T + 1, N, S + G], per-step near_goal and alive [T, N]

    An episode that ends early adds nothing after its end: `alive` tells which steps count.
    """
    key_reset, key_policy = jax.random.split(key)
    first = jax.vmap(env.reset)(jax.random.split(key_reset, num_episodes))
    alive = jnp.ones(num_episodes, bool)

    def step(carry: tuple[EnvState, object, Array], _: None) -> tuple[tuple[EnvState, object, Array], Metrics]:
        state, policy_state, alive = carry
        policy_state, action = policy.act(policy_state, *env.spec.split(state.obs))
        state = jax.vmap(env.step)(state, action)
        seen = {"obs": state.obs, "near_goal": state.near_goal & alive, "alive": alive}
        return (state, policy_state, alive & ~state.done), seen

    _, seen = jax.lax.scan(step, (first, policy.init(key_policy), alive), None, episode_length)
    observations = jnp.concatenate([first.obs[None], seen.pop("obs")])
    return observations, seen


def evaluate(env: Environment, policy: Policy, key: Array, num_episodes: int, episode_length: int) -> Metrics:
    """The paper's two metrics, and how far from the goal episodes end. Success is a fraction."""
    observations, seen = rollout(env, policy, key, num_episodes, episode_length)
    state, goal = env.spec.split(observations)  # [T + 1, N, ...]
    last = jnp.sum(seen["alive"], axis=0)  # [N]: index of each episode's final observation
    gap = jnp.linalg.norm(env.spec.achieved(state) - goal, axis=-1)  # [T + 1, N]
    return {
        "time_near_goal": jnp.mean(jnp.sum(seen["near_goal"], axis=0)),
        "success_once": jnp.mean(jnp.any(seen["near_goal"], axis=0)),
        "final_distance": jnp.mean(jnp.take_along_axis(gap, last[None, :], axis=0)),
    }
