"""What touches in a model of spheres and sliding boxes among fixed boxes on a floor, with MJX's contact parameters.

MJX emits a contact for each pair there could be, touching or not, and four for each pair that has a box: 77 contacts
and 318 constraint rows for AntPush, of which a handful act. Contacts that do not touch contribute nothing, so here each
moving geom keeps the two fixed boxes that it penetrates deepest. A sliding box never turns: the four contacts of its
face share one distance and one Jacobian, and are one contact that counts four times.

The environments' axis comes last here, so that a CPU's lanes are full.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from dcp.physics import shapes
from dcp.physics.shapes import Touch
from dcp.physics.vectors import Vec
from dcp.types import Array

KEPT = 2  # fixed boxes a geom may touch at once
FACE = 4  # contacts that MJX emits where a box's face touches
PLANE, SPHERE, BOX = mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_BOX
_FAR = 1.0  # the distance that stands for "no contact"


class Slots(NamedTuple):
    """One row a contact slot, all of it fixed when the model is: first geom, second geom, how often it counts."""

    first: np.ndarray  # [C]
    second: np.ndarray  # [C]
    count: np.ndarray  # [C]


class Scene:
    """The model's geoms that can touch, by what they are."""

    def __init__(self, model: Any):
        colliding = (model.geom_contype | model.geom_conaffinity) != 0
        fixed = model.body_weldid[model.geom_bodyid] == 0

        def ids(kind: int, is_fixed: bool) -> np.ndarray:
            return np.flatnonzero(colliding & (model.geom_type == kind) & (fixed == is_fixed))

        self.floor, self.walls = ids(PLANE, True), ids(BOX, True)
        self.spheres, self.boxes = ids(SPHERE, False), ids(BOX, False)
        self.size, self.position = model.geom_size.astype(np.float32), model.geom_pos.astype(np.float32)
        _check(model, self)

    @property
    def slots(self) -> Slots:
        """In the order of `touch`. A wall's slot names the first wall: all of them are alike but for their place."""
        floor, walls = self.floor[0], [self.walls[0]] * KEPT
        rows = []
        for sphere in self.spheres:
            rows.append((floor, sphere, 1))
            rows += [(sphere, other, 1) for other in (*self.boxes, *walls)]
        for box in self.boxes:
            rows += [(other, box, FACE) for other in (floor, *walls)]
        return Slots(*np.array(rows).T)

    def touch(self, positions: Array) -> Touch:
        """positions [geoms, 3, N] -> [C, N]; normals point from a slot's first geom to its second."""
        sphere, box = _vec(positions[self.spheres]), _vec(positions[self.boxes])  # [spheres, N], [boxes, N]
        radius, half = self.size[self.spheres, :1], _vec(self.size[self.boxes, :, None])
        floor = self.position[self.floor[0], 2]
        none = _vec(np.zeros((len(self.spheres), 3, 1), np.float32))
        against_spheres = [shapes.floor_sphere(floor, sphere, radius)]
        for j in range(len(self.boxes)):
            against_spheres.append(_sphere_box(sphere, radius, _row(box, j), _row(half, j)))
        for wall, size in self._nearest_walls(sphere, none):
            against_spheres.append(_sphere_box(sphere, radius, wall, size))
        against_boxes = [_floor_box(floor, box, half)]
        for wall, size in self._nearest_walls(box, half):
            against_boxes.append(_box_box(wall, size, box, half))
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), _join(against_spheres), _join(against_boxes))

    def _nearest_walls(self, centre: Vec, half: Vec) -> list[tuple[Vec, Vec]]:
        """Centres and half sizes of the KEPT fixed boxes nearest to each geom [K, N]."""
        kept: list[tuple[Array, Array]] = []  # how far, which
        for index, wall in enumerate(self.walls):
            outside = [
                jnp.abs(c - p) - (s + h)
                for c, p, s, h in zip(centre, self.position[wall], self.size[wall], half, strict=True)
            ]
            apart = sum(jnp.square(jnp.maximum(o, 0.0)) for o in outside)  # squared distance
            inside = jnp.minimum(jnp.maximum(jnp.maximum(outside[0], outside[1]), outside[2]), 0.0)  # minus the overlap
            new = (apart + inside, jnp.full(inside.shape, index))
            for slot, held in enumerate(kept):
                closer = new[0] < held[0]
                kept[slot], new = _choose(closer, new, held), _choose(closer, held, new)
            if len(kept) < KEPT:
                kept.append(new)
        place, size = self.position[self.walls], self.size[self.walls]  # [walls, 3]
        return [(_vec_of(place, index), _vec_of(size, index)) for _, index in kept]


def _vec(array: Any) -> Vec:
    """[K, 3, N] -> Vec of [K, N]"""
    return Vec(array[:, 0], array[:, 1], array[:, 2])


def _vec_of(table: np.ndarray, index: Array) -> Vec:
    return Vec(*(jnp.asarray(column)[index] for column in table.T))


def _row(v: Vec, i: int) -> Vec:
    return Vec(*(c[i : i + 1] for c in v))


def _choose(condition: Array, yes: tuple[Array, Array], no: tuple[Array, Array]) -> tuple[Array, Array]:
    return jnp.where(condition, yes[0], no[0]), jnp.where(condition, yes[1], no[1])


def _join(touches: list[Touch]) -> Touch:
    """Touches [K, N], one a partner -> [K * partners, N], a geom's own next to each other."""
    return jax.tree.map(lambda *parts: jnp.stack(parts, 1).reshape(-1, parts[0].shape[-1]), *touches)


def _sphere_box(sphere: Vec, radius: Any, box: Vec, half: Vec) -> Touch:
    touch = shapes.sphere_box(sphere - box, radius, half)
    return Touch(touch.dist, touch.pos + box, touch.normal)


def _floor_box(floor: float, box: Vec, half: Vec) -> Touch:
    dist = box.z - half.z - floor
    zero = jnp.zeros_like(dist)
    return Touch(dist, Vec(box.x, box.y, zero + floor), Vec(zero, zero, zero + 1.0))


def _box_box(centre: Vec, size: Vec, box: Vec, half: Vec) -> Touch:
    """Boxes parallel to the axes: they part along the axis of least overlap, the fixed one first."""
    gap = box - centre
    overlap = Vec(*(a + b - jnp.abs(g) for a, b, g in zip(size, half, gap, strict=True)))
    on_x = (overlap.x <= overlap.y) & (overlap.x <= overlap.z)
    on_y = ~on_x & (overlap.y <= overlap.z)
    axes = (on_x, on_y, ~on_x & ~on_y)
    normal = Vec(*(jnp.where(on, jnp.where(g < 0.0, -1.0, 1.0), 0.0) for on, g in zip(axes, gap, strict=True)))
    least = jnp.minimum(jnp.minimum(overlap.x, overlap.y), overlap.z)
    return Touch(jnp.where(least > 0.0, -least, _FAR), box, normal)


def _check(model: Any, scene: Scene) -> None:
    """This engine knows one kind of scene: refuse any other instead of stepping it wrongly."""
    fixed, moving = [*scene.floor, *scene.walls], [*scene.spheres, *scene.boxes]
    known = {frozenset((a, b)) for a in fixed for b in moving}
    known |= {frozenset((a, b)) for a in scene.spheres for b in scene.boxes}
    weld = model.body_weldid[model.geom_bodyid]
    meets = (model.geom_contype[:, None] & model.geom_conaffinity[None]) != 0
    pairs = np.argwhere((meets | meets.T) & (weld[:, None] != weld[None]))
    if {frozenset(pair) for pair in pairs.tolist()} != known:
        raise ValueError(
            "every sphere must touch floor, fixed and sliding boxes, every sliding box floor and fixed boxes"
        )
    if len(scene.floor) != 1 or len(scene.walls) < KEPT or model.geom_margin.any():
        raise ValueError(f"a scene has one floor, at least {KEPT} fixed boxes and no contact margins")
    for table in (model.geom_friction, model.geom_solref, model.geom_solimp):
        if np.ptp(table[[*fixed, *moving]], axis=0).any():
            raise ValueError("geoms that touch must share friction, solref and solimp: fixed boxes trade places")
