"""The single file takes the library's steps: its maze, pool, hindsight goals, updates and whole iterations."""

import ast
import dataclasses
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dcp.algorithm import Algorithm, RunState
from dcp.config import Config
from dcp.envs.registry import make_env
from dcp.learner import LearnerState
from dcp.presets import preset_config
from dcp.replay import relabel
from dcp.types import Batch, Transition

PATH = Path(__file__).parents[2] / "examples" / "dcp_single_file.py"
EPISODE = 20  # steps; the file's own constant is replaced by it, so that episodes end within a test
SMALL = {
    "num_envs": 4, "unroll_length": 25, "window": 30, "replay_rows": 64, "batch_size": 16, "width": 16, "repr_dim": 8,
    "pool_size": 32, "num_candidates": 4, "subgoal_period": 5, "eval_episodes": 6,
}  # fmt: skip
KEY = jax.random.key(7)


def load_file() -> Any:
    spec = importlib.util.spec_from_file_location("dcp_single_file", PATH)
    assert spec is not None and spec.loader is not None
    module = sys.modules["dcp_single_file"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def ranks_may_differ() -> Iterator[None]:
    """The file adds vectors to rows as NumPy does; the library writes the rank out."""
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = load_file()
    monkeypatch.setattr(module, "EPISODE_LENGTH", EPISODE)
    return module


def library(method: str) -> Algorithm:
    rates = dict.fromkeys(("actor_learning_rate", "critic_learning_rate", "alpha_learning_rate"), 1e-3)
    rest = {"episode_length": EPISODE, "min_replay_rows": 30, "num_evals": 1, "steps": 4 * 25 * 6}
    envs = {"env": "point_u_maze", "eval_env": "point_u_maze_eval"}
    return Algorithm(
        config=Config(method=method, layer_norm=True, final_goal_share=0.5, **envs, **rates, **rest, **SMALL)
    )


def params_of(state: LearnerState) -> dict[str, Any]:
    """The library's parameters under the file's names."""
    return {"actor": state.params.actor, "log_alpha": state.params.log_alpha, **state.params.critic}


def learner_of(file: Any, state: LearnerState) -> Any:
    """A learner of the file with the library's parameters, before any update."""
    return file.Learner(params_of(state), file.optax.adam(1e-3).init(params_of(state)))


def require_close(params: dict[str, Any], state: LearnerState, tolerance: float) -> None:
    for (path, ours), theirs in zip(
        jax.tree_util.tree_leaves_with_path(params), jax.tree.leaves(params_of(state)), strict=True
    ):
        assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance, err_msg=jax.tree_util.keystr(path))


def test_it_is_one_file_of_400_lines_without_the_library():
    text = PATH.read_text()
    assert len(text.splitlines()) <= 400
    imported = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in imported if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in imported if isinstance(node, ast.ImportFrom)}
    roots = {name.split(".")[0] for name in names}
    assert roots - set(sys.stdlib_module_names) == {"jax", "numpy", "optax"}


def test_its_settings_are_those_of_the_demo_preset():
    settings, demo = load_file().Settings(), preset_config("demo").resolve(250)
    same_name = {field.name for field in dataclasses.fields(settings)} & {f.name for f in dataclasses.fields(demo)}
    assert len(same_name) == 18
    assert {name: getattr(settings, name) for name in same_name} == {name: getattr(demo, name) for name in same_name}
    rates = {demo.actor_learning_rate, demo.critic_learning_rate, demo.alpha_learning_rate}
    assert rates == {settings.learning_rate} and demo.layer_norm and demo.depth == 2 and demo.fidelity == "paper"
    assert settings.target_entropy == -demo.target_entropy_scale * 2
    assert demo.pool_refresh_steps == load_file().EPISODE_LENGTH and demo.num_prefill_unrolls == -(-250 // 124)


@pytest.mark.parametrize(("name", "maze"), [("point_u_maze", "MAZE"), ("point_u_maze_eval", "EVALUATION_MAZE")])
def test_its_maze_steps_and_resets_as_the_librarys(file: Any, name: str, maze: str):
    env = make_env(name)
    keys = jax.random.split(KEY, 200)
    first = jax.jit(jax.vmap(env.reset))(keys)
    position, goal = jax.jit(jax.vmap(lambda key: file.reset(getattr(file, maze), key)))(keys)
    assert_array_equal(jnp.concatenate([position, goal], axis=-1), first.obs)

    def both(carry: Any, action: Any) -> Any:
        state, position = carry
        state, position = jax.vmap(env.step)(state, action), jax.vmap(file.move)(position, action)
        near = jnp.linalg.norm(position - goal, axis=-1) < file.NEAR
        return (state, position), (state.obs[:, :2], position, state.near_goal, near)

    towards = jax.random.uniform(KEY, (1, 200, 2), minval=-1.5, maxval=1.5)  # each keeps a direction, into the walls
    actions = towards + jax.random.normal(KEY, (80, 200, 2))
    _, (theirs, ours, theirs_near, near) = jax.jit(lambda c: jax.lax.scan(both, c, actions))((first, position))
    assert_allclose(ours, theirs, atol=1e-6)
    assert np.any(np.asarray(near)) and np.mean(np.asarray(near) == np.asarray(theirs_near)) == 1.0
    touches = np.abs(np.asarray(ours) % 1.0 - 0.42) < 1e-5  # at a wall's face: half a cell less the radius
    assert touches.mean() > 0.1


@pytest.mark.parametrize("method", ["dcp", "crl"])
def test_three_updates_are_the_learners(file: Any, method: str):
    settings = file.Settings(method=method, **SMALL)
    algorithm = library(method)
    state = jax.jit(algorithm.learner.init)(KEY)
    learner = learner_of(file, state)
    step = jax.jit(algorithm.learner.step)
    update = jax.jit(lambda learner, batch, noise: file.update(settings, learner, batch, noise))
    for number in range(3):
        random = np.random.default_rng(number)
        arrays = [jnp.asarray(random.uniform(0.6, 3.4, (16, 2)), jnp.float32) for _ in range(3)]
        arrays[1] = arrays[1].at[0].set(arrays[0][0])  # the first row stands at its z
        action, noise = jnp.tanh(arrays[2]), jnp.asarray(random.normal(size=(16, 2)), jnp.float32)
        state, theirs = step(state, Batch(arrays[0], action, arrays[1], arrays[2]), noise)
        learner, metrics = update(learner, file.Batch(arrays[0], action, arrays[1], arrays[2]), noise)
        for ours, name in (("critic_loss", "critic_loss"), ("accuracy", "infonce_accuracy"), ("entropy", "entropy")):
            assert_allclose(metrics[ours], theirs[name], rtol=1e-5)
    require_close(learner.params, state, 1e-5)


def test_its_pool_and_commands_are_the_librarys(file: Any):
    settings, algorithm = file.Settings(**SMALL), library("dcp")
    state = jax.jit(algorithm.learner.init)(KEY)
    params, part = learner_of(file, state).params, algorithm.agent.command
    goal = jnp.asarray([[1.0, 2.0], [3.0, 1.0], [3.0, 3.0], [2.0, 3.0]])
    random = np.random.default_rng(0)
    positions = jnp.asarray(random.uniform(0.6, 3.4, (60, 4, 2)), jnp.float32)
    theirs = part.init(positions[0], goal)
    pool = file.Pool(positions[0][jnp.arange(32) % 4], jnp.zeros((), jnp.int32), goal)

    def both(carry: Any, now: Any) -> Any:
        pool, theirs = carry
        position, clock, key = now
        acting = file.Acting(position, position, goal, clock, pool)
        pool, commanded = file.command(settings, params, acting, key)
        representation = algorithm.learner.representation(state.params.critic)
        theirs, their_commanded = part.step(theirs, position, goal, representation, key)
        return (pool, theirs), (commanded, their_commanded, pool.states, theirs.pool, pool.head, theirs.head)

    steps = (positions, jnp.arange(60), jax.random.split(KEY, 60))
    _, seen = jax.jit(lambda carry: jax.lax.scan(both, carry, steps))((pool, theirs))
    for ours, their in zip(seen[::2], seen[1::2], strict=True):
        assert_array_equal(ours, their)
    commanded = np.asarray(seen[0])  # the first two environments are asked for g, the others for z, for 5 steps each
    assert np.all(commanded[:, :2] == np.asarray(goal)[:2]) and not np.any(np.all(commanded[:, 2:] == goal[2:], -1))
    changed = np.any(commanded[1:, 2:] != commanded[:-1, 2:], axis=(1, 2))
    assert set(np.flatnonzero(changed) + 1) <= set(range(5, 60, 5)) and changed.sum() > 5


def test_its_hindsight_goals_are_the_librarys(file: Any):
    settings = file.Settings(**SMALL)
    random = np.random.default_rng(1)
    state, action, goal = (jnp.asarray(random.normal(size=(30, 4, 2)), jnp.float32) for _ in range(3))
    episode = jnp.asarray((np.arange(30)[:, None] + [0, 7, 13, 19]) // EPISODE, jnp.int32)
    pairs = jax.jit(lambda: file.hindsight_pairs(settings, file.Rows(state, action, goal, episode), KEY))()
    spec = library("dcp").env.spec
    theirs = jax.jit(lambda: relabel(Transition(state, action, goal, episode), spec, 0.99, KEY, {"future_goal"}))()
    for ours, name in zip(pairs, ("state", "action", "commanded_goal", "future_goal"), strict=True):
        assert ours.shape == (29 * 4, 2)
        assert_array_equal(ours, getattr(theirs, name))


@pytest.mark.parametrize("method", ["dcp", "crl"])
def test_whole_iterations_and_an_evaluation_are_the_librarys(file: Any, method: str):
    """The same keys are split in the same order, so the same run follows, until the ring of 64 rows has wrapped."""
    settings, algorithm = file.Settings(method=method, **SMALL), library(method)
    theirs: RunState = jax.jit(algorithm.init)(KEY)
    run = jax.jit(lambda key: file.init(settings, key))(KEY)
    assert jax.tree.map(jnp.shape, run.learner) == jax.tree.map(jnp.shape, learner_of(file, theirs.learner))
    run = run._replace(learner=learner_of(file, theirs.learner))
    iteration = jax.jit(lambda run, learns: file.iteration(settings, run, learns), static_argnums=1)
    their_prefill, their_iteration = jax.jit(algorithm.prefill), jax.jit(algorithm.iteration)
    for number in range(4):
        learns = number >= algorithm.config.num_prefill_unrolls
        run, metrics = iteration(run, learns)
        if learns:
            theirs, their_metrics = their_iteration(theirs)
            assert_allclose(metrics["critic_loss"], their_metrics["critic_loss"], rtol=1e-4)
        else:
            theirs = their_prefill(theirs)
    rows = theirs.replay.rows
    for ours, their in zip(run.replay, (rows.state, rows.action, rows.commanded_goal, rows.episode_id), strict=True):
        assert_allclose(ours, their, atol=1e-4)
    assert_allclose(run.acting.position, theirs.acting.episodes.env.obs[:, :2], atol=1e-4)
    require_close(run.learner.params, theirs.learner, 1e-4)

    scores = jax.jit(lambda params, key: file.evaluate(settings, params, key))
    their_scores = jax.jit(algorithm.evaluate)(theirs, KEY)
    ours = scores(run.learner.params, jax.random.split(KEY)[0])
    assert_allclose(
        [ours["success"], ours["time_near_goal"]], [*map(their_scores.get, ("success_once", "time_near_goal"))]
    )
