"""`dcp completion`: bash itself completes with the script."""

import shutil
import subprocess

import pytest

from dcp.cli.completion import bash, fish
from dcp.cli.main import COMMANDS, main


def completed(words: str) -> list[str]:
    """What bash offers for the last word of a command line, an empty one included."""
    line = words.split(" ")
    given = f"COMP_WORDS=({' '.join(map(repr, line))}); COMP_CWORD={len(line) - 1}; _dcp"
    script = f"""{bash()}\n{given}\nprintf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30, cwd="/")
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("dcp re", ["render", "report", "record"]),
        ("dcp train --pres", ["--preset"]),
        ("dcp train --preset de", ["demo"]),
        ("dcp train --env ant_u_maze_", ["ant_u_maze_eval"]),
        ("dcp train --method ssg", ["ssgc"]),
        ("dcp train --no-pl", ["--no-plots"]),
        ("dcp export --format nu", ["numpy"]),
        ("dcp eval zoo/ant_u_maze/", ["zoo/ant_u_maze/dcp"]),
        ("dcp tune --report", ["--report-only"]),
        ("dcp push --priv", ["--private"]),
        ("dcp eval --episodes 3 --stoch", ["--stochastic"]),
    ],
)
def test_bash_completes(words: str, offered: list[str]):
    assert sorted(completed(words)) == sorted(offered)


def test_every_command_has_its_flags_in_fish_too():
    script = fish()
    for command in COMMANDS:
        assert f"-a {command} -d " in script
    assert "__fish_seen_subcommand_from render' -l camera -x -a 'fixed tracking top'" in script
    assert "__fish_seen_subcommand_from train' -l steps -r" in script


def test_zsh_reads_the_same_and_a_mistake_is_one_sentence(capsys):
    assert main(["completion", "zsh"]) == 0
    assert "bashcompinit" in capsys.readouterr().out
    assert main(["completion", "tcsh"]) == 2
    assert capsys.readouterr().err == "dcp: there is no script for 'tcsh': choose one of bash, zsh, fish\n"
    assert main(["completion"]) == 2
    assert capsys.readouterr().err == "dcp: name your shell: choose one of bash, zsh, fish\n"
