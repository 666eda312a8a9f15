"""`dcp train --seeds`: train several seeds with one command, as one program or as one process per core.

`python -m dcp.cli.several_seeds PARENT CORES train ...` runs the process of one seed.
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import jax
from rich.console import Console

from dcp.cli.main import main as dcp
from dcp.cli.train import TrainOptions, outcome, show_results
from dcp.config import Config, Settings, cores
from dcp.envs.registry import env_of
from dcp.errors import EXIT_FAULT, EXIT_INTERRUPTED, EXIT_MISTAKE, EXIT_REQUEUE, RunError, UserError
from dcp.grid.driver import Driver
from dcp.grid.grid_display import Line, LiveTable, PlainTable
from dcp.grid.jobs import Job
from dcp.grid.local_launcher import STOPPED, LocalLauncher
from dcp.grid.resources import FreeResources, Gpu, Resources, gpus, run_memory
from dcp.grid.worker import begin_child
from dcp.machine.checks import check, machine_memory
from dcp.runs.display import say

if TYPE_CHECKING:
    from dcp.runs.seeds import SeedRun
    from dcp.runs.stopping import SeedsInterrupted

AGAIN = "continue with the same command and --resume auto"
_OURS = ("--seeds", "--seeds-as", "--display")  # flags that a single seed's command does not get


def train_several(options: TrainOptions, argv: list[str]) -> int:
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
    check(options.settings)  # report a mistake once, not once per process
    return _as_processes(options, argv, own)


def default_form() -> str:
    """Return the faster form here. On a CPU that is one process per core: XLA scales one run badly over cores.

    JAX is not started where there are NVIDIA's GPUs: it would take most of one's memory.
    """
    return "vmapped" if seed_gpus() or jax.default_backend() != "cpu" else "processes"


def seed_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that the seeds' processes may have; none if JAX is told to use the CPU."""
    return () if jax.config.values["jax_platforms"] == "cpu" else gpus()


def _as_one_program(options: TrainOptions) -> int:
    from dcp.runs.checkpoint import Cadence
    from dcp.runs.seeds import SeedsFaultError, in_one_program, train_seeds
    from dcp.runs.stopping import SeedsInterrupted

    settings = in_one_program(options.settings, len(options.seeds))
    check(settings)  # before Config is made: this knows the environment, so it reports every violation
    try:
        runs = train_seeds(
            Config(**vars(settings)),
            options.seeds,
            runs_dir=options.runs_dir,
            overwrite=options.overwrite,
            resume=options.resume is not None,
            tracking=options.tracking,
            keep_policies=options.keep_policies,
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
        show_results(run.folder, options.plots, options.tracking)


def _stopped(stop: "SeedsInterrupted") -> int:
    if stop.env_steps is None:
        kept = [one for one in stop.stops if one.evaluations]
        print(f"Stopped without a checkpoint: {'the results so far were' if kept else 'nothing was'} kept.")
        return EXIT_INTERRUPTED
    print(f"Stopped with a checkpoint of each seed at {stop.env_steps:,} environment steps or more: {AGAIN}.")
    return EXIT_REQUEUE


def _dry_run(options: TrainOptions, seeds_as: str) -> int:
    from dcp.cli.around_training import dry_run
    from dcp.runs.folder import holds_run
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


def _require_free(options: TrainOptions) -> None:
    """Raise UserError before the first seed starts if one of the folders would be refused."""
    from dcp.runs.folder import holds_run
    from dcp.runs.run_status import taken

    if options.overwrite or options.resume is not None:
        return
    for seed in options.seeds:
        if holds_run(folder := _folder(options, seed)):
            raise UserError(f"{taken(folder)}; for all seeds, --resume auto")


def _folder(options: TrainOptions, seed: int) -> Path:
    return options.runs_dir / replace(options.settings, seed=seed).run_path


@dataclass(frozen=True)
class SeedJob(Job):
    """Run one seed as its own `dcp train` with these flags."""

    flags: tuple[str, ...] = ()
    files: Path = Path()  # a temporary folder, for its log

    @property
    def grid_dir(self) -> Path:
        return self.files

    def command(self) -> list[str]:
        child = [sys.executable, "-P", "-m", "dcp.cli.several_seeds", str(os.getpid()), str(self.resources.cores)]
        return [*child, "train", *self.flags, "--seed", str(self.seeds[0])]


class SeedLines(PlainTable):
    """Print every line of a seed's process with the seed in front of it, for logs."""

    def __init__(self, jobs: Sequence[Job]):
        self._jobs = list(jobs)
        self._read: dict[str, int] = {}  # bytes of each log shown so far

    def update(self, lines: Sequence[Line]) -> None:
        ended = {line.name for line in lines if line.state not in ("waiting", "running")}
        for job in self._jobs:
            if not job.log.exists():
                continue
            if job.name not in self._read:
                self._read[job.name] = 0
                say(f"seed {job.seeds[0]}: starting")
            with job.log.open("rb") as file:
                file.seek(self._read[job.name])
                text = file.read()
            if job.name not in ended:
                text = text[: text.rfind(b"\n") + 1]  # the last line is not complete yet
            self._read[job.name] += len(text)
            for line in text.decode(errors="replace").splitlines():
                say(f"seed {job.seeds[0]}: {line.rstrip()}")


def _as_processes(options: TrainOptions, argv: list[str], own: Sequence[Gpu] = ()) -> int:
    """Run as many seeds at once as there are cores, shared evenly, and GPUs, one for each; fewer if memory is short."""
    seeds, settings = options.seeds, options.settings.resolve(env_of(options.settings).spec.episode_length)
    at_once = min(len(seeds), cores(), len(own) or cores())
    share = cores() // at_once  # independent of memory, because the number of cores decides how a run rounds
    flags = (*single(argv), "--display", "none" if options.display == "none" else "plain")
    with tempfile.TemporaryDirectory(prefix="dcp-seeds-", ignore_cleanup_errors=True) as folder:
        jobs = [
            SeedJob(
                replace(settings, seed=seed),
                (seed,),
                options.runs_dir,
                resources=Resources(share, gpus=1.0 if own else 0.0),
                flags=flags,
                files=Path(folder),
            )
            for seed in seeds
        ]
        most = min(at_once, runs_in_memory(settings, on_gpu=bool(own)))
        launcher = LocalLauncher(FreeResources(cores(), gpus={gpu.index: 1.0 for gpu in own}, jobs=most), jobs)
        console = Console()
        live = options.display == "live" or (options.display == "auto" and console.is_terminal)
        with LiveTable(console) if live else SeedLines(jobs) as shown:
            driver = Driver(launcher, (), jobs, shown, retries=0)
            driver.run()
        statuses = launcher.poll()
        ends = [statuses.get(job.name) for job in jobs]
    code = joint_code([end and end.code for end in ends], driver.stopped)
    failed = [
        f"seed {seed}: {end.why.removeprefix('dcp: ')}"
        for seed, end in zip(seeds, ends, strict=True)
        if end is not None and end.code not in (0, None, EXIT_REQUEUE)
    ]
    if code == EXIT_REQUEUE:
        print(f"Stopped with checkpoints: {AGAIN}.")
    elif driver.stopped:
        print("Stopped before there was a checkpoint.")
    elif failed:
        sentence = f"{len(failed)} of {len(seeds)} seeds failed: {'; '.join(failed)}"
        if code == EXIT_FAULT:
            raise RunError(sentence)
        print(f"dcp: {sentence}", file=sys.stderr)
    return code


def runs_in_memory(settings: Settings, on_gpu: bool = False) -> int:
    """Return how many runs of these resolved settings fit into memory at once; at least one."""
    there = machine_memory()
    return sys.maxsize if there is None else max(1, there // run_memory(settings, on_gpu=on_gpu))


def single(argv: Sequence[str]) -> list[str]:
    """Return a single seed's flags: --preset smoke --seeds 0 1 2 --steps 9 -> --preset smoke --steps 9"""
    kept, ours = [], False
    for arg in argv:
        if arg.startswith("--"):
            ours = arg.split("=")[0].replace("_", "-") in _OURS
        if not ours:
            kept.append(arg)
    return kept


def joint_code(codes: Sequence[int | None], stopped: bool) -> int:
    """Return one exit code for all seeds (None: not started): requeue if any seed asks for it, else fault if any."""
    if EXIT_REQUEUE in codes:
        return EXIT_REQUEUE
    if (stopped and any(codes)) or None in codes:
        return EXIT_INTERRUPTED
    bad = {code for code in codes if code}
    same = len(bad) == 1 and bad <= {EXIT_FAULT, EXIT_MISTAKE, *STOPPED}
    return 0 if not bad else bad.pop() if same else EXIT_FAULT


def _child(argv: list[str]) -> int:
    parent, share, *rest = argv
    return dcp(rest) if begin_child(int(parent), int(share)) else EXIT_REQUEUE


if __name__ == "__main__":
    sys.exit(_child(sys.argv[1:]))
