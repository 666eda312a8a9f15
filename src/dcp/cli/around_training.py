"""What `dcp train` does besides one run: a dry run, a run that is there already or was stopped, and several seeds.

Several seeds (`--seeds`) train as one program, or as jobs of the grid's local launcher.
"""

from collections.abc import Iterable
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import jax

from dcp.cli.grid import exit_code
from dcp.cli.main import EXIT_INTERRUPTED, EXIT_REQUEUE
from dcp.cli.train import AUTO, TrainOptions, outcome, show_results
from dcp.components import TABLES
from dcp.config import WITH_SETTINGS, Config, Settings, Tracking, cores
from dcp.envs.registry import env_of
from dcp.errors import UserError
from dcp.files import PLOTS_DIR
from dcp.grid.grid_display import make_table
from dcp.grid.grid_file import check_runs
from dcp.grid.jobs import Entry, Row, Run, RunOptions, RunStatus, make_grid_folder, make_jobs, survey
from dcp.grid.launcher import Driver, LocalLauncher
from dcp.grid.resources import FreeResources, Gpu, Resources, gpus
from dcp.machine.checks import STATE, available_memory, check, machine_memory, memory_parts, violations
from dcp.machine.devices import count_devices
from dcp.machine.signals import Interrupted
from dcp.methods.table import named_parts
from dcp.named_code import imported_modules
from dcp.runs.checkpoint import KEPT, Cadence
from dcp.runs.folder import holds_run
from dcp.runs.run_status import (
    budget_to_resume_with,
    how_far,
    read_plan,
    resume_command,
    taken,
)
from dcp.runs.seeds import (
    SeedRun,
    SeedsFaultError,
    SeedsInterrupted,
    in_one_program,
    require_memory,
    require_seeds,
    train_seeds,
)


def chosen_parts(settings: Settings, values: dict[str, Any]) -> dict[str, type]:
    """Return the classes of the chosen critic, command, condition, network and hindsight: their settings are flags too.

    They are looked up only if such a flag is given, or for the help of a part that is named.
    """
    named = {name: values[name] for name in ("method", *WITH_SETTINGS) if name in values}
    chosen = replace(settings, **named)
    rows = {**named_parts(chosen), "hindsight": chosen.hindsight}
    classes = {kind: TABLES[kind].find(rows[kind]) for kind in WITH_SETTINGS}
    return {kind: part for kind, part in classes.items() if isinstance(part, type) and is_dataclass(part)}


def require_sense(options: TrainOptions, values: dict[str, Any]) -> None:
    """Refuse flags about seeds and resuming that contradict each other."""
    if options.resume is not None and options.overwrite:
        raise UserError("--resume resumes what --overwrite would replace: give only one of them")
    if not options.seeds:
        if options.seeds_as is not None or "seeds" in values:
            raise UserError("--seeds needs at least one seed, such as --seeds 0 1 2")
        return
    if "seed" in values:
        raise UserError("--seed and --seeds both say which seeds: give only one of them")
    if options.resume not in (None, AUTO):
        raise UserError(f"--resume names one run's folder, and --seeds several runs: use --resume {AUTO} with --seeds")


def with_evaluations_that_fit(settings: Settings) -> Settings:
    """Plan fewer evaluations if the preset's do not fit into the budget, because the user set only the budget."""
    try:
        resolved = settings.resolve(env_of(settings).spec.episode_length)
    except UserError:
        return settings  # the checks report what is wrong
    if settings.violations() or resolved.num_iterations >= settings.num_evals:
        return settings
    return replace(settings, num_evals=max(1, resolved.num_iterations))


def resumed_automatically(options: TrainOptions, values: dict[str, Any]) -> TrainOptions:
    """Return the options that resume the run of these settings, or start it if there is none."""
    folder = options.runs_dir / options.settings.run_path
    if not holds_run(folder):
        return replace(options, resume=None)
    if "num_evals" not in values and "config" not in values:  # the run may have planned fewer than the preset
        options = replace(options, settings=replace(options.settings, num_evals=read_plan(folder)[0].num_evals))
    return replace(options, resume=str(folder))


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
    from dcp.runs.plain_display import forecast

    return forecast(Config(**vars(s)))


def _section(title: str, rows: dict[str, object]) -> None:
    width = max(len(name) for name in rows)
    print(f"\n{title}")
    for name, value in rows.items():
        print(f"  {name:<{width}}  {_printable(value)}")


def _printable(value: object) -> str:
    """Return the value as text, with line breaks and bytes that are not text as escapes."""
    text = str(value)
    return text if text.isprintable() else repr(text)


def steps_to_resume(folder: Path, asked: Settings) -> int | None:
    """Return the budget to resume with; if the run has already reached it, say so and return None."""
    steps = budget_to_resume_with(folder, asked)
    if steps is None:
        print(f"{folder} is finished at {how_far(folder)[1]:,} environment steps: raise --steps to train it longer.")
    return steps


def finished(folder: Path, options: TrainOptions) -> int:
    if options.plots and not any((folder / PLOTS_DIR).glob("*")):
        show_results(folder, options)  # the process that finished the run may not have drawn them
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
    show_results(stop.folder, replace(options, tracking=Tracking()))
    return EXIT_INTERRUPTED


# Several seeds


def train_several(options: TrainOptions, values: dict[str, Any]) -> int:
    """Train `options.seeds`. `values`: of the command line, by field."""
    require_seeds(options.seeds)
    options = replace(options, settings=replace(options.settings, seed=options.seeds[0]))
    seeds_as = options.seeds_as or default_form()
    own = seed_gpus() if seeds_as == "processes" else ()
    if own:
        jax.config.update("jax_platforms", "cpu")  # this process only checks: the GPUs are its children's
    if options.dry_run:
        return _dry_run_of_seeds(options, seeds_as)
    if seeds_as == "vmapped":
        return _as_one_program(options)
    _require_free(options)
    return _as_jobs(options, values, own)


def default_form() -> str:
    """Return the faster form here. On a CPU that is one process per core: XLA scales one run badly over cores.

    JAX is not started where there are NVIDIA's GPUs: it would take most of one's memory.
    """
    return "vmapped" if seed_gpus() or jax.default_backend() != "cpu" else "processes"


def seed_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that the seeds' processes may have; none if JAX is told to use the CPU."""
    return () if jax.config.values["jax_platforms"] == "cpu" else gpus()


def _folder(options: TrainOptions, seed: int) -> Path:
    return options.runs_dir / replace(options.settings, seed=seed).run_path


def _require_free(options: TrainOptions) -> None:
    """Raise UserError before the first seed starts if one of the folders would be refused."""
    for seed in () if options.overwrite or options.resume else options.seeds:
        if holds_run(folder := _folder(options, seed)):
            raise UserError(f"{taken(folder)}; for all seeds, --resume auto")


def _dry_run_of_seeds(options: TrainOptions, seeds_as: str) -> int:
    how = "as one program" if seeds_as == "vmapped" else "one process per core"
    print(f"{len(options.seeds)} seeds, {how}; what follows describes one of them.\n")
    settings = options.settings
    if seeds_as == "vmapped":
        settings = in_one_program(settings, len(options.seeds))
    folder = _folder(options, settings.seed)
    resume = str(folder) if options.resume is not None and holds_run(folder) else None
    code = dry_run(settings, options.runs_dir, options.overwrite, resume)
    _require_free(options)
    if seeds_as == "vmapped":
        require_memory(settings, len(options.seeds))
    return code


def _as_one_program(options: TrainOptions) -> int:
    settings = in_one_program(options.settings, len(options.seeds))
    check(settings)  # before Config is made: this knows the environment, so it reports every violation
    names = ("runs_dir", "overwrite", "tracking", "keep_policies", "display", "cache")
    outputs: dict[str, Any] = {name: getattr(options, name) for name in names}
    outputs |= {"cadence": Cadence(options.checkpoint_evals, options.checkpoint_minutes)}
    trained: dict[int, SeedRun] = {}
    try:
        trained = train_seeds(Config(**vars(settings)), options.seeds, resume=options.resume is not None, **outputs)
    except SeedsInterrupted as stop:
        if stop.env_steps is None:
            kept = any(one.evaluations for one in stop.stops)
            print(f"Stopped without a checkpoint: {'the results so far were' if kept else 'nothing was'} kept.")
            return EXIT_INTERRUPTED
        again = "continue with the same command and --resume auto"
        print(f"Stopped with a checkpoint of each seed at {stop.env_steps:,} environment steps or more: {again}.")
        return EXIT_REQUEUE
    except SeedsFaultError as fault:
        trained = fault.trained
        raise
    finally:
        _show({run.seed: (run.folder, run.rows[-1]) for run in trained.values()}, options)
    _say_finished(_folder(options, seed) for seed in options.seeds if seed not in trained)
    return 0


def _say_finished(folders: Iterable[Path]) -> None:
    for folder in folders:
        print(f"{folder} is finished: raise --steps to train it longer.")


def _show(runs: dict[int, tuple[Path, Row]], options: TrainOptions) -> None:
    for seed, (_, row) in runs.items():
        print(f"Seed {seed} trained for {outcome(row | {'env_steps': int(row['env_steps'])})}")
    for folder, _ in runs.values():
        show_results(folder, options)


def _as_jobs(options: TrainOptions, values: dict[str, Any], own: tuple[Gpu, ...]) -> int:
    """Run as many seeds at once as there are cores, shared evenly, and GPUs, one for each; fewer if memory is short."""
    check(options.settings)  # report a mistake once, not once per process
    settings = [_planned(options, seed, values) for seed in options.seeds]
    runs = check_runs([Run(one) for one in settings], tuple(options.settings.code.values()))
    if options.overwrite:
        entries = [Entry(run, options.runs_dir / run.path, RunStatus("new")) for run in runs]
    else:
        entries = survey(runs, options.runs_dir)
    at_once = min(len(runs), cores(), len(own) or cores())
    # The share of cores does not depend on memory, because the number of cores decides how a run rounds.
    each = Resources(cores() // at_once, gpus=1 if own else 0)
    flags = RunOptions(**{one.name: getattr(options, one.name) for one in fields(RunOptions)})
    runs_dir = options.runs_dir.absolute()
    jobs = make_jobs(entries, runs_dir, each, "processes", Path.cwd(), imported_modules(), flags)
    memory = machine_memory()
    if memory is not None:  # at least one seed runs: `check` has found room for it
        memory = max([memory, *(job.resources.memory_bytes for job in jobs)])
    launcher = LocalLauncher(FreeResources(cores(), memory, [gpu.index for gpu in own], at_once), jobs)
    make_grid_folder(runs_dir)
    with make_table(options.display) as table:
        driver = Driver(launcher, entries, jobs, table, retries=0)
        finished = {line.name: line.row for line in driver.run() if line.state == "finished" and line.row}
    rows = {entry.run.settings.seed: (entry.folder, finished.get(entry.run.path)) for entry in entries}
    before = [entry.folder for entry in entries if entry.status.kind == "finished"]
    _say_finished(before)
    _show({seed: (folder, row) for seed, (folder, row) in rows.items() if row and folder not in before}, options)
    return exit_code(driver, "the same command with --resume auto")


def _planned(options: TrainOptions, seed: int, values: dict[str, Any]) -> Settings:
    """Return a seed's settings. Without a flag, a run that is resumed keeps its number of evaluations."""
    settings, folder = replace(options.settings, seed=seed), _folder(options, seed)
    if options.resume is not None and not {"num_evals", "config"} & set(values) and holds_run(folder):
        return replace(settings, num_evals=read_plan(folder)[0].num_evals)
    return settings
