"""Geoms fixed to links, and which of them may collide."""

from collections.abc import Iterator
from dataclasses import dataclass

import mujoco
import numpy as np

from dcp.physics.models import WALL
from dcp.physics.shapes import Segment
from dcp.physics.vectors import Vec, constant, quat, rotate, vec
from dcp.types import Array

PLANE, SPHERE, CAPSULE, BOX = (
    int(mujoco.mjtGeom.mjGEOM_PLANE),
    int(mujoco.mjtGeom.mjGEOM_SPHERE),
    int(mujoco.mjtGeom.mjGEOM_CAPSULE),
    int(mujoco.mjtGeom.mjGEOM_BOX),
)


def colliding_pairs(model: mujoco.MjModel) -> Iterator[tuple[int, int]]:
    """MuJoCo's rule: matching contype and conaffinity, not of one body, not of parent and child. Lower type first."""
    weld, parent = model.body_weldid, model.body_parentid
    for g1 in range(model.ngeom):
        for g2 in range(g1 + 1, model.ngeom):
            b1, b2 = weld[model.geom_bodyid[g1]], weld[model.geom_bodyid[g2]]
            related = b1 and b2 and (b1 == weld[parent[b2]] or b2 == weld[parent[b1]])
            mask = (model.geom_contype[g1] & model.geom_conaffinity[g2]) | (
                model.geom_contype[g2] & model.geom_conaffinity[g1]
            )
            if b1 != b2 and not related and mask:
                yield (g1, g2) if model.geom_type[g1] <= model.geom_type[g2] else (g2, g1)


def is_wall(model: mujoco.MjModel, geom: int) -> bool:
    return model.geom(geom).name.startswith(f"{WALL}_")


@dataclass(frozen=True)
class Geoms:
    """Some geoms of a model, fixed to links."""

    ids: np.ndarray  # [G]
    link: np.ndarray  # [G]
    offset: np.ndarray  # [G, 3]: the centre in the link's frame
    core: np.ndarray  # [G, 3]: from the centre to a capsule's end, in the link's frame; zero for a sphere
    radius: np.ndarray  # [G]

    @classmethod
    def of(cls, model: mujoco.MjModel, ids: list[int]) -> "Geoms":
        index = np.asarray(ids, int)
        matrix = np.zeros((len(index), 9))
        for row, geom in zip(matrix, index, strict=True):
            mujoco.mju_quat2Mat(row, model.geom_quat[geom])
        is_capsule = model.geom_type[index] == CAPSULE
        length = np.where(is_capsule, model.geom_size[index, 1], 0.0)
        core = matrix.reshape(-1, 3, 3)[:, :, 2] * length[:, None]
        link = model.geom_bodyid[index] - 1
        radius = model.geom_size[index, 0].astype(np.float32)
        return cls(index, link, model.geom_pos[index].astype(np.float32), core.astype(np.float32), radius)

    def place(self, frames: Array) -> tuple[Vec, Segment]:
        """frames [7, L, N]: pos, rot of each link -> centres [G, N] and capsules' cores in the world"""
        mine = frames[:, self.link]  # [7, G, N]
        rot = quat(mine[3:])
        centre = vec(mine) + rotate(constant(self.offset), rot)
        if not self.core.any():
            return centre, Segment(centre, centre)
        core = rotate(constant(self.core), rot)
        return centre, Segment(centre - core, centre + core)

    @property
    def radii(self) -> np.ndarray:
        """[G, 1]"""
        return self.radius[:, None]
