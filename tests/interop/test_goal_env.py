"""An environment of ours through Gymnasium: what it was before, and what HER's users expect."""

import gymnasium
import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dcp.envs.base import sparse_state
from dcp.envs.mazes import PointMaze
from dcp.envs.registry import make_env
from dcp.errors import RunError, UserError
from dcp.gym import EPISODE_STEPS
from dcp.interop import goal_task
from dcp.interop.goal_env import GoalEnv
from tests.support.checking import checked
from tests.support.toys import BrittleLine, LineWorld

POINT = [name for name in EPISODE_STEPS if name.startswith("point")]
NAN = float("nan")


def point(**kwargs) -> gymnasium.Env:
    return gymnasium.make("dcp/PointUMaze-v0", **kwargs)


def actions(env: gymnasium.Env, steps: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1.0, 1.0, (steps, *env.action_space.shape)).astype(np.float32)


@pytest.mark.parametrize("name", POINT)
def test_gymnasiums_checker_has_nothing_to_say(name: str):
    assert checked(name).metadata["render_modes"] == ["rgb_array"]


@pytest.mark.parametrize("seed", [0, 7, 2**32 + 7])
def test_an_episode_is_the_pure_environments_bit_for_bit(seed: int):
    """Episode k of seed s starts from env.reset(fold_in(key(s), k)); seeds beyond 32 bits have keys of their own."""
    pure, env = make_env("point_u_maze_inertia"), gymnasium.make("dcp/PointUMazeInertia-v0")
    reset, step = jax.jit(pure.reset), jax.jit(pure.step)
    for episode in range(2):
        observation, _ = env.reset(seed=seed if episode == 0 else None)
        key = jax.random.key(seed) if seed < 2**32 else jax.random.wrap_key_data(np.array([1, 7], np.uint32))
        state = reset(jax.random.fold_in(key, episode))
        for action in actions(env, 20, seed % 100):
            joined = np.concatenate([observation["observation"], observation["desired_goal"]])
            assert_array_equal(joined, np.asarray(state.obs))
            observation, reward, *_, info = env.step(action)
            state = step(state, action)
            assert reward == float(state.reward) and info["near_goal"] == bool(state.near_goal)


def test_the_same_seed_is_the_same_episode_and_another_is_another():
    def starts(seed: int) -> np.ndarray:
        env = point()
        return np.stack([env.reset(seed=seed)[0]["observation"], env.reset()[0]["observation"]])

    assert_array_equal(starts(3), starts(3))
    assert len(np.unique(np.concatenate([starts(3), starts(4)]), axis=0)) == 4
    unseeded = [tuple(point().reset()[0]["observation"].tolist()) for _ in range(2)]
    assert unseeded[0] != unseeded[1]


@pytest.mark.parametrize(("reward", "away"), [("zero_one", 0.0), ("minus_one", -1.0)])
def test_the_reward_of_a_step_equals_the_recomputed_one(reward: str, away: float):
    env = gymnasium.make("dcp/PointUMaze-v0", reward=reward).unwrapped
    achieved, desired, rewards, infos = [], [], [], []
    first, _ = env.reset(seed=1)
    start = first["observation"] + np.array([0.3, 0.0], np.float32)
    env.reset(seed=1, options={"goal": np.round(start)})  # the start's own cell: a walk about it is near now and then
    for action in actions(env, 60):
        observation, one, _, _, info = env.step(action)
        achieved.append(observation["achieved_goal"])
        desired.append(observation["desired_goal"])
        rewards.append(one)
        infos.append(info)
        assert env.compute_reward(achieved[-1], desired[-1], info) == one
    anew = env.compute_reward(np.stack(achieved), np.stack(desired), infos)
    assert anew.dtype == np.float32
    assert_array_equal(anew, rewards)
    assert_array_equal(np.float32(away) + [info["near_goal"] for info in infos], rewards)
    assert {away, away + 1.0} == set(rewards)


def test_rewards_by_hand():
    """A point maze's threshold is 0.125."""
    env = GoalEnv("point_u_maze")
    goals = np.zeros((2, 3, 2), np.float32)
    achieved = np.array([[[0, 0], [0.1, 0], [0, -0.12]], [[0.1, 0.1], [3, 0], [0.125, 0]]], np.float32)
    assert_array_equal(env.compute_reward(achieved, goals, {}), [[1, 1, 1], [0, 0, 0]])
    assert_array_equal(GoalEnv("point_u_maze", reward="minus_one").compute_reward(achieved, goals, {})[0], [0, 0, 0])


def test_info_reports_success_and_an_early_end():
    """By 1 toward 3: near the goal at 3 alone. Success is to have been there; past 4.5 the world ends."""
    env = GoalEnv(LineWorld(goal=3.0, edge=4.5))
    env.reset(seed=0)
    told = [env.step([1.0]) for _ in range(5)]
    assert [float(step[0]["achieved_goal"][0]) for step in told] == [1, 2, 3, 4, 5]
    assert [step[1] for step in told] == [0, 0, 1, 0, 0]
    assert [step[2] for step in told] == [False, False, False, False, True]
    assert not any(step[3] for step in told)
    infos = [step[4] for step in told]
    assert [info["near_goal"] for info in infos] == [False, False, True, False, False]
    assert [info["is_success"] for info in infos] == [False, False, True, True, True]
    assert [env.compute_terminated(np.zeros(1), np.zeros(1), info) for info in infos] == [step[2] for step in told]
    assert_array_equal(env.compute_terminated(np.zeros((5, 1)), np.zeros((5, 1)), infos), [step[2] for step in told])
    assert env.compute_truncated(np.zeros(1), np.zeros(1), infos[0]) is False
    assert env.reset()[1]["is_success"] is False


class JudgedLate(LineWorld):
    """As the pusher in paper fidelity: a step is near the goal if it started there."""

    def step(self, state, action):
        return (
            super()
            .step(state, action)
            ._replace(near_goal=sparse_state(self.spec, *self.spec.split(state.obs)).near_goal)
        )


def test_the_reward_is_of_where_a_step_leads_even_if_the_environment_judges_late():
    env = GoalEnv(JudgedLate(goal=2.0))
    env.reset(seed=0)
    told = [env.step([1.0]) for _ in range(4)]
    assert [step[1] for step in told] == [0, 1, 0, 0]
    assert [step[4]["near_goal"] for step in told] == [False, False, True, False]


@pytest.mark.parametrize("where", ["obs", "qd"])
def test_a_step_that_diverges_ends_the_episode_at_the_last_sound_state(where: str):
    env = GoalEnv(BrittleLine(NAN, where))  # past 2.5 it breaks
    env.reset(seed=0)
    env.step([2.0])
    observation, reward, terminated, truncated, info = env.step([1.0])
    assert observation["observation"] == [2.0] and observation["achieved_goal"] == [2.0]
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert info == {"near_goal": False, "is_success": False, "done": False, "diverged": True}
    assert env.compute_terminated(observation["achieved_goal"], observation["desired_goal"], info) is True
    assert env.reset()[1]["diverged"] is False


def test_an_action_that_is_no_number_reaches_no_observation():
    env = point()
    before, _ = env.reset(seed=0)
    observation, _, terminated, _, info = env.step(np.array([NAN, 0.0], np.float32))
    assert_array_equal(observation["observation"], before["observation"])
    assert terminated and info["diverged"]


class BrokenStart(LineWorld):
    def reset(self, key):
        return super().reset(key)._replace(obs=np.full(2, NAN, np.float32))


def test_a_start_that_is_not_finite_is_refused():
    with pytest.raises(RunError, match="line_world draws a first state that is not finite"):
        GoalEnv(BrokenStart()).reset(seed=0)


def test_the_time_limit_is_the_environments_own():
    env = point()
    env.reset(seed=0)
    ends = [env.step(np.zeros(2, np.float32))[2:4] for _ in range(250)]
    assert ends == [(False, False)] * 249 + [(False, True)]


def test_a_goal_can_be_asked_for_and_the_start_stays():
    env = gymnasium.make("dcp/PointBigMazeInertia-v0")
    drawn, _ = env.reset(seed=5)
    asked, info = env.reset(seed=5, options={"goal": [1.25, 2.0]})
    assert_array_equal(asked["desired_goal"], np.array([1.25, 2.0], np.float32))
    assert_array_equal(asked["observation"], drawn["observation"])
    assert not info["near_goal"]
    assert_array_equal(env.step(np.zeros(2))[0]["desired_goal"], asked["desired_goal"])
    assert env.reset(seed=5, options={"goal": asked["achieved_goal"]})[1]["near_goal"]


@pytest.mark.parametrize(
    ("goal", "sentence"),
    [
        ([1.0, 2.0, 3.0], "a goal of point_u_maze has 2 numbers: shape \\(3,\\) does not fit"),
        (1.0, "has 2 numbers"),
        ([[1.0, 2.0]], "has 2 numbers"),
        ("there", "the goal must be 2 numbers, not 'there'"),
        ([NAN, 1.0], "a NaN or an infinity"),
        ([2.0, 1.0], "lies in a wall of point_u_maze or outside it"),
        ([-70.0, 1.0], "lies in a wall of point_u_maze or outside it"),
    ],
)
def test_a_goal_that_cannot_be_is_refused_and_nothing_moves(goal, sentence: str):
    env, twin = point(), point()
    env.reset(seed=0)
    twin.reset(seed=0)
    with pytest.raises(UserError, match=sentence):
        env.reset(options={"goal": goal})
    assert_array_equal(env.reset()[0]["observation"], twin.reset()[0]["observation"])


def test_a_goal_that_lives_where_nobody_can_reach_it_is_refused():
    with pytest.raises(UserError, match="brittle_line keeps its goal where it cannot be set"):
        GoalEnv(BrittleLine()).reset(options={"goal": [1.0]})


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"reward": "dense"}, "unknown reward 'dense': choose 'zero_one' or 'minus_one'"),
        ({"fidelity": "exact"}, "unknown fidelity 'exact': choose 'paper' or 'fixed'"),
        ({"render_mode": "ansi"}, "unknown render_mode 'ansi'"),
        ({"env": "point_u_mase"}, "did you mean 'point_u_maze'"),
    ],
)
def test_a_wrong_setting_is_refused_in_a_sentence(wrong: dict[str, str], sentence: str):
    with pytest.raises(UserError, match=sentence):
        GoalEnv(**({"env": "point_u_maze"} | wrong))


def test_a_wrong_call_is_refused_in_a_sentence():
    env = GoalEnv("point_u_maze")
    with pytest.raises(UserError, match="reset the environment before its first step"):
        env.step(np.zeros(2))
    env.reset(seed=0)
    with pytest.raises(UserError, match="takes actions of shape \\(2,\\), not \\(3,\\)"):
        env.step(np.zeros(3))
    with pytest.raises(UserError, match="render_mode='rgb_array'"):
        env.render()
    with pytest.raises(UserError, match="unknown option 'gaol'"):
        env.reset(options={"gaol": [1.0, 1.0]})
    with pytest.raises(UserError, match="reset the environment before it is rendered"):
        GoalEnv("point_u_maze", render_mode="rgb_array").render()


def test_fidelity_reaches_the_task():
    sizes = [GoalEnv("humanoid_u_maze", fidelity=f).observation_space["observation"].shape for f in ("paper", "fixed")]
    assert sizes == [(268,), (246,)]


def test_a_user_may_write_into_what_is_returned():
    env = point()
    observation, _ = env.reset(seed=0)
    kept = observation["observation"].copy()
    for part in observation.values():
        part[:] = 99.0
    assert_allclose(env.step(np.zeros(2))[0]["observation"], kept)


def test_the_second_instance_compiles_nothing(monkeypatch: pytest.MonkeyPatch):
    traces = []
    plain = PointMaze.step
    monkeypatch.setattr(PointMaze, "step", lambda *args: (traces.append(1), plain(*args))[1])
    goal_task._shared.cache_clear()
    for seed in range(3):
        env = point()
        env.reset(seed=seed)
        env.step(env.action_space.sample())
        env.step(env.action_space.sample())
    assert len(traces) == 1
    goal_task._shared.cache_clear()
