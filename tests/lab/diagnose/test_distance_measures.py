"""Distances and regimes: curves by hand, and agents whose psi is the plane."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.testing import assert_allclose

from dcp.config import Config
from dcp.lab.diagnose.distance_measures import hindsight_pairs, over_training, rank_correlation, regime, words_of
from dcp.lab.diagnose.results import draw_regime
from dcp.lab.diagnose.visited_states import Study, gather, truth_of
from tests.support.agents import EYE, OPEN, STRETCH, known_agent
from tests.support.fake_runs import write_run


@pytest.fixture(scope="module")
def study() -> Study:
    policy = known_agent()
    return Study(policy, OPEN, Config(), truth_of(OPEN.spec), gather(OPEN, policy, 0, 8, 60, 32), 0)


def test_z_lies_at_a_quarter_of_the_way_where_s_to_z_is_a_third_of_z_to_g():
    """1 / (1 + 3), and 0 where z is s."""
    columns = {"env_steps": [10, 20], "success_once": [0.0, 0.5], "cells_visited": [0.2, 0.4]}
    metrics = {name: np.array(column) for name, column in columns.items()}
    found = over_training(
        {**metrics, "state_to_subgoal": np.array([1.0, 0.0]), "subgoal_to_goal": np.array([3.0, 2.0])}
    )
    assert found["place_of_z"] == [0.25, 0.0] and found["coverage"] == [0.2, 0.4]
    assert "place_of_z" not in over_training(metrics)
    pooled = {**metrics, "pool_coverage": np.array([0.1, 0.3])}
    del pooled["cells_visited"]
    assert over_training(pooled)["coverage"] == [0.1, 0.3]


@pytest.mark.parametrize(
    ("coverage", "place", "distance", "words"),
    [
        ([0.2, 0.3, 0.4, 0.5], [0.5, 0.5], None, "its coverage still grows; z lies between s and g"),
        ([0.4, 0.4, 0.42, 0.4], [0.5, 0.8], None, "its coverage has stopped growing; z lies near g"),
        ([0.4, 0.95], [0.5, 0.1], [0.8, 0.9], "its coverage is nearly full; z lies near s; the goal moves away in psi"),
        ([], [], [0.9, 0.8], "the goal draws nearer in psi"),
        ([], [], None, "unknown"),
    ],
)
def test_the_regime_in_words(coverage: list[float], place: list[float], distance: list[float] | None, words: str):
    numbers = {} if distance is None else {"distance": distance}
    assert words_of({"coverage": coverage, "place_of_z": place}, numbers).startswith(words)


def test_an_agent_that_goes_straight_is_nearer_to_its_goal_late_in_an_episode_whatever_psis_scale(study: Study):
    numbers, _ = regime(study)
    assert numbers["late_distance"]["mean"] < 0.7 * numbers["early_distance"]["mean"]
    assert 0.0 < numbers["cells_in_episodes"] <= 1.0 and numbers["words"] == "unknown"
    assert any("no metrics.csv" in note for note in study.notes)
    axes = Figure().add_subplot()
    draw_regime(axes, {"regime": numbers, "drawn": {"regime": {}}})
    heights = [bar.get_height() for bar in axes.patches]  # pyright: ignore[reportAttributeAccessIssue]
    assert heights == [numbers[name]["mean"] for name in ("early_distance", "late_distance")]
    larger, _ = regime(replace(study, policy=known_agent(3.0 * EYE), notes=[]))
    assert_allclose(larger["early_distance"]["mean"], numbers["early_distance"]["mean"], rtol=1e-5)


def test_kept_policies_are_compared_at_the_same_states(study: Study, tmp_path: Path):
    """The first has the last one's psi, so nothing moves; one that stretches y measures other distances."""
    folder = write_run(tmp_path, "point_u_maze", "dcp", 0, [100, 200], [0.1, 0.2])
    for steps, matrix in ((100, EYE), (200, EYE), (300, STRETCH)):
        known_agent(matrix).save(folder / "policies" / f"{steps:09d}.safetensors", env_steps=steps)
    numbers, drawn = regime(replace(study, folder=folder, notes=[]))
    kept = drawn["kept"]
    assert kept["env_steps"] == [100.0, 200.0, 300.0]
    assert kept["distance"][0] == kept["distance"][1] != kept["distance"][2]
    assert numbers["distance"] == [kept["distance"][0], kept["distance"][2]]
    visits = study.visits
    other = visits.achieved[np.random.default_rng(0).permutation(len(visits.at))]
    apart, to_goal = (np.linalg.norm(x, axis=1) for x in (visits.achieved - other, visits.achieved - visits.goal))
    by_hand = [np.mean(to_goal[visits.episode == h]) / apart.mean() for h in np.unique(visits.episode)]
    assert min(by_hand) < kept["distance"][0] < max(by_hand)
    assert_allclose(kept["distance"][0], to_goal.mean() / apart.mean(), rtol=1e-4)


def test_the_order_of_points_on_a_curve():
    x, episodes = np.arange(6.0), np.arange(6)
    assert rank_correlation(x, np.exp(x), episodes).mean == pytest.approx(1.0)
    assert rank_correlation(x, -x, episodes).mean == pytest.approx(-1.0)
    assert np.isnan(rank_correlation(x, np.ones(6), episodes).mean)


def walk(path: list[float], reached: int = -1) -> SimpleNamespace:
    """One episode on a line, as visits."""
    spec = SimpleNamespace(achieved=lambda states: states, threshold=0.5)
    states = np.array(path)[:, None, None]  # [T + 1, 1, 1]
    return SimpleNamespace(spec=spec, states=states, reached=np.array([reached]), ends=np.array([len(path) - 1]))


def test_hindsight_counts_the_steps_until_the_agent_was_first_there():
    """0 1 2 3 3 3 3: from 0 to the last state it takes 3 steps, though 6 lie between; 3 to 3 is no way at all."""
    pairs = hindsight_pairs(walk([0.0, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0]), seed=0)
    assert (pairs.steps == np.minimum(pairs.end, 3) - pairs.start).all()
    assert len(pairs.steps) and pairs.steps.min() == 1 and pairs.steps.max() == 3


def test_hindsight_ends_with_the_first_success():
    pairs = hindsight_pairs(walk([0.0, 1.0, 2.0, 9.0, 1.0], reached=2), seed=0)
    assert pairs.end.max() == 2
