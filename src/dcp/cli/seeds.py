"""`dcp train --seeds`: several seeds in one command, as one program or as one process a core."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dcp.cli.train import TrainOptions, outcome, show_results
from dcp.config import Config
from dcp.errors import EXIT_INTERRUPTED, EXIT_REQUEUE, UserError

if TYPE_CHECKING:
    from dcp.runs.train import SeedRun, SeedsInterrupted

AGAIN = "continue with the same command and --resume auto"


def train_several(options: TrainOptions, argv: list[str]) -> int:
    from dcp.runs.seeds import require_seeds

    require_seeds(options.seeds)
    options = replace(options, settings=replace(options.settings, seed=options.seeds[0]))
    seeds_as = options.seeds_as or default_form()
    if options.dry_run:
        return _dry_run(options, seeds_as)
    if seeds_as == "vmapped":
        return _as_one_program(options)
    _require_free(options)
    from dcp.checks import check
    from dcp.cli.processes import train_in_processes

    check(options.settings)  # one sentence instead of one a process
    return train_in_processes(options.seeds, argv, options.settings)


def default_form() -> str:
    """On a CPU a process a core is the faster: seeds share nothing, and XLA uses several cores for one badly."""
    import jax

    return "processes" if jax.default_backend() == "cpu" else "vmapped"


def _as_one_program(options: TrainOptions) -> int:
    from dcp.checks import check
    from dcp.runs.loop import Cadence
    from dcp.runs.seeds import in_one_program
    from dcp.runs.train import SeedsFaultError, SeedsInterrupted, train_seeds

    if options.wandb:
        raise UserError("W&B logs one run a process: use --seeds-as processes with --wandb")
    settings = in_one_program(options.settings, len(options.seeds))
    check(settings)  # before Config: it knows the environment, and so every violation
    try:
        runs = train_seeds(
            Config(**vars(settings)),
            options.seeds,
            runs_dir=options.runs_dir,
            overwrite=options.overwrite,
            resume=options.resume is not None,
            tensorboard=options.tensorboard,
            display=options.display,
            cache=options.cache,
            cadence=Cadence(options.checkpoint_evals, options.checkpoint_minutes),
        )
    except SeedsInterrupted as stop:
        return _stopped(stop)
    except SeedsFaultError as fault:
        _show(fault.trained, options)
        raise
    for seed in options.seeds:
        if seed not in runs:
            print(f"{_folder(options, seed)} is finished: raise --steps to train it longer.")
    _show(runs, options)
    return 0


def _show(runs: "dict[int, SeedRun]", options: TrainOptions) -> None:
    for run in runs.values():
        print(f"Seed {run.seed} trained for {outcome(run.rows[-1])}")
    for run in runs.values():
        show_results(run.folder, options.plots)


def _stopped(stop: "SeedsInterrupted") -> int:
    if stop.env_steps is None:
        kept = [one for one in stop.stops if one.evaluations]
        print(f"Stopped without a checkpoint: {'what there is' if kept else 'nothing'} was kept.")
        return EXIT_INTERRUPTED
    print(f"Stopped with a checkpoint of each seed at {stop.env_steps:,} environment steps or more: {AGAIN}.")
    return EXIT_REQUEUE


def _dry_run(options: TrainOptions, seeds_as: str) -> int:
    from dcp.cli.dry_run import dry_run
    from dcp.runs.run_status import holds_run
    from dcp.runs.seeds import in_one_program, require_memory

    how = "as one program" if seeds_as == "vmapped" else "one process a core"
    print(f"{len(options.seeds)} seeds, {how}; what follows is of one of them.\n")
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


def _require_free(options: TrainOptions) -> None:
    """Before the first seed begins: no folder that would be refused."""
    from dcp.runs.run_status import holds_run, taken

    if options.overwrite or options.resume is not None:
        return
    for seed in options.seeds:
        if holds_run(folder := _folder(options, seed)):
            raise UserError(f"{taken(folder)}; for all seeds, --resume auto")


def _folder(options: TrainOptions, seed: int) -> Path:
    return options.runs_dir / replace(options.settings, seed=seed).run_path
