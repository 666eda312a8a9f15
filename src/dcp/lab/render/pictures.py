"""Draw one environment's state: Gymnasium's rgb_array, and each frame of a video."""

from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from PIL import Image

from dcp.envs.base import Environment, EnvState
from dcp.envs.point_tasks import places, things_of
from dcp.errors import UserError
from dcp.lab.maze_drawing import MazeCanvas
from dcp.lab.maze_episodes import shows_maze
from dcp.lab.style import GOAL_COLOUR, GREEN, PURPLE, SKY, WALL

Camera = Literal["fixed", "tracking", "top"]
WIDTH, HEIGHT = 480, 400
SMALLEST, LARGEST = 64, 4096
SUBGOAL_COLOUR, DIRECTION_COLOUR, TRAIL_COLOUR = PURPLE, GREEN, SKY
FLOOR, FLOOR_TILE = "#F4F2EE", "#E9E6E0"
COLOURS = {"goal": GOAL_COLOUR, "subgoal": SUBGOAL_COLOUR, "direction": DIRECTION_COLOUR, "trail": TRAIL_COLOUR}


class Moment(NamedTuple):
    """One step of an episode. Coordinates are the goal's: x, y and, if goals have a height, z."""

    achieved: np.ndarray  # [G]
    goal: np.ndarray  # [G]
    q: np.ndarray | None = None  # [Q]: the bodies' pose, under simulated physics; or the places of things in a plane
    trail: np.ndarray | None = None  # [K, G]: what was achieved so far
    direction: np.ndarray | None = None  # [2]: a unit vector in the plane, or zero
    subgoal: np.ndarray | None = None  # [G]
    watched: np.ndarray | None = None  # [3]: what a tracking camera looks at; else the body itself


class MazePicture:
    """Draw the plan in the centre, with walls on both sides."""

    def __init__(self, env: Any, width: int, height: int):
        self.width, self.height, self.things = width, height, things_of(env)
        self.canvas = MazeCanvas(env.spec.maze, env.spec.threshold, width, height)

    def draw(self, moment: Moment) -> np.ndarray:
        """Return uint8 [H, W, 3]."""
        trail = moment.achieved[None] if moment.trail is None else moment.trail
        shown = [] if moment.q is None else list(zip(self.things, moment.q.reshape(-1, 2), strict=True))
        plan = self.canvas.picture(moment.goal, trail, moment.subgoal, moment.direction, shown)
        image = Image.new("RGB", (self.width, self.height), WALL)
        image.paste(plan, ((self.width - plan.width) // 2, (self.height - plan.height) // 2))
        return np.array(image)

    def close(self) -> None:
        pass


class Drawing(Protocol):
    """Draws moments of one environment, each as uint8 [H, W, 3]."""

    def draw(self, moment: Moment) -> np.ndarray: ...

    def close(self) -> None: ...


def make_drawing(env: Environment, width: int = WIDTH, height: int = HEIGHT, camera: Camera = "fixed") -> Drawing:
    """Return what draws it: MuJoCo for simulated bodies, Pillow for points in a maze and what they push."""
    require_drawable(env, width, height)
    if env.spec.physics != "none":
        from dcp.lab.render.body_pictures import BodyPicture

        return BodyPicture(env, width, height, camera)
    return MazePicture(env, width, height)


def require_drawable(env: Environment, width: int = WIDTH, height: int = HEIGHT) -> None:
    """Raise UserError for an environment that cannot be drawn, or an absurd size."""
    for name, size in (("width", width), ("height", height)):
        if not SMALLEST <= size <= LARGEST:
            raise UserError(f"{name} {size}: use {SMALLEST} to {LARGEST} pixels per side")
    in_plane = shows_maze(env.spec) or (env.spec.maze is not None and things_of(env))
    if env.spec.physics == "none" and not in_plane:
        raise UserError(f"{env.spec.name} cannot be drawn: it has neither simulated bodies nor goals in a maze's plane")
    if env.spec.physics != "none" and not hasattr(env, "model"):
        raise UserError(f"{env.spec.name} cannot be drawn: it needs a method model() that returns its mujoco.MjSpec")


def moment_of(env: Environment, state: EnvState) -> Moment:
    body, goal = env.spec.split(np.asarray(state.obs))
    q = getattr(state.physics, "q", None)
    if things := things_of(env):
        q = places(things, body)
    return Moment(env.spec.achieved(body), goal, None if q is None else np.asarray(q))


class Picture:
    """state -> uint8 [H, W, 3], for one environment, not a batch. Close it after use: it holds an OpenGL context."""

    def __init__(self, env: Environment, drawing: Drawing):
        self.env, self.drawing = env, drawing

    def __call__(self, state: EnvState) -> np.ndarray:
        return self.drawing.draw(moment_of(self.env, state))

    def close(self) -> None:
        self.drawing.close()


def make_picture(env: Environment, width: int = WIDTH, height: int = HEIGHT, camera: Camera = "fixed") -> Picture:
    """Return what turns a state into a picture. Raise UserError with what to install if bodies cannot be drawn."""
    return Picture(env, make_drawing(env, width, height, camera))
