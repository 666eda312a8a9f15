"""Forces that keep an arm's joints within their limits and its gripper apart from table and object.

As brax.generalized.constraint and its solver. Environments are the last axis. D: hinges and the pushed body's slides.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from dcp.physics import shapes
from dcp.physics.arm import Pose
from dcp.physics.contacts import Geoms, colliding_pairs
from dcp.physics.kinematics import System
from dcp.physics.models import CAPSULE, PLANE
from dcp.physics.vectors import Vec, column, constant, where
from dcp.types import Array

TOLERANCE = 1e-3  # jaxopt's
SMALLEST_STEP = 1e-6  # below it the step starts again from 1


# What the gripper touches.


class Softness(NamedTuple):
    """MuJoCo's solver parameters of one kind of constraint."""

    time: float
    damping: float
    weakest: float
    strongest: float
    width: float
    middle: float
    power: float

    def reference(self, pos: Array, vel: Array) -> tuple[Array, Array]:
        """Return the impedance, and the acceleration that the constraint asks for."""
        x = jnp.abs(pos) / self.width
        rise = x**self.power / self.middle ** (self.power - 1)
        fall = 1.0 - (1.0 - x) ** self.power / (1.0 - self.middle) ** (self.power - 1)
        impedance = self.weakest + jnp.where(x < self.middle, rise, fall) * (self.strongest - self.weakest)
        impedance = jnp.clip(impedance, self.weakest, self.strongest)
        impedance = jnp.where(x > 1.0, self.strongest, impedance)
        b = 2.0 / (self.strongest * self.time)
        k = 1.0 / (self.strongest * self.time * self.damping) ** 2
        return impedance, -b * vel - k * impedance * pos


class GripperContacts(NamedTuple):
    """Components [C, N]. The normal points from the table to the gripper, from the gripper to the body."""

    dist: Array
    pos: Vec
    normal: Vec
    tangents: tuple[Vec, Vec]


class Gripper:
    """Capsules fixed to one link of the arm, the table (a plane of the world), and one capsule on a sliding body.

    Other grippers are refused.
    """

    def __init__(self, model: mujoco.MjModel, arm_links: int):
        pairs = list(colliding_pairs(model))
        kind, link = model.geom_type, model.geom_bodyid - 1
        tables = sorted({a for a, b in pairs if kind[a] == PLANE})
        capsules = sorted({b for a, b in pairs if kind[a] == PLANE})
        bodies = sorted({b for a, b in pairs if kind[a] == CAPSULE})
        expected = {(t, c) for t in tables for c in capsules} | {(c, b) for c in capsules for b in bodies}
        one_each = len(tables) == len(bodies) == len({int(link[c]) for c in capsules}) == 1
        sound = one_each and set(pairs) == expected and all(kind[g] == CAPSULE for g in capsules + bodies)
        if not sound or not 0 <= link[capsules[0]] < arm_links:
            raise ValueError(
                "the gripper must be capsules of one link of the arm that touch one plane and one other capsule"
            )
        touching = tables + capsules + bodies
        materials = np.concatenate([model.geom_friction[:, :1], model.geom_solref, model.geom_solimp], axis=1)[touching]
        if np.ptp(materials, axis=0).any():
            raise ValueError("everything that touches must have the same friction, solref and solimp")
        self.friction, *softness = materials[0].tolist()  # sliding friction; solref and solimp
        self.softness = Softness(*softness)
        matrix = np.zeros(9)
        mujoco.mju_quat2Mat(matrix, model.geom_quat[tables[0]])
        self.plane = np.stack([model.geom_pos[tables[0]], matrix.reshape(3, 3)[:, 2]])  # [2, 3]: a point, its normal
        self.capsules, self.body = Geoms(model, capsules), Geoms(model, bodies)
        self.link = int(self.capsules.link[0])
        self.table_contacts = 2 * len(capsules)  # they come first, two per capsule; the body's follow, one per capsule
        core = np.linalg.norm(self.capsules.core, axis=1, keepdims=True)
        self._half_lengths = core.astype(np.float32)  # [K, 1]

    def touch(self, pose: Pose, body: Vec) -> GripperContacts:
        """Find the contacts; `body`: the sliding body's origin, [1, N] each."""
        centre = pose.point(self.link, self.capsules.offset)  # [K, N]
        core = pose.direction(self.link, self.capsules.core)
        return _concatenated(self._on_table(centre, core), self._on_body(centre, core, body))

    def _on_table(self, centre: Vec, core: Vec) -> GripperContacts:
        """Return contacts of both ends of each capsule; the tangents follow the capsule, as in MJX."""
        zero = centre.x * 0.0
        normal = Vec(*(zero + c for c in constant(self.plane[1:])))
        axis = core * (1.0 / self._half_lengths)
        flat = axis - normal * normal.dot(axis)
        first = where(flat.norm() < 0.5, _upright(normal), _unit(flat))
        radius = jnp.asarray(self.capsules.radius)[:, None]
        sides = []
        for end in (centre + core, centre - core):
            dist = (end - constant(self.plane[:1])).dot(normal) - radius
            pos = end - normal * (radius + 0.5 * dist)
            sides.append(GripperContacts(dist, pos, normal, (first, normal.cross(first))))
        return _concatenated(*sides)

    def _on_body(self, centre: Vec, core: Vec, body: Vec) -> GripperContacts:
        other = Vec(*(jnp.broadcast_to(c, centre.x.shape) for c in body + constant(self.body.offset)))
        radius, half = jnp.asarray(self.capsules.radius)[:, None], self._half_lengths
        other_half = float(np.linalg.norm(self.body.core))
        along = constant(self.body.core / other_half)
        mine, theirs = closest_points(centre, core * (1.0 / half), half, other, along, other_half)
        touch = shapes.sphere_sphere(mine, radius, theirs, jnp.asarray(self.body.radius)[:, None])
        upright = _upright(touch.normal)
        first = _unit(upright - touch.normal * touch.normal.dot(upright))
        return GripperContacts(touch.dist, touch.pos, touch.normal, (first, touch.normal.cross(first)))


def _concatenated(*parts: GripperContacts) -> GripperContacts:
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *parts)


def _unit(v: Vec) -> Vec:
    length = v.norm()
    return v * (1.0 / jnp.where(length == 0.0, 1e-6, length))


def _upright(normal: Vec) -> Vec:
    """Return y, or z where the normal is too close to y."""
    aside = jnp.abs(normal.y) < 0.5
    return Vec(normal.x * 0.0, jnp.where(aside, 1.0, 0.0), jnp.where(aside, 0.0, 1.0))


def closest_points(
    middle: Vec, along: Vec, half: Array | np.ndarray, middle2: Vec, along2: Vec, half2: float
) -> tuple[Vec, Vec]:
    """Return the closest points of two segments: those of the lines, then corrected at the segments' ends. As in MJX.

    MJX corrects the point of one segment or of the other, whichever is closer. Past the ends the two differ by about
    1e-11 in squared distance, which is less than float32 resolves, and by 2e-4 in the contact's normal: in Brax chance
    decides. So the difference is computed from the positions along the segments, without subtracting squares.
    """
    between = middle - middle2
    cosine, a, b = along.dot(along2), along.dot(between), along2.dot(between)
    t = (cosine * b - a) / (1.0 - cosine * cosine + 1e-6)
    t2 = jnp.clip(b + t * cosine, -half2, half2)
    t = jnp.clip(t, -half, half)
    off, off2 = a + t - cosine * t2, b + cosine * t - t2  # the gap along each segment
    by, by2 = _nearest_place(t - off, half) - t, _nearest_place(t2 + off2, half2) - t2
    first = by * (by + 2.0 * off) < by2 * (by2 - 2.0 * off2)  # what each adds to the squared distance
    return middle + along * jnp.where(first, t + by, t), middle2 + along2 * jnp.where(first, t2, t2 + by2)


def _nearest_place(place: Array, half: Array | np.ndarray | float) -> Array:
    """Return the closest place on a segment to a point at `place` along it; MJX adds 1e-6 to the squared length."""
    shrink = 1e-6 / (4.0 * half * half + 1e-6)
    return jnp.clip(place - (place + half) * shrink, -half, half)


# Constraint rows and their forces.


class ConstraintInputs(NamedTuple):
    """Hold what the constraints of some environments depend on."""

    origin: Array  # [H, 3, N]: the hinges
    hinge: Array  # [H, 3, N]: their axes
    contacts: GripperContacts  # [C, N]
    inverse: Array  # [H, H, N]: of the arm's mass matrix
    q: Array  # [D, N]
    qd: Array  # [D, N]
    force: Array  # [D, N]: all forces but those of the constraints


class Constraints:
    """Limits of the joints and contacts of the gripper, as rows for the solver."""

    def __init__(self, sys: System, gripper: Gripper, hinges: int, pushed: np.ndarray, slide_mass: np.ndarray):
        """`pushed` [S]: the coordinates of the body that is pushed; `slide_mass`: of all after the hinges."""
        self.gripper, self.hinges, model = gripper, hinges, sys.model
        self.joints = np.concatenate([np.arange(hinges), pushed])  # [D]: all but those of bodies that nothing moves
        self.lower, self.upper = sys.limits()[:, self.joints]  # [D] each
        self.slides = np.asarray(sys.axes.vel)[pushed]  # [S, 3]: directions in which the pushed body slides
        self.slide_inverse = 1.0 / slide_mass[pushed - hinges]  # [S]: inverse mass along them
        self.limit_weight = model.dof_invweight0[self.joints].astype(np.float32)  # [D]: inverse weights of the joints
        weight, table = model.body_invweight0[1:, 0].astype(np.float32), gripper.table_contacts
        own, body = weight[gripper.link], weight[gripper.body.link[0]]
        self.contact_weight = np.array([own] * table + [own + body] * (table // 2))  # [C]: of the bodies in contact
        limit_softness = np.concatenate([model.jnt_solref, model.jnt_solimp], axis=1).astype(np.float32)
        if np.ptp(limit_softness, axis=0).any():
            raise ValueError("all limits must be equally soft")
        self.limit_softness = Softness(*limit_softness[0].tolist())
        self.iterations, self.halvings = model.opt.iterations, int(sys.numbers["solver_maxls"])

    def violated(self, q: Array, dist: Array) -> Array:
        """Tell where any constraint acts: q [D, N], dist [C, N] -> [N]."""
        return jnp.any(self._limit_pos(q)[0] < 0.0, axis=0) | jnp.any(dist < 0.0, axis=0)

    def _limit_pos(self, q: Array) -> tuple[Array, Array]:
        below, above = q - column(self.lower), column(self.upper) - q
        return jnp.minimum(jnp.minimum(below, above), 0.0), jnp.where(below < above, 1.0, -1.0)

    def forces(self, at: ConstraintInputs) -> Array:
        """Return the constraints' forces [D, N]."""
        limits, jacobian, diagonal, aref = self._rows(at)
        joints = limits.shape[0]

        def to_joints(x: Array) -> Array:
            """Turn the rows' forces into joint forces [D, N]."""
            return limits * x[:joints] + jnp.sum(jacobian * x[joints:, None], axis=0)

        def to_rows(acceleration: Array) -> Array:
            return jnp.concatenate([limits * acceleration, jnp.sum(jacobian * acceleration[None], axis=1)])

        def multiply(x: Array) -> Array:
            return to_rows(self._accelerate(at, to_joints(x))) + diagonal * x

        b = to_rows(self._accelerate(at, at.force)) - aref
        moving = self.violated(at.q, at.contacts.dist)
        return to_joints(projected_gradient(multiply, b, self.iterations, self.halvings, moving))

    def forces_of_all(self, at: ConstraintInputs) -> Array:
        """Return the same forces from a loop of fixed length with few, wide operations, for GPUs."""
        limits, jacobian, diagonal, aref = self._rows(at)
        rows = jnp.concatenate([jnp.eye(limits.shape[0])[..., None] * limits[None], jacobian])  # [R, D, N]
        accelerations = jax.vmap(partial(self._accelerate, at))(rows)  # [R, D, N]: by each row's force
        b = _weighted(accelerations, at.force) - aref
        moving = self.violated(at.q, at.contacts.dist)
        problem = RowProblem(rows, accelerations, diagonal, b)
        return problem.to_joints(bounded_projected_gradient(problem, self.iterations, self.halvings, moving))

    def _rows(self, at: ConstraintInputs) -> tuple[Array, Array, Array, Array]:
        """Return limits [D, N], each a row with one entry, contact rows [4 C, D, N]; diagonal, reference [R, N]."""
        limits, limit_diag, limit_aref = self._limit_rows(at)
        jacobian, contact_diag, contact_aref = self._contact_rows(at)
        diagonal = jnp.concatenate([limit_diag, contact_diag])
        return limits, jacobian, diagonal, jnp.concatenate([limit_aref, contact_aref])

    def _accelerate(self, at: ConstraintInputs, force: Array) -> Array:
        """[D, N] -> [D, N]"""
        arm = jnp.sum(at.inverse * force[None, : self.hinges], axis=1)
        return jnp.concatenate([arm, column(self.slide_inverse) * force[self.hinges :]])

    def _limit_rows(self, at: ConstraintInputs) -> tuple[Array, Array, Array]:
        pos, side = self._limit_pos(at.q)
        acts = pos < 0.0
        jacobian = jnp.where(acts, side, 0.0)
        impedance, aref = self.limit_softness.reference(pos, jacobian * at.qd)
        diagonal = column(self.limit_weight) * (1.0 - impedance) / (impedance + 1e-8)
        return jacobian, jnp.where(acts, diagonal, 0.0), jnp.where(acts, aref, 0.0)

    def _contact_rows(self, at: ConstraintInputs) -> tuple[Array, Array, Array]:
        """Return four rows per contact: a pyramid of friction around the normal."""
        contacts, table, friction = at.contacts, self.gripper.table_contacts, self.gripper.friction
        count = contacts.dist.shape[0]
        reach = Vec(*(p[:, None] - at.origin[None, :, i] for i, p in enumerate(contacts.pos)))  # [C, H, N]
        swing = Vec(*(at.hinge[None, :, i] for i in range(3))).cross(reach)
        # The gripper is the second body in contacts with the table, and the first in those with the pushed body, which
        # does not touch the table.
        side = np.where(np.arange(count) < table, 1.0, -1.0).astype(np.float32)[:, None, None]
        pushes = np.where(np.arange(count) < table, 0.0, 1.0).astype(np.float32)[:, None, None]
        reaches = (np.arange(self.hinges) <= self.gripper.link).astype(np.float32)[None, :, None]
        slides = constant(self.slides)  # [S, 1]

        def row(direction: Vec) -> Array:
            d = Vec(*(c[:, None] for c in direction))  # [C, 1, N]
            slide = Vec(*(c[None] for c in slides)).dot(d)  # [C, S, N]
            return jnp.concatenate([swing.dot(d) * (side * reaches), slide * pushes], axis=1)  # [C, D, N]

        normal, tangents = row(contacts.normal), [friction * row(t) for t in contacts.tangents]
        acts = contacts.dist < 0.0
        rows = jnp.concatenate([normal + s * t for t in tangents for s in (1.0, -1.0)])  # [4 C, D, N]
        acts, pos = jnp.tile(acts, (4, 1)), jnp.tile(contacts.dist, (4, 1))
        rows = jnp.where(acts[:, None], rows, 0.0)
        impedance, aref = self.gripper.softness.reference(pos, jnp.sum(rows * at.qd[None], axis=1))
        weight = np.tile(self.contact_weight, 4) * (1.0 + friction**2) * 2.0 * friction**2
        diagonal = column(weight) * (1.0 - impedance) / (impedance + 1e-8)
        return rows, jnp.where(acts, diagonal, 0.0), jnp.where(acts, aref, 0.0)


# Brax's constraint solver with the same iterates: jaxopt's accelerated projected gradient with backtracking. It saves
# time in two ways. Residuals are linear, so the extrapolated point's follows from two known ones without a product with
# A. And halving ends when no environment needs it any more, not after the allowed number.


class _Iterate(NamedTuple):
    count: Array  # []
    moving: Array  # [N]
    step: Array  # [1, N]
    x: Array  # [R, N]
    residual: Array  # [R, N]: A x + b
    y: Array  # [R, N]: the extrapolated point
    y_residual: Array  # [R, N]


class _Search(NamedTuple):
    count: Array
    step: Array  # [1, N]
    x: Array
    residual: Array
    too_long: Array  # [1, N]


def projected_gradient(
    multiply: Callable[[Array], Array], b: Array, iterations: int, halvings: int, moving: Array
) -> Array:
    """Minimise |A x + b|^2 / 2 over x >= 0. It stops long before it converges, so every iterate must be Brax's.

    multiply: x [R, N] -> A x; b [R, N]; moving [N]: where there is anything to solve. -> x [R, N]
    """
    momentum = jnp.asarray(_momentum(iterations))

    def more(at: _Iterate) -> Array:
        return (at.count < iterations) & jnp.any(at.moving)

    def iterate(at: _Iterate) -> _Iterate:
        search = _line_search(multiply, b, at, halvings)
        step = jnp.where(search.step <= SMALLEST_STEP, 1.0, 2.0 * search.step)
        change = search.x - at.x
        error = jnp.sqrt(_dot(change, change)) / step  # [1, N]
        beta = momentum[at.count]
        return _Iterate(
            at.count + 1,
            at.moving & (error[0] > TOLERANCE),
            step,
            jnp.where(at.moving[None], search.x, at.x),
            search.residual,
            search.x + beta * change,
            search.residual + beta * (search.residual - at.residual),
        )

    x = jnp.zeros_like(b)
    start = _Iterate(jnp.zeros((), jnp.int32), moving, jnp.ones_like(b[:1]), x, b, x, b)
    return jax.lax.while_loop(more, iterate, start).x


def _line_search(multiply: Callable[[Array], Array], b: Array, at: _Iterate, halvings: int) -> _Search:
    """Find the longest of step, step/2, ... that decreases f enough."""
    gradient = multiply(at.y_residual)  # A is symmetric
    eps = float(jnp.finfo(jnp.float32).eps)

    def attempt(count: Array, step: Array) -> _Search:
        x = jnp.maximum(at.y - step * gradient, 0.0)
        residual = multiply(x) + b
        change, shift = x - at.y, residual - at.y_residual
        # jaxopt's test, step (f(x) - f(y)) > step change . gradient + |change|^2 / 2 + eps, for a quadratic f: without
        # the cancellation, in which float32 loses the answer.
        too_long = step * _dot(shift, shift) > _dot(change, change) + 2.0 * eps
        return _Search(count, step, x, residual, too_long & at.moving[None])

    def more(search: _Search) -> Array:
        return (search.count < halvings) & jnp.any(search.too_long)

    def halve(search: _Search) -> _Search:
        return attempt(search.count + 1, jnp.where(search.too_long, 0.5 * search.step, search.step))

    return jax.lax.while_loop(more, halve, attempt(jnp.zeros((), jnp.int32), at.step))


class RowProblem(NamedTuple):
    """A = rows M^-1 rows^T + diagonal, not formed: D is much smaller than R."""

    rows: Array  # [R, D, N]
    accelerations: Array  # [R, D, N]: rows M^-1
    diagonal: Array  # [R, N]
    b: Array  # [R, N]

    def to_joints(self, x: Array) -> Array:
        """[R, N] -> [D, N]"""
        return jnp.sum(self.rows * x[:, None], axis=0)

    def multiply(self, x: Array) -> Array:
        """[R, N] -> [R, N]"""
        return _weighted(self.accelerations, self.to_joints(x)) + self.diagonal * x


def _weighted(rows: Array, of: Array) -> Array:
    """rows [R, D, N], of [D, N] -> [R, N]: a sum written out, which XLA fuses with whatever reads it"""
    return sum((rows[:, d] * of[None, d] for d in range(rows.shape[1])), start=jnp.zeros(()))


def bounded_projected_gradient(problem: RowProblem, iterations: int, halvings: int, moving: Array) -> Array:
    """Compute the iterates of `projected_gradient` in `iterations` rounds that each try all step lengths at once."""
    halves = jnp.asarray(0.5 ** np.arange(halvings + 1), jnp.float32)[:, None, None]  # [K, 1, 1]
    eps = float(jnp.finfo(jnp.float32).eps)
    b = problem.b

    def iterate(at: _Iterate, beta: Array) -> tuple[_Iterate, None]:
        gradient = problem.multiply(at.y_residual)  # [R, N]; A is symmetric
        steps = at.step[None] * halves  # [K, 1, N]
        points = jnp.maximum(at.y[None] - steps * gradient[None], 0.0)  # [K, R, N]
        residuals = jax.vmap(problem.multiply)(points) + b[None]
        change, drift = points - at.y[None], residuals - at.y_residual[None]
        too_long = steps[:, 0] * jnp.sum(drift * drift, 1) > jnp.sum(change * change, 1) + 2.0 * eps  # [K, N]
        good = ~too_long | ~at.moving[None]
        chosen, residual = steps[-1], residuals[-1]  # the first that is short enough, else the last
        for k in reversed(range(halvings)):
            chosen = jnp.where(good[k : k + 1], steps[k], chosen)  # [1, N]
            residual = jnp.where(good[k : k + 1], residuals[k], residual)  # [R, N]
        x = jnp.maximum(at.y - chosen * gradient, 0.0)
        step = jnp.where(chosen <= SMALLEST_STEP, 1.0, 2.0 * chosen)
        shift = x - at.x
        error = jnp.sqrt(_dot(shift, shift)) / step
        after = _Iterate(
            at.count,
            at.moving & (error[0] > TOLERANCE),
            step,
            jnp.where(at.moving[None], x, at.x),
            residual,
            x + beta * shift,
            residual + beta * (residual - at.residual),
        )
        return after, None

    x = jnp.zeros_like(b)
    start = _Iterate(jnp.zeros((), jnp.int32), moving, jnp.ones_like(b[:1]), x, b, x, b)
    return jax.lax.scan(iterate, start, jnp.asarray(_momentum(iterations)), unroll=5)[0].x


def _dot(a: Array, b: Array) -> Array:
    return jnp.sum(a * b, axis=0, keepdims=True)  # [1, N]


def _momentum(iterations: int) -> np.ndarray:
    """Return FISTA's weights."""
    t, weights = np.float32(1.0), []
    for _ in range(iterations):
        after = np.float32(0.5) * (1 + np.sqrt(1 + 4 * t**2, dtype=np.float32))
        weights.append((t - 1) / after)
        t = after
    return np.asarray(weights, np.float32)
