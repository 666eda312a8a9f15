"""The baseline is JaxGCRL's, number by number: ten updates that JaxGCRL 0.2.8 itself made, recorded in float64.

tests/golden/learner.npz holds its parameters before, its batches and noise, its losses, gradients and parameters after;
shared/TRAINING.md describes the entries. Two harmless differences are known: JaxGCRL adds 1e-6 to the logits inside
the penalty, which is put into ours here, and it steps the critic after the actor, which changes no number.
"""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.actor import actor_heads
from dcp.config import Config
from dcp.critics import contrastive
from dcp.learner import Learner, LearnerParams, LearnerState
from dcp.methods.table import make_agent
from dcp.types import Batch, EnvSpec

GOLDEN = Path(__file__).parent / "golden/learner.npz"
CASES = ("ant", "pusher", "humanoid")
HIDDEN = {"Dense_0": "hidden_0", "Dense_1": "hidden_1"}


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN) as file, jax.enable_x64(True):
        yield {name: file[name] for name in file.files}


@pytest.fixture
def jaxgcrls_penalty(monkeypatch):
    """JaxGCRL's form: the log-sum-exp of logits + 1e-6."""
    plain = contrastive.logsumexp

    def shifted(logits):
        return jnp.mean(plain(logits + 1e-6, axis=1) ** 2)

    monkeypatch.setattr(contrastive, "logsumexp_penalty", shifted)


def learner_of(golden, case: str) -> Learner:
    states, goals, actions, _ = (int(size) for size in golden[f"{case}/sizes"])
    dims = tuple(int(dim) for dim in golden[f"{case}/dims"])
    spec = EnvSpec(case, states, goals, actions, dims, threshold=0.5, episode_length=1000)
    scale = float(-golden[f"{case}/target_entropy"] / actions)
    config = Config(method="crl", width=32, repr_dim=16, target_entropy_scale=scale)
    return Learner(config, spec, make_agent(config, spec))


def parameters(golden, prefix: str) -> LearnerParams:
    """JaxGCRL's parameters in our names. Its two heads, Dense_2 and Dense_3, are the halves of our last layer."""

    def dense(name: str) -> dict[str, jax.Array]:
        return {part: jnp.asarray(golden[f"{prefix}/{name}/{part}"]) for part in ("kernel", "bias")}

    heads = [dense("actor/Dense_2"), dense("actor/Dense_3")]
    out = {part: jnp.concatenate([head[part] for head in heads], axis=-1) for part in ("kernel", "bias")}
    actor = {ours: dense(f"actor/{theirs}") for theirs, ours in HIDDEN.items()} | {"out": out}
    encoders = {
        f"psi_{name}": {ours: dense(f"{name}/{theirs}") for theirs, ours in {**HIDDEN, "Dense_2": "out"}.items()}
        for name in ("sa", "g")
    }
    return LearnerParams(actor, encoders, jnp.asarray(golden[f"{prefix}/log_alpha"]))


def batch_and_noise(golden, case: str, update: int, spec: EnvSpec) -> tuple[Batch, jax.Array]:
    state, goal = jnp.split(jnp.asarray(golden[f"{case}/{update}/pair"]), [spec.state_size], axis=-1)
    action = jnp.asarray(golden[f"{case}/{update}/action"])
    return Batch(state, action, jnp.zeros_like(goal), goal), jnp.asarray(golden[f"{case}/{update}/noise"])


def close(ours, theirs, share: float) -> None:
    """Every number within this share of the largest of its array."""
    for (path, one), other in zip(jax.tree.leaves_with_path(ours), jax.tree.leaves(theirs), strict=True):
        assert one.dtype == jnp.float64
        largest = float(jnp.max(jnp.abs(other)))
        assert_allclose(one, other, rtol=0, atol=share * largest, err_msg=jax.tree_util.keystr(path))


@pytest.mark.parametrize("case", CASES)
def test_one_update_of_crl_has_the_gradients_that_jaxgcrl_had(case: str, golden, jaxgcrls_penalty):
    learner, params = learner_of(golden, case), parameters(golden, f"{case}/init")
    batch, noise = batch_and_noise(golden, case, 0, learner.spec)
    gradients, metrics = jax.grad(learner.loss, has_aux=True)(params, batch, noise)
    close(gradients, parameters(golden, f"{case}/grad"), share=1e-13)
    assert_allclose(metrics["entropy"], np.mean(golden[f"{case}/0/entropy"]), rtol=1e-13)
    mean, log_std = actor_heads(learner.network, params.actor, batch.state, batch.future_goal)
    assert_allclose(mean, golden[f"{case}/forward/mean"], atol=1e-14)
    assert_allclose(log_std, golden[f"{case}/forward/log_std"], atol=1e-14)


@pytest.mark.parametrize("case", CASES)
def test_ten_updates_of_crl_end_where_jaxgcrl_ended(case: str, golden, jaxgcrls_penalty):
    learner, params = learner_of(golden, case), parameters(golden, f"{case}/init")
    state = LearnerState(params, learner.optimizer.init(params))
    step = jax.jit(learner.step)
    for update in range(10):
        batch, noise = batch_and_noise(golden, case, update, learner.spec)
        state, metrics = step(state, batch, noise)
        assert_allclose(metrics["actor_loss"], golden[f"{case}/{update}/actor_loss"], rtol=1e-10)
        if update == 0:
            close(state.params, parameters(golden, f"{case}/after_1"), share=1e-11)
    close(state.params, parameters(golden, f"{case}/after_10"), share=1e-11)


@pytest.mark.parametrize("case", CASES)
def test_without_jaxgcrls_shift_of_the_penalty_ours_still_agrees_to_six_digits(case: str, golden):
    learner, params = learner_of(golden, case), parameters(golden, f"{case}/init")
    state = LearnerState(params, learner.optimizer.init(params))
    step = jax.jit(learner.step)
    for update in range(10):
        state, _ = step(state, *batch_and_noise(golden, case, update, learner.spec))
    close(state.params, parameters(golden, f"{case}/after_10"), share=5e-5)


def test_the_recording_is_the_shared_one():
    shared = Path(__file__).parents[2] / "shared/golden/learner.npz"
    if not shared.exists():
        pytest.skip(f"no {shared} here")
    assert os.path.getsize(shared) == os.path.getsize(GOLDEN)
