"""A run whose environments diverge all the time: the replay stays clean and every one is counted."""

from functools import cache

import numpy as np
import pytest

from dcp.algorithm import RunState
from dcp.envs.registry import ENVIRONMENTS
from dcp.errors import UserError
from dcp.runs.training import train
from tests.support.tiny import tiny_config
from tests.support.toys import BrittleLine

LENGTH = 300  # no episode of the 250 steps ends by time


@cache
def brittle_run(fidelity: str) -> tuple[list[dict[str, float]], RunState]:
    config = tiny_config(env="tests.support.toys:BrittleLine", method="crl", fidelity=fidelity, episode_length=LENGTH)
    run = train(config, runs_dir=None, display="none")
    return run.rows, run.state


@pytest.mark.parametrize("fidelity", ["paper", "fixed"])
def test_nothing_that_is_not_finite_is_stored_and_episodes_split_where_one_diverged(fidelity: str):
    _, run = brittle_run(fidelity)
    rows = run.replay.rows
    size = int(run.replay.size)
    assert size == 250
    state, ids = np.asarray(rows.state)[:size, :, 0], np.asarray(rows.episode_id)[:size]  # [T, N]
    assert np.all(np.isfinite(state)) and np.all(np.isfinite(rows.action))
    assert state.max() <= 2.5
    splits = np.diff(ids, axis=0)
    assert set(np.unique(splits)) == {0, 1}
    assert np.all(state[1:][splits == 1] == 0.0)  # what follows is the first state
    before = (state[:-1] + np.asarray(rows.action)[: size - 1, :, 0])[splits == 1]
    assert np.all(before > 2.5)  # the state that never appears


@pytest.mark.parametrize("fidelity", ["paper", "fixed"])
def test_every_diverged_episode_is_counted_once_between_two_evaluations(fidelity: str):
    """No episode ends otherwise, so the episodes' numbers say how many; 6 unrolls of 25 before the first evaluation."""
    rows, run = brittle_run(fidelity)
    ids = np.asarray(run.replay.rows.episode_id)
    assert [row["diverged_episodes"] for row in rows] == [
        ids[150].sum(),
        np.asarray(run.acting.episodes.episode_id).sum() - ids[150].sum(),
    ]
    assert rows[0]["diverged_episodes"] > 5
    assert all(np.isfinite(value) for row in rows for value in row.values())


def test_an_environment_whose_first_states_are_not_finite_is_refused(monkeypatch):
    monkeypatch.setitem(ENVIRONMENTS, "broken_line", lambda: BrittleLine(spread=float("nan")))
    with pytest.raises(UserError, match="reset of broken_line"):
        train(tiny_config(env="broken_line", method="crl", episode_length=LENGTH), runs_dir=None, display="none")
