"""Theorem 3: what of the gradient reaches the action, how large it is, and when the direction informs."""

import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose

from tests.support.random_systems import SEEDS, curved, ends, examples, random_terms
from tools.theory.control_systems import Terms, feedback, running_cost, unit, velocity
from tools.theory.theorems import (
    action_bounds,
    controllable_part,
    controllable_share,
    magnitude_from_direction,
    minimising_action,
    orientation_errors,
    regret,
)
from tools.theory.unicycle import Unicycle


def uncontrollable(rng: np.random.Generator, terms: Terms) -> np.ndarray:
    """[n]: something orthogonal to im G."""
    anything = rng.normal(size=len(terms.f0))
    return anything - controllable_part(terms.G, anything)


def test_the_projection_is_the_one_by_hand():
    heading_north = Unicycle().terms(np.array([0.0, 0.0, np.pi / 2]))
    assert_allclose(controllable_part(heading_north.G, np.array([3.0, 4.0, 12.0])), [0.0, 4.0, 12.0], atol=1e-12)
    assert_allclose(controllable_share(heading_north.G, np.array([3.0, 0.0, 4.0])), 4 / 5)


@examples(200)
@given(SEEDS)
def test_what_is_orthogonal_to_im_g_does_not_reach_the_action(seed: int):
    rng = np.random.default_rng(seed)
    terms = random_terms(rng, rank=int(rng.integers(1, 4)))
    p = rng.normal(size=5)
    assert_allclose(feedback(terms, p + 10 * uncontrollable(rng, terms)), feedback(terms, p), rtol=1e-7, atol=1e-9)
    assert_allclose(feedback(terms, controllable_part(terms.G, p)), feedback(terms, p), rtol=1e-7, atol=1e-9)


@examples(20)
@given(SEEDS)
def test_nor_under_a_cost_that_is_not_quadratic(seed: int):
    """(i) as stated, for any strictly convex cost: here with a fourth power."""
    rng = np.random.default_rng(seed)
    terms = random_terms(rng)
    p, beside = rng.normal(size=5), uncontrollable(rng, terms)

    def cost(a: np.ndarray) -> float:
        return running_cost(terms, a) + float(np.sum(a**4))

    def motion(a: np.ndarray) -> np.ndarray:
        return velocity(terms, a)

    first, second = (minimising_action(cost, motion, gradient, 3) for gradient in (p, p + beside))
    assert_allclose(first, second, atol=1e-4)


def test_must_fail_where_actions_act_nonlinearly_the_rest_of_the_gradient_counts():
    """f(a) = (a, a^2): im G at a = 0 is the first axis, and yet the gradient's second part decides the action."""

    def cost(a: np.ndarray) -> float:
        return float(a @ a) / 2

    def motion(a: np.ndarray) -> np.ndarray:
        return np.array([a[0], a[0] ** 2])

    # a/2 a + a + p2 a^2: the minimum is -1 / (1 + 2 p2).
    found = [minimising_action(cost, motion, np.array([1.0, p2]), 1)[0] for p2 in (0.0, 1.0)]
    assert_allclose(found, [-1, -1 / 3], atol=1e-6)


@examples(200)
@given(SEEDS)
def test_the_action_is_bounded_by_the_controllable_part_from_above_and_below(seed: int):
    rng = np.random.default_rng(seed)
    terms = random_terms(rng, rank=int(rng.integers(1, 4)))
    p = rng.normal(size=5) + 10 ** rng.uniform(-2, 2) * uncontrollable(rng, terms)
    lower, upper = action_bounds(terms, p)
    size = np.linalg.norm(feedback(terms, p))
    assert lower * (1 - 1e-9) <= size <= upper * (1 + 1e-9)
    rho = controllable_share(terms.G, p)
    papers = rho * np.linalg.norm(np.linalg.inv(terms.R), 2) * np.linalg.norm(terms.G, 2) * np.linalg.norm(p)
    assert_allclose(papers, upper, rtol=1e-6)


@examples(200)
@given(SEEDS)
def test_without_drift_the_optimal_action_never_shrinks(seed: int):
    """HJB keeps a*'Ra* = 2 c0: a small share rho comes with a steep gradient, never with a small action. So (ii)'s
    bound is true, and says nothing about failure as long as d* is exact."""
    rng = np.random.default_rng(seed)
    terms = random_terms(rng)._replace(f0=np.zeros(5))
    steep = rng.normal(size=5) + 10 ** rng.uniform(-1, 3) * uncontrollable(rng, terms)
    p = magnitude_from_direction(terms, unit(steep)) * unit(steep)  # what a gradient in this direction must be
    action = feedback(terms, p)
    assert_allclose(action @ terms.R @ action, 2 * terms.c0, rtol=1e-6)
    assert controllable_share(terms.G, p) * np.linalg.norm(p) >= np.sqrt(2 * terms.c0 / np.linalg.norm(terms.D, 2)) * (
        1 - 1e-9
    )


@examples(200)
@given(SEEDS)
def test_an_action_that_moves_across_the_gradient_is_not_nearly_optimal(seed: int):
    """The proof calls any a with G a orthogonal to the gradient approximately optimal. Without drift it loses c0 or
    more in HJB's bracket, of a cost rate of 2 c0."""
    rng = np.random.default_rng(seed)
    terms = random_terms(rng)._replace(f0=np.zeros(5))
    direction = unit(rng.normal(size=5) + 10 ** rng.uniform(-1, 3) * uncontrollable(rng, terms))
    p = magnitude_from_direction(terms, direction) * direction
    pull = terms.G.T @ p
    across = rng.normal(size=3)
    across -= across @ pull / (pull @ pull) * pull
    assert_allclose(p @ terms.G @ across, 0, atol=1e-6)
    assert regret(terms, p, across) >= terms.c0 * (1 - 1e-6)
    assert_allclose(regret(terms, p, np.zeros(3)), terms.c0, rtol=1e-6)


@examples(60)
@given(SEEDS)
def test_a_small_share_makes_the_direction_fragile(seed: int):
    """What is left of "uninformative": an error of size 0.001 in the unit direction turns the action by 0.001 / rho."""
    rng = np.random.default_rng(seed)
    terms = Terms(np.zeros(3), np.eye(3)[:, :2], np.eye(2), 1.0)
    rho = 10 ** rng.uniform(-2, 0)
    angle = rng.uniform(0, 2 * np.pi)
    p = np.array([rho * np.cos(angle), rho * np.sin(angle), np.sqrt(1 - rho**2)])
    across = 1e-3 * np.array([[-np.sin(angle), np.cos(angle), 0.0]])
    assert_allclose(orientation_errors(terms, p, across), [np.arctan(1e-3 / rho)], rtol=1e-6)


@examples(100)
@given(SEEDS)
def test_an_informative_direction_is_followed_to_the_waypoint(seed: int):
    """(iii): with the whole gradient controllable, a* lowers d*(., z) at the rate of its own cost, 2 c0."""
    rng = np.random.default_rng(seed)
    system = curved(rng)
    s, z = ends(rng, len(system.B))
    terms, p = system.terms(s), system.gradient(s, z)
    assert_allclose(controllable_share(terms.G, p), 1.0)
    motion = 1e-5 * velocity(terms, feedback(terms, p))
    change = (system.distance(s + motion, z) - system.distance(s - motion, z)) / 2e-5
    assert_allclose(change, -2 * terms.c0, rtol=1e-5)


def test_a_car_next_to_its_goal_has_a_steep_gradient_that_it_can_hardly_act_on():
    """The nearer the place beside it, the smaller the share; the action keeps its size, sqrt(2 c0)."""
    car, s = Unicycle(), np.zeros(3)
    shares = []
    for sideways in (0.6, 0.2):
        p = car.gradient(s, np.array([0.02, sideways, 0.0]))
        shares.append(controllable_share(car.terms(s).G, p))
        assert_allclose(np.linalg.norm(feedback(car.terms(s), p)), 1.0)
    assert shares[1] < shares[0] < 0.5


def test_must_fail_directly_beside_its_goal_a_car_has_two_best_actions():
    """Forward first or backward first cost the same, so d* has a kink there: the spheres of a system that cannot move
    in every direction are not smooth, though (B2) takes that for granted."""
    shots = Unicycle().solve(np.zeros(3), np.array([0.0, 0.3, 0.0]))
    best = shots.gradient[shots.cost < shots.cost[0] + 1e-6]
    assert_allclose([best[:, 0].min(), best[:, 0].max()], [-0.9889, 0.9889], atol=1e-3)


def test_with_drift_doing_nothing_may_be_best():
    """A place that the drift alone leads to, time for free but for c0: p = -c0 f0 / |f0|^2 solves HJB with a* = 0 if
    f0 is orthogonal to im G."""
    terms = Terms(np.array([0.0, 2.0]), np.array([[1.0], [0.0]]), np.eye(1), 0.5)
    p = np.array([0.0, -0.25])
    assert_allclose(terms.c0 + p @ terms.f0 - p @ terms.D @ p / 2, 0)
    assert_allclose(feedback(terms, p), 0)
    assert controllable_share(terms.G, p) == pytest.approx(0)
