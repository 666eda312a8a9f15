"""Theorem 1: the action is a function of the gradient, linear under quadratic cost; and where that ends."""

import numpy as np
from hypothesis import given
from numpy.testing import assert_allclose

from tests.support.random_systems import SEEDS, curved, ends, examples, linear
from tools.theory.control_systems import Curved, Linear, feedback, unit
from tools.theory.theorems import hjb_action, magnitude_from_direction


@examples(150)
@given(SEEDS)
def test_the_action_found_from_values_of_the_distance_is_the_law(seed: int):
    rng = np.random.default_rng(seed)
    system = curved(rng)
    s, g = ends(rng, len(system.B))
    assert_allclose(hjb_action(system, s, g), feedback(system.terms(s), system.gradient(s, g)), rtol=1e-4, atol=1e-4)


def test_the_law_holds_with_drift():
    rng = np.random.default_rng(3)
    for _ in range(3):
        system = linear(rng)
        s, g = ends(rng, 2)
        assert_allclose(
            hjb_action(system, s, g), feedback(system.terms(s), system.gradient(s, g)), rtol=1e-3, atol=1e-3
        )


@examples(60)
@given(SEEDS)
def test_two_goals_with_one_gradient_are_given_one_action(seed: int):
    """Goals behind each other on one path, so that g differs and the gradient does not."""
    rng = np.random.default_rng(seed)
    system = curved(rng)
    s, far = ends(rng, len(system.B))
    near = system.on_path(s, far, 0.5)
    assert_allclose(system.gradient(s, near), system.gradient(s, far), rtol=1e-8, atol=1e-10)
    assert_allclose(hjb_action(system, s, near), hjb_action(system, s, far), rtol=1e-4, atol=1e-4)


def test_goals_with_other_gradients_are_given_other_actions():
    point = Linear(A=np.zeros((2, 2)), G=np.eye(2), R=np.eye(2))
    s = np.zeros(2)
    east, north = (hjb_action(point, s, goal) for goal in np.eye(2))
    assert_allclose([east, north], np.sqrt(2) * np.eye(2), atol=1e-4)


@examples(200)
@given(SEEDS)
def test_the_direction_sets_the_orientation_and_the_price_of_time_the_scale(seed: int):
    """Four times c0: the gradient twice as long in the same direction, the action twice as large."""
    rng = np.random.default_rng(seed)
    system = curved(rng)
    dear = type(system)(**(vars(system) | {"c0": 4 * system.c0}))
    s, g = ends(rng, len(system.B))
    p, longer = system.gradient(s, g), dear.gradient(s, g)
    assert_allclose(unit(longer), unit(p), rtol=1e-9, atol=1e-12)
    assert_allclose(feedback(dear.terms(s), longer), 2 * feedback(system.terms(s), p), rtol=1e-9, atol=1e-12)
    assert_allclose(unit(feedback(system.terms(s), unit(p))), unit(feedback(system.terms(s), p)), rtol=1e-9, atol=1e-12)


@examples(200)
@given(SEEDS)
def test_the_direction_determines_the_magnitude(seed: int):
    """HJB has one positive root: with a price of time (s, direction) is enough, theorem 1 asks for more."""
    rng = np.random.default_rng(seed)
    system = curved(rng)
    s, g = ends(rng, len(system.B))
    p = system.gradient(s, g)
    assert_allclose(magnitude_from_direction(system.terms(s), unit(p)), np.linalg.norm(p), rtol=1e-9)


@examples(15)
@given(SEEDS)
def test_the_direction_determines_the_magnitude_with_drift_too(seed: int):
    rng = np.random.default_rng(seed)
    system = linear(rng)
    s, g = ends(rng, 2)
    p = system.gradient(s, g)
    assert_allclose(magnitude_from_direction(system.terms(s), unit(p)), np.linalg.norm(p), rtol=1e-7)


def test_the_distance_is_not_the_gradients_magnitude():
    """r_t is d*, theorem 1's scale is |grad d*|: on the way to g the one shrinks to nothing, the other stays."""
    point = Linear(A=np.zeros((2, 2)), G=np.eye(2), R=np.eye(2), c0=0.5)
    near, far, g = np.array([0.9, 0.0]), np.array([0.0, 0.0]), np.array([1.0, 0.0])
    assert_allclose([point.distance(near, g), point.distance(far, g)], [0.1, 1.0], rtol=1e-9)
    assert_allclose([np.linalg.norm(point.gradient(s, g)) for s in (near, far)], [1.0, 1.0], rtol=1e-9)


def test_must_fail_with_actions_in_a_box_the_law_is_not_the_best_action():
    """The linear law takes A = R^m for granted. R couples the actions: cutting the law off is no cure."""
    system = Curved(B=np.eye(2) / 2, R0=np.array([[1.0, 0.8], [0.8, 1.0]]), c0=2.0)
    s, g = np.zeros(2), np.array([1.0, 0.05])
    law = feedback(system.terms(s), system.gradient(s, g))
    boxed = hjb_action(system, s, g, largest=0.5)
    assert np.abs(law).max() > 0.5
    assert np.linalg.norm(boxed - np.clip(law, -0.5, 0.5)) > 0.1
