"""Pictures that a run leaves behind."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image, ImageColor

from dcp.config import SCHEMA_VERSION, Config
from dcp.envs.registry import ENVIRONMENTS
from dcp.errors import UserError
from dcp.lab.render.video import LEGEND, STATUS, TITLE
from dcp.lab.run_plots import SIDE, main, save_run_plots
from dcp.lab.style import BLUE, GOAL_COLOUR, WALL
from dcp.policies.policy_file import save_policy
from tests.support.toys import LineWorld


def write_run(folder, config, metrics="env_steps,success_once,time_near_goal\n1000,0.5,7\n"):
    stored = {"schema_version": SCHEMA_VERSION, "config": json.loads(config.to_json()), "versions": {}}
    (folder / "config.json").write_text(json.dumps(stored))
    (folder / "metrics.csv").write_text(metrics)


def test_a_maze_run_leaves_curve_landscape_and_gif(tmp_path, policy):
    write_run(tmp_path, Config(env="point_u_maze", eval_env="point_u_maze_eval", episode_length=5))
    save_policy(tmp_path / "policy.safetensors", policy, {})
    written = save_run_plots(tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in written] == [
        "plots/learning_curve.png",
        "plots/landscape.png",
        "plots/episode.gif",
    ]
    assert all(path.stat().st_size > 0 for path in written)


def test_a_run_without_a_maze_leaves_the_curve_alone(tmp_path, monkeypatch):
    monkeypatch.setitem(ENVIRONMENTS, "line_world", LineWorld)
    write_run(tmp_path, Config(env="line_world"))
    assert [path.name for path in save_run_plots(tmp_path)] == ["learning_curve.png"]
    assert [path.name for path in (tmp_path / "plots").iterdir()] == ["learning_curve.png"]


def test_a_run_that_stopped_before_its_policy_was_saved_leaves_the_curve(tmp_path):
    write_run(tmp_path, Config(env="point_u_maze"))
    assert [path.name for path in save_run_plots(tmp_path)] == ["learning_curve.png"]


def test_a_folder_that_is_no_run_is_a_mistake(tmp_path):
    with pytest.raises(UserError, match="not a run folder"):
        save_run_plots(tmp_path)


def test_the_gif_shows_walls_goal_and_point_as_a_plan(tmp_path, policy):
    write_run(tmp_path, Config(env="point_u_maze", eval_env="point_u_maze_eval", episode_length=5))
    save_policy(tmp_path / "policy.safetensors", policy, {})
    save_run_plots(tmp_path)
    with Image.open(tmp_path / "plots" / "episode.gif") as image:
        frame = np.asarray(image.convert("RGB"))
    assert frame.shape == (TITLE + SIDE + STATUS + LEGEND, SIDE, 3)
    assert {ImageColor.getrgb(colour) for colour in (WALL, GOAL_COLOUR, BLUE)} <= set(map(tuple, frame.reshape(-1, 3)))


def test_the_process_that_draws_prints_its_files_or_one_sentence(tmp_path, capsys):
    write_run(tmp_path, Config(env="point_u_maze"))
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'plots' / 'learning_curve.png'}\n"
    assert main([str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().out.count("\n") == 1


def test_it_imports_what_the_user_has_named_and_nothing_else_that_the_config_names(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_world.py").write_text("print('hello')\nfrom tests.support.toys import LineWorld\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_world", raising=False)
    write_run(tmp_path, Config(env="my_world:LineWorld"))
    assert main([str(tmp_path)]) == 2
    assert "code that you have not named" in capsys.readouterr().out
    assert "my_world" not in sys.modules
    assert main([str(tmp_path), "my_world:LineWorld"]) == 0
    shown = capsys.readouterr()
    assert shown.out.endswith("learning_curve.png\n") and shown.out.count("\n") == 1
    assert shown.err == "hello\n"  # what a module prints is not taken for a file


def test_ctrl_c_ends_the_process_that_draws_without_a_word(tmp_path):
    write_run(tmp_path, Config(env="point_u_maze"))
    script = "import os, runpy, signal, sys; sys.addaudithook(lambda event, args: event == 'import' and "
    script += "args[0] == 'jax' and os.kill(os.getpid(), signal.SIGINT)); "
    script += "signal.signal(signal.SIGINT, signal.default_int_handler); "  # a background shell has it ignored
    script += "runpy.run_module('dcp.lab.run_plots', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")
