"""The conditions beyond the paper's, with numbers by hand, at the goal, and against derivatives by differences."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.config import Config
from dcp.errors import UserError
from dcp.interfaces import Representation
from dcp.methods.conditions import Direction
from dcp.methods.more_conditions import Curvature, DirectionAndGoal, Gradient, Steps, TwoStep, bearing
from dcp.methods.table import CONDITIONS, make_agent
from dcp.types import EnvSpec
from tests.support.exports import SCATTERED, untrained

SPEC = EnvSpec("five", state_size=5, goal_size=2, action_size=3, goal_dims=(0, 1), threshold=0.5, episode_length=10)


def representation(encode: Any, steps: Any = None) -> Representation:
    def distance(a: Any, b: Any) -> Any:
        return jnp.linalg.norm(a - b, axis=-1)

    return Representation(encode, distance, lambda state, action, goal: jnp.zeros(state.shape[:-1]), steps)


# psi(x, y) = (2x, y): J = diag(2, 1). psi(x, y) = (x, y^2): J = diag(1, 2y).
STRETCHED = representation(lambda x: x * jnp.array([2.0, 1.0]).reshape((1,) * (x.ndim - 1) + (2,)))
BENT = representation(lambda x: jnp.stack([x[..., 0], x[..., 1] ** 2], axis=-1))
AT, TO = jnp.array([[0.0, 0.0]]), jnp.array([[3.0, 8.0]])


def test_the_gradient_is_the_direction_pulled_back_with_its_norm():
    """u = (6, 8) / 10; J^T u = (1.2, 0.8), of norm sqrt(2.08) = 1.442221."""
    norm = 2.08**0.5
    assert_allclose(Gradient()(STRETCHED, AT, TO), [[1.2 / norm, 0.8 / norm, norm]], rtol=1e-6)


def test_direction_and_goal_is_direction_distance_and_the_goal():
    assert_allclose(DirectionAndGoal()(STRETCHED, AT, TO), [[0.6, 0.8, 10.0, 3.0, 8.0]], rtol=1e-6)


def test_steps_takes_the_critics_own_steps_in_hundreds():
    """A distance of 10 at 0.05 a step is 200 steps: 2."""
    in_steps = STRETCHED._replace(steps=lambda a, b: jnp.linalg.norm(a - b, axis=-1) / 0.05)
    assert_allclose(Steps()(in_steps, AT, TO), [[0.6, 0.8, 2.0]], rtol=1e-6)
    assert_allclose(Steps(unit=50.0)(in_steps, AT, TO), [[0.6, 0.8, 4.0]], rtol=1e-6)


def test_two_step_looks_again_from_one_step_along_the_way():
    """psi(x, y) = (x, y^2) from (0, 1) to (3, 5^0.5): the difference (3, 4), u = (0.6, 0.8), J^T u = (0.6, 1.6).

    A step of 1 along it, (0.6, 1.6) / 1.708801, leads to (0.351123, 1.936329), whose psi is (0.351123, 3.749370): the
    difference is (2.648877, 1.250630), of length 2.929288.
    """
    achieved, commanded = jnp.array([[0.0, 1.0]]), jnp.array([[3.0, 5.0**0.5]])
    seen = TwoStep(step=1.0)(BENT, achieved, commanded)
    length = 2.929288
    assert_allclose(seen, [[0.6, 0.8, 5.0, 2.648877 / length, 1.250630 / length, length]], rtol=1e-5)


def test_two_step_never_looks_beyond_the_goal():
    """The goal is 0.2 away along x, where J is the identity: the second point is the goal, not 5 further."""
    seen = TwoStep(step=5.0)(BENT, jnp.array([[0.0, 0.0]]), jnp.array([[0.2, 0.0]]))
    assert_allclose(seen, [[1.0, 0.0, 0.2, 0.0, 0.0, 0.0]], atol=1e-6)


def test_curvature_is_what_of_psis_speed_is_not_straight():
    """u = (0.6, 0.8), v = (1.2, 0.8) / 1.442221, J v = (2.4, 0.8) / 1.442221 = (1.664101, 0.554700).

    Along u it has 0.6 * 1.664101 + 0.8 * 0.554700 = 1.442221, that is (0.865332, 1.153776); c = that minus J v.
    """
    want = [0.6, 0.8, 10.0, 0.865332 - 1.664101, 1.153776 - 0.554700]
    assert_allclose(Curvature()(STRETCHED, AT, TO), [want], rtol=1e-5)


def test_an_isometry_has_no_curvature():
    plain = representation(lambda x: x)
    assert_allclose(Curvature()(plain, AT, TO)[0, 3:], [0.0, 0.0], atol=1e-6)


@pytest.fixture(scope="module")
def psi() -> Representation:
    """A network's psi, with weights as before training."""
    return untrained("dcp", SCATTERED, condition="direction").representation


def draws(size: int = 3, rows: int = 20) -> tuple[Any, Any]:
    random = np.random.default_rng(1)
    return tuple(jnp.asarray(random.normal(size=(rows, size)), jnp.float32) for _ in range(2))


def test_the_gradient_is_minus_that_of_the_distance(psi: Representation):
    """By central differences of |psi(z) - psi(s)| along each coordinate."""
    achieved, commanded = draws()
    seen = np.asarray(Gradient()(psi, achieved, commanded))
    numbers = []
    for axis in range(3):
        shift = jnp.zeros((1, 3)).at[0, axis].set(1e-2)
        far, near = (psi.distance(psi.encode_goal(x), psi.encode_goal(commanded)) for x in
                     (achieved + shift, achieved - shift))  # fmt: skip
        numbers.append((near - far) / 2e-2)
    assert_allclose(seen[:, :3] * seen[:, 3:], np.stack(numbers, axis=-1), atol=2e-3)
    assert_allclose(np.linalg.norm(seen[:, :3], axis=-1), 1.0, rtol=1e-5)


def test_the_curvature_is_the_directions_turn_times_the_distance(psi: Representation):
    achieved, commanded = draws()
    along, _ = bearing(psi, achieved, commanded)
    before, after = (np.asarray(Direction()(psi, achieved + h * along, commanded)) for h in (-1e-2, 1e-2))
    seen = np.asarray(Curvature()(psi, achieved, commanded))
    turn = (after - before)[:, :-1] / 2e-2 * seen[:, 8:9]
    assert_allclose(seen[:, 9:], turn, atol=5e-3)
    assert_allclose(np.sum(seen[:, 9:] * seen[:, :8], axis=-1), 0.0, atol=1e-4)  # across the direction


def made(name: str) -> Any:
    critic = "tmd" if name == "steps" else "contrastive"
    return make_agent(Config(condition=name, critic=critic, repr_dim=16), SPEC)


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_gives_as_many_numbers_as_it_says_for_any_leading_shape(name: str):
    condition = made(name).condition
    by_steps = STRETCHED._replace(steps=STRETCHED.distance)
    flat, deep = (jnp.ones((6, 2)),) * 2, (jnp.ones((2, 3, 2)),) * 2
    assert condition(by_steps, *flat).shape == (6, condition.size(SPEC, 2))
    assert condition(by_steps, *deep).shape == (2, 3, condition.size(SPEC, 2))


@pytest.mark.parametrize("name", CONDITIONS)
def test_at_the_goal_a_condition_and_its_gradient_are_finite(name: str, psi: Representation):
    condition, at = made(name).condition, jnp.array([[0.3, -0.7, 2.0], [1.0, 0.0, 0.0]])
    psi = psi._replace(steps=psi.distance) if name != "steps" else psi._replace(steps=lambda a, b: jnp.sum(b - a, -1))
    seen = condition(psi, at, at)
    slope = jax.grad(lambda x: jnp.sum(condition(psi, x, at) ** 2))(at)
    assert np.isfinite(np.asarray(seen)).all() and np.isfinite(np.asarray(slope)).all()
    if name not in ("raw_goal", "direction_and_goal"):
        assert_allclose(seen, np.zeros_like(seen), atol=1e-6)


def test_the_second_steps_length_is_the_tasks_threshold():
    assert made("two_step").condition == TwoStep(step=0.5)


def test_steps_are_refused_from_a_critic_that_has_none():
    with pytest.raises(
        UserError, match="the condition steps reads steps to the goal, which the critic contrastive does"
    ):
        make_agent(Config(condition="steps"), SPEC)


@pytest.mark.parametrize("unit", [0.0, -1.0, float("nan"), float("inf")])
def test_a_unit_that_cannot_divide_steps_is_refused(unit: float):
    with pytest.raises(UserError, match="is no number of steps: use one above 0"):
        Steps(unit=unit)
