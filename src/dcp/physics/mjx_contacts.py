"""What touches in a model of spheres and sliding boxes among fixed boxes on a floor, with MJX's contact parameters.

MJX emits a contact for each pair there could be, touching or not, and four for each pair that has a box: 77 contacts
and 318 constraint rows for AntPush, of which a handful act. Contacts that do not touch contribute nothing, so here each
moving geom keeps the two fixed boxes that it penetrates deepest. A sliding box never turns: the four contacts of its
face share one distance and one Jacobian, and are one contact that counts four times.

The environments' axis comes last here, so that a CPU's lanes are full.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import mujoco
import numpy as np

from dcp.physics import shapes
from dcp.physics.shapes import Touch
from dcp.physics.vectors import Vec, where
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
        spheres, boxes, floor, wall = self.spheres, self.boxes, self.floor[0], self.walls[0]
        each_sphere, each_box = np.repeat(spheres, len(boxes)), np.tile(boxes, len(spheres))
        rows = [
            (np.full_like(spheres, floor), spheres, 1),
            (np.full_like(boxes, floor), boxes, FACE),
            (each_sphere, each_box, 1),
            *[(spheres, np.full_like(spheres, wall), 1)] * KEPT,
            *[(np.full_like(boxes, wall), boxes, FACE)] * KEPT,
        ]
        first, second = (np.concatenate([row[i] for row in rows]) for i in (0, 1))
        return Slots(first, second, np.concatenate([np.full(len(row[0]), row[2]) for row in rows]))

    def touch(self, positions: Array) -> Touch:
        """positions [geoms, 3, N] -> [C, N]; normals point from a slot's first geom to its second."""
        sphere, box = _vec(positions[self.spheres]), _vec(positions[self.boxes])  # [spheres, N], [boxes, N]
        radius, half = self.size[self.spheres, :1], _vec(self.size[self.boxes, :, None])
        height = self.position[self.floor[0], 2]
        floor = jnp.asarray(height)
        found = [shapes.floor_sphere(floor, sphere, radius), _floor_box(floor, box, half)]
        found += [
            shapes.sphere_box(_row(sphere, i) - _row(box, j), self.size[g, 0], _row(half, j))
            for i, g in enumerate(self.spheres)
            for j in range(len(self.boxes))
        ]
        found[2:] = [
            Touch(t.dist, t.pos + _row(box, n % len(self.boxes)), t.normal) for n, t in enumerate(found[2:])
        ]
        by_wall = [self._walls_touch(wall, sphere, radius, box, half) for wall in self.walls]
        found += _deepest([spheres for spheres, _ in by_wall])
        found += _deepest([boxes for _, boxes in by_wall])
        return _concatenate(found)

    def _walls_touch(self, wall: int, sphere: Vec, radius: np.ndarray, box: Vec, half: Vec) -> tuple[Touch, Touch]:
        centre = Vec(*(jnp.asarray(c) for c in self.position[wall]))
        size = Vec(*(jnp.asarray(c) for c in self.size[wall]))
        touch = shapes.sphere_box(sphere - centre, radius, size)
        return Touch(touch.dist, touch.pos + centre, touch.normal), _box_box(centre, size, box, half)


def _vec(array: Any) -> Vec:
    """[K, 3, N] -> Vec of [K, N]"""
    return Vec(array[:, 0], array[:, 1], array[:, 2])


def _row(v: Vec, i: int) -> Vec:
    return Vec(*(c[i : i + 1] for c in v))


def _floor_box(floor: Array, box: Vec, half: Vec) -> Touch:
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


def _deepest(touches: list[Touch]) -> list[Touch]:
    """The KEPT of smallest distance, for each geom and environment."""
    kept: list[Touch] = []
    for touch in touches:
        for slot, held in enumerate(kept):
            closer = touch.dist < held.dist
            kept[slot], touch = _choose(closer, touch, held), _choose(closer, held, touch)
        if len(kept) < KEPT:
            kept.append(touch)
    return kept


def _choose(condition: Array, yes: Touch, no: Touch) -> Touch:
    dist = jnp.where(condition, yes.dist, no.dist)
    return Touch(dist, where(condition, yes.pos, no.pos), where(condition, yes.normal, no.normal))


def _concatenate(parts: list[Touch]) -> Touch:
    def join(vectors: list[Vec]) -> Vec:
        return Vec(*(jnp.concatenate(component) for component in zip(*vectors, strict=True)))

    return Touch(jnp.concatenate([p.dist for p in parts]), join([p.pos for p in parts]), join([p.normal for p in parts]))


def _check(model: Any, scene: Scene) -> None:
    """This engine knows one kind of scene: refuse any other instead of stepping it wrongly."""
    fixed, moving = [*scene.floor, *scene.walls], [*scene.spheres, *scene.boxes]
    known = {frozenset((a, b)) for a in fixed for b in moving}
    known |= {frozenset((a, b)) for a in scene.spheres for b in scene.boxes}
    weld = model.body_weldid[model.geom_bodyid]
    meets = (model.geom_contype[:, None] & model.geom_conaffinity[None]) != 0
    pairs = np.argwhere((meets | meets.T) & (weld[:, None] != weld[None]))
    if {frozenset(pair) for pair in pairs.tolist()} != known:
        raise ValueError("every sphere must touch floor, fixed and sliding boxes, every sliding box floor and fixed boxes")
    if len(scene.floor) != 1 or len(scene.walls) < KEPT or model.geom_margin.any():
        raise ValueError(f"a scene has one floor, at least {KEPT} fixed boxes and no contact margins")
    for table in (model.geom_friction, model.geom_solref, model.geom_solimp):
        if np.ptp(table[[*fixed, *moving]], axis=0).any():
            raise ValueError("geoms that touch must share friction, solref and solimp: fixed boxes trade places")
