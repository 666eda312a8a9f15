"""Every contact of a model that the spring solver must see: with itself, with the floor and with a maze's walls.

Walls are looked up on the maze's grid: only the 2 x 2 cells nearest to a geom are tested, so the cost does not grow
with the maze. This is exact as long as a geom reaches no farther than half a wall's height (a quarter of a cell) from
its centre, which is checked.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import mujoco
import numpy as np

from dcp.physics import shapes
from dcp.physics.models import BOX, CAPSULE, PLANE, SPHERE, WALL
from dcp.physics.shapes import Segment, Touch
from dcp.physics.vectors import Vec, compute_once, concatenate_once, constant, quat, rotate, vec
from dcp.types import Array, MazeLayout


def colliding_pairs(model: mujoco.MjModel) -> Iterator[tuple[int, int]]:
    """Yield pairs by MuJoCo's rule: contype and conaffinity match; not within one body or between parent and child.

    The geom of the lower type comes first.
    """
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


class Geoms:
    """Some geoms of a model, fixed to links."""

    def __init__(self, model: mujoco.MjModel, ids: list[int]):
        self.ids = np.asarray(ids, int)  # [G]
        matrix = np.zeros((len(self.ids), 9))
        for row, geom in zip(matrix, self.ids, strict=True):
            mujoco.mju_quat2Mat(row, model.geom_quat[geom])
        length = np.where(model.geom_type[self.ids] == CAPSULE, model.geom_size[self.ids, 1], 0.0)
        core = matrix.reshape(-1, 3, 3)[:, :, 2] * length[:, None]
        self.link = model.geom_bodyid[self.ids] - 1  # [G]
        self.offset = model.geom_pos[self.ids].astype(np.float32)  # [G, 3]: the centre in the link's frame
        self.core = core.astype(np.float32)  # [G, 3]: from the centre to a capsule's end; zero for a sphere
        self.radius = model.geom_size[self.ids, 0].astype(np.float32)  # [G]
        self.radii = self.radius[:, None]  # [G, 1]

    def place(self, frames: Array) -> tuple[Vec, Segment]:
        """Return centres [G, N] and capsules' cores in the world; frames [7, L, N]: pos, rot of each link."""
        mine = frames[:, self.link]  # [7, G, N]
        rot = quat(mine[3:])
        centre = vec(mine) + rotate(constant(self.offset), rot)
        if not self.core.any():
            return centre, Segment(centre, centre)
        core = rotate(constant(self.core), rot)
        return centre, Segment(centre - core, centre + core)


@dataclass(frozen=True)
class Walls:
    """A maze's wall cells, and the geoms that look up their own neighbourhood among them."""

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
        half = Vec(self.scale / 2, self.scale / 2, self.scale / 2 / 2)
        touches = []
        if self.spheres.ids.size:
            centre, _ = self.spheres.place(frames)
            near, is_wall = self._nearest_cells(centre)
            near, is_wall, local = compute_once((near, is_wall, _tile(centre) - near))
            touch = shapes.sphere_box(local, np.tile(self.spheres.radii, (4, 1)), half)
            touches.append((_to_world(touch, near, is_wall), np.tile(self.spheres.ids, 4)))
        if self.capsules.ids.size:
            centre, core = self.capsules.place(frames)
            near, is_wall = self._nearest_cells(centre)
            local = Segment(_tile(core.start) - near, _tile(core.end) - near)
            near, is_wall, local = compute_once((near, is_wall, local))
            for touch in shapes.capsule_box(local, np.tile(self.capsules.radii, (4, 1)), half):
                touches.append((_to_world(touch, near, is_wall), np.tile(self.capsules.ids, 4)))
        return touches

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
    """Return [rows + 3, columns + 3]: entry (i + 2, j + 2) has a bit for each wall of the 2 x 2 cells from (i, j) on.

    The border has none: a geom that is farther outside than the border looks there.
    """
    walls = np.pad(layout.walls, 2).astype(np.int32)
    return walls[:-1, :-1] + 2 * walls[:-1, 1:] + 4 * walls[1:, :-1] + 8 * walls[1:, 1:]


def _tile(v: Vec) -> Vec:
    return Vec(*(jnp.tile(c, (4, 1)) for c in v))


def _to_world(touch: Touch, near: Vec, is_wall: Array) -> Touch:
    """Move a touch from the cell's frame to the world's; a free cell touches nothing."""
    return Touch(jnp.where(is_wall, touch.dist, 1.0), touch.pos + near, touch.normal)


class Contacts(NamedTuple):
    """K contacts of N environments. Links and materials are known when the program is built."""

    touch: Touch  # [K, N] each; the normal points from the first link to the second
    first: np.ndarray  # [K]: link
    second: np.ndarray | None  # [K]: link; None: the world
    friction: np.ndarray  # [K, 1]


class ContactFinder:
    """Finds contacts of a model with itself, its floor and a maze's walls.

    Pairs that no model here has (box on box, two planes) are refused when it is built, not ignored.
    """

    def __init__(self, model: mujoco.MjModel, layout: MazeLayout | None = None):
        """`model` has the walls as geoms named by `models.add_walls`; `layout` says where they are."""
        self._model = model
        pairs: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        walled, wall, kind = set(), None, model.geom_type
        for first, second in colliding_pairs(model):
            if model.geom(second).name.startswith(f"{WALL}_"):
                walled.add(first)
                wall = second
            else:
                pairs[int(kind[first]), int(kind[second])].append((first, second))
        self._wall, self.walls = wall, None
        if wall is not None:
            if layout is None:
                raise ValueError("a model with walls needs the layout that they came from")
            spheres = Geoms(model, sorted(g for g in walled if kind[g] == SPHERE))
            capsules = Geoms(model, sorted(g for g in walled if kind[g] == CAPSULE))
            if spheres.ids.size + capsules.ids.size != len(walled):
                raise ValueError("only spheres and capsules may touch walls")
            self.walls = Walls(layout.scale, wall_codes(layout), spheres, capsules)
        unknown = set(pairs) - {(PLANE, SPHERE), (PLANE, CAPSULE), (SPHERE, SPHERE), (SPHERE, CAPSULE)}
        if unknown:
            raise ValueError(f"no contact maths for geom types {sorted(unknown)} (box: {BOX})")
        self._pairs = {
            kinds: (Geoms(model, [a for a, _ in geoms]), Geoms(model, [b for _, b in geoms]))
            for kinds, geoms in pairs.items()
        }

    def __call__(self, frames: Array) -> list[Contacts]:
        """frames [7, L, N]: pos, rot of each link -> contacts with the world, contacts between links"""
        world, between = [], []
        for (kind, _), (a, b) in self._pairs.items():
            if kind == PLANE:
                # The world comes second: the order of two bodies only changes the normal's sign.
                touches = (touch._replace(normal=-touch.normal) for touch in _on_floor(frames, a, b))
                world += [(touch, b.ids, a.ids) for touch in touches]
            else:
                between.append((_between(frames, a, b), a.ids, b.ids))
        if self.walls is not None:
            for touch, ids in self.walls.touch(frames):
                world.append((touch, ids, np.full_like(ids, self._wall)))
        return [self._gather(parts, parts is world) for parts in (world, between) if parts]

    def _gather(self, parts: list[tuple[Touch, np.ndarray, np.ndarray]], world: bool) -> Contacts:
        first = np.concatenate([ids for _, ids, _ in parts])
        second = np.concatenate([ids for _, _, ids in parts])
        link = self._model.geom_bodyid - 1
        friction = np.maximum(self._model.geom_friction[first, 0], self._model.geom_friction[second, 0])
        return Contacts(
            concatenate_once([touch for touch, _, _ in parts]),
            link[first],
            None if world else link[second],
            friction[:, None].astype(np.float32),
        )


def _on_floor(frames: Array, plane: Geoms, body: Geoms) -> list[Touch]:
    height = plane.offset[:, 2:]  # [K, 1]
    centre, core = body.place(frames)
    ends = (core.end, core.start) if body.core.any() else (centre,)
    return [shapes.floor_sphere(height, end, body.radii) for end in ends]


def _between(frames: Array, a: Geoms, b: Geoms) -> Touch:
    centre, _ = a.place(frames)
    other, core = b.place(frames)
    if b.core.any():
        return shapes.sphere_capsule(centre, a.radii, core, b.radii)
    return shapes.sphere_sphere(centre, a.radii, other, b.radii)
