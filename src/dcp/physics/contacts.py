"""Every contact of a model that the spring solver must see."""

from collections import defaultdict
from typing import NamedTuple

import mujoco
import numpy as np

from dcp.physics import shapes
from dcp.physics.buffers import joined
from dcp.physics.geoms import BOX, CAPSULE, PLANE, SPHERE, Geoms, colliding_pairs, is_wall
from dcp.physics.shapes import Touch
from dcp.physics.walls import Walls, wall_codes
from dcp.types import Array, MazeLayout


class Contacts(NamedTuple):
    """K contacts of N environments. Links and materials are known when the program is built."""

    touch: Touch  # [K, N] each; the normal points from the first link to the second
    first: np.ndarray  # [K]: link
    second: np.ndarray | None  # [K]: link; None: the world
    friction: np.ndarray  # [K, 1]
    elasticity: np.ndarray  # [K, 1]


class ContactFinder:
    """Contacts of a model with itself, its floor and a maze's walls.

    Pairs that no model here has (box on box, two planes) are refused when it is built, not ignored.
    """

    def __init__(self, model: mujoco.MjModel, elasticity: np.ndarray, layout: MazeLayout | None = None):
        """`model` has the walls as geoms named by `models.add_walls`; `layout` says where they are."""
        self._model, self._elasticity = model, elasticity
        kinds: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        walled, wall = set(), None
        for first, second in colliding_pairs(model):
            if is_wall(model, second):
                walled.add(first)
                wall = second
            else:
                kinds[int(model.geom_type[first]), int(model.geom_type[second])].append((first, second))
        self._wall, self.walls = wall, None
        if wall is not None:
            if layout is None:
                raise ValueError("a model with walls needs the layout that they came from")
            kind = model.geom_type
            spheres = Geoms.of(model, sorted(g for g in walled if kind[g] == SPHERE))
            capsules = Geoms.of(model, sorted(g for g in walled if kind[g] == CAPSULE))
            if spheres.ids.size + capsules.ids.size != len(walled):
                raise ValueError("only spheres and capsules may touch walls")
            self.walls = Walls(layout.scale, wall_codes(layout), spheres, capsules)
        unknown = set(kinds) - {(PLANE, SPHERE), (PLANE, CAPSULE), (SPHERE, SPHERE), (SPHERE, CAPSULE)}
        if unknown:
            raise ValueError(f"no contact maths for geom types {sorted(unknown)} (box: {BOX})")
        self._pairs = {kind: (Geoms.of(model, a), Geoms.of(model, b)) for kind, (a, b) in _columns(kinds).items()}

    def __call__(self, frames: Array) -> list[Contacts]:
        """frames [7, L, N]: pos, rot of each link -> contacts with the world, contacts between links"""
        world, between = [], []
        for kind, (a, b) in self._pairs.items():
            if kind[0] == PLANE:
                world += [(_turned(touch), b.ids, a.ids) for touch in self._floor(frames, a, b)]
            else:
                between.append((_touch(frames, a, b), a.ids, b.ids))
        if self.walls is not None:
            for touch, ids in self.walls.touch(frames):
                world.append((touch, ids, np.full_like(ids, self._wall)))
        groups = (self._gather(parts, parts is world) for parts in (world, between) if parts)
        return list(groups)

    def _floor(self, frames: Array, plane: Geoms, body: Geoms) -> list[Touch]:
        height = plane.offset[:, 2:]  # [K, 1]
        centre, core = body.place(frames)
        if not body.core.any():
            return [shapes.floor_sphere(height, centre, body.radii)]
        return [shapes.floor_sphere(height, end, body.radii) for end in (core.end, core.start)]

    def _gather(self, parts: list[tuple[Touch, np.ndarray, np.ndarray]], world: bool) -> Contacts:
        first = np.concatenate([ids for _, ids, _ in parts])
        second = np.concatenate([ids for _, _, ids in parts])
        touch = joined([touch for touch, _, _ in parts])
        link = self._model.geom_bodyid - 1
        friction = np.maximum(self._model.geom_friction[first, 0], self._model.geom_friction[second, 0])
        elasticity = 0.5 * (self._elasticity[first] + self._elasticity[second])
        return Contacts(
            touch,
            link[first],
            None if world else link[second],
            friction[:, None].astype(np.float32),
            elasticity[:, None].astype(np.float32),
        )


def _columns(kinds: dict) -> dict:
    return {kind: ([a for a, _ in pairs], [b for _, b in pairs]) for kind, pairs in kinds.items()}


def _touch(frames: Array, a: Geoms, b: Geoms) -> Touch:
    centre, _ = a.place(frames)
    other, core = b.place(frames)
    if b.core.any():
        return shapes.sphere_capsule(centre, a.radii, core, b.radii)
    return shapes.sphere_sphere(centre, a.radii, other, b.radii)


def _turned(touch: Touch) -> Touch:
    """The world second: which of two bodies is named first changes nothing but the normal's sign."""
    return touch._replace(normal=-touch.normal)
