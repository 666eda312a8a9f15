"""Action chunks: planned at once, taken open loop, in training, evaluation, exported files and the controller."""

from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.actor import ChunkState, next_chunk_action
from dcp.algorithm import Algorithm, make_algorithm
from dcp.critics.contrastive import CONTRASTIVE_LOSSES, contrast
from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.evaluation import rollout
from dcp.machine.checks import violations
from dcp.policies.exports import encode, load_exported
from dcp.policies.policy import DeployedPolicy
from dcp.policies.policy_file import load_policy
from dcp.policies.wrappers import HostPolicy, Stepper
from dcp.presets import preset_config
from dcp.robots.controller import Controller
from dcp.types import Batch
from tests.support.tiny import tiny_config

CHUNK = 3


@cache
def algorithm() -> Algorithm:
    return make_algorithm(tiny_config(action_chunk=CHUNK))


@cache
def policy() -> DeployedPolicy:
    """With every weight drawn by NumPy: nothing is compiled, and actions are large."""
    params = jax.eval_shape(algorithm().learner.init, jax.random.key(0)).params
    random = np.random.default_rng(0)
    return algorithm().policy(jax.tree.map(lambda x: random.uniform(-0.5, 0.5, x.shape).astype(np.float32), params))


def test_actor_and_critic_have_chunks_of_actions():
    learner, params = algorithm().learner, policy()
    assert (learner.spec.action_size, learner.spec.action_chunk) == (2 * CHUNK, CHUNK)
    assert params.actor["out"]["bias"].shape == (2 * 2 * CHUNK,)  # means and log stds
    assert params.critic_params["psi_sa"]["hidden_0"]["kernel"].shape[0] == 2 + 2 * CHUNK
    assert learner.noise(jax.random.key(0), 5).shape == (5, 2 * CHUNK)


def test_the_entropy_target_is_that_of_all_actions_of_a_chunk():
    """The temperature's slope is alpha (entropy - target), with target -0.5 * 2 * 3 = -3, and alpha e^0.2."""
    learner, random = algorithm().learner, np.random.default_rng(1)
    params = jax.eval_shape(learner.init, jax.random.key(0)).params
    params = jax.tree.map(lambda x: jnp.array(random.uniform(-0.5, 0.5, x.shape), x.dtype), params)
    batch = Batch(*(jnp.array(random.normal(size=(4, size)), jnp.float32) for size in (2, 6, 2)))

    def loss(log_alpha):
        at = params._replace(log_alpha=log_alpha)
        return learner.with_temperature(log_alpha, *learner.actor_loss(at, batch, batch.action))

    slope, metrics = jax.grad(loss, has_aux=True)(jnp.array(0.2))
    assert_allclose(slope, np.exp(0.2) * (float(metrics["entropy"]) + 3.0), rtol=1e-5)


def test_in_training_each_environment_takes_its_own_chunk_to_the_end():
    """Environment 0 is at its first action, environment 1 at its last, so it plans anew at the next step."""
    plan = ChunkState(jnp.full((2, 6), -1.0), jnp.array([0, 2]))
    planned = jnp.arange(12.0).reshape(2, 6)
    plan, action = next_chunk_action(plan, planned, CHUNK)
    assert np.array_equal(action, [[0, 1], [-1, -1]]) and np.array_equal(plan.step, [1, 0])
    plan, action = next_chunk_action(plan, planned + 100, CHUNK)
    assert np.array_equal(action, [[2, 3], [106, 107]]) and np.array_equal(plan.step, [2, 1])


def test_a_new_episode_begins_with_a_new_chunk():
    """Episodes of 7 steps, chunks of 3: the chunk that begins at step 6 is cut after one action."""
    made = make_algorithm(tiny_config(action_chunk=CHUNK, episode_length=7, num_envs=2, batch_size=8, window=9))
    run = jax.eval_shape(made.init, jax.random.key(0))
    random = np.random.default_rng(0)
    params = jax.tree.map(lambda x: random.uniform(-0.5, 0.5, x.shape).astype(np.float32), run.learner.params)
    acting, _ = made.init_experience(jax.random.key(1))
    step, seen = jax.jit(made.step), []
    for number in range(9):
        seen.append(int(acting.plan.step[0]))
        acting, _ = step(params, acting, jax.random.key(number), jax.random.key(number))
    assert seen == [0, 1, 2, 0, 1, 2, 0, 0, 1]


def test_a_policy_takes_its_chunk_open_loop_and_without_a_state_plans_at_each_call():
    state, goal = np.array([1.0, 1.0], np.float32), np.array([2.0, 3.0], np.float32)
    planned = policy().planned(state[None], goal[None])[0].reshape(CHUNK, 2)
    stepper = Stepper(policy())
    found = [stepper(state + 0.3 * number, goal) for number in range(4)]  # it does not look again before the third
    assert_allclose(found[:3], planned, atol=1e-6)
    again = policy().planned(state[None] + 0.9, goal[None])[0, :2]
    assert_allclose(found[3], again, atol=1e-6)
    assert np.abs(again - planned[0]).max() > 1e-3
    assert_allclose(policy()(state, goal), planned[0], atol=1e-6)


def test_a_policy_file_keeps_the_chunk(tmp_path: Path):
    loaded = load_policy(policy().save(tmp_path / "policy.safetensors"))
    assert loaded.action_chunk == CHUNK
    state, goal = np.ones((4, 2), np.float32), np.zeros((4, 2), np.float32)
    assert np.array_equal(loaded.planned(state, goal), policy().planned(state, goal))


@pytest.mark.parametrize("form", ["numpy", "onnx", "stablehlo"])
def test_an_exported_policy_takes_chunks_and_evaluates_as_the_policy_itself(form: str, tmp_path: Path):
    path = tmp_path / f"policy{dict(numpy='.npz', onnx='.onnx', stablehlo='.stablehlo')[form]}"
    path.write_bytes(encode(policy(), form, {}))
    exported, env = load_exported(path), make_env("point_u_maze")
    one, other = (
        rollout(env, each, jax.random.key(0), 5, 7) for each in (policy(), HostPolicy(exported, exported.reset))
    )
    assert_allclose(other.distance, one.distance, atol=1e-4)
    assert np.ptp(np.asarray(one.distance)) > 0.1
    exported.reset()
    state, goal = np.zeros(2, np.float32), np.ones(2, np.float32)
    taken = [np.asarray(exported(state, goal)) for _ in range(2)]
    exported.reset()
    assert_allclose(exported(state, goal), taken[0])  # a reset begins a new chunk
    assert np.abs(taken[1] - taken[0]).max() > 1e-4


def test_the_controller_runs_chunks(tmp_path: Path):
    path = tmp_path / "policy.npz"
    path.write_bytes(encode(policy(), "numpy", {}))
    exported, reads, sent = load_exported(path), [], []

    def read_state() -> np.ndarray:
        reads.append(np.full(2, 0.1 * len(reads), np.float32))
        return reads[-1]

    goal = np.array([2.0, 3.0], np.float32)
    controller = Controller(
        exported, read_state, lambda: goal, lambda action: sent.append(np.array(action)), rate_hz=100,
        safe_action=np.zeros(2), max_overruns=None, warm_up=2,
    )  # fmt: skip
    controller.run(steps=2 * CHUNK)
    after_warm_up = reads[2:]
    wanted = [policy().planned(after_warm_up[i][None], goal[None])[0].reshape(CHUNK, 2) for i in (0, CHUNK)]
    assert_allclose(sent[: 2 * CHUNK], np.concatenate(wanted), atol=1e-5)


@pytest.mark.parametrize("name", CONTRASTIVE_LOSSES)
def test_rows_whose_chunk_leaves_the_episode_are_negatives_and_no_positives(name: str):
    random = np.random.default_rng(0)
    logits, valid = jnp.array(random.normal(size=(4, 4)), jnp.float32), jnp.array([True, True, False, True])
    found = contrast(name, logits, valid)
    x, rows = np.asarray(logits, np.float64), [0, 1, 3]
    forward = -np.mean([x[i, i] - np.log(np.exp(x[i]).sum()) for i in rows])
    backward = -np.mean([x[i, i] - np.log(np.exp(x[:, i]).sum()) for i in rows])
    pairs = [np.log1p(np.exp(-x[i, j] if i == j else x[i, j])) for i in range(4) for j in range(4) if (i, j) != (2, 2)]
    wanted = {"forward": forward, "backward": backward, "symmetric": forward + backward, "binary_nce": np.mean(pairs)}
    assert_allclose(found, wanted[name], rtol=1e-5)


def test_a_loss_that_knows_no_chunks_and_a_chunk_longer_than_the_window_give_one_sentence(monkeypatch: Any):
    monkeypatch.setitem(CONTRASTIVE_LOSSES, "mine", lambda logits: jnp.sum(logits))
    with pytest.raises(UserError, match="mine takes logits alone: give it a second argument, valid"):
        contrast("mine", jnp.zeros((2, 2)), jnp.ones(2, bool))
    assert violations(tiny_config(contrastive_loss="mine")) == []
    for settings in ({"contrastive_loss": "mine"}, {"method": "cmd", "critic.contrastive_loss": "mine"}):
        (said,) = violations(preset_config("smoke", action_chunk=2, **settings))
        assert "mine takes logits alone" in said
    with pytest.raises(UserError, match="action_chunk 33 does not fit into a window of 33 rows: lower it"):
        tiny_config(action_chunk=33)
