import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import ImageColor

from dcp.envs.registry import make_env
from dcp.lab.render import DIRECTION_COLOUR, SUBGOAL_COLOUR, MazePicture, Moment, make_picture
from dcp.lab.style import BLUE, FREE, GOAL_COLOUR, ORANGE, WALL
from tests.lab.render.conftest import shown_episodes

ENV = make_env("point_u_maze")
SHOWN = 3.5  # cells from side to side


def colour_at(image, x, y):
    """The maze is a square in the middle of a wider picture."""
    height, width = image.shape[:2]
    left = (width - height) // 2
    u, v = ((np.array([y, x]) - 0.25) / SHOWN * height).astype(int)
    return tuple(image[v, left + u])


def test_the_plan_shows_walls_goal_point_subgoal_and_direction():
    moment = Moment(
        np.array([1.0, 1.0]), np.array([3.0, 3.0]), direction=np.array([0.0, 1.0]), subgoal=np.array([1.0, 3.0])
    )
    image = MazePicture(ENV, 420, 350).draw(moment)
    assert image.shape == (350, 420, 3) and image.dtype == np.uint8
    for (x, y), colour in {
        (1.0, 1.0): BLUE,
        (1.0, 1.2): DIRECTION_COLOUR,  # to the right: along y
        (1.2, 1.0): FREE,
        (3.0, 3.0): GOAL_COLOUR,
        (1.0, 3.0): SUBGOAL_COLOUR,
        (2.0, 1.0): WALL,
    }.items():
        assert colour_at(image, x, y) == ImageColor.getrgb(colour), (x, y)
    assert tuple(image[10, 2]) == ImageColor.getrgb(WALL)  # beside the plan the walls go on


def test_a_picture_of_a_state():
    state = ENV.reset(jax.random.key(0))
    picture = make_picture(ENV, 350, 350)
    image = picture(state)
    picture.close()
    x, y, goal_x, goal_y = np.asarray(state.obs)
    assert colour_at(image, x, y) == ImageColor.getrgb(BLUE)
    assert colour_at(image, goal_x, goal_y) == ImageColor.getrgb(GOAL_COLOUR)


def test_what_is_pushed_is_drawn_with_who_pushes_it():
    """A box in the door, the point before it, each as large as it is; and the goal in the room behind."""
    env = make_env("point_push")
    picture = make_picture(env, 650, 350)  # 6.5 by 3.5 cells are shown, a hundred pixels each
    image = picture(env.reset_to(np.array([2.0, 1.0, 2.0, 3.0, 1.0, 5.0])))
    picture.close()
    for (x, y), colour in {
        (2.0, 1.0): BLUE,
        (2.0, 1.13): BLUE,
        (2.0, 1.17): FREE,
        (2.38, 2.62): ORANGE,  # close to a corner
        (2.45, 3.0): FREE,
        (1.0, 5.0): GOAL_COLOUR,
        (1.0, 3.0): WALL,
    }.items():
        v, u = ((np.array([x, y]) - 0.25) * 100).astype(int)
        assert tuple(image[v, u]) == ImageColor.getrgb(colour), (x, y)


def test_a_goal_under_the_ball_keeps_its_rim():
    env = make_env("point_soccer")
    picture = make_picture(env, 550, 550)
    image = picture(env.reset_to(np.array([2.0, 2.0, 3.0, 3.0, 3.0, 3.0])))
    picture.close()
    colours = {tuple(pixel) for pixel in image.reshape(-1, 3)}
    assert {ImageColor.getrgb(c) for c in (BLUE, ORANGE, GOAL_COLOUR, FREE, WALL)} <= colours


@jax.tree_util.register_static
class Downwards:
    """Along x, always."""

    def init(self, key):
        return ()

    def act(self, policy_state, state, goal):
        return (), jnp.broadcast_to(jnp.array([1.0, 0.0]), (*state.shape[:-1], 2))


@pytest.mark.slow
def test_episodes_of_things_carry_their_places():
    env = make_env("point_soccer")
    (episode,) = shown_episodes(env, Downwards(), 0, 0, 1, 2)
    assert episode.q is not None and episode.q.shape == (3, 4)
    np.testing.assert_allclose(episode.q[:, :2], episode.achieved)  # the ball first: the point is drawn over it
    np.testing.assert_allclose(np.diff(episode.q[:, 2]), 0.12, atol=1e-6)
