"""Every scoring rule by hand: s = (0, 0), candidates (6, 8), (3, 0) and (0, 0), goal (4, 0) in psi-space."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.interfaces import Representation
from dcp.methods.scores import SCORES

PSI_STATE = jnp.array([0.0, 0.0])
PSI_CANDIDATES = jnp.array([[6.0, 8.0], [3.0, 0.0], [0.0, 0.0]])
PSI_GOAL = jnp.array([4.0, 0.0])
EUCLIDEAN = Representation(
    encode_goal=lambda goal: goal,
    distance=lambda a, b: jnp.linalg.norm(a - b, axis=-1),
    value=lambda state, action, goal: jnp.zeros(state.shape[:-1]),
)

BY_HAND = {
    "inner_product": [6 * 4 + 8 * 0, 3 * 4, 0.0],
    "cosine": [24 / (10 * 4), 12 / (3 * 4), 0.0],
    "energy": [-((2**2 + 8**2) ** 0.5), -1.0, -4.0],
    # Distances from s: 10, 3, 0, so (6, 8) is in the farther half: below all others by twice the largest distance.
    "reachable": [-3 * (2**2 + 8**2) ** 0.5, -1.0, -4.0],
    # d(s, g) = 4: only (3, 0) is nearer to g by a tenth of it; the others fall by twice the longest way.
    "quasimetric": [-3 * (10 + 68**0.5), -4.0, -4.0 - 2 * (10 + 68**0.5)],
    # Alignments 24, 12, 0: mean 12, spread sqrt(96). Distances to the farthest of two others: 10, sqrt(73), 10, which
    # lie at 1, -2, 1 thirds of their difference from their mean: in units of their spread, 1, -2, 1 over sqrt(2).
    "frontier": [12 / 96**0.5 + 0.5**0.5, -(2**0.5), -12 / 96**0.5 + 0.5**0.5],
    "on_path": [-(10 + (2**2 + 8**2) ** 0.5), -(3.0 + 1.0), -(0.0 + 4.0)],
}


def test_every_rule_has_numbers_by_hand():
    assert set(BY_HAND) == set(SCORES)


@pytest.mark.parametrize("name", SCORES)
def test_a_rule_matches_its_numbers_by_hand(name: str):
    scores = SCORES[name](EUCLIDEAN, PSI_STATE, PSI_CANDIDATES, PSI_GOAL)
    assert_allclose(scores, BY_HAND[name], rtol=1e-5)


@pytest.mark.parametrize("name", SCORES)
def test_a_rule_scores_many_environments_as_it_scores_one(name: str):
    states = jnp.array([[0.0, 0.0], [1.0, 2.0]])
    goals = jnp.array([[4.0, 0.0], [-1.0, 5.0]])
    candidates = jnp.stack([PSI_CANDIDATES, PSI_CANDIDATES - 1.5])
    together = SCORES[name](EUCLIDEAN, states, candidates, goals)
    alone = [SCORES[name](EUCLIDEAN, *row) for row in zip(states, candidates, goals, strict=True)]
    assert_allclose(together, np.stack(alone), rtol=1e-6)


def test_the_papers_rule_prefers_a_long_vector_and_the_cosine_does_not():
    """(6, 8) is 8.2 away from the goal and (3, 0) only 1: the inner product takes the former all the same."""
    best = {name: int(np.argmax(SCORES[name](EUCLIDEAN, PSI_STATE, PSI_CANDIDATES, PSI_GOAL))) for name in SCORES}
    assert best["inner_product"] == 0
    assert best["cosine"] == 1
    assert best["energy"] == 1


def test_frontier_counts_the_third_nearest_other_candidate():
    """On the line 0, 1, 2, 3, 10, 20 the third nearest others are 3, 2, 2, 3, 9, 18 away; the goal aligns with none."""
    candidates = jnp.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [10.0, 0.0], [20.0, 0.0]])
    away = np.array([3, 2, 2, 3, 9, 18])
    scores = SCORES["frontier"](EUCLIDEAN, PSI_STATE, candidates, jnp.array([0.0, 5.0]))
    assert_allclose(scores, (away - away.mean()) / away.std(), rtol=1e-5)


def test_frontier_is_finite_where_all_candidates_are_one():
    scores = SCORES["frontier"](EUCLIDEAN, PSI_STATE, jnp.ones((4, 2)), PSI_GOAL)
    assert_allclose(scores, np.zeros(4), atol=1e-6)


@pytest.mark.parametrize("name", ["energy", "on_path", "reachable", "quasimetric"])
def test_distance_rules_use_the_representations_own_distance(name: str):
    doubled = EUCLIDEAN._replace(distance=lambda a, b: 2.0 * jnp.linalg.norm(a - b, axis=-1))
    scores = SCORES[name](doubled, PSI_STATE, PSI_CANDIDATES, PSI_GOAL)
    assert_allclose(scores, 2.0 * np.array(BY_HAND[name]), rtol=1e-6)


def test_quasimetric_leaves_the_state_and_on_path_need_not():
    """On a line both z = s and z = 2 have no detour; only the latter makes progress."""
    state, goal = jnp.array([0.0, 0.0]), jnp.array([4.0, 0.0])
    candidates = jnp.array([[0.0, 0.0], [2.0, 0.0], [2.0, 3.0]])
    assert int(np.argmax(SCORES["on_path"](EUCLIDEAN, state, candidates, goal))) == 0
    assert int(np.argmax(SCORES["quasimetric"](EUCLIDEAN, state, candidates, goal))) == 1


@pytest.mark.parametrize("name", ["reachable", "quasimetric"])
def test_what_is_gated_out_never_beats_what_is_not(name: str):
    """On 1,000 random sets: the winner is within the median of the distances, or makes a tenth of the way."""
    random = np.random.default_rng(0)
    states, goals = (jnp.asarray(random.normal(size=(1000, 3)), jnp.float32) for _ in range(2))
    candidates = jnp.asarray(2.0 * random.normal(size=(1000, 8, 3)), jnp.float32)
    best = np.asarray(jnp.argmax(SCORES[name](EUCLIDEAN, states, candidates, goals), axis=-1))
    there = np.linalg.norm(states[:, None] - candidates, axis=-1)
    onward = np.linalg.norm(candidates - goals[:, None], axis=-1)
    rows = np.arange(1000)
    if name == "reachable":
        allowed = there <= np.median(there, axis=-1, keepdims=True)
        wanted = np.where(allowed, onward, np.inf)
    else:
        allowed = onward <= 0.9 * np.linalg.norm(states - goals, axis=-1)[:, None]
        wanted = np.where(allowed, there + onward, np.inf)
    some = allowed.any(axis=-1)
    assert 0.5 < some.mean()
    assert np.array_equal(best[some], wanted.argmin(axis=-1)[some])
    assert allowed[rows, best][some].all()
