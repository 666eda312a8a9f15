"""What `dcp train` says besides training: a dry run, a run that is there already, a run that was stopped."""

import sys
from dataclasses import asdict
from pathlib import Path

from dcp.cli.main import EXIT_INTERRUPTED, EXIT_REQUEUE
from dcp.cli.train import TrainOptions, show_results
from dcp.config import Config, Settings, cores
from dcp.envs.registry import env_of
from dcp.errors import UserError
from dcp.files import PLOTS_DIR
from dcp.machine.checks import STATE, available_memory, memory_parts, violations
from dcp.machine.devices import count_devices
from dcp.runs.checkpoint import KEPT
from dcp.runs.folder import holds_run
from dcp.runs.run_status import (
    budget_to_resume_with,
    differing,
    how_far,
    is_finished,
    read_plan,
    resume_command,
    taken,
)
from dcp.runs.stopping import Interrupted


def dry_run(settings: Settings, runs_dir: Path, overwrite: bool, resume: str | None = None) -> int:
    """Print a run's config, plan, memory and folder. Raise UserError where a constraint is violated."""
    problems = violations(settings)
    try:
        spec = env_of(settings).spec
        settings = settings.resolve(spec.episode_length)
    except UserError:
        spec = None  # listed among the violations
    _section("Config", asdict(settings))
    if not problems and spec is not None:
        parts = memory_parts(settings, spec)
        plan = _plan(settings, count_devices(settings.devices, settings.num_envs, spec))
        size = sum(parts[name] for name in STATE)
        kept = f"the last {KEPT} of {size / 1e6:,.1f} MB; the same amount of disk and memory again while one is written"
        _section("Plan", {**plan, "checkpoints": kept, "time": _time(settings)})
        available = available_memory()
        amounts = {**parts, "total": sum(parts.values()), **({} if available is None else {"available": available})}
        _section("Memory", {name: f"{amount / 1e6:,.1f} MB" for name, amount in amounts.items()})
    folder = runs_dir / settings.run_path if resume is None else Path(resume)
    print(f"\nResults would go to {_printable(folder)}")
    if holds_run(folder) and not overwrite and resume is None:
        problems.append(taken(folder))
    if not problems:
        print("\nEvery constraint holds.")
        return 0
    print("\nViolated constraints")
    for problem in problems:
        print(f"  {problem}")
    raise UserError(f"{len(problems)} violated constraint{'s' * (len(problems) > 1)}: see above for each fix")


def _plan(s: Settings, devices: int) -> dict[str, object]:
    steps = s.num_unrolls * s.env_steps_per_unroll
    return {
        "environment steps asked for": f"{s.steps:,}",
        "environment steps that will run": f"{steps:,} = {s.num_unrolls:,} unrolls of {s.env_steps_per_unroll:,}",
        "unrolls that fill the replay": f"{s.num_prefill_unrolls:,}",
        "iterations (unroll, then updates)": f"{s.num_iterations:,}",
        "updates per iteration": f"{s.num_updates:,}",
        "updates in total": f"{s.num_iterations * s.num_updates:,}",
        "evaluations": f"{s.num_evals:,} of {s.eval_episodes:,} episodes",
        "devices": f"{devices:,}, {s.num_envs // devices:,} environments on each",
    }


def _time(s: Settings) -> str:
    """Return what a calibration of `dcp grid --dry-run` on as many cores says; else a rough forecast."""
    from dcp.grid.forecast import run_seconds
    from dcp.grid.resources import Resources
    from dcp.runs.terminal import clock, forecast

    measured = run_seconds(s, Resources(cores()))
    if measured is not None:
        return f"{clock(round(measured))}, by a calibration on this machine"
    return f"{forecast(Config(**vars(s)))}; `dcp grid --dry-run` measures"


def _section(title: str, rows: dict[str, object]) -> None:
    width = max(len(name) for name in rows)
    print(f"\n{title}")
    for name, value in rows.items():
        print(f"  {name:<{width}}  {_printable(value)}")


def _printable(value: object) -> str:
    """Return the value as text, with line breaks and bytes that are not text as escapes."""
    text = str(value)
    return text if text.isprintable() else repr(text)


def offered(folder: Path, asked: Settings) -> str | None:
    """Offer to resume if the folder of a plain `dcp train` holds the same run, unfinished. -> the folder if accepted

    Without a person at a terminal, the sentence that refuses the folder names the command to resume.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    try:
        plan, is_complete, (done, total) = read_plan(folder), is_finished(folder), how_far(folder)
    except UserError:
        return None  # the refusal says what is wrong with the folder
    if is_complete or differing(*plan, asked):
        return None
    answer = input(f"{folder} holds this run at {done:,} of {total:,} steps. Continue it? [Y/n] ")
    return str(folder) if answer.strip().lower() in ("", "y", "yes") else None


def steps_to_resume(folder: Path, asked: Settings) -> int | None:
    """Return the budget to resume with; if the run has already reached it, say so and return None."""
    steps = budget_to_resume_with(folder, asked)
    if steps is None:
        print(f"{folder} is finished at {how_far(folder)[1]:,} environment steps: raise --steps to train it longer.")
    return steps


def finished(folder: Path, options: TrainOptions) -> int:
    if options.plots and not any((folder / PLOTS_DIR).glob("*")):
        show_results(folder, True, options.tracking)  # the process that finished the run may not have drawn them
    return 0


def stopped(stop: Interrupted, options: TrainOptions) -> int:
    if stop.env_steps is not None:
        print(
            f"Stopped with a checkpoint at {stop.env_steps:,} environment steps: "
            f"continue with `{resume_command(stop.folder)}`."
        )
        return EXIT_REQUEUE
    if not stop.evaluations:
        print("Stopped before the first evaluation: nothing was kept.")
        return EXIT_INTERRUPTED
    print(f"Stopped after {stop.evaluations} evaluations; the results so far were kept.")
    show_results(stop.folder, options.plots)
    return EXIT_INTERRUPTED
