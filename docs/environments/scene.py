"""One task as it is drawn: its model at a drawn start, seen from above."""

from typing import Any

import jax
import mujoco
import numpy as np
from matplotlib.colors import to_rgb
from raycast import View, picture

from dcp.envs.registry import make_env
from dcp.lab.render.body_pictures import HIDDEN, body_colour, view_of
from dcp.lab.render.pictures import FLOOR
from dcp.lab.style import WALL

__all__ = ["FLOOR", "WALL", "Scene", "to_rgb"]
DRAWS, SEED = 300, 3


class Scene:
    """One task at one of its starts, and where its other starts would be."""

    def __init__(self, name: str, pixels: int):
        self.name, self.env = name, make_env(name)
        self.maze = self.env.spec.maze
        keys = jax.random.split(jax.random.key(SEED), DRAWS)
        self.draws = np.asarray(jax.jit(jax.vmap(self.env.draw))(keys)[0])  # [DRAWS, Q]
        self.model = _model(self.env)
        self.data = mujoco.MjData(self.model)
        self.data.qpos[:] = self.draws[0]
        mujoco.mj_kinematics(self.model, self.data)
        self.view = self._view()
        self.image = picture(self.model, self.data, self._colours(), self.view, pixels)

    def _view(self) -> View:
        """The part of the floor that the package's own camera shows; in a maze x runs downwards."""
        seen = view_of(self.env.spec, self.env.model())
        lamp = (-1.0, 1.0 if self.maze is None else -1.0, 2.2)
        return View(seen.low[:2], seen.high[:2], seen.floor, lamp)

    def _colours(self) -> np.ndarray:
        """[geoms, 3]; and the model's own marks of the goal out of sight."""
        bodies = [self.model.body(i).name for i in self.model.geom_bodyid]
        floor = self.model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
        self.model.geom_size[floor] = 0.0  # without end
        self.model.geom_matid[:] = -1
        self.model.geom_rgba[[body in HIDDEN for body in bodies], 3] = 0.0
        return np.array([to_rgb(FLOOR if f else body_colour(b)) for f, b in zip(floor, bodies, strict=True)])

    def on_page(self, points: np.ndarray) -> np.ndarray:
        """A maze lies as its text does: x (row) downwards, y (column) to the right. Elsewhere x right, y up."""
        return points[..., ::-1] if self.maze else points

    def places(self, body: str) -> np.ndarray:
        """[DRAWS, 2]: where the draws put a body that slides"""
        which = self.model.body(body)
        joints = slice(which.jntadr[0], which.jntadr[0] + which.jntnum[0])
        return (which.pos + self.draws[:, self.model.jnt_qposadr[joints]] @ self.model.jnt_axis[joints])[:, :2]


def _model(env: Any) -> mujoco.MjModel:
    spec = env.model()
    for geom in spec.geoms:  # many rays at once miss what does not collide: MuJoCo bounds bodies by what does
        geom.contype = 1
    return spec.compile()
