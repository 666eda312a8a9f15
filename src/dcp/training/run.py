"""A run from config to folder: checks, trains, evaluates, writes down; and goes on where an earlier process stopped."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from dcp.checks import check
from dcp.compiling import cache as compilation_cache
from dcp.config import Config
from dcp.deploy.policy import DeployedPolicy
from dcp.errors import RunError
from dcp.training import sinks
from dcp.training.checkpoint import Saver
from dcp.training.display import Display, DisplayKind, make_display
from dcp.training.faults import explained
from dcp.training.folder import RunFolder, claim, reopen
from dcp.training.keeper import Cadence, Interrupted, Keeper
from dcp.training.loop import Evaluation, Moment, begin, run_loop
from dcp.training.progress import require_named
from dcp.training.resumption import latest_moment
from dcp.training.schedule import evaluation_points
from dcp.training.signals import StopRequest
from dcp.training.stages import Stages
from dcp.training.trainer import RunState, Trainer, make_trainer

OnEval = Callable[[Evaluation], None]


@dataclass(frozen=True)
class TrainedRun:
    folder: Path
    rows: list[dict[str, float]]  # as in metrics.csv: one an evaluation
    policy: DeployedPolicy
    state: RunState


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
    `cache` is a folder for compiled programs, or "off"; see `dcp.compiling.cache`. `cadence`: when to checkpoint.
    """
    compilation_cache.enable(cache)
    check(config)
    sinks.require(tensorboard, wandb)
    trainer = make_trainer(config)
    folder = claim(runs_dir, trainer.config, overwrite)
    return _Session(trainer, folder, on_eval, tensorboard, wandb, display, cadence).run()


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
    compilation_cache.enable(cache)
    sinks.require(tensorboard, wandb)
    folder = reopen(run, steps)
    try:
        require_named(folder.config, {"env": env, "eval-env": eval_env})
        check(folder.config)
        trainer = make_trainer(folder.config)
    except BaseException:
        folder.lock.release()
        raise
    return _Session(trainer, folder, on_eval, tensorboard, wandb, display, cadence, resumed=True).run()


@dataclass
class _Session:
    """One process's part of a run."""

    trainer: Trainer
    folder: RunFolder
    on_eval: OnEval | None
    tensorboard: bool
    wandb: bool
    display: DisplayKind
    cadence: Cadence
    resumed: bool = False
    rows: list[dict[str, float]] = field(default_factory=list)
    outputs: list[sinks.Sink] = field(default_factory=list)

    def run(self) -> TrainedRun:
        saver = Saver(self.folder.checkpoints, self.folder.config)
        try:
            with ExitStack() as stack:
                stack.callback(saver.close)
                stack.callback(lambda: [sink.close() for sink in self.outputs])
                shown = stack.enter_context(make_display(self.display, self.trainer.config, self.folder.path))
                stop = stack.enter_context(StopRequest(shown.stopping))
                points = evaluation_points(self.trainer.config, self.folder.earlier)
                keeper = Keeper(saver, self.folder.lock, self.cadence, stop, len(points))
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
            fault = explained(error, self.folder, saver.last)
            self._leave(saver)
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted(self.folder.path, len(self.rows), saver.last) from None
            if fault:
                raise RunError(fault) from error
            raise
        finally:
            self.folder.lock.release()
        return TrainedRun(self.folder.path, self.rows, self.trainer.policy(state.learner.params), state)

    def _start(self, stages: Stages, saver: Saver, shown: Display) -> Moment:
        moment = latest_moment(self.folder, stages, saver, shown.note) if self.resumed else None
        if moment is not None:
            shown.resumed(moment.unrolls, len(moment.rows))
        moment = moment or begin(stages)
        if self.resumed:
            self.folder.save_config()  # with the budget as it is now
            self.folder.fault.unlink(missing_ok=True)  # of an earlier process
        self.rows = list(moment.rows)
        self.outputs = sinks.make_sinks(self.folder, self.tensorboard, self.wandb, self.rows)
        return moment

    def _record(self, evaluation: Evaluation, shown: Display) -> None:
        """The policy first: a row in metrics.csv says that its policy is on disk."""
        self.folder.save_policy(self.trainer.policy(evaluation.run.learner.params), evaluation.row)
        self.folder.keep()
        for sink in self.outputs:
            sink.write(evaluation.row)
        self.rows.append(evaluation.row)
        shown.evaluation(evaluation.row)
        if self.on_eval is not None:
            self.on_eval(evaluation)

    def _leave(self, saver: Saver) -> None:
        """A folder in which there is nothing to keep goes."""
        if not (self.rows or self.resumed or saver.last is not None or self.folder.fault.exists()):
            self.folder.discard()
