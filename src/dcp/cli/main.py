"""Find the command and turn a user's mistake into one sentence. A command is imported only when it is called."""

import errno
import os
import sys
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from dcp import __version__
from dcp.errors import (
    EXIT_FAULT,
    EXIT_INTERRUPTED,
    EXIT_MISTAKE,
    EXIT_REQUEUE,
    RunError,
    UserError,
    one_line,
    printable,
)
from dcp.machine.signals import CLEAN_UPS, raise_again, stopped_at_once
from dcp.named_code import only_allowed, user_import_path

if TYPE_CHECKING:
    from rich.table import Table

COMMANDS = {
    "train": "Train a policy and write its run folder.",
    "eval": "Measure policies on the same fresh episodes, with or without bursts.",
    "render": "Show episodes as MP4, GIF and an interactive page.",
    "explore": "Make a page on which you drag the goal and watch the direction field turn.",
    "export": "Write a policy as one ONNX, StableHLO or NumPy file.",
    "run": "Run a policy on an SO-101 arm of LeRobot, or on a simulated one.",
    "latency": "Time a policy's single step in each form.",
    "report": "Figures and tables of many runs as one page.",
    "record": "Write evaluation episodes as a Minari data set.",
    "push": "Share a policy on the Hugging Face Hub, with a card, its scores and a video.",
    "pull": "Fetch a policy from the Hugging Face Hub.",
    "landscape": "Draw psi-distances over a maze next to the true ones.",
    "compare": "Show how two runs differ.",
    "grid": "Train many runs: here, on a Ray cluster or under SLURM.",
    "tune": "Search for good settings: trials of a grid, pruned and resumable, by Optuna.",
    "diagnose": "Compare what an agent's representation knows with the truth.",
    "envs": "List the environments with their sizes.",
    "methods": "List the methods and what sets them apart.",
    "completion": "Print a script that completes commands and flags in bash, zsh or fish.",
    "doctor": "Check what this machine has and lacks, and train for a moment.",
}
# Modules of several commands.
SHARED = {"envs": "listing", "methods": "listing", "push": "push_pull", "pull": "push_pull"}
EXIT_CODES = {
    0: "done",
    EXIT_FAULT: "a fault, such as a full disk or a loss that is not finite: see the sentence; checkpoints are kept",
    EXIT_MISTAKE: "a mistake in the command: see the sentence",
    EXIT_REQUEUE: "stopped by SIGINT or SIGTERM with a checkpoint: run it again with --resume",
    EXIT_INTERRUPTED: "(or 143) stopped at once, by a second signal or before training began; the checkpoints are good",
}
PIPE_WIDTH = 160  # a pipe has no width, and a truncated name is useless


def main(argv: list[str] | None = None) -> int:
    """Run a command and return the exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by >&-
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    try:
        modules, argv = _imports(sys.argv[1:] if argv is None else argv)
        if argv[:1] == ["help"] and argv[1:]:
            argv = [argv[1], "--help"]
        if not argv or argv[0] in ("-h", "--help", "help", "--version"):
            print(f"dcp {__version__}" if argv[:1] == ["--version"] else _help())
            return 0
        _require_command(argv[0])
        os.environ.setdefault("PYTHONSAFEPATH", "1")  # for child processes: keeps the current folder off their path
        module, function = (SHARED[argv[0]], argv[0]) if argv[0] in SHARED else (argv[0], "main")
        with user_import_path(_current_folder(), modules), only_allowed(), stopped_at_once():
            command = import_module(f"dcp.cli.{module}")
            CLEAN_UPS[:] = [command.clean_up] if hasattr(command, "clean_up") else []
            if argv[0] == "run":  # it holds a robot, and releases it
                raise_again()
            return getattr(command, function)(argv[1:])
    except UserError as error:
        return _end(str(error), EXIT_MISTAKE)
    except RunError as error:
        return _end(str(error), EXIT_FAULT)
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _end("stopped", EXIT_INTERRUPTED)
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return _end(f"{error.strerror}: make room, and run it again", EXIT_FAULT)
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            advice = "name a path that exists and that you may use"
            return _end(f"cannot use {_short(os.fsdecode(error.filename))} ({error.strerror}): {advice}", EXIT_MISTAKE)
        if variable := _blamed(error):
            return _end(f"{variable}={os.environ[variable]} does not work ({one_line(error)}): unset it", EXIT_MISTAKE)
        raise


def _end(sentence: str, code: int) -> int:
    """Print how the command ended, in one line, and return the exit code."""
    print(f"dcp: {printable(' '.join(sentence.split()))}", file=sys.stderr)
    return code


def _short(path: str) -> str:
    return path if len(path) <= 200 else f"{path[:100]}...{path[-50:]}"


def _blamed(error: Exception) -> str | None:
    """Return the environment variable of JAX or MuJoCo that an error names, if the user has set it."""
    names = (name for name in os.environ if name.startswith(("JAX_", "MUJOCO_")))
    return next((name for name in names if name.lower() in str(error).lower()), None)


def _require_command(name: str) -> None:
    if name not in COMMANDS:
        close = get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean `dcp {close[0]}`?" if close else f"choose one of {', '.join(COMMANDS)}"
        raise UserError(f"unknown command {name!r}: {hint}")


def _imports(argv: list[str]) -> tuple[list[str], list[str]]:
    """Return the modules that every --import names, and argv without these flags."""
    modules, others, rest = [], [], list(argv)
    while rest:
        arg = rest.pop(0)
        if arg == "--import" and (not rest or rest[0].startswith("-")):
            raise UserError("--import needs a module's name, such as --import my_environments")
        if arg == "--import":
            modules.append(rest.pop(0))
        elif arg.startswith("--import="):
            modules.append(arg.removeprefix("--import="))
        else:
            others.append(arg)
    return modules, others


def _current_folder() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it was removed
        return None


def _help() -> str:
    rows = [f"  {name:<10}{purpose}" for name, purpose in COMMANDS.items()]
    return "\n".join(
        [
            "Direction-conditioned policies for goal-conditioned reinforcement learning.",
            "",
            "usage: dcp <command> [options]",
            "",
            *rows,
            "",
            "  --help           This text; after a command, its options.",
            "  --version",
            "  --import MODULE  For any command: import this module first, such as one that registers an environment.",
        ]
    )


def show(table: "Table") -> None:
    """Print a table to a terminal or into a pipe."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH)
    console.print(table)


def run_as_module() -> int:
    """Run a command under `python -m`, which puts the current folder first on the path; return the exit code."""
    if not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]
    return main()


if __name__ == "__main__":
    sys.exit(run_as_module())
