"""Where two shapes touch: MJX's contact maths in closed form, on arrays of pairs of any one shape.

Each function returns dist (negative where they penetrate), pos (midway) and the unit normal from the first shape to the
second. The spring solver ignores a pair that does not penetrate, whose pos and normal have no meaning.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dcp.physics.vectors import Component, Vec, compute_once, where
from dcp.types import Array

_NONE = 1.0  # the distance that stands for "no contact"


class Touch(NamedTuple):
    dist: Array
    pos: Vec
    normal: Vec


class Segment(NamedTuple):
    """A capsule's core."""

    start: Vec
    end: Vec


def floor_sphere(height: Component, centre: Vec, radius: Component) -> Touch:
    """Return the contact of a horizontal floor (first) with a sphere."""
    dist = centre.z - height - radius
    zero, one = jnp.zeros_like(dist), jnp.ones_like(dist)
    return Touch(dist, Vec(centre.x, centre.y, centre.z - (radius + 0.5 * dist)), Vec(zero, zero, one))


def sphere_sphere(first: Vec, radius1: Component, second: Vec, radius2: Component) -> Touch:
    gap = second - first
    length = gap.norm()
    normal = gap * (1.0 / jnp.where(length == 0.0, 1.0, length))
    normal = Vec(jnp.where(length == 0.0, 1.0, normal.x), normal.y, normal.z)
    dist = length - (radius1 + radius2)
    return Touch(dist, first + normal * (radius1 + 0.5 * dist), normal)


def closest_on_segment(segment: Segment, point: Vec) -> Vec:
    along = segment.end - segment.start
    t = (point - segment.start).dot(along) / (along.dot(along) + 1e-6)
    return segment.start + along * jnp.clip(t, 0.0, 1.0)


def sphere_capsule(centre: Vec, radius1: Component, core: Segment, radius2: Component) -> Touch:
    return sphere_sphere(centre, radius1, closest_on_segment(core, centre), radius2)


def sphere_box(centre: Vec, radius: Component, half: Vec) -> Touch:
    """Return the contact of a sphere with a box around the origin, parallel to the axes; `centre` is relative to it."""
    # How far outside each pair of faces the centre is (negative: inside).
    outside = Vec(*(jnp.abs(c) - h for c, h in zip(centre, half, strict=True)))
    # The face with the best separating axis; only it counts where the centre is inside.
    on = _largest(outside)
    nearest = _nearest_on_box(centre, half, outside, on)
    gap = nearest - centre
    length = gap.norm()
    deepest = jnp.maximum(jnp.maximum(outside.x, outside.y), outside.z)
    face = Vec(*(jnp.where(on, -jnp.sign(c), 0.0) for on, c in zip(on, centre, strict=True)))
    inside = deepest <= 0.0
    near = inside | (length < 1e-6)
    normal = where(near, face, gap * (1.0 / jnp.where(near, 1.0, length)))
    signed = jnp.where(inside, deepest, length)
    point = where(inside, centre + face * deepest, nearest)  # on the box's surface

    dist = jnp.where(deepest - radius >= 0.0, _NONE, signed - radius)
    return Touch(dist, (point + centre + normal * radius) * 0.5, normal)


def _largest(v: Vec) -> tuple[Array, Array, Array]:
    """Tell which component is the largest: exactly one of three masks holds."""
    x = (v.x >= v.y) & (v.x >= v.z)
    y = ~x & (v.y >= v.z)
    return x, y, ~x & ~y


def _nearest_on_box(centre: Vec, half: Vec, outside: Vec, on: tuple[Array, Array, Array]) -> Vec:
    """Return the box's point nearest to one outside. Before an edge it is slightly off, toward its start, as in MJX."""
    nearest = []
    for k in range(3):
        u, v = (k + 1) % 3, (k + 2) % 3
        c, h = centre[k], half[k]
        # An edge runs counter-clockwise around the face that is nearest: its normal times the edge's own.
        same_side = (centre[u] >= 0.0) == (centre[v] >= 0.0)
        way = jnp.where(same_side == on[u], 1.0, -1.0)
        t = jnp.clip((way * c + h) * (2.0 * h) / (4.0 * h * h + 1e-6), 0.0, 1.0)
        before_edge = (outside[u] > 0.0) & (outside[v] > 0.0)
        nearest.append(jnp.where(before_edge, way * (2.0 * t - 1.0) * h, jnp.clip(c, -h, h)))
    return Vec(*nearest)


class _Edge(NamedTuple):
    """A box edge, seen from a capsule's core."""

    square: Array  # squared distance
    on_edge: Vec
    on_core: Vec
    front: Array  # True where the core lies before both faces that meet in the edge


def capsule_box(core: Segment, radius: Component, half: Vec) -> tuple[Touch, Touch]:
    """Return the contacts with a box around the origin, parallel to the axes: two with a face, or one with an edge."""
    # The face of least penetration: +-x, +-y, +-z by how far the core's deeper end is behind it.
    low = Vec(*(jnp.minimum(a, b) for a, b in zip(core.start, core.end, strict=True)))
    high = Vec(*(jnp.maximum(a, b) for a, b in zip(core.start, core.end, strict=True)))
    support = Vec(*(jnp.maximum(a, -b) - h for a, b, h in zip(low, high, half, strict=True)))
    on = _largest(support)
    face = Vec(*(jnp.where(o, jnp.where(a >= -b, 1.0, -1.0), 0.0) for o, a, b in zip(on, low, high, strict=True)))
    depth = jnp.maximum(jnp.maximum(support.x, support.y), support.z)

    t0, t1, clipped = compute_once(_clip_to_face(core, half, on))
    touches = clipped & (depth - radius < 0.0)
    along = core.end - core.start
    ends = [core.start + along * t for t in (t0, t1)]
    plane = face.x * face.x * half.x + face.y * face.y * half.y + face.z * face.z * half.z  # the face's distance
    push = [jnp.where(touches, plane + radius - end.dot(face), -_NONE) for end in ends]  # how deep each end is
    pos = [end + face * (0.5 * (plane + radius - end.dot(face)) - radius) for end in ends]

    push, pos, face = compute_once((push, pos, face))
    edge = _nearest_edge(core, half)
    length = jnp.sqrt(edge.square)
    apart = edge.square >= 1e-6
    axis = (edge.on_edge - edge.on_core) * (1.0 / jnp.where(apart, length, 1.0))
    axis, edge_push = compute_once((axis, jnp.where(apart & edge.front, radius - length, -_NONE)))
    least = jnp.minimum(*push)
    on_edge = (
        (edge_push > 0.0)
        & ((least <= 0.0) | (edge_push < least))  # the shallower of the two
        & ~(jnp.abs(axis.dot(face)) > 0.99)  # an edge seen face on is a face
    )
    edge_pos = (edge.on_edge + edge.on_core + axis * radius) * 0.5
    first = Touch(
        -jnp.where(on_edge, edge_push, push[0]), where(on_edge, edge_pos, pos[0]), where(on_edge, axis, -face)
    )
    return first, Touch(-jnp.where(on_edge, -_NONE, push[1]), pos[1], -face)


def _clip_to_face(core: Segment, half: Vec, on: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
    """Return the part [t0, t1] of the core that lies above the face, and whether there is any."""
    t0, t1 = jnp.zeros_like(core.start.x), jnp.ones_like(core.start.x)
    valid = jnp.ones_like(core.start.x, dtype=bool)
    for a, b, h, is_normal in zip(core.start, core.end, half, on, strict=True):
        slope = b - a
        inverse = 1.0 / jnp.where(slope == 0.0, 1e-6, slope)
        for side in (1.0, -1.0):
            start_out = (side * a - h > 3e-7) & ~is_normal
            end_out = (side * b - h > 3e-7) & ~is_normal
            t = jnp.clip((side * h - a) * inverse, 0.0, 1.0)
            t0 = jnp.where(start_out, jnp.maximum(t0, t), t0)
            t1 = jnp.where(end_out, jnp.minimum(t1, t), t1)
            valid &= ~(start_out & end_out)
    return t0, t1, valid & (t1 >= t0)


def _nearest_edge(core: Segment, half: Vec) -> _Edge:
    """Find the nearest edge: of each direction's four only the one on the core's side can be within reach.

    Exact where it matters: an edge within a radius of the core lies on the side of the core's middle, because a capsule
    reaches less far than the box's smallest half (see `contacts.Walls`). Beyond a radius there is no edge contact.
    """
    along = core.end - core.start
    length = along.norm()
    direction = along * (1.0 / (length + 1e-6 * (length == 0.0)))
    middle = core.start + direction * (0.5 * length)
    direction, middle, length = compute_once((direction, middle, length))
    sign = Vec(*(jnp.where(c >= 0.0, 1.0, -1.0) for c in middle))
    corner = Vec(*(s * h for s, h in zip(sign, half, strict=True)))
    edges = []
    for parallel in range(3):
        edge_middle = Vec(*(jnp.zeros_like(c) if i == parallel else c for i, c in enumerate(corner)))
        on_edge, on_core = _closest_to_edge(
            edge_middle, parallel, half[parallel], core.start, along, middle, direction, 0.5 * length
        )
        gap = on_edge - on_core
        u, v = (i for i in range(3) if i != parallel)
        front = (sign[u] * gap[u] < 0.0) & (sign[v] * gap[v] < 0.0)
        edges.append(compute_once(_Edge(gap.dot(gap), on_edge, on_core, front)))
    return compute_once(_nearer(_nearer(edges[0], edges[1]), edges[2]))


def _nearer(first: _Edge, second: _Edge) -> _Edge:
    closer = second.square < first.square
    return jax.tree.map(lambda a, b: jnp.where(closer, b, a), first, second)


def _closest_to_edge(
    edge_middle: Vec,
    parallel: int,
    half_edge: Component,
    start: Vec,
    along: Vec,
    middle: Vec,
    direction: Vec,
    half_core: Array,
) -> tuple[Vec, Vec]:
    """Return the closest points of an axis-parallel edge and a core: of the lines, corrected where an end cuts them."""
    between = edge_middle - middle
    cosine = direction[parallel]
    across = direction.dot(between)
    t_edge = (-between[parallel] + cosine * across) / (1.0 - cosine * cosine + 1e-6)
    t_core = jnp.clip(across + t_edge * cosine, -half_core, half_core)
    t_edge = jnp.clip(t_edge, -half_edge, half_edge)
    on_edge = _shift(edge_middle, parallel, t_edge)
    on_core = middle + direction * t_core

    t = jnp.clip((on_core[parallel] + half_edge) * 2.0 * half_edge / (4.0 * half_edge * half_edge + 1e-6), 0.0, 1.0)
    other_edge = _shift(edge_middle, parallel, (2.0 * t - 1.0) * half_edge)
    t = jnp.clip((on_edge - start).dot(along) / (along.dot(along) + 1e-6), 0.0, 1.0)
    other_core = start + along * t
    gap_edge, gap_core = on_core - other_edge, on_edge - other_core
    by_edge = gap_edge.dot(gap_edge) < gap_core.dot(gap_core)
    return where(by_edge, other_edge, on_edge), where(by_edge, on_core, other_core)


def _shift(point: Vec, axis: int, by: Array) -> Vec:
    return Vec(*(c + by if i == axis else c for i, c in enumerate(point)))
