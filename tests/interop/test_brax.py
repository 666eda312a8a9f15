"""Our environments as Brax's: the same steps, Brax's own wrappers around them, and Brax's own PPO and SAC on an ant."""

from functools import partial
from typing import Any

import brax.envs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dcp
from dcp.envs.base import EnvState, sparse_state
from dcp.envs.registry import ENVIRONMENTS, make_env
from dcp.errors import UserError
from dcp.interop.brax import BraxEnv, mend_trainers, register
from dcp.types import Array, EnvSpec

NEAR_BY = {"episode_length": 40, "num_eval_envs": 8, "num_evals": 2, "seed": 0}


@pytest.mark.parametrize("key", [jax.random.key, jax.random.PRNGKey])  # Brax's trainers use the second
def test_its_episodes_are_the_pure_environments(key):
    env, ours = BraxEnv("point_u_maze"), make_env("point_u_maze")
    state, pure = jax.jit(env.reset)(key(3)), jax.jit(ours.reset)(jax.random.key(3))
    np.testing.assert_array_equal(state.obs, pure.obs)
    for action in jax.random.uniform(jax.random.key(0), (3, 2), minval=-1.0):
        state, pure = jax.jit(env.step)(state, action), jax.jit(ours.step)(pure, action)
        np.testing.assert_array_equal(state.obs, pure.obs)
        assert (state.reward, state.done) == (pure.near_goal, pure.done)
    assert (env.observation_size, env.action_size, env.backend) == (4, 2, "none")
    assert (env.state_dim, env.goal_indices.tolist(), env.goal_reach_thresh) == (2, [0, 1], ours.spec.threshold)


class Walk:
    """x in [0, 3], the goal at 3, a step of 1; beyond 3 it blows up."""

    spec = EnvSpec("walk", 1, 1, 1, goal_dims=(0,), threshold=0.5, episode_length=4)

    def reset(self, key: Array) -> EnvState:
        return sparse_state(self.spec, jnp.zeros(1), jnp.full((1,), 3.0))

    def step(self, state: EnvState, action: Array) -> EnvState:
        x = state.obs[:1] + 1.0
        return sparse_state(self.spec, jnp.where(x > 3.0, jnp.nan, x), state.obs[1:])


@pytest.mark.parametrize(
    ("reward", "of_steps"), [("zero_one", [0, 0, 1, 1]), ("minus_one", [-1, -1, 0, 0]), ("distance", [-2, -1, 0, 0])]
)
def test_rewards_and_a_step_that_diverges(reward: Any, of_steps: list[float]):
    """The fourth step diverges: done, and the state before it stays."""
    env = BraxEnv(Walk(), reward=reward)
    state = env.reset(jax.random.key(0))
    seen = []
    for _ in range(4):
        state = env.step(state, jnp.zeros(1))
        seen.append((float(state.reward), float(state.done), float(state.metrics["diverged"])))
    assert seen == [(float(r), float(i == 3), float(i == 3)) for i, r in enumerate(of_steps)]
    assert state.obs.tolist() == [3.0, 3.0] and float(state.metrics["dist"]) == 0.0


def test_brax_makes_it_by_name_and_its_wrappers_reset_it():
    names = register()
    assert set(names) == {f"dcp/{name}" for name in ENVIRONMENTS}
    env = brax.envs.create("dcp/point_u_maze", episode_length=2, batch_size=3, reward="distance")
    first = state = jax.jit(env.reset)(jax.random.PRNGKey(0))
    step = jax.jit(env.step)
    for done in (0.0, 1.0):
        state = step(state, jnp.ones((3, 2)))
        assert state.done.tolist() == [done] * 3
    np.testing.assert_array_equal(state.obs, first.obs)  # each its own first state
    np.testing.assert_array_equal(state.info["truncation"], np.ones(3))
    assert np.all(state.reward < 0.0)


def test_an_unknown_reward_is_one_sentence():
    with pytest.raises(UserError, match="unknown reward 'dense': choose one of zero_one, minus_one, distance"):
        BraxEnv("point_u_maze", reward="dense")  # pyright: ignore[reportArgumentType]


def trained(agent: str, env: BraxEnv, **settings: Any) -> tuple[Any, Any, list[dict[str, Any]]]:
    from brax.training.agents.ppo import train as ppo
    from brax.training.agents.sac import train as sac

    mend_trainers()
    train, told = {"ppo": ppo.train, "sac": sac.train}[agent], []
    with jax.numpy_rank_promotion("allow"):  # the tests forbid it; Brax's learners do it
        make_policy, params, _ = train(
            environment=env, progress_fn=lambda steps, metrics: told.append(metrics), **{**NEAR_BY, **settings}
        )
    return make_policy, params, told


PPO = {"num_envs": 8, "unroll_length": 5, "batch_size": 8, "num_minibatches": 2, "num_updates_per_batch": 2}
SAC = {"num_envs": 8, "batch_size": 32, "min_replay_size": 64, "max_replay_size": 512, "grad_updates_per_step": 2}


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "settings"), [("ppo", PPO), ("sac", SAC)])
def test_braxs_own_trainers_train_on_an_ant_in_a_maze(agent: str, settings: dict[str, Any]):
    env = BraxEnv("ant_u_maze", reward="distance")
    make_policy, params, told = trained(agent, env, num_timesteps=400, **settings)
    assert len(told) == 2
    for metrics in told:
        assert np.isfinite(metrics["eval/episode_reward"]) and metrics["eval/episode_diverged"] == 0.0
        assert metrics["eval/avg_episode_length"] > 1
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
    with jax.numpy_rank_promotion("allow"):
        action, _ = make_policy(params, deterministic=True)(jnp.zeros((3, 31)), jax.random.PRNGKey(0))
    assert action.shape == (3, 8)


@pytest.mark.slow
def test_ppo_learns_to_come_near_and_dcp_evaluates_its_policy():
    """The lines of docs/other_libraries.md: minus the distance as reward, then our measures on our episodes."""
    sizes = {**PPO, "num_envs": 64, "unroll_length": 10, "batch_size": 64, "num_minibatches": 8}
    settings = {**sizes, "discounting": 0.97, "learning_rate": 1e-3, "entropy_cost": 1e-2, "reward_scaling": 0.1}
    make_policy, params, told = trained(
        "ppo", BraxEnv("point_u_maze", reward="distance"), num_timesteps=300_000, num_eval_envs=64, **settings
    )
    rewards = [float(metrics["eval/episode_reward"]) for metrics in told]
    assert rewards[-1] > 0.7 * rewards[0]  # both are negative: the distance shrank
    act = jax.jit(partial(make_policy(params, deterministic=True), key_sample=jax.random.PRNGKey(0)))
    with jax.numpy_rank_promotion("allow"):
        trial = dcp.evaluate(lambda state, goal: act(np.concatenate([state, goal], -1))[0], "point_u_maze", episodes=32)
    assert trial.all.success.mean() > 0.2
