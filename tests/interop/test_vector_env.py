"""Many environments as one program: each of them the single environment, episode for episode."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import DictInfoToList, RecordEpisodeStatistics
from numpy.testing import assert_array_equal

from dcp.errors import UserError
from dcp.interop.goal_env import GoalVectorEnv
from tests.support.toys import BrittleLine, LineWorld

NAN = float("nan")
ID = "dcp/PointUMazeInertia-v0"


def test_it_is_one_program_and_says_how_it_resets():
    envs = gymnasium.make_vec("dcp/PointUMaze-v0", num_envs=5)
    assert type(envs) is GoalVectorEnv and envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    observation, _ = envs.reset(seed=0)
    assert observation in envs.observation_space
    assert envs.single_action_space.shape == (2,) and envs.action_space.shape == (5, 2)


def test_each_is_the_single_environment_through_several_episodes():
    """Gymnasium's own vector of single environments is the judge. Episodes of 7 steps: some end within 30."""
    ours = gymnasium.make_vec(ID, num_envs=3, max_episode_steps=7)
    theirs = SyncVectorEnv([lambda: gymnasium.make(ID, max_episode_steps=7)] * 3)
    rng = np.random.default_rng(0)
    told, expected = (list(envs.reset(seed=11)) for envs in (ours, theirs))
    for _ in range(30):
        for key, part in expected[0].items():
            assert_array_equal(told[0][key], part)
        for mine, other in zip(told[1:-1], expected[1:-1], strict=True):  # rewards, terminations, truncations
            assert_array_equal(mine, other)
        for key in ("near_goal", "is_success", "done", "diverged"):
            assert_array_equal(told[-1][key], expected[-1][key])
        action = rng.uniform(-1.0, 1.0, (3, 2)).astype(np.float32)
        told, expected = ours.step(action), theirs.step(action)


def test_the_step_after_an_end_is_the_next_episodes_first():
    """By 1, by 2 and by 0 toward 3, which ends past 4.5; five steps an episode. A reset's step is worth nothing."""
    envs = GoalVectorEnv(LineWorld(goal=3.0, edge=4.5), num_envs=3, max_episode_steps=5)
    envs.reset(seed=0)
    told = [envs.step([[1.0], [2.0], [0.0]]) for _ in range(8)]
    x = np.stack([step[0]["observation"][:, 0] for step in told]).T
    assert_array_equal(x, [[1, 2, 3, 4, 5, 0, 1, 2], [2, 4, 6, 0, 2, 4, 6, 0], [0, 0, 0, 0, 0, 0, 0, 0]])
    rewards, terminations, truncations = (np.stack([step[i] for step in told]).T.astype(int) for i in (1, 2, 3))
    assert_array_equal(rewards, [[0, 0, 1, 0, 0, 0, 0, 0], [0] * 8, [0] * 8])
    assert_array_equal(terminations, [[0, 0, 0, 0, 1, 0, 0, 0], [0, 0, 1, 0, 0, 0, 1, 0], [0] * 8])
    assert_array_equal(truncations, [[0, 0, 0, 0, 1, 0, 0, 0], [0] * 8, [0, 0, 0, 0, 1, 0, 0, 0]])
    success = np.stack([step[4]["is_success"] for step in told]).T.astype(int)
    assert_array_equal(success, [[0, 0, 1, 1, 1, 0, 0, 0], [0] * 8, [0] * 8])


def test_the_step_of_a_reset_is_worth_nothing_under_either_reward():
    envs = GoalVectorEnv(LineWorld(goal=3.0), num_envs=1, reward="minus_one", max_episode_steps=2)
    envs.reset(seed=0)
    assert [float(envs.step([[1.0]])[1][0]) for _ in range(4)] == [-1.0, -1.0, 0.0, -1.0]


def test_one_that_diverges_does_not_affect_the_others():
    envs = GoalVectorEnv(BrittleLine(NAN), num_envs=3, max_episode_steps=-1)
    envs.reset(seed=0)
    told = [envs.step([[0.0], [1.0], [2.0]]) for _ in range(4)]
    x = np.stack([step[0]["observation"][:, 0] for step in told]).T
    assert_array_equal(x, [[0, 0, 0, 0], [1, 2, 2, 0], [2, 2, 0, 2]])  # the second 2 is where the episode ended
    ends = np.stack([step[2] for step in told]).T
    assert_array_equal(ends, np.stack([step[4]["diverged"] for step in told]).T)
    assert_array_equal(ends, np.array([[0, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]], bool))


def test_seeds_for_each_and_goals_for_each():
    envs = gymnasium.make_vec("dcp/PointUMaze-v0", num_envs=3)
    by_list, _ = envs.reset(seed=[4, 5, 6])
    by_one, _ = envs.reset(seed=4)
    assert_array_equal(by_list["observation"], by_one["observation"])
    kept, _ = envs.reset(seed=[4, None, 6])
    assert_array_equal(kept["observation"][[0, 2]], by_one["observation"][[0, 2]])
    assert np.any(kept["observation"][1] != by_one["observation"][1])  # its next episode
    goals = np.array([[1.0, 1.0], [1.0, 2.0], [3.0, 3.0]], np.float32)
    assert_array_equal(envs.reset(options={"goal": goals})[0]["desired_goal"], goals)
    assert_array_equal(envs.reset(options={"goal": goals[1]})[0]["desired_goal"], goals[[1, 1, 1]])


def test_wrong_use_is_refused_in_a_sentence():
    with pytest.raises(UserError, match="num_envs is 0"):
        GoalVectorEnv("point_u_maze", num_envs=0)
    envs = GoalVectorEnv("point_u_maze", num_envs=3)
    with pytest.raises(UserError, match="reset the environments before their first step"):
        envs.step(np.zeros((3, 2)))
    with pytest.raises(UserError, match="2 seeds for 3 environments"):
        envs.reset(seed=[1, 2])
    envs.reset(seed=0)
    with pytest.raises(UserError, match="takes actions of shape \\(3, 2\\), not \\(2, 2\\)"):
        envs.step(np.zeros((2, 2)))
    with pytest.raises(UserError, match="shape \\(2, 2\\) does not fit"):
        envs.reset(options={"goal": np.ones((2, 2))})


def test_gymnasiums_wrappers_fit_around_it():
    envs = DictInfoToList(RecordEpisodeStatistics(gymnasium.make_vec(ID, num_envs=2, max_episode_steps=3)))
    envs.reset(seed=0)
    infos = [envs.step(np.zeros((2, 2)))[-1] for _ in range(3)][-1]
    assert [int(info["episode"]["l"]) for info in infos] == [3, 3]


def test_each_has_its_own_picture():
    envs = gymnasium.make_vec("dcp/PointUMaze-v0", num_envs=2, render_mode="rgb_array")
    envs.reset(seed=0, options={"goal": [[1.0, 2.0], [3.0, 3.0]]})
    pictures = envs.render()
    assert len(pictures) == 2 and all(p.dtype == np.uint8 and p.shape[2] == 3 for p in pictures)
    assert np.any(pictures[0] != pictures[1])
    envs.close()
