"""Pictures by MuJoCo's renderer: is what should be there in them, where it should be?"""

import numpy as np
import pytest
from PIL import ImageColor

from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.lab.render import DIRECTION_COLOUR, FLOOR, SUBGOAL_COLOUR, TRAIL_COLOUR, Moment, make_drawing, make_picture
from dcp.lab.render.body_pictures import FIELD, WALL_SHARE, BodyPicture, axes_of, make_camera, view_of
from dcp.lab.style import BLUE, GOAL_COLOUR, WALL
from tests.lab.render.conftest import YAW, ant_pose

ANT = make_env("ant_u_maze")
VIEW = view_of(ANT.spec, ANT.model())
WIDTH, HEIGHT = 240, 200
Q = ant_pose(4.0, 4.0)


@pytest.fixture(scope="module")
def ant(renderer):
    picture = BodyPicture(make_env("ant_u_maze"), WIDTH, HEIGHT)
    yield picture
    picture.close()


def colour_at(picture: BodyPicture, image: np.ndarray, point) -> np.ndarray:
    camera = make_camera(picture.view, picture.camera, WIDTH / HEIGHT, np.zeros(3))
    u, v = seen_at(camera, np.asarray(point, float), WIDTH / HEIGHT)
    return image[int((1 - v) / 2 * HEIGHT), int((1 + u) / 2 * WIDTH)].astype(float)


def looks_like(seen: np.ndarray) -> str:
    """The colour with the most similar mixture of red, green and blue, in whatever light."""

    def difference(colour: str) -> float:
        wanted = np.array(ImageColor.getrgb(colour), float)
        return float(np.abs(seen / seen.sum() - wanted / wanted.sum()).max())

    return min((GOAL_COLOUR, WALL, FLOOR, BLUE, SUBGOAL_COLOUR, DIRECTION_COLOUR, TRAIL_COLOUR), key=difference)


def test_goal_walls_floor_and_body_are_where_they_belong(ant):
    image = ant.draw(Moment(Q[:2], np.array([12.0, 12.0]), Q))
    assert image.shape == (HEIGHT, WIDTH, 3) and image.dtype == np.uint8
    assert looks_like(colour_at(ant, image, (12.0, 12.0, 0.0))) == GOAL_COLOUR
    assert looks_like(colour_at(ant, image, (8.0, 6.0, 0.8))) == WALL  # row 2 is ###g#
    assert looks_like(colour_at(ant, image, (4.0, 4.0, 0.55))) == BLUE
    assert looks_like(colour_at(ant, image, (12.0, 8.0, 0.0))) == FLOOR
    assert colour_at(ant, image, (12.0, 8.0, 0.0)).min() > 200


def test_a_mark_has_the_threshold_s_radius(ant):
    image = ant.draw(Moment(Q[:2], np.array([12.0, 12.0]), Q))
    assert looks_like(colour_at(ant, image, (12.4, 12.0, 0.0))) == GOAL_COLOUR
    assert looks_like(colour_at(ant, image, (12.7, 12.0, 0.0))) == FLOOR


def test_subgoal_direction_and_trail_are_drawn_when_given(ant):
    goal, subgoal, trail = np.array([12.0, 12.0]), np.array([12.0, 4.0]), np.array([[4.0, 4.0], [4.0, 12.0]])
    plain = ant.draw(Moment(Q[:2], goal, Q))
    full = ant.draw(Moment(Q[:2], goal, Q, trail, np.array([0.0, 1.0]), subgoal))
    for point, colour in (
        ((12.0, 4.0, 0.0), SUBGOAL_COLOUR),
        ((4.0, 10.0, 0.0), TRAIL_COLOUR),
        ((4.0, 5.1, 1.0), DIRECTION_COLOUR),  # from the body 1.4 along y: a tenth of the view
    ):
        assert looks_like(colour_at(ant, full, point)) == colour
        assert looks_like(colour_at(ant, plain, point)) != colour


def test_no_direction_draws_no_arrow(ant):
    goal = np.array([12.0, 12.0])
    np.testing.assert_array_equal(
        ant.draw(Moment(Q[:2], goal, Q)), ant.draw(Moment(Q[:2], goal, Q, direction=np.zeros(2)))
    )


def test_q_is_mujocos_qpos_with_the_quaternion_s_real_part_first(ant):
    """Turned by 90 degrees, the front left leg's joint is at (-0.2, 0.2) from the torso; without, at (0.2, 0.2)."""
    for turn, offset in (((1.0, 0.0, 0.0, 0.0), (0.2, 0.2)), (YAW, (-0.2, 0.2))):
        ant.pose(Moment(Q[:2], Q[-2:], ant_pose(4.0, 8.0, turn)))
        torso, leg = ant.data.body("torso").xpos, ant.data.body("thigh_1").xpos
        np.testing.assert_allclose(torso, [4.0, 8.0, 0.55], atol=1e-6)
        np.testing.assert_allclose(leg - torso, [*offset, 0.0], atol=1e-6)


def test_the_physics_model_keeps_its_walls_where_pictures_lower_them(ant):
    own, drawn = make_env("ant_u_maze").model().compile().geom("wall_0_0"), ant.model.geom("wall_0_0")
    assert (own.pos[2], own.size[2]) == (1.0, 1.0)
    np.testing.assert_allclose((drawn.pos[2], drawn.size[2]), (WALL_SHARE, WALL_SHARE))
    np.testing.assert_array_equal(own.pos[:2], drawn.pos[:2])


def test_a_picture_of_a_state_needs_nothing_else(ant):
    from types import SimpleNamespace

    env = make_env("ant_u_maze")
    state = SimpleNamespace(obs=np.concatenate([Q[:15], np.zeros(14), [12.0, 12.0]]), physics=SimpleNamespace(q=Q))
    picture = make_picture(env, 64, 64)
    image = picture(state)
    picture.close()
    assert image.shape == (64, 64, 3)


def test_absurd_sizes_are_refused():
    with pytest.raises(UserError, match="width 0: use 64 to 4096"):
        make_drawing(make_env("point_u_maze"), width=0)
    with pytest.raises(UserError, match="height 5000"):
        make_drawing(make_env("point_u_maze"), height=5000)


def test_a_maze_lies_as_its_text_does():
    forward, right, up = axes_of(180.0, -90.0)
    np.testing.assert_allclose(forward, [0, 0, -1], atol=1e-12)
    np.testing.assert_allclose(right, [0, 1, 0], atol=1e-12)  # columns to the right
    np.testing.assert_allclose(up, [-1, 0, 0], atol=1e-12)  # rows downwards


@pytest.mark.parametrize("aspect", [0.5, 1.2, 3.0])
@pytest.mark.parametrize("kind", ["fixed", "top"])
def test_the_whole_maze_is_in_the_picture_and_fills_it(kind, aspect):
    camera = make_camera(VIEW, kind, aspect, np.zeros(3))
    corners = np.stack(np.meshgrid(*zip(VIEW.low, VIEW.high, strict=True)), axis=-1).reshape(-1, 3)
    places = np.abs([seen_at(camera, corner, aspect) for corner in corners])
    assert 0.9 < places.max() < 1.0


def test_a_tracking_camera_looks_at_the_body():
    camera = make_camera(VIEW, "tracking", 1.2, np.array([4.0, 12.0, 0.5]))
    np.testing.assert_allclose(camera.lookat[:2], [4.0, 12.0])


def seen_at(camera, point, aspect):
    """Where a point is in the picture: -1 to 1, to the right and upwards."""
    forward, right, up = axes_of(camera.azimuth, camera.elevation)
    offset = point - (np.array(camera.lookat) - camera.distance * forward)
    tan = np.tan(np.radians(FIELD / 2)) * (offset @ forward)
    return np.array([offset @ right / (tan * aspect), offset @ up / tan])
