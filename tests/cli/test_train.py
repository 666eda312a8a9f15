"""`dcp train` from flags to results."""

import json
from pathlib import Path

import pytest

import dcp
from dcp.cli import train as train_command
from dcp.cli.main import main
from dcp.config import Settings
from dcp.errors import UserError
from dcp.policies.policy_file import load_policy
from tests.support.tiny import FLAGS

MY_ENV = """
import jax.numpy as jnp
from dcp.envs.base import sparse_state
from dcp.types import EnvSpec

class Line:
    spec = EnvSpec("line", 1, 1, 1, goal_dims=(0,), threshold=0.5, episode_length=20)

    def reset(self, key):
        return sparse_state(self.spec, jnp.zeros(1), jnp.full((1,), 2.0))

    def step(self, state, action):
        x, goal = self.spec.split(state.obs)
        return sparse_state(self.spec, x + action, goal)
"""


def test_explicit_flags_win_over_the_preset(capsys):
    assert main(["train", "--dry-run", "--preset", "demo", "--width", "32", "--runs-dir", "nowhere"]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["width", "32"] in shown
    assert ["env", "point_u_maze"] in shown
    assert ["eval_env", "point_u_maze_eval"] in shown


def test_a_smaller_budget_than_the_presets_has_fewer_evaluations_unless_their_number_is_given(capsys):
    """An unroll is 256 x 124 = 31,744 steps: 300,000 make 10 unrolls, of which 3 fill the replay."""
    command = ["train", "--preset", "demo", "--steps", "3e5", "--dry-run", "--runs-dir", "nowhere"]
    assert main(command) == 0
    assert ["num_evals", "7"] in [line.split() for line in capsys.readouterr().out.splitlines()]
    assert main([*command, "--num-evals", "10"]) == 2
    assert "each of 10 evaluations needs one more" in capsys.readouterr().out
    assert main([*command, "--steps", "40000"]) == 2
    assert "use at least 126976 steps" in capsys.readouterr().out  # (3 + 1) x 31,744


def test_a_preset_in_place_of_an_environment_gets_a_sentence():
    with pytest.raises(UserError, match=r"write dcp.train\(dcp.presets.preset_config\('demo'\)\)"):
        dcp.train("demo")
    assert dcp.presets.preset_config("demo").steps == 3_000_000  # as the sentence says, without another import


def test_another_environment_than_the_presets_is_judged_on_itself(capsys):
    assert main(["train", "--preset", "demo", "--env", "point_big_maze", "--dry-run"]) == 0
    assert ["eval_env", "point_big_maze"] in [line.split() for line in capsys.readouterr().out.splitlines()]


def test_a_dry_run_says_how_many_steps_will_really_run(capsys):
    """100 environments x 62 steps = 6,200 an unroll; 250 rows fill in 5 unrolls; 100,000 steps need 17 unrolls."""
    flags = "--num-envs 100 --steps 100000 --min-replay-rows 250 --batch-size 100 --num-evals 2"
    assert main(["train", "--dry-run", *flags.split(), "--runs-dir", "nowhere"]) == 0
    shown = capsys.readouterr().out
    assert "105,400 = 17 unrolls of 6,200" in shown
    assert "time   " in shown and ("roughly " in shown or "by a calibration" in shown)
    assert any(line.split()[-2:] == ["replay", "5"] for line in shown.splitlines())
    assert any(line.split() == ["updates", "per", "iteration", "249"] for line in shown.splitlines())
    assert any(line.split() == ["updates", "in", "total", "2,988"] for line in shown.splitlines())  # 12 x 249
    # 10,000 rows x 100 environments x (2 + 2 + 2 + 1) numbers of 4 bytes
    assert any(line.split() == ["replay", "28.0", "MB"] for line in shown.splitlines())


def test_a_dry_run_leaves_nothing_behind(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--dry-run", "--preset", "smoke"]) == 0
    assert not any(tmp_path.iterdir())


def test_every_setting_has_a_flag(capsys):
    try:
        main(["train", "--help"])
    except SystemExit as stop:
        assert stop.code == 0
    shown = capsys.readouterr().out
    for name in vars(Settings()).keys() - {"component_settings"}:  # they are flags of the chosen parts
        assert f"--{name.replace('_', '-')}" in shown


def test_an_environment_of_ones_own_is_trained_from_the_command_line(tmp_path: Path, monkeypatch, capsys):
    (tmp_path / "my_line_world.py").write_text(MY_ENV)
    monkeypatch.chdir(tmp_path)
    flags = ["--env", "my_line_world:Line", "--method", "crl", "--window", "17", "--batch-size", "256"]
    assert main(["train", *FLAGS, *flags]) == 0
    folder = tmp_path / "runs/my_line_world.Line/crl/seed_0"
    assert load_policy(folder)([0.0], [2.0]).shape == (1,)
    shown = capsys.readouterr().out
    assert "runs/my_line_world.Line/crl/seed_0/policy.safetensors" in shown
    assert "4,000 environment steps" in shown


MY_CONDITION = """
from dataclasses import dataclass
from dcp.methods.conditions import RawGoal

@dataclass(frozen=True)
class Scaled(RawGoal):
    scale: float = 1.0
    \"\"\"Times the goal's coordinates.\"\"\"

    def __call__(self, representation, achieved, commanded):
        return self.scale * super().__call__(representation, achieved, commanded)
"""


def test_a_parts_own_settings_are_flags_once_it_is_chosen(tmp_path: Path, monkeypatch, capsys):
    (tmp_path / "my_scaled_goal.py").write_text(MY_CONDITION)
    monkeypatch.chdir(tmp_path)
    chosen = ["--method", "crl", "--condition", "my_scaled_goal:Scaled"]
    assert main(["train", *FLAGS, *chosen, "--condition.scale", "2"]) == 0
    (config,) = tmp_path.glob("runs/**/config.json")
    assert json.loads(config.read_text())["config"]["component_settings"] == {"condition.scale": 2.0}
    capsys.readouterr()
    for flags, sentence in [
        (["--condition.scale", "much"], "--condition.scale takes a number, not 'much'"),
        (["--condition.scael", "2"], "unknown option --condition.scael: did you mean --condition.scale?"),
        (["--critic.scale", "2"], "unknown option --critic.scale"),
        (["--hindsight", "her", "--hindsight.others-share", "2"], "has others_share 2.0: use shares from 0"),
    ]:
        assert main(["train", *FLAGS, *chosen, *flags]) == 2
        assert sentence in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["train", *chosen, "--help"])
    assert "--condition.scale FLOAT\n                          Times the goal's" in capsys.readouterr().out


def test_a_part_that_only_a_config_names_is_not_imported_for_its_flags(tmp_path: Path, monkeypatch, capsys):
    (tmp_path / "my_untrusted_goal.py").write_text("raise SystemExit('it ran')")
    stored = {"schema_version": 2, "config": {"condition": "my_untrusted_goal:Scaled"}, "earlier_budgets": []}
    (tmp_path / "config.json").write_text(json.dumps(stored))
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--config", ".", "--condition.scale", "2"]) == 2
    assert "name it too: --condition my_untrusted_goal:Scaled" in capsys.readouterr().err


def test_a_flag_that_names_another_part_leaves_the_configs_settings_of_the_old_one_behind(tmp_path: Path, capsys):
    chosen = {"condition": "scaled", "component_settings": {"condition.scale": 2.0, "critic.width": 3}}
    stored = {"schema_version": 2, "config": chosen, "earlier_budgets": []}
    (tmp_path / "config.json").write_text(json.dumps(stored))
    options = train_command._options(["--config", str(tmp_path), "--condition", "direction"],
                                     {"config": tmp_path, "condition": "direction"})  # fmt: skip
    assert options.settings.condition == "direction"
    assert options.settings.component_settings == {"critic.width": 3}


def test_pictures_are_drawn_in_a_process_that_imports_the_code_of_the_user_and_a_failure_loses_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "my_line.py").write_text(MY_ENV)
    monkeypatch.chdir(tmp_path)
    flags = [flag for flag in FLAGS if flag != "--no-plots"]
    command = ["train", *flags, "--env", "my_line:Line", "--method", "crl", "--window", "17", "--batch-size", "256"]
    assert main(command) == 0
    folder = Path("runs/my_line.Line/crl/seed_0")
    assert capsys.readouterr().out.splitlines()[-1] == f"  {folder}/plots/learning_curve.png"
    monkeypatch.setattr("sys.executable", "false")
    assert main([*command, "--overwrite"]) == 1
    shown = capsys.readouterr()
    assert f"  {folder}/policy.safetensors" in shown.out
    assert (
        shown.err
        == "dcp: the run is kept, but its pictures could not be drawn: the process that draws them ended with 1\n"
    )
