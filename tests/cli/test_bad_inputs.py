"""A user's mistake: exit code 2 and exactly one line on stderr that tells the fix."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dcp.cli.main import main

BAD_FLAGS = [
    # names
    ("--env point_umaze", "point_u_maze"),
    ("--env nowhere", "dcp envs"),
    ("--env no_such_module:make", "module:factory"),
    ("--env json:no_such_name", "module:factory"),
    ("--env json:loads.x", "module:factory"),
    ("--env sys:exit", "SystemExit"),
    ("--env 0:" + 300 * "a", "module:factory"),
    ("--eval-env point_u_mase", "point_u_maze"),
    ("--env point_u_maze --eval-env point_u_maze_inertia", "same sizes"),
    ("--env point_u_maze --eval-env point_big_maze", "a layout of the same maze"),
    ("--method dpc", "'dcp'"),
    ("--method sarsa", "choose one of crl"),
    ("--score inner", "inner_product"),
    ("--energy euclid", "norm"),
    ("--contrastive-loss backwards", "backward"),
    ("--activation gelu", "swish"),
    ("--preset dmo", "demo"),
    ("--preset nothing", "paper"),
    ("--fidelity exact", "fixed"),
    ("--actor-goal past", "commanded"),
    # the flags themselves
    ("--stepz 100", "--steps"),
    ("--qqq 1", "--help"),
    ("--steps", "needs a value"),
    ("--steps many", "whole number"),
    ("--steps 1.5", "whole number"),
    ("--steps=", "whole number"),
    ("--window wide", "not 'wide'"),
    ("--discount high", "a number"),
    ("--layer-norm yes", "--name value"),
    ("point_u_maze", "--name value"),
    ("--display loud", "plain"),
    # ranges
    ("--steps -5", "at least 1"),
    ("--seed -1", "at least 0"),
    ("--seed 4294967296", "use at most 4294967295"),
    ("--num-envs 0", "at least 1"),
    ("--window 0", "at least 2"),
    ("--episode-length 0", "at least 2"),
    ("--discount 1", "between 0 and 1"),
    ("--discount nan", "finite"),
    ("--actor-learning-rate 0", "positive"),
    ("--actor-learning-rate inf", "finite"),
    ("--final-goal-share 1.5", "from 0 to 1"),
    # between fields
    ("--pool-size 16 --num-candidates 32", "pool_size"),
    ("--replay-rows 100", "raise replay_rows"),
    ("--unroll-length 20000", "raise replay_rows"),
    ("--steps 1000", "use at least"),
    ("--residual-every 4", "depth 5"),
    ("--replay-rows 100000000", "lower replay_rows (100000000) or num_envs"),
    ("--width 1000000", "lower width (1000000) or depth"),
    ("--pool-size 1000000000", "lower pool_size (1000000000)"),
    ("--num-envs 256 --batch-size 63744", "lower batch_size (63744)"),
    ("--eval-episodes 1000000000", "lower eval_episodes (1000000000)"),
    # files and packages
    ("--config nowhere.json", "config.json"),
    ("--config nowhere.json --preset demo", "only one"),
    ("--runs-dir /proc/nowhere", "another --runs-dir"),
]


def mistake(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that the mistake gave."""
    assert main(argv) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("dcp: ")
    assert "Traceback" not in lines[0]
    return lines[0]


@pytest.mark.parametrize(("flags", "fix"), BAD_FLAGS, ids=[flags for flags, _ in BAD_FLAGS])
def test_a_bad_flag_gives_one_sentence_with_the_fix(flags: str, fix: str, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert fix in mistake(["train", *flags.split()], capsys)
    assert not any(tmp_path.iterdir())


def test_every_mistake_is_named_at_once(capsys):
    line = mistake(["train", "--method", "dpc", "--num-envs", "0", "--score", "best"], capsys)
    assert all(word in line for word in ("'dcp'", "num_envs is 0", "inner_product"))


@pytest.mark.parametrize(
    ("argv", "fix"),
    [
        (["trian"], "dcp train"),
        (["qqq"], "choose one of train"),
        (["--verbose"], "choose one of train"),
        (["envs", "--all"], "no arguments"),
        (["methods", "dcp"], "no arguments"),
    ],
)
def test_a_bad_command_gives_one_sentence_with_the_fix(argv: list[str], fix: str, capsys):
    assert fix in mistake(argv, capsys)


@pytest.mark.parametrize(
    ("content", "fix"),
    [
        ("{", "not JSON"),
        ("[]", "key 'config'"),
        ('{"schema_version": 1, "config": 3}', "key 'config'"),
        ('{"config": {}}', "schema_version"),
        ('{"schema_version": 99, "config": {}}', "upgrade dcp"),
        ('{"schema_version": 1, "config": {"stepz": 3}}', "'stepz'"),
        ('{"schema_version": 1, "config": {"steps": "many"}}', "steps must be int"),
        ('{"schema_version": 1, "config": {"steps": true}}', "steps must be int"),
        ('{"schema_version": 1, "config": {"pool_size": 1}}', "exceeds pool_size"),
    ],
)
def test_nonsense_in_config_json_gives_one_sentence(content: str, fix: str, tmp_path: Path, capsys):
    (tmp_path / "config.json").write_text(content)
    assert fix in mistake(["train", "--config", str(tmp_path)], capsys)


def test_a_config_file_that_is_not_text_gives_one_sentence(tmp_path: Path, capsys):
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    assert "not JSON" in mistake(["train", "--config", str(tmp_path / "config.json")], capsys)


def test_a_taken_run_folder_is_not_touched(tiny_run, capsys):
    before = (tiny_run.folder / "config.json").read_bytes()
    runs = str(tiny_run.folder.parents[2])
    assert "--overwrite" in mistake(["train", "--preset", "smoke", "--runs-dir", runs], capsys)
    assert (tiny_run.folder / "config.json").read_bytes() == before


def test_a_runs_folder_that_is_a_file_gives_one_sentence(tmp_path: Path, capsys):
    (tmp_path / "runs").write_text("taken")
    assert "another --runs-dir" in mistake(["train", "--preset", "smoke", "--runs-dir", str(tmp_path / "runs")], capsys)


BROKEN_ENVIRONMENTS = """
import jax.numpy as jnp
from dcp.envs.base import sparse_state
from dcp.types import EnvSpec

number = 3

class Env:
    spec = EnvSpec("mine", 1, 1, 1, (0,), 0.5, 10)
    def reset(self, key): return sparse_state(self.spec, jnp.zeros(1), jnp.ones(1))
    def step(self, state, action): return state

def not_one(): return 3

def no_spec():
    env = Env(); env.spec = "mine"; return env

def bad_dims():
    env = Env(); env.spec = EnvSpec("mine", 1, 1, 1, (4,), 0.5, 10); return env

def bad_obs():
    env = Env(); env.spec = EnvSpec("mine", 2, 1, 1, (0,), 0.5, 10); env.reset = Env().reset; return env

def bad_reset():
    env = Env(); env.reset = lambda key: jnp.zeros(2); return env

def bad_step():
    env = Env(); env.step = lambda state, action: state._replace(reward=jnp.zeros(3)); return env

def bad_structure():
    env = Env(); env.step = lambda state, action: state._replace(physics=jnp.zeros(3)); return env

def needs_size(size):
    return Env()

def raises():
    env = Env(); env.reset = lambda key: 1 / 0; return env

def float_done():
    env = Env(); env.reset = lambda key: Env().reset(key)._replace(done=jnp.zeros(())); return env
"""


@pytest.mark.parametrize(
    ("factory", "fix"),
    [
        ("number", "module:factory"),
        ("not_one", "needs spec, reset and step"),
        ("no_spec", "EnvSpec"),
        ("bad_dims", "indices below 1"),
        ("bad_obs", "shape (3,)"),
        ("bad_reset", "EnvState"),
        ("bad_step", "make them the same"),
        ("bad_structure", "the same fields"),
        ("needs_size", "without arguments"),
        ("raises", "ZeroDivisionError"),
        ("float_done", "a single bool"),
    ],
)
def test_a_broken_environment_of_ones_own_gives_one_sentence(factory, fix, tmp_path: Path, monkeypatch, capsys):
    (tmp_path / "broken_environments.py").write_text(BROKEN_ENVIRONMENTS)
    monkeypatch.chdir(tmp_path)
    assert fix in mistake(["train", "--env", f"broken_environments:{factory}"], capsys)


@pytest.mark.parametrize("flags", ["--stepz 4", "--method dpc", "--preset smoke --runs-dir /proc/nowhere"])
def test_the_installed_command_says_the_same(flags: str, tmp_path: Path):
    command = [sys.executable, "-m", "dcp.cli.main", "train", *flags.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=os.environ, timeout=120)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("name", ["a" * 300, "a\nb"], ids=["long", "two lines"])
def test_a_dry_run_prints_a_name_that_no_file_can_have(name: str, capsys):
    assert main(["train", "--dry-run", "--env", name]) == 2
    shown = capsys.readouterr()
    assert "unknown environment" in shown.out.encode().decode()  # nothing that UTF-8 cannot write
    assert len(shown.err.splitlines()) == 1


def test_a_dry_run_lists_every_violation_on_stdout(capsys):
    assert main(["train", "--dry-run", "--method", "dpc", "--num-envs", "0", "--seed", "-1"]) == 2
    shown = capsys.readouterr()
    listed = shown.out.split("Violated constraints")[1].strip().splitlines()
    assert len(listed) == 3
    assert shown.err == "dcp: 3 violated constraints: see above for each fix\n"


def test_a_resolved_config_is_json_that_can_be_read_back(tmp_path: Path, tiny_run, capsys):
    stored = json.loads((tiny_run.folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(stored))
    assert main(["train", "--config", str(tmp_path), "--dry-run", "--seed", "7", "--runs-dir", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    for name, value in {**stored["config"], "seed": 7}.items():
        assert any(line.split() == [name, str(value)] for line in shown.splitlines()), name


def test_a_renderer_that_mujoco_does_not_know_is_one_sentence():
    command = [sys.executable, "-m", "dcp.cli.main", "train", "--env", "ant_u_maze", "--preset", "smoke", "--dry-run"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, "MUJOCO_GL": "crayons"}
    )
    assert done.returncode == 2
    assert done.stderr.startswith("dcp: MUJOCO_GL=crayons does not work (") and done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
