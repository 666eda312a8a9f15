"""`dcp.resume`: resume a stopped run as if it had never stopped, or train a finished one longer.

A run whose budget was raised keeps its planned evaluations; further ones follow at the same interval.
"""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from dcp.algorithm import Algorithm
from dcp.config import Config, Tracking, fields_where
from dcp.errors import UserError, shown
from dcp.files import require_no_links_out
from dcp.loop import Budget, OnEval, iterations_of
from dcp.machine import compiling
from dcp.machine.signals import StopRequest
from dcp.named_code import only_allowed, require_allowed
from dcp.runs.checkpoint import Cadence
from dcp.runs.display import DisplayKind
from dcp.runs.folder import FolderLock, RunFolder
from dcp.runs.replaced_run import finish_replacing
from dcp.runs.run_status import UNSPLIT, read_plan
from dcp.runs.training import FolderSession, TrainedRun, algorithm_of, installed


def resume(
    run: str | Path,
    on_eval: OnEval | None = None,
    *,
    steps: int | None = None,
    algorithm: Algorithm | None = None,
    code: Collection[str] = (),
    tensorboard: bool = False,
    wandb: bool = False,
    tracking: Tracking | None = None,
    keep_policies: bool = False,
    display: DisplayKind = "auto",
    cache: str | Path | None = None,
    cadence: Cadence = Cadence(),  # noqa: B008
) -> TrainedRun:
    """Resume the run in this folder as if it had never stopped; with `steps`, train it longer than planned.

    A run without a checkpoint starts again: its config decides every number, so the result is the same.
    `code`: a run folder may name parts or environments as module:name; list those that you allow.
    `algorithm`: the one that started the run, if its environment or its parts have no names; others are refused.
    """
    compiling.enable_cache(cache)
    tracking = installed(tracking or Tracking(tensorboard=tensorboard, wandb=wandb))
    with StopRequest() as stop:
        folder = reopen(run, steps, tracking=tracking, keep_policies=keep_policies)
        try:
            if algorithm is None:
                require_allowed(folder.config.code, code)
                with only_allowed(code):
                    algorithm = algorithm_of(folder.config)
            else:
                algorithm = require_same_algorithm(algorithm, folder)
        except BaseException:
            folder.lock.release()
            raise
        return FolderSession(folder.config, algorithm, on_eval, display, stop, folder, cadence).train()


def reopen(path: str | Path, steps: int | None = None, **outputs: Any) -> RunFolder:
    """Lock the folder of a run to resume, with a raised budget if `steps` is larger (`save_config` stores it)."""
    path = Path(path)
    read_plan(path)  # refuses a folder that holds no run
    require_no_links_out(path)
    try:
        lock = FolderLock(path)
    except OSError as error:
        raise UserError(f"cannot write to {path} ({error.strerror}): make it writable, or copy it elsewhere") from error
    try:
        finish_replacing(path)
        config, earlier = read_plan(path)
        config = replace(config, split_batches=config.split_batches or UNSPLIT)
        if steps is not None and steps < config.steps:
            raise UserError(f"steps {steps} are fewer than the run's {config.steps}: steps can only be raised")
        if steps is not None:
            config, earlier = raised(config, earlier, steps)
    except BaseException:
        lock.release()
        raise
    return RunFolder(path, config, lock, earlier, resumed=True, **outputs)


def raised(config: Config, earlier: tuple[Budget, ...], steps: int) -> tuple[Config, tuple[Budget, ...]]:
    """Plan the same run with more steps; further evaluations are as far apart as the last planned ones."""
    more = iterations_of(config, steps) - config.num_iterations
    if more <= 0:  # the same number of whole unrolls
        return config, earlier
    before = earlier[-1] if earlier else None
    iterations = config.num_iterations - (iterations_of(config, before.steps) if before else 0)
    evaluations = config.num_evals - (before.num_evals if before else 0)
    further = max(1, round(more * evaluations / iterations))
    now = Budget(config.steps, config.num_evals)
    return replace(config, steps=steps, num_evals=config.num_evals + further), (*earlier, now)


def require_same_algorithm(algorithm: Algorithm, folder: RunFolder) -> Algorithm:
    """Return the algorithm with the run's config; refuse one with other environments or parts than the run's."""
    same = replace(algorithm, config=folder.config)  # its config now names its own parts, if they are others
    has = {name: getattr(same.config, name) for name in algorithm.decided | same.decided}
    has |= {name: getattr(algorithm.config, name) for name in fields_where(of_env=True)}
    stored = {name: getattr(folder.config, name) for name in sorted(has)}
    names = [name for name in stored if has[name] != stored[name]]
    names = [name for name in names if stored[name] not in (None, {})] or names  # None: as the method has it
    if names:
        differences = (f"{name} {shown(stored[name])} where the algorithm has {shown(has[name])}" for name in names)
        raise UserError(f"{folder.path} was begun with {', '.join(differences)}: give the algorithm that began the run")
    return same
