import jax
import numpy as np
from PIL import ImageColor

from dcp.analysis.style import BLUE, FREE, GOAL_COLOUR, WALL
from dcp.envs.registry import make_env
from dcp.render import make_picture
from dcp.render.moment import DIRECTION_COLOUR, SUBGOAL_COLOUR, Moment
from dcp.render.plane import MazePicture

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
