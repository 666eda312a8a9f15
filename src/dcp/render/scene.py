"""A model as numbers for the page: its visible geoms, and where its bodies are in each pose. Needs no OpenGL."""

from typing import Any

import mujoco
import numpy as np

from dcp.render.cameras import FIELD, view_of
from dcp.render.model import LAMP, body_colour, drawn_model, rgb, tile_of

KINDS = {
    mujoco.mjtGeom.mjGEOM_SPHERE: "sphere",
    mujoco.mjtGeom.mjGEOM_CAPSULE: "capsule",
    mujoco.mjtGeom.mjGEOM_CYLINDER: "cylinder",
    mujoco.mjtGeom.mjGEOM_ELLIPSOID: "ellipsoid",
    mujoco.mjtGeom.mjGEOM_BOX: "box",
}  # meshes are left out; the floor is the page's own
DIGITS = 5


class Scene:
    def __init__(self, env: Any):
        own = env.model()
        self.view, self.tile = view_of(env.spec, own), tile_of(env.spec)
        self.model = drawn_model(own, self.view, self.tile, 64, 64)
        self.data = mujoco.MjData(self.model)
        seen = [i for i in range(self.model.ngeom) if self._kind(i) and self.model.geom_rgba[i, 3] > 0.0]
        self.geoms = seen
        self.bodies = sorted({int(self.model.geom_bodyid[i]) for i in seen} - {0})  # that move

    def _kind(self, geom: int) -> str | None:
        return KINDS.get(mujoco.mjtGeom(int(self.model.geom_type[geom])))

    def poses(self, q: np.ndarray) -> np.ndarray:
        """q [K, Q] -> [K, bodies, 7]: place, then quaternion, whose sign never jumps"""
        found = np.empty((len(q), len(self.bodies), 7))
        for k, row in enumerate(q):
            self.data.qpos[:] = row
            mujoco.mj_kinematics(self.model, self.data)
            found[k, :, :3], found[k, :, 3:] = self.data.xpos[self.bodies], self.data.xquat[self.bodies]
        turns = np.sum(found[1:, :, 3:] * found[:-1, :, 3:], axis=-1)  # [K - 1, bodies]
        signs = np.cumprod(np.where(turns < 0.0, -1.0, 1.0), axis=0)
        found[1:, :, 3:] *= signs[..., None]
        return found

    def description(self) -> dict[str, Any]:
        view = self.view
        free = self.model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE
        body = int(self.model.jnt_bodyid[0])
        return {
            "geoms": [self._geom(i) for i in self.geoms],
            "floor": view.floor,
            "tile": self.tile,
            "width": view.width,
            "lamp": list(LAMP),
            "field": FIELD,
            "tracked": self.bodies.index(body) if free and body in self.bodies else -1,
            "view": {
                "low": view.low.tolist(),
                "high": view.high.tolist(),
                "azimuth": view.azimuth,
                "elevation": view.elevation,
                "tracking": view.tracking,
                "near": view.near,
            },
        }

    def _geom(self, i: int) -> dict[str, Any]:
        """A geom of the world has no body (-1): its place is the world's."""
        model, body = self.model, int(self.model.geom_bodyid[i])
        name = model.body(body).name
        return {
            "type": self._kind(i),
            "size": np.round(model.geom_size[i], DIGITS).tolist(),
            "pos": np.round(model.geom_pos[i], DIGITS).tolist(),
            "quat": np.round(model.geom_quat[i], DIGITS).tolist(),
            "rgba": [*np.round(rgb(body_colour(name)), DIGITS).tolist(), 1.0],
            "body": self.bodies.index(body) if body else -1,
            "acts": body_colour(name) == body_colour(""),
        }
