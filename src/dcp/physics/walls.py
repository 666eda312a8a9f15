"""Contact with a maze's walls, looked up on its grid.

A geom looks at the 2 x 2 cells nearest to it and at nothing else of the maze, so the cost does not grow with it.
Exact as long as a geom reaches no farther than half a wall's height (a quarter of a cell) from its centre: checked.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from dcp.physics import shapes
from dcp.physics.buffers import once
from dcp.physics.geoms import Geoms
from dcp.physics.shapes import Segment, Touch
from dcp.physics.vectors import Vec
from dcp.types import Array, MazeLayout


@dataclass(frozen=True)
class Walls:
    """A maze's wall cells, for geoms that look up their own neighbourhood."""

    scale: float
    codes: Array | np.ndarray  # [rows + 3, columns + 3]: see `wall_codes`
    spheres: Geoms
    capsules: Geoms

    def __post_init__(self) -> None:
        for geoms in (self.spheres, self.capsules):
            reach = geoms.radius + np.linalg.norm(geoms.core, axis=1)
            if (reach > self.scale / 4).any():
                raise ValueError(f"a geom reaches {reach.max()}, more than a quarter of a cell of {self.scale}")

    def touch(self, frames: Array) -> list[tuple[Touch, np.ndarray]]:
        """frames [7, L, N] -> touches [4 * G, N], with the geoms' rows in the model"""
        found = []
        if self.spheres.ids.size:
            centre, _ = self.spheres.place(frames)
            near, is_wall = self._nearest_cells(centre)
            near, is_wall, local = once((near, is_wall, _tile(centre) - near))
            touch = shapes.sphere_box(local, np.tile(self.spheres.radii, (4, 1)), self._half)
            found.append((self._back(touch, near, is_wall), np.tile(self.spheres.ids, 4)))
        if self.capsules.ids.size:
            centre, core = self.capsules.place(frames)
            near, is_wall = self._nearest_cells(centre)
            local = Segment(_tile(core.start) - near, _tile(core.end) - near)
            near, is_wall, local = once((near, is_wall, local))
            for touch in shapes.capsule_box(local, np.tile(self.capsules.radii, (4, 1)), self._half):
                found.append((self._back(touch, near, is_wall), np.tile(self.capsules.ids, 4)))
        return found

    @property
    def _half(self) -> Vec:
        half = self.scale / 2
        return Vec(half, half, half / 2)

    @staticmethod
    def _back(touch: Touch, near: Vec, is_wall: Array) -> Touch:
        """From the cell's frame to the world's; a free cell touches nothing."""
        return Touch(jnp.where(is_wall, touch.dist, 1.0), touch.pos + near, touch.normal)

    def _nearest_cells(self, centre: Vec) -> tuple[Vec, Array]:
        """centre [G, N] -> the box centres of the 2 x 2 nearest cells [4 * G, N], and whether a wall stands there"""
        scale, codes = self.scale, jnp.asarray(self.codes)
        row, column = jnp.floor(centre.x / scale), jnp.floor(centre.y / scale)
        i = jnp.clip(row + 2, 0, codes.shape[0] - 1).astype(jnp.int32)
        j = jnp.clip(column + 2, 0, codes.shape[1] - 1).astype(jnp.int32)
        code = codes[i, j]  # [G, N]
        steps = [(0, 0), (0, 1), (1, 0), (1, 1)]
        is_wall = jnp.concatenate([(code >> bit) & 1 for bit in range(4)]) == 1
        x = jnp.concatenate([(row + di) * scale for di, _ in steps])
        y = jnp.concatenate([(column + dj) * scale for _, dj in steps])
        return Vec(x, y, jnp.full_like(x, scale / 4)), is_wall


def wall_codes(layout: MazeLayout) -> np.ndarray:
    """[rows + 3, columns + 3]: entry (i + 2, j + 2) has a bit for each wall of the 2 x 2 cells from (i, j) on.

    The border has none: whoever is farther outside than the border looks there.
    """
    walls = np.pad(layout.walls, 2).astype(np.int32)
    return walls[:-1, :-1] + 2 * walls[:-1, 1:] + 4 * walls[1:, :-1] + 8 * walls[1:, 1:]


def _tile(v: Vec) -> Vec:
    return Vec(*(jnp.tile(c, (4, 1)) for c in v))
