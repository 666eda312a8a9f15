"""Each critic resumes, trains in vmapped seeds and on two devices, and is exported, as the contrastive one does."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp import replay
from dcp.algorithm import make_algorithm
from dcp.interfaces import hindsight_of
from dcp.lab.trial import evaluate
from dcp.methods.table import CRITICS, needs
from dcp.policies.exports import export_policy, load_exported
from dcp.policies.policy_file import load_policy
from dcp.runs.seeds import train_seeds
from dcp.runs.training import train
from dcp.types import Transition
from tests.runs.test_resuming import resume, stopped
from tests.support.same_run import assert_same_run
from tests.support.tiny import tiny_config

ROOT = Path(__file__).parents[2]
NEW = [name for name in CRITICS if name != "contrastive"]
SHORT = {"steps": 2_000, "num_evals": 3, "window": 17, "episode_length": 20, "eval_episodes": 4}


def short_config(critic: str, **settings: Any) -> Any:
    return tiny_config(**{"method": "crl", "critic": critic, **SHORT, **settings})


@cache
def random_pairs(critic: str) -> tuple[Any, Any]:
    """An algorithm with this critic and chunks of two, and pairs of random windows; it compiles no iteration."""
    made = make_algorithm(short_config(critic, action_chunk=2))
    random = np.random.default_rng(0)
    shape = (17, 16)
    place = jnp.array(1.0 + np.cumsum(random.normal(size=(*shape, 2)), axis=0) * 0.1, jnp.float32)
    windows = Transition(
        place, jnp.array(random.uniform(-1, 1, (*shape, 2)), jnp.float32), place[::-1],
        jnp.array(np.arange(17)[:, None] // 9 + np.zeros(shape, int), jnp.int32),
        jnp.array(np.broadcast_to(np.arange(17)[:, None] == 8, shape)),
    )  # fmt: skip
    hindsight = hindsight_of(made.agent.critic)
    return made, replay.relabel(windows, made.env.spec, 0.9, jax.random.key(0), needs(made.agent), hindsight, 2)


@pytest.mark.parametrize("critic", NEW)
def test_the_loss_of_chunks_has_finite_gradients_that_reach_every_parameter_and_no_actor(critic: str):
    made, pairs = random_pairs(critic)
    learner, batch = made.learner, jax.tree.map(lambda x: x[::16], pairs)  # one environment's rows, with its fall
    random = np.random.default_rng(1)
    state = jax.tree.map(
        lambda x: jnp.array(random.uniform(-0.3, 0.3, x.shape), x.dtype),
        jax.eval_shape(learner.init, jax.random.key(0)),
    )
    filled = learner.with_next_action(state.params, state.params.actor, batch, jax.random.key(1))

    def loss(params: Any) -> Any:
        return learner.agent.critic.loss(learner.problem, params, state.carried, filled, jax.random.key(2))[0]

    assert filled.action.shape == (16, 2 * 2) and not np.all(filled.valid)
    slopes = jax.jit(jax.grad(loss))(state.params.critic)
    named = jax.tree_util.tree_leaves_with_path(slopes)
    assert all(np.all(np.isfinite(leaf)) for _, leaf in named)
    unused = ["mix"] if critic in ("quasimetric", "tmd") else []  # MRN has no mixture
    still = [path for path, leaf in named if not np.any(np.asarray(leaf)) and not any(x in str(path) for x in unused)]
    assert still == []


@pytest.mark.slow
@pytest.mark.parametrize("critic", NEW)
def test_a_run_in_chunks_that_dies_resumes_to_the_same_bits(critic: str, tmp_path: Path):
    config = short_config(critic, action_chunk=2)
    whole = train(config, runs_dir=tmp_path / "whole", display="none").folder
    folder = stopped(config, tmp_path / "stopped", 1)
    resume(folder, display="none")
    assert_same_run(folder, whole)


@pytest.mark.slow
@pytest.mark.parametrize("critic", NEW)
def test_vmapped_seeds_are_the_runs_that_they_would_be_alone(critic: str, tmp_path: Path):
    together = train_seeds(short_config(critic, num_evals=1), (3, 0), runs_dir=tmp_path / "together", display="none")
    alone = train(short_config(critic, num_evals=1, seed=3), runs_dir=tmp_path / "alone", display="none")
    for name in ("critic_loss", "actor_loss"):
        assert_allclose(together[3].rows[-1][name], alone.rows[-1][name], rtol=1e-3, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("critic", NEW)
def test_two_devices_learn_what_one_learns(critic: str):
    program = (
        "import json, sys\n"
        "from dcp.runs.training import train\n"
        "from tests.critics.test_every_critic import short_config\n"
        "rows = [train(short_config(sys.argv[1], num_evals=1, devices=n), runs_dir=None, display='none').rows[-1]\n"
        "        for n in (2, 1)]\n"
        "print(json.dumps([{k: r[k] for k in ('critic_loss', 'actor_loss')} for r in rows]))\n"
    )
    environment = {"JAX_NUM_CPU_DEVICES": "2", "JAX_PLATFORMS": "cpu", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", program, critic], cwd=ROOT, env=environment, capture_output=True,
                          text=True, timeout=600)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    two, one = json.loads(done.stdout.splitlines()[-1])
    for name, value in one.items():
        assert_allclose(two[name], value, rtol=0.02, atol=1e-4, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("critic", NEW)
def test_a_trained_policy_loads_evaluates_and_is_exported(critic: str, tmp_path: Path):
    condition = {"condition": "direction"} if "embedding" in CRITICS[critic].gives else {}
    run = train(short_config(critic, num_evals=1, **condition), runs_dir=tmp_path, display="none")
    policy = load_policy(run.folder)
    state, goal = np.random.default_rng(0).uniform(0, 3, (2, 20, 2)).astype(np.float32)
    for form in ("numpy", "onnx", "stablehlo"):
        exported = load_exported(export_policy(run.folder, form))
        assert_allclose(exported(state, goal), policy(state, goal), atol=1e-4, err_msg=form)
    assert evaluate(run.folder, episodes=4, seeds=(0,)).all.success.shape
