import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dcp.analysis.episodes import Path
from dcp.analysis.landscape import psi_distances
from dcp.analysis.landscape_figure import landscapes_figure
from dcp.analysis.landscape_view import (
    colour_ranges,
    drawn,
    goal_of,
    hardly_moved,
    maze_env,
    plane_of,
    rollouts_for,
    told_apart,
    view,
)
from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.evaluation.targets import Target, open_target
from tests.toys import LineWorld

ENV = "point_u_maze_eval"


@pytest.fixture(scope="module")
def target(policy):
    return Target("runs/here", policy, (2, 2, 2), {"env": ENV, "method": "dcp", "seed": 3})


@pytest.fixture(scope="module")
def plain(target):
    """Without episodes."""
    return view(target, make_env(ENV), rollouts=0, per_cell=8)


def walked(plain, policy, values, label="dcp, seed 3"):
    """As if its episodes had seen these distances."""
    path = Path(np.array([[1.0, 1.0], [1.0, 2.0]]), plain.landscape.goal, None)
    return dataclasses.replace(plain, paths=(path,), visited=np.asarray(values, float), label=label)


def test_a_view_has_the_far_goal_and_the_name_of_its_run(plain):
    assert_array_equal(plain.landscape.goal, [3.0, 1.0])
    assert (plain.label, plain.env, plain.sees_direction) == ("dcp, seed 3", ENV, True)
    assert plain.paths == () and plain.visited is None
    assert -1.0 < plain.likeness.order < 1.0


def test_episodes_are_drawn_up_to_their_success_and_their_distances_are_psi_s(target, policy, monkeypatch):
    points = np.array([[1.0, 1.0], [1.0, 2.0], [3.0, 1.05], [3.0, 1.0]])

    def two(env, policy, goal, count, length):
        assert (count, length) == (2, 250)
        return [Path(points, goal, 2), Path(points, goal, None)]

    monkeypatch.setattr("dcp.analysis.landscape_view.paths_toward", two)
    found = view(target, make_env(ENV), rollouts=2, per_cell=8)
    assert [len(path.points) for path in found.paths] == [3, 4]
    goal = np.array([3.0, 1.0])
    assert_allclose(found.visited, psi_distances(policy, np.concatenate([points[:3], points]), goal), rtol=1e-6)
    assert_array_equal(drawn(Path(points, goal, 1)).points, points[:2])


def test_colours_span_the_visited_percentiles_of_each_panel_or_of_all(plain, policy):
    a, b = walked(plain, policy, np.arange(101.0)), walked(plain, policy, 1000.0 + np.arange(101.0))
    assert_allclose(colour_ranges([a, b], "panel"), [(1.0, 99.0), (1001.0, 1099.0)])
    both = np.percentile(np.concatenate([a.visited, b.visited]), [1.0, 99.0])
    assert_allclose(colour_ranges([a, b], "common"), [both, both])
    space = np.percentile(plain.landscape.distance.compressed(), [1.0, 99.0])
    assert_allclose(colour_ranges([a, plain], "space"), [space, space])
    assert_allclose(colour_ranges([plain], "panel"), [space])  # without episodes


def test_an_agent_that_stood_still_has_colours_all_the_same(plain, policy):
    stuck = walked(plain, policy, np.full(5, 2.0))
    assert colour_ranges([stuck]) == [(1.5, 2.5)]
    assert hardly_moved(walked(plain, policy, [2.0, 2.0001]))
    assert not hardly_moved(walked(plain, policy, plain.landscape.distance.compressed()))
    assert not hardly_moved(plain)


def test_runs_stand_side_by_side_with_the_truth_first_and_say_what_their_actor_sees(plain, policy):
    raw = dataclasses.replace(walked(plain, policy, [0.1, 0.5], "crl, seed 0"), sees_direction=False)
    figure = landscapes_figure([plain, raw])
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles[0].startswith(f"{ENV}\nstraight line")
    assert titles[1].startswith("dcp, seed 3\n") and titles[2].startswith("crl, seed 0\n")
    assert titles[4].startswith("what its actor sees") and titles[5].startswith("its actor sees g instead")
    assert f"{plain.likeness.basin:.0%}" in titles[4]


def test_many_runs_and_several_mazes_take_several_rows(plain, target):
    other = view(target, make_env("point_big_maze"), rollouts=0, per_cell=8)
    figure = landscapes_figure([plain, other, plain, plain, plain, plain], with_directions=False)
    titled = [axes.get_subplotspec().rowspan.start for axes in figure.axes if axes.get_title()]
    rows = [titled.count(row) for row in range(3)]
    assert rows == [5, 1, 2]  # four beside the truth and the fifth below; then the big maze with its own truth


@pytest.mark.parametrize("count", [1, 3])
def test_nothing_is_cut_off_beside_one_run_or_several(plain, policy, count):
    """The legend is the widest thing beside a single run; titles are the highest."""
    walk = walked(plain, policy, [0.1, 0.5], "dcp, seed 0\n…/zoo/runs/point_u_maze/dcp/seed_0")
    figure = landscapes_figure([walk] * count)
    figure.draw_without_rendering()
    inside = figure.bbox.padded(1.0)
    for part in (figure.legends[0], *(axes.title for axes in figure.axes)):
        box = part.get_window_extent()
        assert inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1, part


def test_runs_of_one_name_bear_their_paths(plain):
    targets = [Target("runs/a", None), Target("runs/b", None)]
    assert [v.label for v in told_apart([plain, plain], targets)] == ["dcp, seed 3\nruns/a", "dcp, seed 3\nruns/b"]
    other = dataclasses.replace(plain, label="crl, seed 3")
    assert [v.label for v in told_apart([plain, other], targets)] == ["dcp, seed 3", "crl, seed 3"]


def test_physics_is_not_compiled_unless_it_is_asked_for():
    ant = make_env("ant_u_maze").spec
    assert rollouts_for(ant, None) == 0
    assert rollouts_for(ant, 3) == 3
    assert rollouts_for(make_env(ENV).spec, None) == 6
    with pytest.raises(UserError, match="0 or more"):
        rollouts_for(ant, -1)


def test_what_cannot_be_seen_is_one_sentence(policy):
    with pytest.raises(UserError, match="has no landscape"):
        plane_of(LineWorld().spec)
    with pytest.raises(UserError, match="has no landscape"):
        maze_env(Target("p", dataclasses.replace(policy), (20, 3, 7)), "pusher_easy")
    with pytest.raises(UserError, match="holds no psi"):
        maze_env(open_target(lambda state, goal: state))
    env = make_env(ENV)
    with pytest.raises(UserError, match="lies in a wall"):
        goal_of(env, (2.0, 1.0))
    with pytest.raises(UserError, match="has 2 numbers, not 3"):
        goal_of(env, (2.0, 1.0, 1.0))
