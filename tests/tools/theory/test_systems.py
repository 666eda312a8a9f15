"""Every d* against hand-computed numbers, its own HJB equation, and a second way to compute it."""

import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose

from tests.support.numerical_distances import best_found, distances_to, grid
from tests.support.random_systems import SEEDS, curved, ends, examples, linear
from tools.theory.control_systems import Curved, Linear, hjb_residual, point_with_inertia
from tools.theory.counterexamples import cost_when_slowed
from tools.theory.unicycle import Unicycle


def differences(distance, s: np.ndarray, step: float = 1e-6) -> np.ndarray:
    return np.array([(distance(s + step * e) - distance(s - step * e)) / (2 * step) for e in np.eye(len(s))])


def test_the_linear_quadratic_point_has_the_distance_computed_by_hand():
    # M = G^-T R G^-1 = diag(1/4, 4) with G = diag(2, 1), R = diag(1, 4). |(2, 1)|_M^2 = 1 + 4, d* = sqrt(2 c0) sqrt(5).
    point = Linear(A=np.zeros((2, 2)), G=np.diag([2.0, 1.0]), R=np.diag([1.0, 4.0]), c0=2.0)
    s, g = np.array([1.0, 1.0]), np.array([3.0, 2.0])
    assert_allclose(point.distance(s, g), 2 * np.sqrt(5))
    assert_allclose(
        point.gradient(s, g), 2 / np.sqrt(5) * np.array([-0.25 * 2, -4.0 * 1])
    )  # sqrt(2 c0) M (s - g) / |.|_M
    flat = Curved(B=np.diag([0.25, 1.0]), c0=2.0)  # the metric is 4 B'B
    assert_allclose(flat.distance(s, g), 2 * np.sqrt(5))
    assert_allclose(flat.gradient(s, g), point.gradient(s, g))


def test_a_quarter_of_a_unit_sphere_is_half_pi():
    sphere = Curved(B=np.eye(2) / 2, curvature=1.0, c0=0.5)
    assert_allclose(sphere.distance(np.zeros(2), np.array([2.0, 0.0])), np.pi / 2)


def test_wind_makes_the_way_with_it_cheaper_than_the_way_back():
    # d* = |x| sqrt(2 c0 + |w|^2) - x'w for G = R = 1: here sqrt(2 * 1.5 + 1) = 2, x'w = 1 and -1.
    windy = Linear(A=np.zeros((2, 2)), G=np.eye(2), R=np.eye(2), c0=1.5, wind=np.array([1.0, 0.0]))
    here, there = np.zeros(2), np.array([1.0, 0.0])
    assert_allclose([windy.distance(here, there), windy.distance(there, here)], [1.0, 3.0])


def test_a_body_with_inertia_pays_three_halves_of_what_it_misses_over_the_time_cubed():
    body, s, g = point_with_inertia(), np.array([0.0, 0.5]), np.array([1.0])
    time = np.linspace(0.5, 3, 200_001)
    assert_allclose(body.distance(s, g), np.min(time + 3 * (1 - 0.5 * time) ** 2 / (2 * time**3)), rtol=1e-9)


@examples(200)
@given(SEEDS)
def test_a_curved_systems_gradient_solves_hjb_and_is_the_distances_own(seed: int):
    rng = np.random.default_rng(seed)
    system = curved(rng)
    s, g = ends(rng, len(system.B))
    p = system.gradient(s, g)
    assert_allclose(p, differences(lambda x: system.distance(x, g), s), rtol=1e-5, atol=1e-7)
    assert_allclose(hjb_residual(system.terms(s), p), 0, atol=1e-10)


@examples(200)
@given(SEEDS)
def test_a_curved_systems_path_splits_its_distance(seed: int):
    rng = np.random.default_rng(seed)
    system = curved(rng)
    s, g = ends(rng, len(system.B))
    share = rng.uniform(0.1, 0.9)
    z = system.on_path(s, g, share)
    whole = system.distance(s, g)
    assert_allclose([system.distance(s, z), system.distance(z, g)], [share * whole, (1 - share) * whole], rtol=1e-9)


@examples(10)
@given(SEEDS)
def test_a_curved_systems_distance_is_what_following_its_path_costs(seed: int):
    """The actions that move along the path, by G^-1, and their cost: nothing of d* goes into it but the path."""
    rng = np.random.default_rng(seed)
    system = curved(rng)
    s, g = ends(rng, len(system.B))
    cost = cost_when_slowed(system, s, g, slower=1.0, c0=1.0, points=100)
    assert_allclose(cost, system.distance(s, g) / np.sqrt(system.c0), rtol=1e-3)


@examples(10)
@given(SEEDS)
def test_a_linear_systems_gradient_solves_hjb_and_is_the_distances_own(seed: int):
    rng = np.random.default_rng(seed)
    system = linear(rng)
    s, g = ends(rng, 2)
    p = system.gradient(s, g)
    assert_allclose(p, differences(lambda x: system.distance(x, g), s, 1e-5), rtol=1e-4, atol=1e-6)
    assert_allclose(hjb_residual(system.terms(s), p), 0, atol=1e-9)
    assert_allclose(system.on_path(s, g, 1.0), g, atol=1e-9)


def test_driving_on_and_turning_on_the_spot_cost_what_they_should():
    car = Unicycle(drive_price=4.0, turn_price=9.0, c0=2.0)  # sqrt(2 c0) sqrt(price) times how far: 2 * 2 and 2 * 3
    s = np.array([0.3, -0.2, 0.7])
    ahead = s + 0.5 * np.array([np.cos(0.7), np.sin(0.7), 0.0])
    assert_allclose(car.distance(s, ahead), 4 * 0.5)
    assert_allclose(car.distance(s, s + np.array([0, 0, 0.5])), 6 * 0.5)


def test_a_unicycles_gradient_solves_hjb_and_is_the_distances_own():
    car, s, g = Unicycle(), np.array([0.1, 0.2, 0.5]), np.array([0.7, 0.9, 1.0])
    p = car.gradient(s, g)
    assert_allclose(hjb_residual(car.terms(s), p), 0, atol=1e-12)
    assert_allclose(p, differences(lambda x: car.distance(x, g), s, 1e-4), rtol=1e-5)


def test_shortest_paths_on_a_grid_converge_to_the_exact_distance():
    """Half the grid step and twice the moves: less than half the error, and never too short but for rounding."""
    system = Curved(np.array([[1.0, 0.3], [0.0, 0.8]]), 0.6, 0.4, np.array([[1.5, 0.2], [0.2, 1.0]]), 0.4, c0=0.8)
    worst = []
    for points, reach in ((13, 1), (25, 2), (49, 4)):
        states, goal = grid(-1, 1, points), (points // 2, points // 2)
        inner = np.all(np.abs(states) <= 0.5, -1)  # from further out the shortest way may lead outside
        inner[goal] = False
        error = distances_to(system.metric, states, goal, 0.8, reach)[inner] - system.distance(
            states[inner], states[goal]
        )
        assert error.min() > -1e-3
        worst.append(error.max())
    assert worst[2] < worst[1] / 2 < worst[0] / 4
    assert worst[2] < 0.02


def test_a_unicycles_shot_is_no_dearer_than_any_actions_found_by_optimising_them():
    """Paths of ten arcs, then of twenty: from above, and closer."""
    car, s, g = Unicycle(drive_price=2.0, turn_price=0.5), np.array([0.3, 0.1, 0.4]), np.array([0.4, 0.6, 0.0])
    best = car.distance(s, g)
    found = [best_found(car, s, g, pieces, tries=2) for pieces in (8, 16)]
    assert best < found[1] < found[0] < 1.05 * best
    assert found[1] < 1.01 * best


@pytest.mark.slow
@pytest.mark.parametrize("goal", [(0, 0.3, 0), (0, 1, 0), (0.5, 0.5, 1), (0.1, 0.4, -0.5), (-0.6, 0.2, 1.5)])
def test_the_shot_is_the_shortest_way_parking_included(goal: tuple[float, ...]):
    car, s, g = Unicycle(), np.zeros(3), np.array(goal, float)
    found = [best_found(car, s, g, pieces, tries=6) for pieces in (10, 20, 40)]
    best = car.distance(s, g)
    assert best < found[2] < found[1] < found[0]
    assert found[2] < 1.002 * best
