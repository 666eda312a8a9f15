import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dcp.config import SCHEMA_VERSION, Config
from dcp.lab.pusher_goals import NAMES, Draws, draw_goals, geometry_table, in_world, pusher_figure, pusher_sections
from dcp.lab.run_collection import collect


@pytest.fixture(scope="module")
def draws():
    return {name: draw_goals(name) for name in NAMES}


def test_slides_are_y_and_x_from_the_bodies_place():
    assert_allclose(in_world(np.array([[0.0, 0.0], [-0.55, -0.45]])), [[0.45, -0.05], [0.0, -0.6]], atol=1e-12)


def test_goals_come_from_the_environment_s_own_range(draws):
    for each in draws.values():
        low, high = each.goal_range
        assert ((each.goals >= low - 1e-6) & (each.goals <= high + 1e-6)).all()
        assert (each.goals.max(axis=0) - each.goals.min(axis=0) > 0.8 * (high - low)).all()  # and fill it
    assert_allclose(draws["pusher_easy"].goal_range, [[0.25, -0.6], [0.65, -0.3]])


def test_draws_are_those_of_a_reset(draws):
    import jax

    from dcp.envs.pusher import Pusher

    key = jax.random.split(jax.random.key(0), 1000)[17]
    q, _ = Pusher("pusher_hard").draw(key)
    assert_allclose(in_world(np.asarray(q[9:])), draws["pusher_hard"].goals[17], atol=1e-6)
    assert_allclose(in_world(np.asarray(q[7:9])), draws["pusher_hard"].objects[17], atol=1e-6)


def test_a_goal_is_near_if_the_object_is_farther_from_the_arm_s_base():
    base, square = np.array([0.0, -0.6]), np.zeros((2, 2))
    objects, goals = np.array([[0.0, 0.4], [0.3, -0.2]]), np.array([[0.8, -0.6], [0.0, 0.0]])
    found = Draws("mine", base, square, square, objects, goals)
    assert_allclose(found.margin, [0.8 - 1.0, 0.6 - 0.5])  # a 3-4-5 triangle: the second object is 0.5 away
    assert_array_equal(found.near, [True, False])


def test_far_goals_are_all_far_and_the_others_mixed(draws):
    assert draws["pusher_hard_far"].margin.min() >= 0.17 - 1e-6
    assert 0.1 < draws["pusher_hard"].near.mean() < 0.9
    assert draws["pusher_easy"].near.mean() > draws["pusher_hard"].near.mean()


def test_the_figure_shows_every_environment_with_its_goals(draws):
    panels = pusher_figure(list(draws.values())).axes
    assert [axes.get_title().split("\n")[0] for axes in panels] == list(NAMES)
    assert panels[2].get_title().endswith("0% near arc, 100% far arc")
    near, far = panels[1].collections
    assert len(near.get_offsets()) + len(far.get_offsets()) == 400
    assert_allclose(near.get_offsets(), draws["pusher_hard"].goals[:400][draws["pusher_hard"].near[:400]])


def test_the_table_holds_the_shares(draws):
    table = geometry_table(list(draws.values()))
    assert_allclose(table.rows[1].cells[1].value, 100 * draws["pusher_hard"].near.mean())
    assert table.rows[2].cells[1].value == 0.0


def test_only_a_report_with_a_pusher_has_the_section(tmp_path):
    for name, env in (("a", "pusher_hard"), ("b", "point_u_maze")):
        (tmp_path / name).mkdir()
        stored = {"schema_version": SCHEMA_VERSION, "config": json.loads(Config(env=env).to_json())}
        (tmp_path / name / "config.json").write_text(json.dumps(stored))
    (section,) = pusher_sections(collect([tmp_path]))
    assert (len(section.figures), len(section.tables)) == (1, 1)
    assert pusher_sections(collect([tmp_path / "b"])) == []
