"""Runs on MuJoCo's own engine: resumed, killed, with any number of threads, evaluated, and through Gymnasium."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

import dcp
from dcp.algorithm import make_algorithm
from dcp.cli.eval import EvalOptions, _about, compare, file_name
from dcp.cli.main import main
from dcp.cli.render import RenderOptions, _stem
from dcp.envs import physics_env, registry
from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.interop.goal_env import GoalEnv
from dcp.lab.targets import environment_of, open_target
from dcp.lab.trial import arena_for
from dcp.machine.programs import Programs
from dcp.runs.resuming import resume
from dcp.runs.training import TrainedRun, train
from tests.runs.test_resuming import lives, stopped
from tests.support.same_run import assert_same_run
from tests.support.tiny import tiny_config

SETTINGS = {"env": "pusher_easy", "physics": "mujoco", "eval_episodes": 4, "num_evals": 4, "steps": 4_000}
CONFIG = tiny_config(**SETTINGS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    return train(CONFIG, runs_dir=tmp_path_factory.mktemp("whole"), display="none")


def test_a_stopped_run_continues_bit_by_bit(whole: TrainedRun, tmp_path: Path):
    folder = stopped(CONFIG, tmp_path, 2)
    resume(folder, display="none")
    assert_same_run(folder, whole.folder)


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_as_if_it_had_not_been(whole: TrainedRun, tmp_path: Path):
    seen = lives(tmp_path, 4, 0, **SETTINGS)
    assert seen["killed"] == 4
    for number in range(seen["finished"]):
        assert_same_run(tmp_path / str(number) / CONFIG.run_path, whole.folder)


def iteration(threads: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Everything after the first updates: metrics, parameters, environments."""
    monkeypatch.setattr(physics_env, "cores", lambda: threads)
    registry._make_ours.cache_clear()
    stages = Programs(make_algorithm(dataclasses.replace(CONFIG, env="ant_push")))
    assert stages.algorithm.env.engine.threads == threads  # type: ignore[attr-defined]
    run = stages.init()
    for _ in range(stages.algorithm.config.num_prefill_unrolls):
        run = stages.prefill(run)
    run, metrics = stages.iteration(run)
    return jax.device_get((metrics, run._replace(key=None)))


def test_one_thread_and_two_give_the_same_metrics_and_the_same_state(monkeypatch: pytest.MonkeyPatch):
    one, two = iteration(1, monkeypatch), iteration(2, monkeypatch)
    registry._make_ours.cache_clear()  # whoever comes next has its own
    jax.tree.map(np.testing.assert_array_equal, one, two)


def test_a_run_is_judged_with_the_physics_that_it_was_trained_with_unless_another_is_asked_for(whole: TrainedRun):
    target = open_target(whole.folder)
    assert target.about["physics"] == target.physics == "mujoco"
    assert environment_of(target).spec.physics == "mujoco"
    assert environment_of(target, physics="brax").spec.physics == "generalized"
    trial = dcp.evaluate(whole.folder, episodes=4, episode_length=3)
    assert trial.spec.physics == "mujoco" and trial.all.start.shape == (4, 23)


def test_a_policy_object_brings_its_physics_and_an_environment_object_keeps_its_own(whole: TrainedRun):
    target = open_target(dcp.load_policy(whole.folder))
    assert environment_of(target).spec.physics == "mujoco"
    made = make_env("pusher_easy", physics="mujoco")
    assert environment_of(target, made) is made and environment_of(target, made, physics="mujoco") is made
    sentence = "pusher_easy is stepped by mujoco, not by brax: leave out physics, or name the environment instead"
    with pytest.raises(UserError, match=sentence):
        environment_of(target, made, physics="brax")
    with pytest.raises(UserError, match="is stepped by brax, not by mujoco"):
        GoalEnv(make_env("pusher_easy"), physics="mujoco")


def test_dcp_eval_says_by_what_it_stepped(whole: TrainedRun, tmp_path: Path, capsys):
    flags = ["--episodes", "4", "--out", str(tmp_path)]
    assert main(["eval", str(whole.folder), "--json", *flags]) == 0
    assert json.loads(capsys.readouterr().out)[0]["physics"] == "mujoco"
    assert main(["eval", str(whole.folder), *flags]) == 0
    assert "on pusher_easy, stepped by mujoco" in capsys.readouterr().out


def test_a_result_under_another_physics_is_written_next_to_the_runs_own(whole: TrainedRun):
    """Neither a result nor a video takes the place of the other."""
    target, options = open_target(whole.folder), EvalOptions()
    own, other = (arena_for(target, episodes=4, physics=physics) for physics in (None, "brax"))
    assert file_name(target, own, options, None, "") == "pusher_easy_4_episodes_seeds_0"
    assert file_name(target, other, options, None, "") == "pusher_easy_4_episodes_seeds_0_physics_brax"
    assert _about(target, other, options)["physics"] == "brax"
    assert _stem(["dcp"], own.env, target.physics, RenderOptions()) == "pusher_easy_dcp_seed_0"
    assert _stem(["dcp"], other.env, target.physics, RenderOptions()) == "pusher_easy_dcp_seed_0_physics_brax"


def test_policies_on_the_same_starts_are_not_paired_where_engines_differ(whole: TrainedRun, capsys):
    one = dcp.evaluate(whole.folder, episodes=4, episode_length=3)
    other = dataclasses.replace(one, spec=dataclasses.replace(one.spec, physics="generalized"))
    compare([("one", one), ("other", other), ("again", one)])
    first, second = capsys.readouterr().out.splitlines()
    assert first == "other was stepped by brax and one by mujoco: they are not paired."
    assert second.startswith("again minus one, on the same episodes: success 0.0")


def test_gymnasium_takes_the_engine_by_name():
    pure, env = make_env("pusher_easy", physics="mujoco"), gymnasium.make("dcp.gym:dcp/PusherEasy-v0", physics="mujoco")
    observation, _ = env.reset(seed=3)
    state = jax.jit(pure.reset)(jax.random.fold_in(jax.random.key(3), 0))
    np.testing.assert_array_equal(observation["observation"], state.obs[:20])
    for _ in range(3):
        observation, *_ = env.step(np.ones(7, np.float32))
        state = jax.jit(pure.step)(state, np.ones(7, np.float32))
    np.testing.assert_allclose(observation["observation"], state.obs[:20], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "physics", "sentence"),
    [
        ("point_u_maze", "mujoco", "'point_u_maze' is not a model that MuJoCo could step: use physics brax"),
        ("ant_push", "bullet", "unknown physics 'bullet': choose one of brax, mujoco"),
    ],
)
def test_a_mistake_is_one_sentence(name: str, physics: str, sentence: str):
    with pytest.raises(UserError) as error:
        make_env(name, physics=physics)
    assert str(error.value) == sentence


def test_a_point_with_physics_is_refused_on_the_command_line(capsys):
    assert main(["train", "--env", "point_u_maze", "--physics", "mujoco"]) == 2
    assert "could step: use physics brax" in capsys.readouterr().err


def test_an_unknown_engine_is_refused_with_those_that_there_are(capsys):
    assert main(["eval", "zoo/ant_u_maze/dcp", "--physics", "bullet"]) == 2
    assert "unknown value 'bullet' for --physics: choose one of brax, mujoco\n" in capsys.readouterr().err
