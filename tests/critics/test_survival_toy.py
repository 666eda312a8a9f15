"""SRL where the truth is known: bodies that walk along lines, one step or none at a time."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dcp import replay
from dcp.critics.survival import SRL
from dcp.interfaces import Problem, hindsight_of
from dcp.networks import MLP
from dcp.types import Array, EnvSpec, Transition

LENGTH, LINES, STEP = 64, 144, 0.1
# State and goal: the place on a line, and which of the 12 x 12 lines it is.
SPEC = EnvSpec("lines", 3, 3, 1, goal_dims=(0, 1, 2), threshold=0.05, episode_length=LENGTH)
PROBLEM = Problem(SPEC, MLP(width=128, depth=2, layer_norm=True))


def walks(key: Array, chance: float) -> Transition:
    """One window of each line, from its start: a body goes one step ahead with this chance, else it stays."""
    ahead = jax.random.bernoulli(key, chance, (LENGTH, LINES)).astype(jnp.float32)
    place = STEP * (jnp.cumsum(ahead, axis=0) - ahead)  # [T, N]
    line = jnp.broadcast_to(jnp.arange(LINES)[None, :], place.shape)
    state = jnp.stack([place, (line % 12) / 3.0, (line // 12) / 3.0], axis=-1)
    return Transition(state, jnp.zeros((LENGTH, LINES, 1)), state, jnp.zeros(place.shape, jnp.int32))


def pairs(critic: Any, key: Array, chance: float) -> Any:
    key_walk, key_goal = jax.random.split(key)
    return replay.relabel(walks(key_walk, chance), SPEC, 0.97, key_goal, critic.needs, hindsight_of(critic))


def trained(critic: Any, chance: float, passes: int, batch_size: int = 256) -> Any:
    """Critic alone, by Adam with a falling rate. -> its parameters"""
    per_pass = (LENGTH - 1) * LINES // batch_size
    optimizer = optax.adam(optax.cosine_decay_schedule(3e-3, passes * per_pass))

    def update(carry: Any, rows: Array, data: Any) -> tuple[Any, Array]:
        params, state = carry
        batch = jax.tree.map(lambda x: x[rows], data)
        (loss, _), slope = jax.value_and_grad(
            lambda p: critic.loss(PROBLEM, p, (), batch, jax.random.key(0)), has_aux=True
        )(params)
        steps, state = optimizer.update(slope, state)
        return (optax.apply_updates(params, steps), state), loss

    @jax.jit
    def one_pass(carry: Any, key: Array) -> tuple[Any, Array]:
        data = pairs(critic, key, chance)
        order = jax.random.permutation(key, data.state.shape[0])[: per_pass * batch_size].reshape(-1, batch_size)
        return jax.lax.scan(partial(update, data=data), carry, order)

    params = critic.init(jax.random.split(jax.random.key(0)), PROBLEM).params
    carry = params, optimizer.init(params)
    for number in range(passes):
        carry, _ = one_pass(carry, jax.random.key(number + 1))
    return carry[0]


@pytest.mark.slow
def test_srls_survival_curve_is_calibrated():
    """Of fresh rows with about the same predicted chance to wait k steps, about that share do wait so long."""
    critic = SRL(repr_dim=32, future_discount=0.97).for_task(SPEC, LENGTH)
    params = trained(critic, chance=0.5, passes=30)
    fresh = pairs(critic, jax.random.key(999), 0.5)
    curves = np.asarray(critic.survival(PROBLEM, params, fresh.state, fresh.action, fresh.future_goal))
    # S_k: not near before step k, and not near now. Never near within the window counts as all W steps.
    waits = np.where(np.asarray(fresh.hit), np.asarray(fresh.hit_time), LENGTH)
    arrived_now = np.asarray(fresh.hit) & (waits == 0)
    for k in (2, 5, 10, 20, 40):
        outlasts = ~arrived_now & (waits >= k)
        order = np.argsort(curves[:, k])
        for rows in np.array_split(order, 5):
            assert abs(curves[rows, k].mean() - outlasts[rows].mean()) < 0.06
    assert np.ptp(curves[:, 10]) > 0.8  # it tells near goals from far ones
