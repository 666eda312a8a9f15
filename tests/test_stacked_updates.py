"""The update in few launches, which GPUs run, against the plain one, which CPUs run."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dcp.algorithm import make_algorithm
from dcp.critics.contrastive import positives
from dcp.learner import Learner, LearnerState
from dcp.networks import Residual, in_few_launches
from dcp.stacked_updates import StackedUpdates, filled
from dcp.types import Batch
from tests.tiny import tiny_config

PAPER = {"layer_norm": False, "network": "mlp", "depth": 2, "repr_dim": 8}


def learner_of(**settings: Any) -> Learner:
    return make_algorithm(tiny_config(**PAPER | settings)).learner


def start_of(learner: Learner) -> LearnerState:
    """A state whose steps are smooth in the gradients: Adam's first ones would turn a last digit into a whole step."""
    state: Any = learner.init(jax.random.key(0))
    adam, empty = state.optimizer
    slow = jax.tree.map(lambda x: x + 1e-3, adam.nu)
    return state._replace(optimizer=(adam._replace(count=jnp.asarray(1000, jnp.int32), nu=slow), empty))


def batch_of(learner: Learner, rows: int, valid: bool) -> Batch:
    """Make random rows; in one of four the commanded goal is the achieved one."""
    keys = jax.random.split(jax.random.key(1), 5)
    spec = learner.spec
    state = jax.random.normal(keys[0], (rows, spec.state_size))
    goals = jax.random.normal(keys[1], (2, rows, spec.goal_size))
    commanded = jnp.where(jnp.arange(rows)[:, None] % 4 == 0, spec.achieved(state), goals[0])
    action = jnp.tanh(jax.random.normal(keys[2], (rows, spec.action_size)))
    judged = jax.random.bernoulli(keys[3], 0.7, (rows,)) if valid else None
    return Batch(state, action, commanded, future_goal=goals[1], valid=judged)


CASES = {
    "crl": {"method": "crl"},
    "dcp": {"method": "dcp"},
    "chunks of ssgc, another loss and energy": {
        "method": "ssgc", "action_chunk": 2, "contrastive_loss": "forward", "energy": "cosine", "depth": 1,
    },
    "a condition that asks for other points, other sizes": {"method": "dcp", "condition": "two_step", "repr_dim": 3},
    "LayerNorm": {"method": "dcp", "layer_norm": True},
    "residual networks": {"method": "crl", "network": "residual", "depth": 8},
}  # fmt: skip


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())
def test_stacked_updates_are_the_updates(settings: dict[str, Any]):
    learner = learner_of(**settings)
    stacked = StackedUpdates.of(learner)
    assert stacked is not None
    batch = batch_of(learner, 12, valid="action_chunk" in settings)
    noise = jax.vmap(learner.noise, in_axes=(0, None))(jax.random.split(jax.random.key(2), 3), 12)

    def run(form: Any) -> tuple[LearnerState, Any]:
        start = form.flattened(start_of(learner))
        return jax.lax.scan(lambda state, noise: form.step(state, batch, noise), start, noise)

    plain, metrics = jax.jit(lambda: run(learner))()
    few, few_metrics = jax.jit(lambda: run(stacked))()
    close = partial(np.testing.assert_allclose, rtol=2e-5, atol=1e-6)
    assert few_metrics.keys() == metrics.keys()
    jax.tree.map(close, few_metrics, metrics)
    undone, plain = stacked.unflattened(few), learner.unflattened(plain)
    assert jax.tree.structure(undone) == jax.tree.structure(plain)
    jax.tree.map(close, undone, plain)
    # What fills up kernels has not moved: stacking the result again gives it back.
    again = stacked.flattened(undone)
    jax.tree.map(np.testing.assert_array_equal, again, few)


def test_stacking_keeps_every_bit():
    learner = learner_of(method="dcp")
    stacked = StackedUpdates.of(learner)
    assert stacked is not None
    start = learner.init(jax.random.key(0))
    filled = jax.tree.map(lambda x: x + jax.random.normal(jax.random.key(3), x.shape).astype(x.dtype), start)
    jax.tree.map(np.testing.assert_array_equal, stacked.unflattened(stacked.flattened(filled)), filled)


@pytest.mark.parametrize(
    "settings",
    [
        {"critic_learning_rate": 1e-3},
        {"critic": "quasimetric", "repr_dim": 16},
        {"component_settings": {"critic.eikonal": 0.1}},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_what_is_not_the_papers_update_is_not_stacked(settings: dict[str, Any]):
    assert StackedUpdates.of(learner_of(method="crl", **settings)) is None


def test_what_is_filled_up_is_zero():
    assert filled(jnp.array([[5.0, 6.0]]), (2, 3)).tolist() == [[5.0, 6.0, 0.0], [0.0, 0.0, 0.0]]


def test_a_residual_network_without_its_loop_is_the_same_function():
    network = Residual(width=8, depth=8)
    params, x = network.init(jax.random.key(0), 3, 2), jax.random.normal(jax.random.key(1), (5, 3))
    unrolled = in_few_launches(network)
    np.testing.assert_allclose(unrolled.apply(params, x), network.apply(params, x), rtol=1e-6)
    lowered = [jax.jit(form.apply).lower(params, x).as_text() for form in (network, unrolled)]
    assert ["stablehlo.while" in text for text in lowered] == [True, False]
    assert in_few_launches(unrolled) is unrolled


def test_positives_are_the_diagonal_on_every_platform():
    logits = jnp.arange(9.0).reshape(3, 3)
    assert positives(logits).tolist() == [0.0, 4.0, 8.0]
    lowered = jax.jit(positives).trace(logits).lower(lowering_platforms=("cuda",)).as_text()
    assert "gather" not in lowered and "reduce" in lowered
    gradient = jax.grad(lambda logits: jnp.sum(positives(logits) ** 2))(logits)
    np.testing.assert_array_equal(gradient, np.diag([0.0, 8.0, 16.0]))
