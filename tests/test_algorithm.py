"""The loop's schedule and sampling, and a probe that learns in seconds. Bit-identity: test_run_folder.py."""

import dataclasses
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from dcp import algorithm as trainer_module
from dcp.algorithm import Algorithm, make_algorithm
from dcp.config import Config
from dcp.critics.contrastive import Contrastive
from dcp.envs.mazes import PointMaze, parse_layout
from dcp.errors import UserError
from dcp.evaluation import evaluation_key
from dcp.interfaces import Agent
from dcp.loop import evaluation_points
from dcp.machine.checks import check_algorithm
from dcp.machine.programs import Programs
from dcp.methods.commands import FinalGoal
from dcp.methods.conditions import RawGoal
from dcp.presets import preset_config
from dcp.runs import training
from dcp.runs.resuming import resume
from dcp.runs.training import TrainedRun, train
from tests.support.tiny import tiny_config


@pytest.mark.parametrize(("num_evals", "points"), [(1, [8]), (2, [4, 8]), (3, [3, 5, 8]), (8, list(range(1, 9)))])
def test_evaluations_are_evenly_spread_and_the_last_is_at_the_end(num_evals: int, points: list[int]):
    """4,000 steps at 400 an unroll, less 2 that fill the replay: 8 iterations. Thirds: 2.7, 5.3, 8."""
    config = tiny_config(num_evals=num_evals).resolve(250)
    assert config.num_iterations == 8
    assert evaluation_points(config) == points


def test_an_evaluations_episodes_are_fresh_and_only_the_seed_decides_them():
    keys = {tuple(jax.random.key_data(evaluation_key(seed, index)).tolist()) for seed in (0, 1) for index in (0, 1, 2)}
    assert len(keys) == 6
    training = jax.random.split(jax.random.key(0), 3)
    assert not keys & {tuple(row) for row in jax.random.key_data(training).tolist()}


def test_an_iteration_goes_over_every_pair_of_its_windows_exactly_once(tiny_run: TrainedRun):
    trainer = make_algorithm(tiny_config())
    windows = trainer.windows(tiny_run.state.replay, jax.random.key(0))
    pairs, order = trainer.pairs(windows, jax.random.key(1), jax.random.key(2))
    assert pairs.state.shape == (16 * 32, 2)  # 16 environments, windows of 33 rows
    assert order.shape == (8, 64)
    assert sorted(np.asarray(order).ravel()) == list(range(512))


def test_fewer_updates_per_iteration_are_the_first_of_the_same_batches(tiny_run: TrainedRun):
    orders = []
    for config in (tiny_config(), tiny_config(updates_per_iteration=3)):
        trainer = make_algorithm(config)
        windows = trainer.windows(tiny_run.state.replay, jax.random.key(0))
        orders.append(np.asarray(trainer.pairs(windows, jax.random.key(1), jax.random.key(2))[1]))
    assert orders[1].shape == (3, 64)
    assert np.array_equal(orders[1], orders[0][:3])


def test_the_replay_holds_the_unrolls_that_were_counted(tiny_run: TrainedRun):
    """10 unrolls of 25 rows into room for 500."""
    assert int(tiny_run.state.unrolls) == 10
    assert int(tiny_run.state.replay.size) == 250


OPEN_ROOM = PointMaze("open_room", parse_layout("#####\n#ggg#\n#grg#\n#ggg#\n#####", scale=1.0))
PROBE = Config(
    env="open_room", final_goal_share=0.5, steps=64 * 16 * 60, num_envs=64, episode_length=33, unroll_length=16,
    batch_size=128, replay_rows=400, min_replay_rows=64, num_evals=1, eval_episodes=128, width=48, repr_dim=16,
    pool_size=128, num_candidates=16, actor_learning_rate=2e-3, critic_learning_rate=2e-3, alpha_learning_rate=2e-3,
)  # fmt: skip


def probe_scores(method: str) -> tuple[float, float]:
    """Success of the untrained and of the trained policy, in a room without obstacles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer_module, "env_of", lambda config, name=None: OPEN_ROOM)
        trainer: Algorithm = make_algorithm(dataclasses.replace(PROBE, method=method))
    params = trainer.learner.init(jax.random.key(0)).params
    untrained = Programs(trainer).evaluate(params, jax.random.key(9))
    run = train(trainer, runs_dir=None, display="none")
    return float(untrained["success_once"]), run.rows[-1]["success_once"]


def test_a_probe_learns_in_seconds():
    """A room of 3 x 3 cells, goals in the 8 around the start, 61,440 steps: from hardly ever to nearly always."""
    untrained, trained = probe_scores("dcp")
    assert untrained < 0.35
    assert trained > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("method", ["crl", "ssgc", "dcp_no_pool"])
def test_the_probe_is_learned_by_every_method(method: str):
    untrained, trained = probe_scores(method)
    assert trained > untrained + 0.3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("env", "point_big_maze"), ("eval_env", "point_u_maze_eval"), ("physics", "mujoco"), ("fidelity", "fixed")),
        *(("method", "crl"), ("condition", "raw_goal"), ("actor_goal", "future"), ("energy", "dot")),
        *(("width", 128), ("pool_size", 1_024), ("final_goal_share", 0.5)),
    ],
)
def test_a_setting_that_an_algorithms_parts_have_decided_is_refused(name: str, value: object, tmp_path: Path):
    with pytest.raises(UserError, match=f"^{name} {value!r} comes too late for this algorithm, which is made with"):
        train(make_algorithm(tiny_config()), runs_dir=tmp_path, display="none", **{name: value})
    assert not any(tmp_path.iterdir())


def test_settings_that_no_part_decides_pass_and_so_do_those_that_agree():
    crl = Algorithm("point_u_maze", Agent(Contrastive(), FinalGoal(), RawGoal(), "future"), tiny_config())
    settings = {"seed": 3, "steps": 8_000, "actor_learning_rate": 1e-3, "method": "crl", "pool_size": 64}
    changed = training._algorithm(crl, settings)
    assert {name: getattr(changed.config, name) for name in settings} == settings  # this agent has no pool
    assert changed.agent == crl.agent


def test_a_run_resumes_with_the_algorithm_that_began_it_and_no_other(tiny_run: TrainedRun, tmp_path: Path):
    folder = Path(shutil.copytree(tiny_run.folder, tmp_path / "run"))
    config = (folder / "config.json").read_bytes()
    for other, told in (
        ({"method": "crl"}, "method 'dcp' where the algorithm has 'crl': give the algorithm that began the run"),
        ({"width": 128}, "width 32 where the algorithm has 128"),
        ({"env": "point_big_maze"}, "env 'point_u_maze' where the algorithm has 'point_big_maze', eval_env"),
    ):
        with pytest.raises(UserError, match="was begun with") as error:
            resume(folder, algorithm=make_algorithm(tiny_config(**other)), display="none")
        assert told in str(error.value)
    assert (folder / "config.json").read_bytes() == config
    assert resume(folder, algorithm=make_algorithm(tiny_config(steps=8_000)), display="none").rows == tiny_run.rows


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ("point_big_maze", "eval_env 'point_u_maze_eval' has other walls than env 'point_big_maze'"),
        ("point_soccer", "eval_env 'point_u_maze_eval' has sizes"),
    ],
)
def test_an_algorithm_is_not_scored_in_another_maze_than_it_trains_in(env: str, sentence: str):
    with pytest.raises(UserError, match=sentence):
        check_algorithm(Algorithm(env, config=preset_config("demo")))
