"""Stable-Baselines3 on our environments, and its models in our evaluation."""

import importlib.util
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.evaluation import measure, rollout
from dcp.interop.goal_env import policy_of
from dcp.policies.wrappers import HostPolicy

EXAMPLE = Path(__file__).parents[2] / "examples" / "sb3_her.py"
SPEC = make_env("point_u_maze_inertia").spec


class TowardGoal:
    """What a model is to us: spaces, and predict. This one goes straight to the goal."""

    def __init__(self, env_id: str = "dcp/PointUMazeInertia-v0"):
        env = gymnasium.make(env_id)
        self.observation_space, self.action_space = env.observation_space, env.action_space

    def predict(self, observation: dict[str, np.ndarray], deterministic: bool) -> tuple[np.ndarray, None]:
        assert deterministic
        return np.clip(observation["desired_goal"] - observation["achieved_goal"], -1.0, 1.0), None


def test_a_model_becomes_a_plain_function_of_states_and_goals():
    act = policy_of(TowardGoal(), SPEC)
    state = np.array([[1.0, 1.0, 9.0, 9.0], [1.0, 2.0, 9.0, 9.0]])
    assert_allclose(act(state, np.array([[1.5, 1.0], [1.0, 0.0]])), [[0.5, 0.0], [0.0, -1.0]])


def test_our_evaluation_takes_a_model():
    """Goals in sight of the start are reached by going straight there."""
    env, policy = make_env("point_u_maze_inertia"), HostPolicy(policy_of(TowardGoal(), SPEC))
    record = rollout(env, policy, jax.random.key(0), num_episodes=64, episode_length=40)
    measures = measure(record)
    near = measures.start_distance < 1.2
    assert near.any() and np.all(measures.success[near])


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (TowardGoal("dcp/PointUMaze-v0"), "the model's observation has shape \\(2,\\), but point_u_maze_inertia has 4"),
        (SimpleNamespace(observation_space=gymnasium.spaces.Box(0, 1, (4,))), "the model takes no goal dictionary"),
    ],
)
def test_a_model_of_another_environment_is_refused(model: Any, sentence: str):
    with pytest.raises(UserError, match=sentence):
        policy_of(model, SPEC)


def example() -> ModuleType:
    pytest.importorskip("stable_baselines3", reason="the extra `interop` is not installed: make test-all installs it")
    spec = importlib.util.spec_from_file_location("sb3_her", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("name", ["point_u_maze", "ant_u_maze"])
def test_sac_with_hindsight_goals_trains_unmodified(name: str):
    her = example()
    model = her.train(name, 2000)
    assert model.num_timesteps == 2000 and model._n_updates == 1000  # one a step after the first thousand
    replay = model.replay_buffer.sample(256)
    recomputed = model.env.env_method(
        "compute_reward", replay.next_observations["achieved_goal"], replay.next_observations["desired_goal"], {}
    )[0]
    assert_array_equal(replay.rewards.numpy()[:, 0], recomputed)
    assert set(np.unique(recomputed)) == {-1.0, 0.0}  # hindsight goals are reached, drawn ones hardly

    env = make_env(name)
    act = policy_of(model, env.spec)
    state, goal = env.spec.split(np.asarray(jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 8)).obs))
    actions = act(state, goal)
    assert actions.shape == (8, env.spec.action_size) and np.all(np.abs(actions) <= 1.0)
    one = {"observation": state[3], "achieved_goal": env.spec.achieved(state[3]), "desired_goal": goal[3]}
    assert_allclose(actions[3], model.predict(one, deterministic=True)[0], atol=1e-5)


@pytest.mark.slow
def test_stable_baselines_own_checker_has_nothing_to_say():
    example()
    from stable_baselines3.common.env_checker import check_env

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make("dcp/PointUMaze-v0").unwrapped)
