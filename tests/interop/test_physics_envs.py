"""The simulated bodies through Gymnasium. Each compiles for half a minute or more, so all of this is slow."""

import gymnasium
import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.gym import EPISODE_STEPS, gymnasium_id
from dcp.interop.goal_env import GoalEnv
from tests.support.checking import checked

pytestmark = pytest.mark.slow

BODIES = [name for name in EPISODE_STEPS if not name.startswith("point")]


@pytest.mark.parametrize("name", BODIES)
def test_gymnasiums_checker_has_nothing_to_say(name: str):
    fps = next((fps for start, fps in (("humanoid", 67), ("so101", 30)) if name.startswith(start)), 20)
    assert checked(name).metadata["render_fps"] == fps


@pytest.mark.parametrize("name", ["ant_u_maze", "humanoid_u_maze", "ant_push", "ant_soccer", "pusher_easy"])
def test_an_episode_is_the_pure_environments_and_its_rewards_equal_the_recomputed_ones(name: str):
    """The start bit for bit. A step is compiled with the judgement of its soundness, so its last bits may differ."""
    pure, env = make_env(name), gymnasium.make(gymnasium_id(name))
    observation, _ = env.reset(seed=3)
    state = jax.jit(pure.reset)(jax.random.fold_in(jax.random.key(3), 0))
    assert_array_equal(joined(observation), np.asarray(state.obs))
    step, rng = jax.jit(pure.step), np.random.default_rng(0)
    for _ in range(5):
        action = rng.uniform(-1.0, 1.0, env.action_space.shape).astype(np.float32)
        observation, reward, terminated, _, info = env.step(action)
        state = step(state, action)
        assert_allclose(joined(observation), np.asarray(state.obs), rtol=1e-4, atol=1e-4)
        assert info["near_goal"] == bool(state.near_goal) and terminated == bool(state.done)
        anew = env.unwrapped.compute_reward(observation["achieved_goal"], observation["desired_goal"], info)
        assert reward == anew == float(state.near_goal)


def joined(observation: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([observation["observation"], observation["desired_goal"]])


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        ("ant_u_maze", [4.5, 8.0]),
        ("humanoid_u_maze", [2.25, 4.0, 1.25]),
        ("ant_push", [15.0, 7.0]),
        ("ant_soccer", [1.0, -3.0]),
        ("pusher_easy", [0.45, -0.3, -0.323]),
    ],
)
def test_a_goal_can_be_asked_for(name: str, goal: list[float]):
    env = GoalEnv(name)
    drawn, _ = env.reset(seed=1)
    asked, _ = env.reset(seed=1, options={"goal": goal})
    assert_allclose(asked["desired_goal"], goal, atol=1e-5)
    if name != "humanoid_u_maze":  # in paper fidelity the humanoid's state holds the target
        assert_array_equal(asked["observation"], drawn["observation"])
    after = env.step(np.zeros(env.action_space.shape))[0]
    assert_allclose(after["desired_goal"], goal, atol=1e-3)


def test_a_goal_above_the_plane_of_goals_is_refused():
    with pytest.raises(UserError, match="humanoid_u_maze cannot have the goal"):
        GoalEnv("humanoid_u_maze").reset(seed=1, options={"goal": [2.0, 4.0, 9.0]})


def test_a_vector_of_ants_is_ants():
    """The engine's sums run along another axis for N, so bits may differ; contact makes the difference grow."""
    envs, singles = gymnasium.make_vec("dcp/AntUMaze-v0", num_envs=4), [GoalEnv("ant_u_maze") for _ in range(4)]
    first, _ = envs.reset(seed=5)
    firsts = [env.reset(seed=5 + i)[0] for i, env in enumerate(singles)]
    assert_array_equal(first["observation"], [one["observation"] for one in firsts])
    rng = np.random.default_rng(0)
    for _ in range(5):
        action = rng.uniform(-1.0, 1.0, (4, 8)).astype(np.float32)
        told = envs.step(action)
        each = [env.step(action[i]) for i, env in enumerate(singles)]
        assert_allclose(told[0]["observation"], [one[0]["observation"] for one in each], rtol=1e-3, atol=1e-3)
        assert_array_equal(told[0]["desired_goal"], [one[0]["desired_goal"] for one in each])
        assert_array_equal(told[2], [one[2] for one in each])


def test_ants_that_fall_start_again():
    """Full torque throws an ant over within an episode: some of 16 end early, and go on from a start."""
    envs = gymnasium.make_vec("dcp/AntUMaze-v0", num_envs=16)
    envs.reset(seed=0)
    rng = np.random.default_rng(0)
    ended = np.zeros(16, bool)
    for _ in range(200):
        observation, _, terminated, truncated, _ = envs.step(rng.choice([-1.0, 1.0], (16, 8)))
        height = observation["observation"][:, 2]
        assert np.all((height[ended] > 0.4) & (height[ended] < 0.7))  # a start's height is 0.55, and its noise
        assert np.all(np.isfinite(observation["observation"]))
        ended = terminated | truncated
        if np.any(terminated) and np.any(~terminated):
            break
    else:
        pytest.fail("no ant fell in 200 steps")
    observation, reward, terminated, truncated, _ = envs.step(np.zeros((16, 8)))
    assert np.all((observation["observation"][ended, 2] > 0.4) & (observation["observation"][ended, 2] < 0.7))
    assert not np.any(reward[ended]) and not np.any(terminated[ended])
