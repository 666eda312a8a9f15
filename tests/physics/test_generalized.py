"""The pusher's engine against Brax's own pipeline: what was rewritten gives the same numbers."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import jaxopt
import numpy as np
import pytest
from brax import contact
from brax.generalized import dynamics
from numpy.testing import assert_allclose

from dcp.physics import arm as arms
from dcp.physics import models, projected_gradient
from dcp.physics.generalized import GeneralizedEngine, plain_engine

N, HINGES = 256, 7


@pytest.fixture(scope="module")
def engine() -> GeneralizedEngine:
    return GeneralizedEngine(models.system(models.stock("pusher")), frames=5, group=64)


@pytest.fixture(scope="module")
def starts() -> tuple[np.ndarray, np.ndarray]:
    """Poses all over the joints' ranges and beyond, many with the hand on the table or in the object."""
    rng = np.random.default_rng(0)
    low = np.array([-2.3, -0.6, -1.6, -2.4, -1.6, -1.2, -1.6])
    high = np.array([1.8, 1.5, 1.8, 0.1, 1.6, 0.1, 1.6])
    q = np.concatenate([rng.uniform(low, high, (N, 7)), rng.uniform(-0.4, 0.4, (N, 4))], axis=1)
    return q.astype(np.float32), rng.normal(0.0, 1.0, (N, 11)).astype(np.float32)


@pytest.fixture(scope="module")
def both(engine: GeneralizedEngine, starts: tuple[np.ndarray, np.ndarray]) -> SimpleNamespace:
    """One program: Brax's terms and ours for the same poses, the object put where the hand is in half of them."""
    q, qd = starts
    plain, control = plain_engine(engine.sys, 1), np.random.default_rng(1).uniform(-1, 1, (N, 7)).astype(np.float32)
    one_frame = GeneralizedEngine(engine.sys, frames=1, group=64)
    tip = np.asarray(jax.jit(jax.vmap(engine.init))(q, qd).x.pos[:, 6, :2])
    q[::2, 7:9] = (tip - np.array([0.45, -0.05]))[::2, ::-1] + np.random.default_rng(2).normal(0, 0.05, (N // 2, 2))

    def terms(q, qd, control):
        state = plain.init(q, qd)
        after = plain.step(state, control)
        return state, dynamics.inverse(engine.sys, state), contact.get(engine.sys, state.x), after

    state, bias, contacts, after = jax.jit(jax.vmap(terms))(q, qd, control)
    ours = jax.jit(jax.vmap(lambda q, qd, u: one_frame.step(one_frame.init(q, qd), u)))(q, qd, control)

    @jax.jit
    def parts(q, qd):
        pose = arms.pose(engine.arm, q[:HINGES])
        matrix, bias = arms.dynamics(engine.arm, pose, qd[:HINGES])
        return engine._links(q), matrix, bias, arms.inverse(matrix), engine.hand.touch(pose, engine._slid(q, 7))

    return SimpleNamespace(
        state=state, bias=bias, contacts=contacts, after=after, ours=ours, parts=parts(q.T, qd.T), q=q, qd=qd
    )


def test_links_are_where_brax_puts_them(both):
    pos, rot = both.parts[0]
    assert_allclose(pos.transpose(2, 0, 1), both.state.x.pos, atol=2e-6)
    assert_allclose(rot.transpose(2, 0, 1), both.state.x.rot, atol=2e-6)


def test_mass_matrix_its_inverse_and_bias_forces_are_brax_s(both):
    _, matrix, bias, inverse, _ = both.parts
    assert_allclose(np.tril(matrix.transpose(2, 0, 1)), np.tril(both.state.mass_mx[:, :HINGES, :HINGES]), atol=5e-6)
    assert_allclose(bias.T, both.bias[:, :HINGES], atol=2e-5)
    assert_allclose(inverse.transpose(2, 0, 1), both.state.mass_mx_inv[:, :HINGES, :HINGES], atol=2e-4)


def test_contacts_are_brax_s(both):
    """Ours hold the ends of all capsules on the table first (ends + + +, - - -), then capsules against the object."""
    found, order = both.parts[4], np.array([0, 2, 4, 1, 3, 5, 6, 7, 8])
    dist = np.asarray(both.contacts.dist)[:, order]
    assert (dist[:, :6] < 0).any() and (dist[:, 6:] < 0).any(0).all()
    assert_allclose(found.dist.T, dist, atol=2e-6)
    near = dist < 0.0
    for ours, theirs in [
        (found.pos, both.contacts.pos),
        (found.normal, both.contacts.frame[:, :, 0]),
        (found.tangents[0], both.contacts.frame[:, :, 1]),
        (found.tangents[1], both.contacts.frame[:, :, 2]),
    ]:
        assert_allclose(np.stack(ours, -1).transpose(1, 0, 2)[near], np.asarray(theirs)[:, order][near], atol=1e-4)


def test_one_frame_gives_brax_s_state(both):
    """The bar is relative: where the hand starts deep in the object, velocities reach hundreds in one frame."""
    for ours, theirs, was in [(both.ours.q, both.after.q, both.q), (both.ours.qd, both.after.qd, both.qd)]:
        moved = np.abs(np.asarray(theirs) - was).max(1, keepdims=True)
        error = np.abs(np.asarray(ours) - np.asarray(theirs)) / np.maximum(1.0, moved)
        assert np.quantile(error, 0.99) < 1e-5
        assert error.max() < 1e-3


def test_groups_do_not_change_an_environment(engine, both):
    """Solved alone, or among others in any group."""
    alone = jax.jit(engine.step)
    together = jax.jit(jax.vmap(engine.step))
    control = jnp.full((N, 7), 0.5)
    state = jax.vmap(engine.init)(both.q, both.qd)
    after = together(state, control)
    for i in (0, 1, 100):
        one = alone(jax.tree.map(lambda a, i=i: a[i], state), control[i])
        assert_allclose(one.q, after.q[i], atol=1e-4)


def test_the_solver_takes_jaxopt_s_path():
    """A random A = B B' + D of 12 rows for 32 environments; jaxopt one by one."""
    rng = np.random.default_rng(0)
    factor = rng.normal(0.0, 2.0, (32, 12, 5)).astype(np.float32)
    matrix = factor @ factor.transpose(0, 2, 1) + 0.1 * np.eye(12, dtype=np.float32)
    b = rng.normal(0.0, 3.0, (32, 12)).astype(np.float32)

    def theirs(matrix, b):
        solver = jaxopt.ProjectedGradient(
            lambda x: jnp.sum(0.5 * (matrix @ x + b) ** 2),
            jaxopt.projection.projection_non_negative,
            maxiter=20,
            implicit_diff=False,
            maxls=10,
        )
        return solver.run(jnp.zeros_like(b)).params

    turned = jnp.asarray(matrix.transpose(1, 2, 0))
    multiply = lambda x: jnp.sum(turned * x[None], axis=1)  # noqa: E731
    ours = projected_gradient.solve(multiply, jnp.asarray(b.T), 20, 10, jnp.ones(32, bool))
    expected = np.asarray(jax.vmap(theirs)(matrix, b))
    assert np.abs(expected).max() > 0.1
    assert_allclose(ours.T, expected, rtol=1e-3, atol=1e-4)


def test_a_model_that_the_engine_cannot_take_is_refused():
    with pytest.raises(ValueError, match="chain of single hinges"):
        spec = models.stock("pusher")
        spec.body("r_elbow_flex_link").quat = [0.8, 0.6, 0.0, 0.0]
        GeneralizedEngine(models.system(spec), frames=5)
