"""`dcp record`: the data set that Minari itself reads back holds the very episodes that `dcp eval` measures."""

import os
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from dcp.cli.main import main
from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.interop.minari import Recorded, record_episodes, write_dataset
from dcp.lab.targets import open_target
from dcp.lab.trial import arena_for, evaluate
from dcp.policies.wrappers import HostPolicy
from tests.support.toys import LineWorld

minari = pytest.importorskip("minari")
pytest.importorskip("h5py")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


def test_a_policys_episodes_are_written_and_read_back_by_minari(tiny_run, folder: Path, capsys):
    argv = ["record", str(tiny_run.folder), "--episodes", "3", "--seeds", "0", "5", "--out", str(folder)]
    assert main(argv) == 0
    assert "Wrote dcp/point_u_maze/dcp-v0: 6 episodes, 1,500 steps" in capsys.readouterr().out
    dataset = minari.load_dataset("dcp/point_u_maze/dcp-v0")
    assert (dataset.total_episodes, dataset.total_steps) == (6, 1500)
    episodes = list(dataset)
    trial = evaluate(tiny_run.folder, episodes=3, seeds=(0, 5)).all
    for i, episode in enumerate(episodes):
        seen = episode.observations
        start = np.concatenate([seen["observation"][0], seen["desired_goal"][0]])
        np.testing.assert_array_equal(start, trial.start[i])
        gap = np.linalg.norm(seen["achieved_goal"] - seen["desired_goal"], axis=-1)
        np.testing.assert_allclose(gap[-1], trial.final_distance[i], atol=1e-4)
        assert (episode.rewards.sum() > 0) == trial.success[i] == episode.infos["is_success"][-1]
        assert not episode.terminations.any() and episode.truncations.tolist() == [False] * 249 + [True]
    assert main(argv) == 2
    assert "the data set dcp/point_u_maze/dcp-v0 already exists: name another" in capsys.readouterr().err


def test_the_actions_lead_from_each_observation_to_the_next(tiny_run):
    target = open_target(tiny_run.folder)
    (episode,) = record_episodes(arena_for(target, episodes=1, episode_length=12), target.policy)
    env = make_env("point_u_maze")
    state, step = env.reset(jax.random.key(0)), jax.jit(env.step)
    for before, action, after in zip(episode.obs, episode.actions, episode.obs[1:], strict=False):
        state = step(state._replace(obs=before), action)
        np.testing.assert_allclose(state.obs, after, atol=1e-6)
    assert episode.actions.shape == (12, 2) and np.abs(episode.actions).max() > 0.0


def test_minari_makes_the_environment_again(tiny_run):
    assert (
        main(["record", str(tiny_run.folder), "--episodes", "1", "--dataset", "dcp/mine-v0", "--reward", "minus_one"])
        == 0
    )
    dataset = minari.load_dataset("dcp/mine-v0")
    env = dataset.recover_environment()
    assert env.spec.id == "dcp/PointUMaze-v0" and env.spec.max_episode_steps == 250
    assert env.observation_space == dataset.observation_space and env.action_space == dataset.action_space
    assert set(np.unique(dataset[0].rewards)) <= {-1.0, 0.0}


def test_an_end_by_the_environment_is_a_termination_and_a_policy_of_the_host_is_recorded_too():
    steps = np.arange(4, dtype=np.float32)
    obs = np.stack([steps, np.full(4, 3.0, np.float32)], -1)
    whole = Recorded(7, obs, np.zeros((3, 1), np.float32), np.array([False, False, True]), True)
    dataset = write_dataset("hand/made-v0", LineWorld(), iter([whole]))
    (episode,) = dataset
    assert episode.terminations.tolist() == [False, False, True] and not episode.truncations.any()
    assert episode.rewards.tolist() == [0.0, 0.0, 1.0]
    assert episode.infos["is_success"].tolist() == [False, False, False, True]
    target = open_target(HostPolicy(lambda state, goal: np.ones((len(state), 1))))
    recorded = list(record_episodes(arena_for(target, LineWorld(), episodes=2, episode_length=3), target.policy))
    assert [len(one.actions) for one in recorded] == [3, 3] and np.all(recorded[0].actions == 1.0)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "nothing to record: name a run's folder"),
        (["{run}", "--dataset", "a b"], "'a b' is not a name for a data set: write it as dcp/ant_u_maze/name-v0"),
        (["{run}", "--reward", "dense"], "unknown value 'dense' for --reward: choose one of zero_one, minus_one"),
    ],
)
def test_a_mistake_is_one_sentence(argv: list[str], sentence: str, tiny_run, capsys):
    assert main(["record", *(arg.format(run=tiny_run.folder) for arg in argv)]) == 2
    assert sentence in capsys.readouterr().err


def test_without_minari_the_sentence_names_the_extra(tiny_run, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    assert main(["record", str(tiny_run.folder)]) == 2
    assert capsys.readouterr().err == "dcp: recording needs Minari: pip install '.[minari]' in a clone of dcp\n"
    with pytest.raises(UserError):
        write_dataset("a/b-v0", LineWorld(), iter([]))
    assert os.environ["MINARI_DATASETS_PATH"]
