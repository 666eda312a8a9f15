"""What every command has in common: help that comes at once, signals, closed streams, sentences for mistakes."""

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import dcp
from dcp import __version__
from dcp.cli.main import COMMANDS, main
from tests.runs.test_rough_machines import permissions_count


def test_no_message_names_a_page_that_an_installed_package_lacks():
    for path in ("cli", "robots", "config.py"):
        top = Path(dcp.__file__).parent / path
        for file in [top] if top.is_file() else sorted(top.glob("*.py")):
            shown = [node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant)]
            named = [text for text in shown if isinstance(text, str) and re.search(r"docs/\w+\.md", text)]
            assert [text for text in named if "\n\n" not in text] == [], file  # a module's own docstring may


def test_help_names_every_command(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown and f" {purpose}" in shown for name, purpose in COMMANDS.items())


def test_each_listing_command_has_help(capsys):
    for name in ("envs", "methods"):
        assert main([name, "--help"]) == 0
        assert COMMANDS[name] in capsys.readouterr().out


def test_python_m_dcp_is_the_command(tmp_path):
    (tmp_path / "rich.py").write_text("raise RuntimeError('the current folder is not looked into')")
    shown = subprocess.run([sys.executable, "-m", "dcp", "methods"], cwd=tmp_path, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert "PooledSubgoal" in shown.stdout


def test_help_with_a_command_is_that_commands_help(capsys):
    for argv in (["help", "train"], ["train", "--help"]):
        with pytest.raises(SystemExit) as done:
            main(argv)
        assert done.value.code == 0
    one, other = capsys.readouterr().out.split("usage: ")[1:]
    assert one == other
    assert one.index("--preset") < one.index("--env") < one.index("--method") < one.index("--seeds")
    assert main(["help", "trian"]) == 2
    assert "did you mean `dcp train`?" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["eval", pytest.param("render", marks=pytest.mark.slow)])
def test_ctrl_c_ends_a_command_at_once_whatever_it_is_doing(command: str, tmp_path: Path):
    """While it compiles, which Python would not interrupt. A shell's background has SIGINT ignored: undone here."""
    argv = [sys.executable, "-m", "dcp.cli.main", command, "zoo/point_u_maze/dcp", "--out", str(tmp_path)]
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": "", "DCP_CACHE_DIR": "off", "PYTHONPATH": "src"}
    undo = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=environment, preexec_fn=undo)
    assert process.stderr is not None
    assert "point_u_maze" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(timeout=60) == 130
    assert rest.splitlines()[-1] == "dcp: stopped" and "Traceback" not in rest
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_version_is_the_packages(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"dcp {__version__}\n"


def test_help_and_flag_mistakes_need_no_jax():
    code = (
        "import atexit, os, sys; from dcp.cli.main import main; main(['--help']); main(['train', '--stepz', '1']);"
        "atexit.register(lambda: os._exit('jax' in sys.modules)); main(['train', '--preset', 'demo', '--help'])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 0


LONG = "a" * 5_000
WITH_PATH = [f"{command} {LONG}" for command in ("eval", "render", "explore", "export", "latency", "report", "record")]
WITH_PATH += [f"{command} {LONG}" for command in ("landscape", "diagnose", "grid", "tune")]
WITH_PATH += [f"compare {LONG} {LONG}", f"train --config {LONG}", f"train --resume {LONG}", f"push {LONG} me/maze"]
WITH_PATH += [f"run {LONG} --goal 0.25 0.1 0.2", f"pull me/maze --out {LONG}"]
WITH_PATH += [f"export zoo/point_u_maze/dcp --format numpy --out {LONG}.npz", f"grid {LONG}.toml --dry-run"]


@pytest.mark.parametrize("line", WITH_PATH, ids=lambda line: line.replace(LONG, "LONG"))
def test_a_path_that_no_file_system_takes_is_one_sentence(line: str, tmp_path: Path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    err = capsys.readouterr().err
    assert err.splitlines()[-1].startswith("dcp: ") and err.count("dcp: ") == 1, err


def test_a_folder_that_may_not_be_looked_into_is_one_sentence(tmp_path: Path):
    """As root, the process gives up the capabilities by which root may look everywhere."""
    (tmp_path / "box" / "run").mkdir(parents=True)
    (tmp_path / "box").chmod(0)
    command = [sys.executable, "-m", "dcp", "eval", str(tmp_path / "box" / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, preexec_fn=permissions_count)
    (tmp_path / "box").chmod(0o755)
    assert done.returncode == 2, done.stderr
    assert "Permission denied" in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr


def test_control_characters_do_not_reach_the_terminal(capsys):
    assert main(["eval", "\x1b[2J\x07"]) == 2
    err = capsys.readouterr().err
    assert r"'\x1b[2J\x07' has signs that cannot be shown: rename the file" in err and "\x1b" not in err


def test_a_path_that_is_no_text_is_one_sentence(capsys):
    """No table, page or figure could show it."""
    assert main(["compare", "r\udcff", "zoo/point_u_maze/dcp"]) == 2
    assert r"'r\udcff' has signs that cannot be shown: rename the file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", ["eval zoo/point_u_maze/dcp --episodes 2 --out PATH", "paper --runs-dir PATH", "report PATH --out PATH"]
)
def test_a_link_to_itself_is_one_sentence(line: str, tmp_path: Path, capsys):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert main([str(tmp_path / "loop") if word == "PATH" else word for word in line.split()]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("dcp: ")


def test_folders_in_one_another_without_end_are_one_sentence(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["paper", "--runs-dir", "/".join(["a"] * 1_500)]) == 2
    assert "too many folders in one another" in capsys.readouterr().err


def test_a_terminal_that_knows_few_signs_shows_the_others_by_number(tmp_path: Path):
    command = [sys.executable, "-m", "dcp", "train", "--preset", "smoke", "--dry-run", "--runs-dir", "ré"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii:strict"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=200)
    assert done.returncode == 0, done.stderr
    assert r"Results would go to r\xe9" in done.stdout


@pytest.mark.parametrize("closed", [(1,), (1, 2), (0, 1, 2)])
def test_a_command_runs_without_its_standard_streams(closed: tuple[int, ...]):
    command = [sys.executable, "-m", "dcp", "envs"]
    done = subprocess.run(command, preexec_fn=lambda: [os.close(number) for number in closed], timeout=120)
    assert done.returncode == 0


@pytest.mark.parametrize(
    "setting", ["JAX_PLATFORMS=bogus", "JAX_NUMPY_DTYPE_PROMOTION=strict", "JAX_DEFAULT_MATMUL_PRECISION=bogus"]
)
def test_a_setting_of_jax_that_does_not_work_is_one_sentence(setting: str, tmp_path: Path):
    command = [sys.executable, "-m", "dcp", "train", "--preset", "smoke", "--runs-dir", str(tmp_path)]
    environment = os.environ | dict([setting.split("=")])
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200)
    assert done.returncode == 2
    assert done.stderr.startswith(f"dcp: {setting} does not work (") and done.stderr.endswith("): unset it\n")
