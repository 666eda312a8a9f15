"""Intervals, pairs and files of `dcp eval`, by hand."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.evaluation import Measures
from dcp.lab.evaluation_results import as_csv, as_json, estimates, paired, write
from dcp.lab.trial import Trial


def measures(first_reach: list[int], near: list[int], start: np.ndarray | None = None) -> Measures:
    n = len(first_reach)
    starts = np.tile(np.float32([1.0, 1.0, 3.0, 1.0]), (n, 1)) if start is None else start
    steps, zeros = np.full(n, 5), np.zeros(n)
    reach = np.array([np.mean([0 < f <= t for f in first_reach]) for t in range(1, 6)])
    return Measures(
        starts,
        np.array(near),
        np.array(first_reach),
        zeros,
        np.full(n, 2.0),
        zeros,
        zeros,
        zeros.astype(bool),
        steps,
        reach,
    )


def test_the_first_reach_is_of_the_episodes_that_reached():
    assert estimates(measures([2, 4, 0], [3, 1, 0]))["first_reach"].mean == 3.0
    assert math.isnan(estimates(measures([0, 0], [0, 0]))["first_reach"].mean)


def test_pairs_are_won_tied_and_lost_episode_by_episode():
    gain = paired(measures([0, 0, 3, 2], [0, 0, 1, 4]), measures([5, 0, 0, 2], [1, 0, 0, 2]))
    assert (gain.wins, gain.ties, gain.losses) == (1, 2, 1)
    assert gain.success_once.mean == 0.0
    assert gain.time_near_goal.mean == -0.5  # +1, 0, -1, -2


def test_a_gain_is_after_minus_before():
    """0, 0, 1, 1 reached before; 1, 1, 1, 0 after: +1, +1, 0, -1."""
    gain = paired(measures([0, 0, 3, 2], [0, 0, 1, 4]), measures([5, 4, 3, 0], [1, 2, 3, 0]))
    assert (gain.wins, gain.ties, gain.losses) == (2, 1, 1)
    assert gain.success_once.mean == 0.25
    assert gain.time_near_goal.mean == 0.25  # +1, +2, +2, -4


def test_different_episodes_are_never_paired():
    other = np.tile(np.float32([1.0, 1.0, 2.0, 3.0]), (1, 1))
    with pytest.raises(UserError, match="different episodes"):
        paired(measures([1], [1]), measures([1], [1], other))


@pytest.fixture
def trial() -> Trial:
    spec = make_env("point_u_maze").spec
    return Trial(spec, 5, (0, 7), (measures([2, 0], [3, 0]), measures([4, 1], [1, 5])))


def test_distances_in_a_maze_are_along_its_paths(trial: Trial):
    """From (1, 1) round the U to (3, 1): six cells; straight it is two."""
    kind, lengths = trial.distances
    assert kind == "path"
    assert lengths.tolist() == [6.0] * 4
    assert trial.all.start_distance.tolist() == [2.0] * 4


def test_seeds_are_put_together_episode_by_episode(trial: Trial):
    assert trial.all.first_reach.tolist() == [2, 0, 4, 1]
    assert_allclose(trial.all.cumulative_reach, [0.25, 0.5, 0.5, 0.75, 0.75])


def test_the_json_holds_what_the_table_shows_and_null_for_what_is_not_known(trial: Trial, tmp_path: Path):
    never = Trial(trial.spec, 5, (0,), (measures([0], [0]),))
    json_path, csv_path = write(tmp_path, "name", as_json(never, {"policy": "p"}), as_csv(never))
    stored = json.loads(json_path.read_text())
    assert stored["summary"]["first_reach"]["mean"] is None
    assert stored["summary"]["success_once"]["mean"] == 0.0
    assert stored["cumulative_reach"] == [0.0] * 5
    assert stored["seeds"][0]["goal_set_sha256"] == never.goal_sets()[0]
    assert csv_path.parent == tmp_path / "evals"


def test_the_csv_has_one_row_an_episode_with_its_goal(trial: Trial):
    header, *rows = [line.split(",") for line in as_csv(trial).splitlines()]
    assert len(rows) == 4
    last = dict(zip(header, rows[-1], strict=True))
    assert (last["seed"], last["episode"], last["success"], last["first_reach"]) == ("7", "1", "1", "1")
    assert (float(last["distance"]), float(last["goal_0"]), float(last["goal_1"])) == (6.0, 3.0, 1.0)


def test_a_folder_that_cannot_be_written_gives_one_sentence(trial: Trial, tmp_path: Path):
    (tmp_path / "evals").write_text("in the way")
    with pytest.raises(UserError, match="--out"):
        write(tmp_path, "name", as_json(trial, {}), as_csv(trial))
