"""Find the command and turn a user's mistake into one sentence. A command is imported only when it is called."""

import io
import os
import sys
from importlib import import_module
from pathlib import Path

from dcp import __version__
from dcp.errors import (
    EXIT_FAULT,
    EXIT_INTERRUPTED,
    EXIT_MISTAKE,
    EXIT_REQUEUE,
    RunError,
    UserError,
    did_you_mean,
    is_text,
    printable,
    shown,
)
from dcp.machine.signals import CLEAN_UPS, raise_again, stopped_at_once
from dcp.named_code import only_allowed, user_import_path

COMMANDS = {
    "train": "Train a policy and write its run folder.",
    "eval": "Measure policies on the same fresh episodes, with or without bursts.",
    "render": "Show episodes as MP4, GIF and an interactive page.",
    "explore": "Make a page on which you drag the goal and watch the direction field turn.",
    "export": "Write a policy as one ONNX, StableHLO or NumPy file.",
    "run": "Run a policy on an SO-101 arm of LeRobot, or on a simulated one.",
    "latency": "Time a policy's single step in each form.",
    "report": "Figures and tables of many runs as one page.",
    "paper": "List the paper's tables and figures with ours, and make each from the runs at hand.",
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
    "doctor": "Check what this machine has and lacks, and train for a moment.",
}
# Modules of several commands.
SHARED = {"envs": "listing", "methods": "listing", "push": "share", "pull": "share", "record": "share"}
SHARED |= {"latency": "export", "compare": "report", "explore": "render", "landscape": "diagnose"}
EXIT_CODES = {
    0: "done",
    EXIT_FAULT: "a fault, such as a full disk or a loss that is not finite: see the sentence; checkpoints are kept",
    EXIT_MISTAKE: "a mistake in the command: see the sentence",
    EXIT_REQUEUE: "stopped by SIGINT or SIGTERM with a checkpoint: run it again with --resume",
    EXIT_INTERRUPTED: "(or 143) stopped at once, by a second signal or before training began; the checkpoints are good",
}


def main(argv: list[str] | None = None) -> int:
    """Run a command and return the exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by >&-
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a terminal may not know every sign
    try:
        modules, argv = _imports(_printed(sys.argv[1:] if argv is None else argv))
        if argv[:1] == ["help"] and argv[1:]:
            argv = [argv[1], "--help"]
        if not argv or argv[0] in ("-h", "--help", "help", "--version"):
            from dcp.cli.flag_help import overview

            print(f"dcp {__version__}" if argv[:1] == ["--version"] else overview())
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
        from dcp.cli.flag_help import explained

        if (explanation := explained(error)) is None:
            raise
        return _end(*explanation)


def _end(sentence: str, code: int) -> int:
    """Print how the command ended, in one line, and return the exit code."""
    print(f"dcp: {printable(' '.join(sentence.split()))}", file=sys.stderr)
    return code


def _printed(argv: list[str]) -> list[str]:
    """Refuse words that would control the terminal when they are printed, or that are no text: a `*` in a stranger's
    folder types the names of its files."""
    for word in argv:
        if not is_text(word):
            raise UserError(f"{shown(word)} has signs that cannot be shown: rename the file, or write another word")
    return argv


def _require_command(name: str) -> None:
    if name not in COMMANDS:
        raise UserError(f"unknown command {name!r}: {did_you_mean(name, COMMANDS, form='`dcp {}`')}")


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


def run_as_module() -> int:
    """Run a command under `python -m`, which puts the current folder first on the path; return the exit code."""
    if not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]
    return main()


if __name__ == "__main__":
    sys.exit(run_as_module())
