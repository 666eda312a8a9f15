"""MRN and IQE by hand and as quasimetrics; CMD's and TMD's losses against plain loops over their formulas."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.critics.contrastive import Contrastive
from dcp.critics.energies import eikonal_penalty
from dcp.critics.quasimetric import DISTANCES, TMD, Quasimetric, backward_divergence
from dcp.critics.survival import ChronoSRL
from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.interfaces import Problem
from dcp.networks import MLP
from dcp.types import Batch

SPEC = make_env("point_u_maze_inertia").spec  # S 4, G 2, A 2
PROBLEM = Problem(SPEC, MLP(width=12, depth=1))
MIX = jnp.zeros(())


def latents(count: int, size: int, seed: int = 0) -> jax.Array:
    return jnp.array(np.random.default_rng(seed).normal(size=(count, size)), jnp.float32)


def make_batch(size: int = 5) -> Any:
    random = np.random.default_rng(2)

    def draw(*shape: int) -> jax.Array:
        return jnp.array(random.normal(size=shape), jnp.float32)

    return Batch(
        draw(size, 4),
        draw(size, 2),
        draw(size, 2),
        future_goal=draw(size, 2),
        next_state=draw(size, 4),
        has_next=jnp.array([True] * (size - 1) + [False]),
    )


def test_mrn_by_hand():
    """Two components of (2 one way, 2 both ways). First: max(relu(1), relu(-2)) + |(3, 4)| = 1 + 5. Second: 0 + 0."""
    x = jnp.array([1.0, 0.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0])
    y = jnp.array([0.0, 2.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0])
    assert_allclose(DISTANCES["mrn"].plain(x, y, MIX, 2), (6.0 + 0.0) / 2)
    assert_allclose(DISTANCES["mrn"].plain(y, x, MIX, 2), (2.0 + 5.0 + 1.0) / 2)  # the way back is longer


def test_iqe_by_hand():
    """[0, 2], [1, 3] and the empty [5, 5] cover 3; [0, 1], [4, 6], [4, 5] cover 3."""
    x = jnp.array([[0.0, 1.0, 5.0], [4.0, 0.0, 4.0]]).reshape(-1)
    y = jnp.array([[2.0, 3.0, 0.0], [6.0, 1.0, 5.0]]).reshape(-1)
    assert_allclose(DISTANCES["iqe"].plain(x, y, MIX, 2), 0.5 * 3.0 + 0.5 * 3.0)
    far = jnp.array([[4.0, 1.0, 5.0], [4.0, 0.0, 4.0]]).reshape(-1)  # components 4 and 0: mean 2, max 4
    assert_allclose(DISTANCES["iqe"].plain(x, far, jnp.log(3.0), 2), 0.75 * 2.0 + 0.25 * 4.0, rtol=1e-6)


@pytest.mark.parametrize("name", DISTANCES)
def test_ten_thousand_random_triples_obey_the_triangle_inequality_and_few_pairs_are_symmetric(name: str):
    x, y, z = (latents(10_000, 32, seed) for seed in range(3))
    apart = DISTANCES[name].plain
    xy, yz, xz, yx = (apart(a, b, MIX, 8) for a, b in ((x, y), (y, z), (x, z), (y, x)))
    assert np.all(np.asarray(xz) <= np.asarray(xy + yz) * (1 + 1e-6))
    assert np.all(np.asarray(xy) > 0.0) and np.all(np.asarray(apart(x, x, MIX, 8)) == 0.0)
    assert np.mean(np.abs(np.asarray(xy - yx)) > 0.01) > 0.9


@pytest.mark.parametrize("name", DISTANCES)
def test_all_pairs_at_once_are_the_pairs_one_by_one(name: str):
    x, y, mix = latents(6, 16), latents(6, 16, 1), jnp.array(0.3)
    one_by_one = [[DISTANCES[name].plain(a, b, mix, 4) for b in y] for a in x]
    assert_allclose(DISTANCES[name].pairwise(x, y, mix, 4), np.array(one_by_one), rtol=1e-5)


@pytest.mark.parametrize("name", DISTANCES)
def test_gradients_of_all_pairs_at_once_are_those_of_the_pairs_one_by_one(name: str):
    """160 rows are two blocks of pairs."""
    x, y, mix = latents(160, 16), latents(160, 16, 1), jnp.array(0.3)
    weights = jax.random.normal(jax.random.key(2), (160, 160))
    plain, pairwise = DISTANCES[name]
    forms = (lambda x, y, mix: plain(x[:, None], y[None], mix, 4), lambda x, y, mix: pairwise(x, y, mix, 4))
    slow, fast = (jax.jit(jax.grad(lambda *z, f=f: jnp.sum(weights * f(*z)), (0, 1, 2)))(x, y, mix) for f in forms)
    for one, other in zip(slow, fast, strict=True):
        assert_allclose(other, one, atol=1e-3, rtol=1e-4)


def test_equal_left_ends_and_touching_intervals_of_iqe_count_once():
    """[0, 1], [0, 2], [2, 3] and the empty [2, 2] cover 3: it grows with the end 3 alone, and with the start 0."""
    x, y = jnp.array([[0.0, 0.0, 2.0, 2.0]]), jnp.array([[1.0, 2.0, 3.0, 1.0]])
    value, (to_x, to_y) = jax.value_and_grad(
        lambda x, y: DISTANCES["iqe"].pairwise(x, y, MIX, 1)[0, 0], argnums=(0, 1)
    )(x, y)
    assert value == 3.0 and float(jnp.sum(to_x) + jnp.sum(to_y)) == 0.0 and to_y[0, 2] == 1.0


@pytest.mark.parametrize("name", DISTANCES)
def test_a_latent_that_is_no_number_makes_its_distances_no_numbers(name: str):
    x, y = latents(4, 16), latents(4, 16, 1)
    for found in (DISTANCES[name].pairwise(x * jnp.nan, y, MIX, 4), DISTANCES[name].pairwise(x, y * jnp.nan, MIX, 4)):
        assert np.all(np.isnan(found))


@pytest.mark.parametrize("name", DISTANCES)
def test_gradients_are_finite_where_points_coincide(name: str):
    x = latents(4, 16).at[1].set(0.0)
    for form in DISTANCES[name]:
        gradients = jax.grad(lambda x, y, mix, form=form: jnp.sum(form(x, y, mix, 4)), argnums=(0, 1, 2))(x, x, MIX)
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradients))


@pytest.mark.parametrize("quasimetric", DISTANCES)
def test_the_loss_of_cmd_is_a_plain_loop_over_its_formula(quasimetric: str):
    critic, batch = Quasimetric(repr_dim=16, quasimetric=quasimetric, components=4), make_batch()
    params = critic.init(jax.random.split(jax.random.key(0)), PROBLEM).params
    phi = critic.psi_sa(PROBLEM, params, batch.state, batch.action)
    psi, common = (
        critic.psi_g(PROBLEM, params, batch.future_goal),
        PROBLEM.network.apply(params["commonness"], batch.future_goal),
    )
    total = 0.0
    for i in range(5):
        logits = [
            float(common[j, 0] - DISTANCES[quasimetric].plain(phi[i], psi[j], MIX, 4)) / math.sqrt(16) for j in range(5)
        ]
        whole = math.log(sum(math.exp(logit) for logit in logits))
        total += (whole - logits[i] + 0.01 * whole**2) / 5
    assert_allclose(critic.loss(PROBLEM, params, (), batch, jax.random.key(0))[0], total, rtol=1e-5)


@pytest.mark.parametrize("chunk", [1, 2])
def test_the_loss_of_tmd_is_a_plain_loop_over_its_formula(chunk: int):
    critic, batch = TMD(repr_dim=16, components=4, discount=0.9), make_batch()
    params = critic.init(jax.random.split(jax.random.key(1)), PROBLEM).params
    apart = DISTANCES["mrn"].plain
    phi = critic.psi_sa(PROBLEM, params, batch.state, batch.action)
    psi, here, there = (
        critic.psi_g(PROBLEM, params, x) for x in (batch.future_goal, batch.state[:, :2], batch.next_state[:, :2])
    )
    d = np.array([[apart(phi[i], psi[j], MIX, 4) for j in range(5)] for i in range(5)])
    onward = np.array([[apart(there[i], psi[j], MIX, 4) for j in range(5)] for i in range(5)])
    con = sum(d[j, j] / 4 + math.log(sum(math.exp(-d[i, j] / 4) for i in range(5))) for j in range(5)) / 5
    inv = np.mean([apart(here[i], phi[i], MIX, 4) for i in range(5)])
    excess = d - onward
    back = np.where(excess > 3.0, excess, 0.9**chunk * np.exp(excess) - d)[:4]  # the last row has no next state
    problem = Problem(replace(SPEC, action_chunk=chunk), PROBLEM.network)
    loss, _ = critic.loss(problem, params, (), batch, jax.random.key(0))
    assert_allclose(loss, con + inv + 0.05 * (0.5 * back.mean() + 0.5 * np.diag(back).mean()), rtol=1e-5)


def test_the_backward_term_is_least_one_step_beyond_the_next_state():
    """d - d' = -ln 0.99 = 0.01005: there the slope is 0. Beyond 3 the slope is 1, however far."""
    slope = jax.grad(lambda d, onward: backward_divergence(d, onward, math.log(0.99)))
    assert_allclose(slope(2.0 + 0.0100503, 2.0), 0.0, atol=1e-6)
    assert float(slope(2.1, 2.0)) > 0.0 > float(slope(2.0, 2.0))
    assert_allclose(slope(500.0, 2.0), 1.0)
    assert float(jax.grad(backward_divergence, argnums=1)(2.5, 2.0, -0.01)) == 0.0


def test_tmd_counts_distance_in_steps():
    critic = TMD(repr_dim=16, components=4)
    params = critic.init(jax.random.split(jax.random.key(1)), PROBLEM).params
    representation = critic.representation(PROBLEM, params)
    x, y = latents(3, 16), latents(3, 16, 1)
    assert representation.steps is not None
    assert_allclose(representation.steps(x, y), representation.distance(x, y) / 0.0100503, rtol=1e-5)


def test_the_eikonal_penalty_by_hand():
    """d = 3 |x - g| has slope 3 everywhere: (3 - 1)^2. At the goal itself there is no slope, and nothing is counted."""

    def distance(x: jax.Array, g: jax.Array) -> jax.Array:
        square = jnp.sum((x - g) ** 2, axis=-1)
        return 3.0 * jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)

    x = jnp.array([[1.0, 2.0], [0.0, 0.0]])
    assert_allclose(eikonal_penalty(distance, x, jnp.zeros((2, 2))), 4.0, rtol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        partial(Quasimetric, repr_dim=16, components=4),
        partial(Contrastive, energy="l2", repr_dim=16),
        partial(TMD, repr_dim=16, components=4),
        partial(ChronoSRL, repr_dim=16, horizon=3, gamma=0.5, kappa=0.7),  # three bins of hazards, three of occupancy
    ],
)
def test_the_eikonal_switch_adds_its_weight_times_the_penalty_with_finite_gradients(make: Any):
    batch = make_batch()
    batch = batch._replace(future_goal=batch.future_goal.at[0].set(batch.state[0, :2]))
    batch = batch._replace(
        goal_sequence=batch.future_goal, hit_time=jnp.arange(5), hit=jnp.arange(5) < 3,
        occupancy=jnp.full((5, 3), 0.5), occupancy_seen=jnp.ones((5, 3), bool),
    )  # fmt: skip
    plain, switched = make(eikonal=0.0), make(eikonal=0.5)
    params = plain.init(jax.random.split(jax.random.key(0)), PROBLEM).params

    def loss(params: Any, critic: Any) -> jax.Array:
        return critic.loss(PROBLEM, params, (), batch, jax.random.key(0))[0]

    def penalty(params: Any) -> jax.Array:
        representation = plain.representation(PROBLEM, params)

        def distance(x: jax.Array, g: jax.Array) -> jax.Array:
            psi_x, psi_g = representation.encode_goal(x), representation.encode_goal(g)
            same = jnp.all(psi_x == psi_g, axis=-1, keepdims=True)  # where a norm has no gradient
            return representation.distance(jnp.where(same, jax.lax.stop_gradient(psi_x) + 1.0, psi_x), psi_g)

        return eikonal_penalty(distance, batch.state[:, :2], batch.future_goal)

    @jax.jit
    def found(params: Any) -> Any:
        return jax.value_and_grad(loss)(params, switched), loss(params, plain), penalty(params)

    (with_it, gradients), without, wanted = found(params)
    assert float(wanted) > 0.0
    assert_allclose(with_it - without, 0.5 * wanted, rtol=1e-4)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradients))


@pytest.mark.parametrize("critic", [Quasimetric(repr_dim=16), TMD(repr_dim=16)])
def test_a_policy_saved_without_psi_sa_says_that_it_has_no_value(critic: Quasimetric):
    params = critic.init(jax.random.split(jax.random.key(0)), PROBLEM).params
    batch = make_batch()
    given = batch.state, batch.action, batch.future_goal
    assert np.all(np.isfinite(critic.representation(PROBLEM, params).value(*given)))
    with pytest.raises(UserError, match="saved without it: there is no value to look at"):
        critic.representation(PROBLEM, critic.deployed(params)).value(*given)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"quasimetric": "max"}, "unknown quasimetric 'max': choose one of mrn, iqe"),
        ({"repr_dim": 24}, "repr_dim 24 does not split into 8 components of mrn: use a multiple of 16"),
    ],
)
def test_settings_that_make_no_distance_give_one_sentence(settings: dict, sentence: str):
    with pytest.raises(UserError, match=sentence):
        Quasimetric(**settings)


@pytest.mark.parametrize("critic", [Quasimetric, TMD])
def test_a_misspelt_loss_is_refused_at_construction(critic: type):
    with pytest.raises(UserError, match=r"unknown contrastive loss 'bakward': .* perhaps 'backward'"):
        critic(contrastive_loss="bakward")
