"""`dcp train --resume`: which flags may stand beside it, and when a bare `dcp train` offers it."""

import sys
from dataclasses import asdict
from pathlib import Path

from dcp.config import Settings
from dcp.errors import UserError

AUTO = "auto"


def stored_settings(folder: Path) -> Settings:
    from dcp.training.progress import read_plan

    return Settings(**asdict(read_plan(folder)[0]))


def agreed_steps(folder: Path, asked: Settings) -> int | None:
    """The budget to continue with; None where the run has reached it already, which is told."""
    from dcp.training.progress import how_far, steps_to_go_on_with

    steps = steps_to_go_on_with(folder, asked)
    if steps is None:
        print(f"{folder} is finished at {how_far(folder)[1]:,} environment steps: raise --steps to train it longer.")
    return steps


def offered(settings: Settings, runs_dir: Path, overwrite: bool) -> str | None:
    """For a bare `dcp train` whose folder holds the same run, unfinished: the folder, if a person wants it to go on.

    Without a person at the terminal the sentence that refuses the folder names the command.
    """
    from dcp.training.progress import differing, holds_run, how_far, is_finished, read_plan

    folder = runs_dir / settings.run_path
    if overwrite or not holds_run(folder) or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    try:
        plan, finished, (done, total) = read_plan(folder), is_finished(folder), how_far(folder)
    except UserError:
        return None  # the refusal will say what is wrong with it
    if finished or differing(*plan, settings):
        return None
    answer = input(f"{folder} holds this run at {done:,} of {total:,} steps. Continue it? [Y/n] ")
    return str(folder) if answer.strip().lower() in ("", "y", "yes") else None
