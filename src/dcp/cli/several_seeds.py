"""`dcp train --seeds`: train several seeds with one command, as one program or as jobs of the grid's local launcher."""

from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from dcp.cli.grid import exit_code
from dcp.cli.train import TrainOptions, outcome, show_results
from dcp.config import Config, Settings, cores
from dcp.errors import EXIT_INTERRUPTED, EXIT_REQUEUE, UserError
from dcp.grid.grid_display import make_table
from dcp.grid.grid_file import check_runs
from dcp.grid.jobs import Entry, Row, Run, RunOptions, RunStatus, make_grid_folder, make_jobs, survey
from dcp.grid.launcher import Driver, LocalLauncher
from dcp.grid.resources import FreeResources, Gpu, Resources, gpus
from dcp.machine.checks import check, machine_memory
from dcp.named_code import imported_modules
from dcp.runs.folder import holds_run
from dcp.runs.run_status import read_plan, taken

if TYPE_CHECKING:
    from dcp.runs.seeds import SeedRun


def train_several(options: TrainOptions, given: dict[str, Any]) -> int:
    """Train `options.seeds`. `given`: the flags of the command line."""
    from dcp.runs.seeds import require_seeds

    require_seeds(options.seeds)
    options = replace(options, settings=replace(options.settings, seed=options.seeds[0]))
    seeds_as = options.seeds_as or default_form()
    own = seed_gpus() if seeds_as == "processes" else ()
    if own:
        jax.config.update("jax_platforms", "cpu")  # this process only checks: the GPUs are its children's
    if options.dry_run:
        return _dry_run(options, seeds_as)
    if seeds_as == "vmapped":
        return _as_one_program(options)
    _require_free(options)
    return _as_jobs(options, given, own)


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


def _dry_run(options: TrainOptions, seeds_as: str) -> int:
    from dcp.cli.around_training import dry_run
    from dcp.runs.seeds import in_one_program, require_memory

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
    from dcp.runs.checkpoint import Cadence
    from dcp.runs.seeds import SeedsFaultError, in_one_program, train_seeds
    from dcp.runs.stopping import SeedsInterrupted

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
        show_results(folder, options.plots, options.tracking)


def _as_jobs(options: TrainOptions, given: dict[str, Any], own: tuple[Gpu, ...]) -> int:
    """Run as many seeds at once as there are cores, shared evenly, and GPUs, one for each; fewer if memory is short."""
    check(options.settings)  # report a mistake once, not once per process
    settings = [_planned(options, seed, given) for seed in options.seeds]
    runs = check_runs([Run(one) for one in settings], tuple(options.settings.code.values()))
    if options.overwrite:
        entries = [Entry(run, options.runs_dir / run.path, RunStatus("new")) for run in runs]
    else:
        entries = survey(runs, options.runs_dir)
    at_once = min(len(runs), cores(), len(own) or cores())
    # The share of cores does not depend on memory, because the number of cores decides how a run rounds.
    each = Resources(cores() // at_once, gpus=1.0 if own else 0.0)
    flags = RunOptions(**{one.name: getattr(options, one.name) for one in fields(RunOptions)})
    runs_dir = options.runs_dir.absolute()
    jobs = make_jobs(entries, runs_dir, each, "processes", Path.cwd(), imported_modules(), flags)
    memory = machine_memory()
    if memory is not None:  # at least one seed runs: `check` has found room for it
        memory = max([memory, *(job.resources.memory_bytes for job in jobs)])
    launcher = LocalLauncher(FreeResources(cores(), memory, {gpu.index: 1.0 for gpu in own}, at_once), jobs)
    make_grid_folder(runs_dir)
    with make_table(options.display) as table:
        driver = Driver(launcher, entries, jobs, table, retries=0)
        finished = {line.name: line.row for line in driver.run() if line.state == "finished" and line.row}
    rows = {entry.run.settings.seed: (entry.folder, finished.get(entry.run.path)) for entry in entries}
    before = [entry.folder for entry in entries if entry.status.kind == "finished"]
    _say_finished(before)
    _show({seed: (folder, row) for seed, (folder, row) in rows.items() if row and folder not in before}, options)
    return exit_code(driver, "the same command with --resume auto")


def _planned(options: TrainOptions, seed: int, given: dict[str, Any]) -> Settings:
    """Return a seed's settings. Without a flag, a run that is resumed keeps its number of evaluations."""
    settings, folder = replace(options.settings, seed=seed), _folder(options, seed)
    if options.resume is not None and not {"num_evals", "config"} & set(given) and holds_run(folder):
        return replace(settings, num_evals=read_plan(folder)[0].num_evals)
    return settings
