"""SRL's likelihood and ChronoSRL's four terms: by hand, against plain loops, and on a toy whose steps are known."""

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.critics.survival import (
    SRL,
    ChronoSRL,
    discounted_wait,
    hazard_loss,
    log_survival,
    occupancy_bins,
    running_sums,
)
from dcp.errors import UserError
from dcp.interfaces import Problem
from dcp.networks import MLP
from dcp.types import Batch, EnvSpec

SPEC = EnvSpec("line", state_size=2, goal_size=1, action_size=1, goal_dims=(0,), threshold=0.5, episode_length=8)
PROBLEM = Problem(SPEC, MLP(width=12, depth=1))
KEYS = jax.random.split(jax.random.key(0))


def make_batch(size: int = 5) -> Any:
    random = np.random.default_rng(2)

    def draw(*shape: int) -> jax.Array:
        return jnp.array(random.normal(size=shape), jnp.float32)

    goal = jnp.array([[0.0], [0.2], [3.0], [-3.0], [5.0]])
    return Batch(
        draw(size, 2), draw(size, 1), draw(size, 1), future_goal=goal, goal_sequence=goal,
        hit_time=jnp.array([0, 3, 12, 1, 0]), hit=jnp.array([True, True, True, True, False]),
        occupancy=jnp.array(random.random((size, 8)), jnp.float32),
        occupancy_seen=jnp.array(random.random((size, 8)) < 0.6),
        falls=jnp.array([True, False, False, True, False]),
    )  # fmt: skip


def test_the_likelihood_by_hand():
    """All hazards 1/2 (logits 0), W = 3. Now: ln 2. At step 2: S_2 = 1/8, h = 1/2: ln 16. Never: S_3 = 1/16: ln 16."""
    loss = hazard_loss(jnp.zeros(4), jnp.zeros((4, 3)), jnp.array([0, 2, 0, 99]), jnp.array([True, True, False, True]))
    assert_allclose(loss, np.log([2.0, 16.0, 16.0, 16.0]), rtol=1e-6)  # 99 is beyond the last bin, and counts as it


def test_the_likelihood_is_a_plain_loop_over_its_formula():
    random = np.random.default_rng(0)
    first, logits = random.normal(size=6), random.normal(size=(6, 5))
    times, hit = np.array([0, 1, 4, 9, 0, 2]), np.array([1, 1, 1, 1, 0, 0], bool)

    def sig(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    wanted = []
    for i in range(6):
        stays = [math.log(1 - sig(x)) for x in logits[i]]
        start, at = math.log(1 - sig(first[i])), min(times[i], 4)
        if not hit[i]:
            wanted.append(-(start + sum(stays)))
        elif times[i] == 0:
            wanted.append(-math.log(sig(first[i])))
        else:
            wanted.append(-(start + sum(stays[:at]) + math.log(sig(logits[i][at]))))
    found = hazard_loss(*(jnp.array(x, jnp.float32) for x in (first, logits)), jnp.array(times), jnp.array(hit))
    assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("size", [1, 32, 33, 1000])
def test_running_sums_by_blocks_are_running_sums(size: int):
    x = np.random.default_rng(0).uniform(-9.0, 0.0, (2, 3, size))
    found, back = jax.vjp(running_sums, jnp.array(x, jnp.float32))
    assert_allclose(found, np.cumsum(x, axis=-1), rtol=1e-5)
    assert_allclose(back(jnp.array(x, jnp.float32))[0], np.cumsum(x[..., ::-1], axis=-1)[..., ::-1], rtol=1e-5)


def test_survival_never_rises_and_begins_where_the_goal_is_not_near_now():
    logits = jnp.array(np.random.default_rng(0).normal(size=(50, 40)) * 4.0, jnp.float32)
    survival = np.exp(np.asarray(log_survival(logits[:, 0], logits[:, 1:])))
    assert_allclose(survival[:, 0], 1.0 - 1.0 / (1.0 + np.exp(-np.asarray(logits[:, 0]))), atol=1e-5)
    assert np.all(survival >= 0.0) and np.all(np.diff(survival, axis=1) <= 0.0)


def test_the_wait_by_hand():
    """S = 1/2, 1/4, 1/8 with discount 0.9: 0.5 + 0.225 + 0.10125. Never to arrive in 1,000 steps: 632.3."""
    assert_allclose(discounted_wait(jnp.zeros(()), jnp.zeros(3), 0.9), 0.82625, rtol=1e-6)
    assert_allclose(discounted_wait(jnp.array(-99.0), jnp.full(1000, -99.0), 0.999), 632.3, rtol=1e-3)


def test_the_bins_of_occupancy_are_the_published_ones():
    wanted = "0 1 2 3 4 5 6 7 9 11 13 17 21 25 32 39 49 60 75 93 115 143 178 221 274 340 422 523 649 806 1000"
    assert occupancy_bins(1000) == tuple(int(edge) for edge in wanted.split())


def test_the_task_fills_in_horizon_gamma_and_kappa():
    critic = ChronoSRL().for_task(SPEC, 1000)
    assert (critic.horizon, critic.gamma) == (1000, 0.999)
    assert_allclose(critic.kappa, 0.0010005, rtol=1e-4)
    assert critic.for_task(SPEC, 8) == critic  # what is filled in stays


def test_the_geometry_of_chronosrl_is_a_plain_loop_over_its_formula():
    critic, batch = ChronoSRL(repr_dim=4).for_task(SPEC, 8), make_batch()
    assert critic.kappa is not None
    random = np.random.default_rng(5)
    z_sa, z_g = (jnp.array(random.normal(size=(5, 4)) * 0.4, jnp.float32) for _ in range(2))
    valid = jnp.array([True, True, True, False, True])
    time, separation = critic.geometry(z_sa, z_g, batch._replace(valid=valid), SPEC.threshold)
    apart = np.linalg.norm(np.asarray(z_sa)[:, None] - np.asarray(z_g)[None], axis=-1)
    errors = [apart[i, i] - critic.kappa * batch.hit_time[i] for i in (1, 2)]  # 0 is there, 3 invalid, 4 never
    assert_allclose(time, np.mean([e**2 / 2 if abs(e) < 1 else abs(e) - 0.5 for e in errors]), rtol=1e-4)
    far, goals = critic.kappa * 8, np.asarray(batch.future_goal)[:, 0]
    hinges = [
        max(0.0, far - apart[i, j]) for i in range(5) for j in range(5) if i != j and abs(goals[i] - goals[j]) > 0.5
    ]
    hinges.append(max(0.0, far - apart[4, 4]))  # valid and never reached
    assert len(hinges) == 20 - 2 + 1  # goals 0 and 1 are within the threshold
    assert_allclose(separation, np.mean(hinges), rtol=1e-4)


def test_the_actor_of_chronosrl_stays_near_the_goal_as_far_as_bodies_fall():
    critic, batch = ChronoSRL(repr_dim=4).for_task(SPEC, 8), make_batch()
    params = critic.init(KEYS, PROBLEM).params
    plain = critic.representation(PROBLEM, params).value(batch.state, batch.action, batch.future_goal)
    never = batch._replace(falls=jnp.zeros(5, bool))
    assert_allclose(critic.actor_value(PROBLEM, params, never, batch.action, batch.future_goal), plain, rtol=1e-6)
    _, occupied = critic._value(PROBLEM, params, batch.state, batch.action, batch.future_goal)
    edges = critic.bins
    worth = [sum((7 / 8) ** t for t in range(max(a, 1), b)) for a, b in itertools.pairwise(edges)]
    bonus = 0.4 * (1 / (1 + np.exp(-np.asarray(occupied)))) @ np.array(worth)  # two of five rows fall
    with_falls = critic.actor_value(PROBLEM, params, batch, batch.action, batch.future_goal)
    assert_allclose(with_falls, np.asarray(plain) + bonus, rtol=1e-5)


def test_a_goal_of_several_steps_is_read_whole_and_a_single_one_is_repeated():
    critic = SRL(repr_dim=4, goal_steps=3).for_task(SPEC, 8)
    params = critic.init(KEYS, PROBLEM).params
    batch = make_batch()
    walks = batch.future_goal + jnp.array([[0.0, 0.3, 0.9]])  # three different goals
    z_sa = critic.psi_sa(PROBLEM, params, batch.state, batch.action)
    z_g = critic._normed(PROBLEM.network.apply(params["psi_g"], walks))
    logit_0, logits, _ = critic._head(PROBLEM, params, z_sa, z_g)
    wanted = np.mean(hazard_loss(logit_0, logits, batch.hit_time, batch.hit))
    found = critic.loss(PROBLEM, params, (), batch._replace(goal_sequence=walks), KEYS[0])[0]
    assert_allclose(found, wanted, rtol=1e-5)
    stays = critic._normed(PROBLEM.network.apply(params["psi_g"], jnp.tile(batch.future_goal, (1, 3))))
    assert_allclose(critic.psi_g(PROBLEM, params, batch.future_goal), stays, rtol=1e-6)
    assert np.abs(np.asarray(stays - z_g)).max() > 0.01


@pytest.mark.parametrize(
    ("make", "settings", "sentence"),
    [
        (SRL, {"horizon": 1}, "critic.horizon 1 is too small: use 2 or more"),
        (SRL, {"goal_steps": 0}, "critic.goal_steps 0 is too small: use 1 or more"),
        (SRL, {"gamma": 1.0}, "critic.gamma 1.0 is no discount: use a number between 0 and 1"),
        (ChronoSRL, {"future_discount": 1.5}, "critic.future_discount 1.5 is no discount: use a number between"),
        (ChronoSRL, {"random_share": 0.96}, "current_share 0.05 and critic.random_share 0.96 are shares of the goals"),
        (SRL, {"current_share": -0.1}, "current_share -0.1 and critic.random_share 0.1 are shares of the goals"),
        (ChronoSRL, {"kappa": 0.0}, "critic.kappa 0.0 is no distance of a step: use a positive number"),
    ],
)
def test_settings_that_cannot_work_give_one_sentence(make: type[SRL], settings: dict[str, Any], sentence: str):
    with pytest.raises(UserError, match=sentence):
        make(**settings)


@pytest.mark.parametrize("critic", [SRL(repr_dim=4), ChronoSRL(repr_dim=4, eikonal=0.1)])
def test_gradients_are_finite_where_points_coincide(critic: SRL):
    """All weights zero: every latent is the origin, and every distance 0."""
    critic, batch = critic.for_task(SPEC, 8), make_batch()
    bins = max(len(critic.bins) - 1, 1)
    batch = batch._replace(occupancy=batch.occupancy[:, :bins], occupancy_seen=batch.occupancy_seen[:, :bins])
    params = jax.tree.map(jnp.zeros_like, critic.init(KEYS, PROBLEM).params)
    gradients = jax.grad(lambda p: critic.loss(PROBLEM, p, (), batch, KEYS[0])[0])(params)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradients))
