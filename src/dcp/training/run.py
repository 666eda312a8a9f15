"""A run from config to folder: checks, trains, evaluates, writes down."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from dcp.checks import check
from dcp.config import Config
from dcp.deploy.policy import DeployedPolicy
from dcp.training import compilation_cache, sinks
from dcp.training.display import Display, DisplayKind, make_display
from dcp.training.folder import RunFolder, claim
from dcp.training.loop import Evaluation, run_loop
from dcp.training.trainer import RunState, Trainer, make_trainer


@dataclass(frozen=True)
class TrainedRun:
    folder: Path
    rows: list[dict[str, float]]  # as in metrics.csv: one an evaluation
    policy: DeployedPolicy
    state: RunState


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during training. The folder holds what there was; without an evaluation there is none."""

    def __init__(self, folder: Path, evaluations: int):
        super().__init__(f"stopped after {evaluations} evaluations")
        self.folder, self.evaluations = folder, evaluations


def train(
    config: Config,
    on_eval: Callable[[Evaluation], None] | None = None,
    *,
    runs_dir: str | Path = "runs",
    overwrite: bool = False,
    tensorboard: bool = False,
    wandb: bool = False,
    display: DisplayKind = "auto",
    cache: str | Path | None = None,
) -> TrainedRun:
    """Train and write `<runs_dir>/<env>/<method>/seed_<n>/`.

    `on_eval` is called after each evaluation; its `run` is valid within the call only (its buffers are reused).
    `cache` is a folder for compiled programs, or "off"; see `compilation_cache`.
    """
    compilation_cache.enable(cache)
    check(config)
    sinks.require(tensorboard, wandb)
    trainer = make_trainer(config)
    folder = claim(runs_dir, trainer.config, overwrite)
    rows: list[dict[str, float]] = []
    try:
        with ExitStack() as stack:
            outputs = sinks.make_sinks(folder, tensorboard, wandb)
            for sink in outputs:
                stack.callback(sink.close)
            shown = stack.enter_context(make_display(display, trainer.config, folder.path))
            record = _recorder(trainer, folder, outputs, shown, rows, on_eval)
            state = run_loop(trainer, record, shown.progress)
    except BaseException as error:
        if not rows:
            folder.release()
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(folder.path, len(rows)) from None
        raise
    return TrainedRun(folder.path, rows, trainer.policy(state.learner.params), state)


def _recorder(
    trainer: Trainer,
    folder: RunFolder,
    outputs: list[sinks.Sink],
    shown: Display,
    rows: list[dict[str, float]],
    on_eval: Callable[[Evaluation], None] | None,
) -> Callable[[Evaluation], None]:
    """What happens at each evaluation. The policy first: a row in metrics.csv says that its policy is on disk."""

    def record(evaluation: Evaluation) -> None:
        folder.save_policy(trainer.policy(evaluation.run.learner.params), evaluation.row)
        folder.keep()
        for sink in outputs:
            sink.write(evaluation.row)
        rows.append(evaluation.row)
        shown.evaluation(evaluation.row)
        if on_eval is not None:
            on_eval(evaluation)

    return record
