"""A run from config to folder: checks, trains, evaluates, writes down; and goes on where an earlier process stopped."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from dcp import compiling, hosts
from dcp.checks import check
from dcp.config import Config
from dcp.errors import RunError
from dcp.training import sinks
from dcp.training.checkpoint import Saver
from dcp.training.display import Display, DisplayKind, make_display
from dcp.training.faults import explained
from dcp.training.folder import claim, reopen
from dcp.training.following import announce, follow
from dcp.training.hosts import convene
from dcp.training.keeper import Cadence, Interrupted, Keeper
from dcp.training.loop import Evaluation, Moment, begin, run_loop
from dcp.training.progress import require_named
from dcp.training.results import Results, TrainedRun
from dcp.training.resumption import latest_moment
from dcp.training.schedule import evaluation_points
from dcp.training.signals import StopRequest
from dcp.training.stages import Stages
from dcp.training.trainer import Trainer, make_trainer

OnEval = Callable[[Evaluation], None]


def train(
    config: Config,
    on_eval: OnEval | None = None,
    *,
    runs_dir: str | Path = "runs",
    overwrite: bool = False,
    tensorboard: bool = False,
    wandb: bool = False,
    display: DisplayKind = "auto",
    cache: str | Path | None = None,
    cadence: Cadence = Cadence(),  # noqa: B008
) -> TrainedRun:
    """Train and write `<runs_dir>/<env>/<method>/seed_<n>/`.

    `on_eval` is called after each evaluation; its `run` is valid within the call only (its buffers are reused).
    `cache` is a folder for compiled programs, or "off"; see `dcp.compiling`. `cadence`: when to checkpoint.
    With several hosts (`dcp.hosts.join`) each calls this; what host 0 was given counts, and it alone writes.
    """
    if not hosts.is_first():
        return follow(cache)
    compiling.enable_cache(cache)
    convene(config)
    check(config)
    sinks.require(tensorboard, wandb)
    trainer = make_trainer(config)
    folder = claim(runs_dir, trainer.config, overwrite)
    return _Session(trainer, Results(folder, False, tensorboard, wandb), on_eval, display, cadence).run()


def resume(
    run: str | Path,
    on_eval: OnEval | None = None,
    *,
    steps: int | None = None,
    env: str | None = None,
    eval_env: str | None = None,
    tensorboard: bool = False,
    wandb: bool = False,
    display: DisplayKind = "auto",
    cache: str | Path | None = None,
    cadence: Cadence = Cadence(),  # noqa: B008
) -> TrainedRun:
    """Continue the run in this folder as if it had never stopped; with `steps`, train it longer than was planned.

    A run without a checkpoint begins again: its config decides every number, so that too ends as it would have.
    `env`, `eval_env`: a run folder that names an environment as module:factory names code; name it too, to allow it.
    """
    if not hosts.is_first():
        return follow(cache)
    compiling.enable_cache(cache)
    sinks.require(tensorboard, wandb)
    folder = reopen(run, steps)
    try:
        convene(folder.config)
        require_named(folder.config, {"env": env, "eval-env": eval_env})
        check(folder.config)
        trainer = make_trainer(folder.config)
    except BaseException:
        folder.lock.release()
        raise
    return _Session(trainer, Results(folder, True, tensorboard, wandb), on_eval, display, cadence).run()


@dataclass
class _Session:
    """One process's part of a run."""

    trainer: Trainer
    results: Results
    on_eval: OnEval | None
    display: DisplayKind
    cadence: Cadence

    def run(self) -> TrainedRun:
        folder, results = self.results.folder, self.results
        saver = Saver(folder.checkpoints, folder.config)
        announce(folder)
        try:
            with ExitStack() as stack:
                stack.callback(saver.close)
                stack.callback(results.close)
                shown = stack.enter_context(make_display(self.display, self.trainer.config, folder.path))
                stop = stack.enter_context(StopRequest(shown.stopping))
                points = evaluation_points(self.trainer.config, folder.earlier)
                keeper = Keeper(saver, folder.lock, self.cadence, stop, len(points))
                state = run_loop(
                    self.trainer,
                    lambda evaluation: self._record(evaluation, shown),
                    shown.progress,
                    keeper,
                    lambda stages: self._start(stages, saver, shown),
                    points,
                )
                saver.wait()
        except BaseException as error:
            fault = explained(error, folder, saver.last)
            results.leave(saver.last)
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted(folder.path, len(results.rows), saver.last) from None
            if fault:
                raise RunError(fault) from error
            raise
        finally:
            folder.lock.release()
        return TrainedRun(folder.path, results.rows, self.trainer.policy(state.learner.params), state)

    def _start(self, stages: Stages, saver: Saver, shown: Display) -> Moment:
        resumed = self.results.resumed
        moment = latest_moment(self.results.folder, stages, saver, shown.note) if resumed else None
        if moment is not None:
            shown.resumed(moment.unrolls, len(moment.rows))
        elif hosts.count() > 1:
            hosts.tell({"moment": None})
        moment = moment or begin(stages)
        self.results.begin(moment.rows)
        return moment

    def _record(self, evaluation: Evaluation, shown: Display) -> None:
        self.results.add(self.trainer.policy(evaluation.run.learner.params), evaluation.row)
        shown.evaluation(evaluation.row)
        if self.on_eval is not None:
            self.on_eval(evaluation)
