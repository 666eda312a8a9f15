"""TD-InfoNCE's loss and the actor's value by a plain loop; and on a ring whose discounted visits are known."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.testing import assert_allclose

from dcp.actor import WithoutEntropy, sample_squashed
from dcp.critics.value import TDInfoNCE
from dcp.interfaces import ActorStep, Problem
from dcp.networks import MLP
from dcp.types import Batch, EnvSpec
from tests.critics.test_value import KEY, PROBLEM, SIZE, SPEC, make_batch


def encoded(params: Any, name: str, *inputs: Any) -> np.ndarray:
    x = np.asarray(PROBLEM.network.apply(params[name], jnp.concatenate(inputs, -1)))
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def log_shares(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.sum(np.exp(logits)))


@pytest.mark.parametrize("chunk", [1, 2])
def test_the_loss_is_a_plain_loop_over_its_formula(chunk: int):
    critic, b = TDInfoNCE(discount=0.8, latent=3), make_batch()
    problem = Problem(replace(SPEC, action_chunk=chunk), PROBLEM.network)
    params, carried = critic.init(jax.random.split(KEY), PROBLEM)
    carried = carried._replace(params=jax.tree.map(lambda x: 0.7 * x + 0.01, params))
    goals, random = b.future_goal, np.roll(b.future_goal, -1, axis=0)
    errors = []
    for i in np.flatnonzero(b.has_next):
        slow = [
            encoded(carried.params, f"psi_{k}", random)
            @ encoded(carried.params, f"phi_{k}", b.next_state[i], b.next_action[i], goals[i])
            for k in (1, 2)
        ]
        shares = np.exp(log_shares(np.minimum(*slow)))
        for k in (1, 2):
            phi = encoded(params, f"phi_{k}", b.state[i], b.action[i], goals[i])
            soon = log_shares(encoded(params, f"psi_{k}", SPEC.achieved(b.next_state)) @ phi)[i]
            later = np.sum(shares * log_shares(encoded(params, f"psi_{k}", random) @ phi))
            errors.append(-(1 - 0.8**chunk) * soon - 0.8**chunk * later)
    assert 0 < len(errors) < 2 * SIZE
    assert_allclose(critic.loss(problem, params, carried, b, KEY)[0], np.mean(errors), rtol=1e-5)


def test_the_actor_picks_its_own_goal_out_among_the_batch_and_has_no_entropy_term():
    critic, b = TDInfoNCE(latent=3), make_batch()
    params, _ = critic.init(jax.random.split(KEY), PROBLEM)
    wanted = []
    for i in range(SIZE):
        logits = [
            encoded(params, f"psi_{k}", b.future_goal)
            @ encoded(params, f"phi_{k}", b.state[i], b.action[i], b.future_goal[i])
            for k in (1, 2)
        ]
        wanted.append(log_shares(np.minimum(*logits))[i])
    assert_allclose(critic.actor_value(PROBLEM, params, b, b.action, b.future_goal), wanted, rtol=1e-5)

    heads = jnp.zeros((SIZE, 2)), jnp.full((SIZE, 2), -1.0)
    step = ActorStep(lambda a: jnp.sum(a, axis=-1), *heads, noise=b.action, alpha=jnp.array(7.0), batch=b)
    drawn, _ = sample_squashed(*heads, b.action)
    assert_allclose(WithoutEntropy().loss(step)[0], -np.mean(np.sum(drawn, axis=-1)), rtol=1e-6)


@pytest.mark.slow
def test_on_a_ring_that_is_walked_one_way_the_logits_are_the_log_of_the_discounted_visits():
    """From s the place k steps ahead comes up with probability proportional to 0.9^k, k from 1 to 8.

    Unit vectors can have these products. At 0.8 they cannot: the mean singular value of such a sawtooth is 1.25.
    """
    places, size = 8, 64
    ring = jnp.eye(places)  # each place is a coordinate of its own
    spec = EnvSpec("ring", places, places, 1, tuple(range(places)), threshold=0.1, episode_length=99)
    problem, critic = Problem(spec, MLP(width=64)), TDInfoNCE(discount=0.9, target_rate=0.05)
    adam = optax.adam(1e-3)

    def update(carry: Any, key: Any) -> Any:
        params, slow, moments = carry
        at, goal = jax.random.randint(key, (2, size), 0, places)
        still = jnp.zeros((size, 1))
        batch = Batch(ring[at], still, ring[goal], future_goal=ring[goal], next_state=ring[(at + 1) % places],
                      has_next=jnp.ones(size, bool), next_action=still, next_bonus=jnp.zeros(size))  # fmt: skip
        slopes = jax.grad(lambda p: critic.loss(problem, p, slow, batch, key)[0])(params)
        step, moments = adam.update(slopes, moments)
        params = optax.apply_updates(params, step)
        return (params, critic.after(problem, params, slow), moments), None

    params, slow = critic.init(jax.random.split(KEY), problem)
    start = (params, slow, adam.init(params))
    (params, _, _), _ = jax.jit(lambda c, k: jax.lax.scan(update, c, k))(start, jax.random.split(KEY, 3000))
    phi = critic.phi(problem, params, ring, jnp.zeros((places, 1)), jnp.roll(ring, 3, axis=0))
    logits = np.asarray(jnp.mean(jnp.einsum("kid,kjd->kij", phi, critic.psi(problem, params, ring)), axis=0))
    ahead = (np.arange(places)[None] - np.arange(places)[:, None] - 1) % places  # 0 for the next place
    wanted = ahead * np.log(0.9)
    centred = logits - logits.mean(axis=1, keepdims=True)
    assert np.abs(centred - (wanted - wanted.mean(axis=1, keepdims=True))).max() < 0.15
