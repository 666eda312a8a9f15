"""Landscapes of known representations, their likeness with the true paths, and their figures."""

import dataclasses
import json
import shutil
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from dcp.envs.mazes import BIG, U, parse_layout
from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.lab.episodes import Episode, directions, pulled_back
from dcp.lab.landscape_figure import draw_landscape, landscape_sections, landscapes_figure
from dcp.lab.psi_landscape import (
    basin,
    colour_ranges,
    goal_of,
    hardly_moved,
    leads_nearer,
    likeness,
    maze_env,
    plane_of,
    psi_distances,
    psi_landscape,
    rank_correlation,
    rollouts_for,
    straight_line,
    true_landscape,
    view,
    with_paths_in_labels,
)
from dcp.lab.run_collection import collect
from dcp.lab.targets import Target, open_target
from tests.support.toys import LineWorld
from tests.support.untrained import untrained_policy

GOAL = np.array([3.0, 1.0])


def test_the_landscape_is_the_distance_of_psi_at_each_point(policy):
    landscape = psi_landscape(policy, parse_layout(U, 1.0), GOAL, per_cell=4)
    psi = policy.representation.encode_goal
    for i, j in ((6, 6), (6, 9), (13, 13)):
        point = jnp.array([landscape.x[i], landscape.y[j]])
        assert landscape.distance[i, j] is not np.ma.masked
        assert_allclose(landscape.distance[i, j], jnp.linalg.norm(psi(point) - psi(jnp.asarray(GOAL))), rtol=1e-5)


def test_the_landscape_is_zero_at_the_goal_and_nowhere_else(policy):
    landscape = psi_landscape(policy, parse_layout(U, 4.0), 4.0 * GOAL, per_cell=4)
    at = np.argwhere(landscape.distance < 1e-5)
    assert_array_equal(at, [[14, 6]])  # cells from the corner: 3.5 and 1.5, four points each
    assert (landscape.x[14], landscape.y[6]) == (12.0, 4.0)


def test_the_direction_that_the_actor_sees_points_down_the_landscape(policy):
    """J^T u is minus the gradient of |psi(s) - psi(g)|: both are computed here, by different means."""
    points = np.array([[1.0, 1.0], [1.2, 2.7], [3.1, 2.0]])
    psi = policy.representation.encode_goal

    def distance(s):
        return jnp.linalg.norm(psi(s) - psi(jnp.asarray(GOAL, jnp.float32)))

    slope = np.stack([jax.grad(distance)(jnp.asarray(point, jnp.float32)) for point in points])
    pulled = pulled_back(policy, jnp.asarray(points, jnp.float32), jnp.asarray(GOAL, jnp.float32))
    assert_allclose(pulled, -slope, rtol=1e-4, atol=1e-6)
    shown = directions(policy, points, GOAL)
    assert_allclose(np.linalg.norm(shown, axis=1), 1.0, rtol=1e-6)
    assert_allclose(shown, -slope / np.linalg.norm(slope, axis=1, keepdims=True), rtol=1e-4, atol=1e-6)


def test_at_the_goal_itself_there_is_no_direction(policy):
    assert_array_equal(directions(policy, GOAL[None], GOAL), [[0.0, 0.0]])


def test_a_goal_s_height_is_the_same_everywhere(policy):
    """A stranger's goals may have three numbers: psi then reads the goal's third one at every point."""
    spec = dataclasses.replace(policy.spec, goal_size=3, state_size=3, goal_dims=(0, 1, 2))
    raised = untrained_policy(spec, seed=1, width=8, depth=1, repr_dim=4)
    psi = raised.representation.encode_goal
    apart = jnp.linalg.norm(psi(jnp.array([1.0, 2.0, 1.25])) - psi(jnp.array([3.0, 1.0, 1.25])))
    assert_allclose(psi_distances(raised, np.array([[1.0, 2.0]]), np.array([3.0, 1.0, 1.25])), [apart], rtol=1e-5)


def test_the_picture_is_oriented_as_the_text(policy):
    axes = Figure().add_subplot()
    landscape = psi_landscape(policy, parse_layout(U, 1.0), GOAL, per_cell=4)
    points = np.array([[1.0, 1.0], [1.0, 3.0], [3.0, 3.0], [3.0, 1.1], [3.0, 1.0]])
    draw_landscape(axes, landscape, [Episode(points, GOAL, None, reached=3)])
    assert axes.yaxis_inverted()  # row 0 above
    walls = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert len(walls) == "".join(U).count("#")
    assert (1.5, 2.5) in {(wall.get_y(), wall.get_y() + wall.get_height()) for wall in walls}
    goal = next(line for line in axes.lines if line.get_label() == "goal g")
    assert_array_equal(goal.get_xydata(), [[1.0, 3.0]])  # y to the right, x downwards
    assert_array_equal(axes.lines[0].get_xydata(), points[:4, ::-1])  # up to its success


GOAL = np.array([3.0, 1.0])
MAZE = parse_layout(U, 1.0)


@pytest.fixture(scope="module")
def truth():
    return true_landscape(MAZE, GOAL)


def field(values):
    return np.ma.masked_invalid(np.asarray(values, float))


def test_ranks_by_hand():
    # 1 - 6 * sum(d^2) / (n (n^2 - 1)), ranks 1 2 3 4 against 1 3 2 4: d^2 = 0 1 1 0
    assert_allclose(rank_correlation(field([10, 20, 30, 40]), field([1, 9, 4, 100])), 1 - 6 * 2 / (4 * 15))


def test_ties_share_their_rank_as_in_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 6, (2, 30, 7)).astype(float)
    b[3] = np.nan  # walls
    expected = stats.spearmanr(np.delete(a, 3, axis=0).ravel(), np.delete(b, 3, axis=0).ravel()).statistic
    assert_allclose(rank_correlation(field(a), field(b)), expected)


def test_points_that_no_path_leads_from_do_not_count():
    assert_allclose(rank_correlation(field([1, 2, 3, 0]), np.ma.masked_array([5.0, 6.0, 7.0, np.inf])), 1.0)


def test_a_field_without_an_order_has_no_correlation():
    assert np.isnan(rank_correlation(field([1, 1, 1]), field([1, 2, 3])))


def test_the_truth_is_like_itself(truth):
    assert_allclose(likeness(truth.landscape.distance, truth.directions, truth, 0.125), (1.0, 1.0, 1.0))


def test_the_shortest_way_at_the_start_leads_to_the_wall_s_end(truth):
    at = np.argmin(np.linalg.norm(truth.points - [1.125, 1.125], axis=1))
    assert_allclose(truth.points[at], [1.125, 1.125])
    to_corner = np.array([1.5, 2.5]) - truth.points[at]
    assert_allclose(truth.directions[at], to_corner / np.linalg.norm(to_corner))


def test_directions_lead_nearer_or_away(truth):
    assert leads_nearer(truth.directions, truth).all()
    assert not leads_nearer(-truth.directions, truth).any()
    assert_array_equal(len(truth.points), 7 * 16)  # free cells, four by four
    assert (
        len(true_landscape(parse_layout(BIG, 1.0), np.array([1.0, 2.0])).points) == 26 * 4
    )  # a large maze: two by two


def test_a_straight_line_s_basin_ends_at_the_wall(truth):
    """Going straight for g from the upper corridor ends at the wall's face above g, where nothing is nearer."""
    x, y = truth.landscape.x, truth.landscape.y
    gaps = np.ma.masked_array(np.hypot(x[:, None] - 3.0, y[None, :] - 1.0), truth.landscape.distance.mask)
    inside = basin(gaps, truth, 0.125)

    def there(point):
        return inside[np.argmin(np.abs(x - point[0])), np.argmin(np.abs(y - point[1]))]

    assert there((3.0, 3.0))
    assert there((2.0, 3.0))  # down the right side of the wall, and along
    assert not there((1.0, 1.0))
    assert not there((1.5, 1.0))
    assert not inside[truth.landscape.distance.mask].any()
    assert 0.5 < straight_line(truth, 0.125).basin < 0.75


def test_a_local_minimum_that_is_no_goal_keeps_its_basin(truth):
    x, y = truth.landscape.x, truth.landscape.y
    elsewhere = np.ma.masked_array(np.hypot(x[:, None] - 1.0, y[None, :] - 1.0), truth.landscape.distance.mask)
    assert not basin(elsewhere, truth, 0.125).any()
    assert_allclose(likeness(-truth.landscape.distance, -truth.directions, truth, 0.125), (-1.0, 0.0, 0.0), atol=1e-9)


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
    episode = Episode(np.array([[1.0, 1.0], [1.0, 2.0]]), plain.landscape.goal, None, None)
    return dataclasses.replace(plain, episodes=(episode,), visited=np.asarray(values, float), label=label)


def test_a_view_has_the_far_goal_and_the_name_of_its_run(plain):
    assert_array_equal(plain.landscape.goal, [3.0, 1.0])
    assert (plain.label, plain.env, plain.condition) == ("dcp, seed 3", ENV, "direction")
    assert plain.episodes == () and plain.visited is None
    assert -1.0 < plain.likeness.order < 1.0


def test_episodes_are_drawn_up_to_their_success_and_their_distances_are_psi_s(target, policy, monkeypatch):
    points = np.array([[1.0, 1.0], [1.0, 2.0], [3.0, 1.05], [3.0, 1.0]])

    def two(env, policy, goal, count, length):
        assert (count, length) == (2, 250)
        return [Episode(points, goal, None, 2), Episode(points, goal, None, None)]

    monkeypatch.setattr("dcp.lab.psi_landscape.play_toward", two)
    found = view(target, make_env(ENV), rollouts=2, per_cell=8)
    assert [len(episode.path) for episode in found.episodes] == [3, 4]
    goal = np.array([3.0, 1.0])
    assert_allclose(found.visited, psi_distances(policy, np.concatenate([points[:3], points]), goal), rtol=1e-6)


def test_colours_span_the_visited_percentiles_of_each_panel_or_of_all(plain, policy):
    a, b = walked(plain, policy, np.arange(101.0)), walked(plain, policy, 1000.0 + np.arange(101.0))
    assert not hardly_moved(a) and not hardly_moved(b)
    assert_allclose(colour_ranges([a, b], "panel"), [(1.0, 99.0), (1001.0, 1099.0)])
    both = np.percentile(np.concatenate([a.visited, b.visited]), [1.0, 99.0])
    assert_allclose(colour_ranges([a, b], "common"), [both, both])
    space = np.percentile(plain.landscape.distance.compressed(), [1.0, 99.0])
    assert_allclose(colour_ranges([a, plain], "space"), [space, space])
    assert_allclose(colour_ranges([plain], "panel"), [space])  # without episodes


def test_an_agent_that_stood_still_has_the_colours_of_its_free_space(plain, policy):
    """The one distance that it saw would leave a panel of two colours. Among others (common) nothing changes."""
    stuck = walked(plain, policy, np.full(5, 2.0))
    assert_allclose(colour_ranges([stuck]), colour_ranges([plain], "space"))
    assert colour_ranges([stuck], "common") == [(1.5, 2.5)]
    assert colour_ranges([stuck], "paper") == [(1.5, 2.5)]  # the paper's rule, for its own figure 4
    assert hardly_moved(walked(plain, policy, [2.0, 2.0001]))
    assert not hardly_moved(walked(plain, policy, plain.landscape.distance.compressed()))
    assert not hardly_moved(plain)


def test_runs_stand_side_by_side_with_the_truth_first_and_say_what_their_actor_sees(plain, policy):
    raw = dataclasses.replace(walked(plain, policy, [0.1, 0.5], "crl, seed 0"), condition="raw_goal")
    other = dataclasses.replace(raw, condition="gradient")
    assert [v.actor_sees for v in (plain, raw, other)] == ["the direction", "g itself", "gradient"]
    titles_of_other = [axes.get_title() for axes in landscapes_figure([other]).axes]
    assert any(title.startswith("its actor sees gradient instead") for title in titles_of_other)
    figure = landscapes_figure([plain, raw])
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles[0].startswith(f"{ENV}\nstraight line")
    assert titles[1].startswith("dcp, seed 3\n") and titles[2].startswith("crl, seed 0\n")
    assert titles[4].startswith("what its actor sees") and titles[5].startswith("its actor sees g instead")
    assert f"{plain.likeness.basin:.0%}" in titles[4]


def test_many_runs_and_several_mazes_take_several_rows(plain, target):
    other = view(target, make_env("point_big_maze"), rollouts=0, per_cell=8)
    figure = landscapes_figure([plain, other, plain, plain, plain, plain], with_directions=False)
    titled = [axes.get_position().y0 for axes in figure.axes if axes.get_title()]
    rows = [titled.count(bottom) for bottom in sorted(set(titled), reverse=True)]
    assert rows == [5, 1, 2]  # four beside the truth and the fifth below; then the big maze with its own truth


def test_panels_are_of_one_size_below_each_other_and_a_poor_order_is_explained(plain):
    """An order below the straight line's has a star in its title, and beside the legend the reason."""
    poor = replace(plain, likeness=plain.straight_line._replace(order=plain.straight_line.order - 0.1))
    figure = landscapes_figure([poor, plain])
    boxes = [axes.get_position() for axes in figure.axes if axes.get_title()]
    assert len(boxes) == 6 and len({(round(box.width, 6), round(box.height, 6)) for box in boxes}) == 1
    assert len({round(box.x0, 6) for box in boxes}) == 3 and len({round(box.y0, 6) for box in boxes}) == 2
    stars = [axes.get_title().endswith("*") for axes in figure.axes if axes.get_title()]
    assert stars == [False, True, plain.likeness.order < plain.straight_line.order, False, False, False]
    assert "psi says far and not how far" in " ".join(figure.legends[0].get_title().get_text().split())


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
    assert [v.label for v in with_paths_in_labels([plain, plain], targets)] == [
        "dcp, seed 3\nruns/a",
        "dcp, seed 3\nruns/b",
    ]
    other = dataclasses.replace(plain, label="crl, seed 3")
    assert [v.label for v in with_paths_in_labels([plain, other], targets)] == ["dcp, seed 3", "crl, seed 3"]


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


@pytest.fixture
def runs(tiny_run, tmp_path):
    """Seeds 0 and 1 of dcp; seed 0 has no policy."""
    for seed in (0, 1):
        folder = tmp_path / f"seed_{seed}"
        shutil.copytree(tiny_run.folder, folder, ignore=shutil.ignore_patterns("checkpoints"))
        stored = json.loads((folder / "config.json").read_text())
        stored["config"]["seed"] = seed
        (folder / "config.json").write_text(json.dumps(stored))
    (tmp_path / "seed_0" / "policy.safetensors").unlink()
    return tmp_path


def test_the_first_seed_that_has_a_policy_is_shown_beside_a_straight_line(runs):
    (section,) = landscape_sections(collect([runs]))
    (figure,) = section.figures
    assert figure.environment == collect([runs]).environments[0]
    (table,) = section.tables
    names = [row.cells[2].text for row in table.rows]
    assert names == ["dcp, seed 1", "straight line"]
    assert [row.method for row in table.rows] == ["dcp", ""]
    assert -1.0 <= table.rows[0].cells[4].value <= 1.0
    titles = [axes.get_title() for axes in figure.make().axes]
    assert any(title.startswith("dcp, seed 1") for title in titles)


def test_a_damaged_policy_is_said_and_harms_nothing(runs):
    shutil.copytree(runs / "seed_1", runs / "crl")
    stored = json.loads((runs / "crl" / "config.json").read_text())
    stored["config"]["method"] = "crl"
    (runs / "crl" / "config.json").write_text(json.dumps(stored))
    (runs / "crl" / "policy.safetensors").write_bytes(b"nothing")
    (section,) = landscape_sections(collect([runs]))
    assert [row.cells[2].text for row in section.tables[0].rows] == ["dcp, seed 1", "straight line"]
    assert "crl has no landscape" in section.text


def test_without_a_maze_or_a_policy_there_is_no_section(runs):
    (runs / "seed_1" / "policy.safetensors").unlink()
    assert landscape_sections(collect([runs])) == []
