"""The pusher's engine against Brax's own pipeline: what was rewritten gives the same numbers.

One program compares them from Brax's own states: 16 environments go on from the golden files' starts in contact for
some frames; 48 start in random poses, many of them deep in the table or the object, and count for one frame only.
Slow, because XLA compiles Brax's step for half a minute, and its first state for as long.
"""

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import jaxopt
import numpy as np
import pytest
from brax.generalized import pipeline
from numpy.testing import assert_allclose

from dcp.physics import models
from dcp.physics.arm_constraints import closest_points, projected_gradient
from dcp.physics.generalized_engine import GeneralizedEngine
from dcp.physics.kinematics import System
from dcp.physics.vectors import Vec
from tests.support.brax_models import brax_system

GOLDEN = Path(__file__).parents[1] / "golden"
ROLLED, RANDOM, FRAMES = 16, 48, 8
HINGES, JOINTS, CONTACTS = 7, 9, 9  # JOINTS: those that a constraint can act on
# Ours hold the ends of all capsules on the table first (+ + +, - - -), then the capsules against the object.
ORDER = np.array([0, 2, 4, 1, 3, 5, 6, 7, 8])


@pytest.fixture(scope="module")
def engine() -> GeneralizedEngine:
    return GeneralizedEngine(System(models.pusher().compile()), frames=1, group=16)


def _starts() -> tuple[np.ndarray, np.ndarray]:
    golden = [np.load(GOLDEN / f"pusher_{name}_contact.npz", allow_pickle=False) for name in ("easy", "hard")]
    rng = np.random.default_rng(0)
    low = np.array([-2.3, -0.6, -1.6, -2.4, -1.6, -1.2, -1.6])
    high = np.array([1.8, 1.5, 1.8, 0.1, 1.6, 0.1, 1.6])
    q = np.concatenate([rng.uniform(low, high, (RANDOM, 7)), rng.uniform(-0.4, 0.4, (RANDOM, 4))], axis=1)
    q = np.concatenate([*(g["q0"] for g in golden), q])
    qd = np.concatenate([*(g["qd0"] for g in golden), rng.normal(0.0, 1.0, (RANDOM, 11))])
    return q.astype(np.float32), qd.astype(np.float32)


@pytest.fixture(scope="module")
def both(engine: GeneralizedEngine) -> SimpleNamespace:
    """Arrays [FRAMES, environments, ...]: Brax's terms, and ours (environments last) for the same states."""
    sys, constraints = engine.sys, engine.constraints
    brax = brax_system(sys.model)
    whole = GeneralizedEngine(sys, frames=1, group=ROLLED + RANDOM)
    controls = np.random.default_rng(1).uniform(-1, 1, (FRAMES, ROLLED + RANDOM, 7)).astype(np.float32)

    def ours(q, qd, control):
        tau = jax.vmap(sys.torques)(control).T
        q, qd = q.T, qd.T
        at = engine._constraint_inputs(q, qd, tau)
        rows = constraints._limit_rows(at), constraints._contact_rows(at)
        forces = engine._constrain(at), whole._constrain(at)
        return at, rows, forces, engine._links(q), engine._frame(q, qd, tau)

    def frame(state, control):
        after = jax.vmap(partial(pipeline.step, brax))(state, control)
        terms = {"x": state.x, "inverse": state.mass_mx_inv, "jac": state.con_jac, "diag": state.con_diag}
        terms |= {"aref": state.con_aref, "force": after.qf_smooth, "constraint": after.qf_constraint}
        terms |= {"q": after.q, "qd": after.qd, "was": state.q}
        return after, (terms, ours(state.q, state.qd, control))

    @jax.jit
    def run(q, qd, controls):
        return jax.lax.scan(frame, jax.vmap(partial(pipeline.init, brax))(q, qd), controls)[1]

    terms, (at, rows, forces, links, after) = jax.device_get(run(*_starts(), controls))
    counts = np.zeros((FRAMES, ROLLED + RANDOM), bool)
    counts[:, :ROLLED] = counts[0] = True
    return SimpleNamespace(
        brax=SimpleNamespace(**terms), at=at, rows=rows, forces=forces, links=links, after=after, counts=counts
    )


def _first(array: np.ndarray) -> np.ndarray:
    """[FRAMES, ..., environments] -> [FRAMES, environments, ...]"""
    return np.moveaxis(array, -1, 1)


def _contact_rows(rows: np.ndarray) -> np.ndarray:
    """Ours [FRAMES, 4 CONTACTS, ..., environments] -> [FRAMES, environments, CONTACTS, 4, ...]"""
    rows = _first(rows)
    return rows.reshape(*rows.shape[:2], 4, CONTACTS, *rows.shape[3:]).swapaxes(2, 3)


def _brax_contact_rows(rows: np.ndarray) -> np.ndarray:
    """The same of Brax's [FRAMES, environments, rows, ...], in our order of contacts"""
    rows = rows[:, :, : 4 * CONTACTS]
    return rows.reshape(*rows.shape[:2], CONTACTS, 4, *rows.shape[3:])[:, :, ORDER]


@pytest.mark.slow
def test_links_are_where_brax_puts_them(both):
    for ours, theirs in zip(both.links, (both.brax.x.pos, both.brax.x.rot), strict=True):
        assert_allclose(_first(ours)[both.counts], theirs[both.counts], atol=2e-6)


@pytest.mark.slow
def test_the_mass_matrix_s_inverse_and_the_smooth_forces_are_brax_s(both):
    ours, theirs = _first(both.at.inverse)[both.counts], both.brax.inverse[both.counts][:, :HINGES, :HINGES]
    assert theirs.max() > 10.0
    assert_allclose(ours, theirs, atol=1e-4)
    assert_allclose(_first(both.at.force)[both.counts], both.brax.force[both.counts][:, :JOINTS], atol=2e-5)


@pytest.mark.slow
def test_the_constraints_rows_are_brax_s(both):
    """All but a few alike to rounding; those few are capsules' contacts of Brax's coin (see closest_points)."""
    limits, contacts = both.rows
    brax, split = both.brax, 4 * CONTACTS
    counts = both.counts
    for ours, theirs, scale in zip(limits[1:], (brax.diag, brax.aref), (1.0, 1e3), strict=True):
        assert_allclose(_first(ours)[counts], theirs[counts][:, split : split + JOINTS], atol=2e-6 * scale, rtol=1e-5)
    assert limits[0].any()

    theirs_jac, theirs_diag, theirs_aref = (_brax_contact_rows(a)[counts] for a in (brax.jac, brax.diag, brax.aref))
    jac, diag, aref = (_contact_rows(a)[counts] for a in contacts)
    acts = theirs_diag[..., 0] > 0.0  # [environments, CONTACTS]
    assert acts[:, :6].sum() > 20 and acts[:, 6:].sum() > 50
    assert_allclose(diag, theirs_diag, rtol=1e-4, atol=1e-4)
    error = np.abs(jac - theirs_jac[..., :JOINTS]).max((2, 3))
    assert error.max() < 2e-3
    assert np.quantile(error[acts], 0.7) < 2e-5
    error = np.abs(aref - theirs_aref).max(2)[acts] / np.abs(theirs_aref[acts]).max(1)
    assert np.quantile(error, 0.7) < 1e-4


@pytest.mark.slow
def test_one_frame_of_a_rollout_gives_brax_s_state(both):
    """To rounding, except where Brax's coin (see closest_points) fell the other way and its solver went elsewhere."""
    q, qd = (_first(a)[:, :ROLLED] for a in both.after)
    error = np.abs(q - both.brax.q[:, :ROLLED]).max(2)  # [FRAMES, ROLLED]
    error_qd = np.abs(qd - both.brax.qd[:, :ROLLED]).max(2)
    contacts = _contact_rows(both.rows[1][0])[:, :ROLLED], _brax_contact_rows(both.brax.jac)[:, :ROLLED, ..., :JOINTS]
    same = np.abs(contacts[0] - contacts[1]).max((2, 3, 4)) < 2e-5
    touching = contacts[1].any((2, 3, 4))
    assert (same & touching).sum() > 32
    assert error[same].max() < 1e-5
    assert error_qd[same].max() < 1e-3
    assert error.max() < 1e-3


@pytest.mark.slow
def test_one_frame_from_a_random_pose_gives_brax_s_state(both):
    """Relative to what moved: deep in the object, one frame is worth hundreds of radians a second."""
    q, theirs = _first(both.after[0])[0], both.brax.q[0]
    moved = np.abs(theirs - both.brax.was[0]).max(1, keepdims=True)
    error = (np.abs(q - theirs) / np.maximum(1.0, moved)).max(1)
    assert np.quantile(error, 0.9) < 1e-5
    assert error.max() < 1e-3


@pytest.mark.slow
def test_groups_do_not_change_an_environment(both):
    by_sixteen, whole = (_first(f)[both.counts] for f in both.forces)
    assert (np.abs(whole).max(1) > 0.0).sum() > 32  # more than two groups full
    assert (np.abs(whole).max(1) == 0.0).any()
    assert_allclose(by_sixteen, whole, rtol=1e-4, atol=1e-4)


def test_the_solver_of_fixed_length_takes_the_path_of_the_one_that_stops(engine):
    """GPUs run the one, CPUs the other: from the golden starts in contact, and from poses deep in the table."""
    q, qd = (jnp.asarray(a).T for a in _starts())
    tau = jnp.asarray(np.random.default_rng(2).normal(0.0, 1.0, qd.shape), jnp.float32)

    @jax.jit
    def forces(q, qd, tau):
        at = engine._constraint_inputs(q, qd, tau)
        violated = engine.constraints.violated(at.q, at.contacts.dist)
        return engine._constrain_in_groups(at), engine.constraints.forces_of_all(at), violated

    stops, fixed, violated = jax.device_get(forces(q, qd, tau))
    assert 20 < violated.sum() < q.shape[1]
    assert not stops[:, ~violated].any() and not fixed[:, ~violated].any()
    scale = np.maximum(np.abs(stops).max(axis=0), 1e-6)  # of each environment's own forces
    gap = np.abs(fixed - stops).max(axis=0) / scale
    # Rounding alone parts them; where a step is on the verge of being halved, by more.
    assert np.mean(gap[violated] < 1e-5) > 0.8 and gap.max() < 1e-2, np.sort(gap)[-8:]


def test_the_closest_points_are_those_of_exact_arithmetic():
    """MJX's formula in float64. On the wrong side of its coin a point is off by up to 1e-5."""
    rng, half, half2 = np.random.default_rng(0), 0.1, 0.05
    middle, middle2, along = rng.normal(0.0, 0.02, (3, 2000, 3))
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    along2 = np.broadcast_to([0.0, 0.0, 1.0], along.shape)
    middle, middle2, along = (a.astype(np.float32) for a in (middle, middle2, along))
    vecs = [
        Vec(*(jnp.asarray(a.T[i : i + 1], jnp.float32) for i in range(3))) for a in (middle, along, middle2, along2)
    ]
    ours = closest_points(vecs[0], vecs[1], jnp.full((1, 1), half), vecs[2], vecs[3], half2)
    ours = [np.concatenate(points).T for points in ours]

    def mended(start, end, point):
        t = np.sum((point - start) * (end - start), 1) / (np.sum((end - start) ** 2, 1) + 1e-6)
        return start + np.clip(t, 0.0, 1.0)[:, None] * (end - start)

    middle, middle2, along = (a.astype(np.float64) for a in (middle, middle2, along))
    between, cosine = middle - middle2, np.sum(along * along2, 1)
    a, b = np.sum(along * between, 1), np.sum(along2 * between, 1)
    t = (cosine * b - a) / (1.0 - cosine**2 + 1e-6)
    t2 = np.clip(b + t * cosine, -half2, half2)
    first, second = middle + along * np.clip(t, -half, half)[:, None], middle2 + along2 * t2[:, None]
    first2 = mended(middle - half * along, middle + half * along, second)
    second2 = mended(middle2 - half2 * along2, middle2 + half2 * along2, first)
    gain = np.sum((second - first2) ** 2, 1) - np.sum((first - second2) ** 2, 1)
    theirs = np.where(gain[:, None] < 0, first2, first), np.where(gain[:, None] < 0, second, second2)
    settled = (np.abs(gain) > 1e-12) & (np.abs(cosine) < 0.9)  # near parallel the lines' closest points run away
    assert settled.mean() > 0.7 and (np.abs(gain[settled]) < 1e-10).mean() > 0.3
    for mine, exact in zip(ours, theirs, strict=True):
        assert_allclose(mine[settled], exact[settled], atol=5e-7)


def test_the_solver_takes_jaxopt_s_path():
    """A random A = B B' + D of 12 rows for 32 environments; jaxopt one by one."""
    rng = np.random.default_rng(0)
    factor = rng.normal(0.0, 2.0, (32, 12, 5)).astype(np.float32)
    matrix = factor @ factor.transpose(0, 2, 1) + 0.1 * np.eye(12, dtype=np.float32)
    b = rng.normal(0.0, 3.0, (32, 12)).astype(np.float32)

    def theirs(matrix, b):
        def half_square(x):
            return jnp.sum(0.5 * (matrix @ x + b) ** 2)

        projection = jaxopt.projection.projection_non_negative
        solver = jaxopt.ProjectedGradient(half_square, projection, maxiter=20, implicit_diff=False, maxls=10)
        return solver.run(jnp.zeros_like(b)).params

    def multiply(x):
        return jnp.sum(jnp.asarray(matrix.transpose(1, 2, 0)) * x[None], axis=1)

    ours = projected_gradient(multiply, jnp.asarray(b.T), 20, 10, jnp.ones(32, bool))
    expected = np.asarray(jax.jit(jax.vmap(theirs))(matrix, b))
    assert np.abs(expected).max() > 0.1
    assert_allclose(ours.T, expected, rtol=1e-3, atol=1e-4)


def test_a_model_that_the_engine_cannot_take_is_refused():
    spec = models.pusher()
    spec.body("r_elbow_flex_link").quat = [0.8, 0.6, 0.0, 0.0]
    with pytest.raises(ValueError, match="chain of single hinges"):
        GeneralizedEngine(System(spec.compile()), frames=5)
