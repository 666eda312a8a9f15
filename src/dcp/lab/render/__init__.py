"""Show episodes as pictures, videos and an interactive page. Here is the picture of one state: Gymnasium's rgb_array,
and each frame of a video. `body_pictures`, which needs MuJoCo, draws simulated bodies."""

from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from PIL import Image, ImageDraw

from dcp.envs.base import Environment, EnvState
from dcp.envs.point_tasks import places, things_of
from dcp.errors import UserError
from dcp.lab.episodes import shows_maze
from dcp.lab.style import BLUE, BORDER, FREE, GOAL_COLOUR, GREEN, ORANGE, PURPLE, SKY, WALL

Camera = Literal["fixed", "tracking", "top"]
WIDTH, HEIGHT = 480, 400
SMALLEST, LARGEST = 64, 4096
SUBGOAL_COLOUR, DIRECTION_COLOUR, TRAIL_COLOUR = PURPLE, GREEN, SKY
FLOOR, FLOOR_TILE = "#F4F2EE", "#E9E6E0"
COLOURS = {"goal": GOAL_COLOUR, "subgoal": SUBGOAL_COLOUR, "direction": DIRECTION_COLOUR, "trail": TRAIL_COLOUR}
SMOOTH = 3  # a plan is drawn this many times larger, then reduced
POINT_RADIUS = 0.085  # cells
ARROW, ARROW_HEAD = 0.38, 0.12  # cells


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
    """Draw the walls once, and copies with whatever moves. Rows run downwards, as in the maze's text.

    The plan is in the centre and as large as fits, with walls on both sides.
    """

    def __init__(self, env: Any, width: int, height: int):
        self.layout, self.threshold, self.things = env.spec.maze, env.spec.threshold, things_of(env)
        self.picture_size = width, height
        rows, columns = self.layout.walls.shape
        rim = 2.0 * (1.0 - BORDER)  # cells of the outer walls that are cut away
        self.cell = round(SMOOTH * min(width / (columns - rim), height / (rows - rim)))
        self.size = tuple(SMOOTH * round((n - rim) * self.cell / SMOOTH) for n in (columns, rows))
        self.maze = Image.new("RGB", self.size, FREE)
        draw = ImageDraw.Draw(self.maze)
        for i, j in np.argwhere(self.layout.walls):
            corner, opposite = ((np.array((i, j)) + side) * self.layout.scale for side in (-0.5, 0.5))
            draw.rectangle((*self._pixel(corner), *self._pixel(opposite)), fill=WALL)

    def draw(self, moment: Moment) -> np.ndarray:
        """Return uint8 [H, W, 3]."""
        width, height = self.size[0] // SMOOTH, self.size[1] // SMOOTH
        image = Image.new("RGB", self.picture_size, WALL)
        plan = self._plan(moment).resize((width, height), Image.Resampling.BOX)
        image.paste(plan, ((self.picture_size[0] - width) // 2, (self.picture_size[1] - height) // 2))
        return np.array(image)

    def close(self) -> None:
        pass

    def _plan(self, moment: Moment) -> Image.Image:
        large = self.maze.copy()
        draw = ImageDraw.Draw(large)
        reach = self.threshold / self.layout.scale  # a goal's disc is exactly the area in which it counts as reached
        self._disc(draw, moment.goal, reach, GOAL_COLOUR)
        if moment.subgoal is not None:
            self._disc(draw, moment.subgoal, 0.8 * reach, SUBGOAL_COLOUR)
        if moment.trail is not None and len(moment.trail) > 1:
            line = [self._pixel(point) for point in moment.trail]
            draw.line(line, fill=TRAIL_COLOUR, width=max(2 * SMOOTH, self.cell // 24), joint="curve")
        things = [] if moment.q is None else list(zip(self.things, moment.q.reshape(-1, 2), strict=True))
        for thing, place in things:
            size, colour = thing.size / self.layout.scale, BLUE if thing.acts else ORANGE
            if thing.shape == "square":
                draw.rectangle(self._around(place, size), fill=colour)
            else:
                self._disc(draw, place, size, colour)
        if things:  # what is pushed may cover the goal
            self._disc(draw, moment.goal, reach, None, GOAL_COLOUR)
        if moment.direction is not None and np.any(moment.direction):
            self._arrow(draw, moment.achieved, moment.direction)
        if not things:
            self._disc(draw, moment.achieved, POINT_RADIUS, BLUE)
        return large

    def _pixel(self, point: np.ndarray) -> tuple[float, float]:
        x, y = np.asarray(point)[:2] / self.layout.scale - (0.5 - BORDER)  # cells from the plan's upper left corner
        return float(y) * self.cell, float(x) * self.cell

    def _disc(
        self, draw: ImageDraw.ImageDraw, centre: np.ndarray, radius: float, colour: str | None, rim: str | None = None
    ) -> None:
        draw.ellipse(self._around(centre, radius), fill=colour, outline=rim, width=max(SMOOTH, self.cell // 40))

    def _around(self, centre: np.ndarray, half: float) -> tuple[float, float, float, float]:
        """Return the square of this many cells each way, in pixels."""
        u, v = self._pixel(centre)
        return u - half * self.cell, v - half * self.cell, u + half * self.cell, v + half * self.cell

    def _arrow(self, draw: ImageDraw.ImageDraw, start: np.ndarray, direction: np.ndarray) -> None:
        along = np.asarray(direction)[::-1]  # on the page: right, down
        across = np.array([-along[1], along[0]])
        foot = np.array(self._pixel(start))
        tip, neck = foot + ARROW * self.cell * along, foot + (ARROW - ARROW_HEAD) * self.cell * along
        side = 0.6 * ARROW_HEAD * self.cell * across
        draw.line([tuple(foot), tuple(neck)], fill=DIRECTION_COLOUR, width=max(2 * SMOOTH, self.cell // 18))
        draw.polygon([tuple(tip), tuple(neck + side), tuple(neck - side)], fill=DIRECTION_COLOUR)


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


class Picture:
    """state -> uint8 [H, W, 3], for one environment, not a batch. Close it after use: it holds an OpenGL context."""

    def __init__(self, env: Environment, drawing: Drawing):
        self.env, self.drawing = env, drawing

    def __call__(self, state: EnvState) -> np.ndarray:
        return self.drawing.draw(moment_of(self.env, state))

    def close(self) -> None:
        self.drawing.close()


def moment_of(env: Environment, state: EnvState) -> Moment:
    body, goal = env.spec.split(np.asarray(state.obs))
    things = things_of(env)
    q = places(things, body) if things else getattr(state.physics, "q", None)
    return Moment(env.spec.achieved(body), goal, None if q is None else np.asarray(q))


def make_picture(env: Environment, width: int = WIDTH, height: int = HEIGHT, camera: Camera = "fixed") -> Picture:
    """Return what turns a state into a picture. Raise UserError with what to install if bodies cannot be drawn."""
    return Picture(env, make_drawing(env, width, height, camera))
