"""One environment's state as a picture: what Gymnasium calls rgb_array, and what every frame of a video is made of."""

from typing import Protocol

import numpy as np

from dcp.analysis.maze_episodes import shows_maze
from dcp.envs.base import Environment, EnvState
from dcp.envs.pushing import places, things_of
from dcp.errors import UserError
from dcp.render.cameras import Camera
from dcp.render.moment import Moment

WIDTH, HEIGHT = 480, 400
SMALLEST, LARGEST = 64, 4096


class Drawing(Protocol):
    """Draws moments of one environment, each as uint8 [H, W, 3]."""

    def draw(self, moment: Moment) -> np.ndarray: ...

    def close(self) -> None: ...


def make_drawing(env: Environment, width: int = WIDTH, height: int = HEIGHT, camera: Camera = "fixed") -> Drawing:
    """Simulated bodies by MuJoCo, points in a maze and what they push by Pillow."""
    require_drawable(env, width, height)
    if env.spec.physics != "none":
        from dcp.render.bodies import BodyPicture

        return BodyPicture(env, width, height, camera)
    from dcp.render.plane import MazePicture

    return MazePicture(env, width, height)


def require_drawable(env: Environment, width: int = WIDTH, height: int = HEIGHT) -> None:
    for name, size in (("width", width), ("height", height)):
        if not SMALLEST <= size <= LARGEST:
            raise UserError(f"{name} {size}: a picture has {SMALLEST} to {LARGEST} pixels a side")
    in_plane = shows_maze(env.spec) or (env.spec.maze is not None and things_of(env))
    if env.spec.physics == "none" and not in_plane:
        raise UserError(f"{env.spec.name} cannot be drawn: it has neither simulated bodies nor goals in a maze's plane")
    if env.spec.physics != "none" and not hasattr(env, "model"):
        raise UserError(f"{env.spec.name} cannot be drawn: it needs a method model() that returns its mujoco.MjSpec")


def moment_of(env: Environment, state: EnvState) -> Moment:
    body, goal = env.spec.split(np.asarray(state.obs))
    return Moment(env.spec.achieved(body), goal, pose_of(env, state))


def pose_of(env: Environment, state: EnvState) -> np.ndarray | None:
    """q [Q] of a state under simulated physics, or the places of things in a plane; else None"""
    if things := things_of(env):
        return places(things, env.spec.split(np.asarray(state.obs))[0])
    q = getattr(state.physics, "q", None)
    return None if q is None else np.asarray(q)


class Picture:
    """state -> uint8 [H, W, 3], for one environment, not a batch. Close it after use: it holds an OpenGL context."""

    def __init__(self, env: Environment, drawing: Drawing):
        self.env, self.drawing = env, drawing

    def __call__(self, state: EnvState) -> np.ndarray:
        return self.drawing.draw(moment_of(self.env, state))

    def close(self) -> None:
        self.drawing.close()


def make_picture(env: Environment, width: int = WIDTH, height: int = HEIGHT, camera: Camera = "fixed") -> Picture:
    """A camera before an environment. Raises UserError with what to install where nothing can draw its bodies."""
    return Picture(env, make_drawing(env, width, height, camera))
