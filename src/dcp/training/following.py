"""A host's part in a run that host 0 leads: the same programs in the same order, and nothing is written."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from dcp import compiling, hosts
from dcp.config import Config, Settings
from dcp.training import checkpoint
from dcp.training.folder import RunFolder
from dcp.training.hosts import pieces, spread, start
from dcp.training.keeper import Cadence, Interrupted, Keeper
from dcp.training.loop import Moment, begin, run_loop
from dcp.training.results import TrainedRun
from dcp.training.schedule import Budget, evaluation_points
from dcp.training.signals import StopRequest
from dcp.training.stages import Stages
from dcp.training.trainer import make_trainer


def announce(folder: RunFolder) -> None:
    """Host 0: the run is on."""
    if hosts.count() > 1:
        budgets = [asdict(budget) for budget in folder.earlier]
        hosts.tell({"config": asdict(folder.config), "earlier": budgets, "folder": str(folder.path)})


def follow(cache: str | Path | None = None) -> TrainedRun:
    """Every other host, from host 0's announcement to the end of the run."""
    compiling.enable_cache(cache)
    start(Settings(**hosts.hear()))
    run = hosts.hear()
    config, folder = Config.from_dict(run["config"]), Path(run["folder"])
    points = evaluation_points(config, tuple(Budget(**budget) for budget in run["earlier"]))
    rows: list[dict[str, float]] = []
    attendant = _Attendant(config)
    with StopRequest() as stop:
        keeper = Keeper(attendant, _Nowhere(), Cadence(0, 0), stop, len(points))
        trainer = make_trainer(config)
        try:
            state = run_loop(trainer, lambda e: rows.append(e.row), at_boundary=keeper, start=_joined, points=points)
        except KeyboardInterrupt:
            raise Interrupted(folder, len(rows), attendant.last) from None
    return TrainedRun(folder, rows, trainer.policy(state.learner.params), state)


def _joined(stages: Stages) -> Moment:
    """Where host 0 begins or goes on."""
    told = hosts.hear()["moment"]
    if told is None:
        return begin(stages)
    arrays = checkpoint.empty_arrays(stages)
    spread(arrays)
    return checkpoint.moment_of(arrays, told, stages)


class _Attendant:
    """Takes part in the gathering of a checkpoint; host 0 writes it."""

    def __init__(self, config: Config):
        self._config = config
        self.last: int | None = None

    def save(self, moment: Moment) -> None:
        for _, array in checkpoint.plain_arrays(moment.run):
            for _ in pieces(array):
                pass
        self.last = moment.unrolls * self._config.env_steps_per_unroll

    def check(self) -> None:
        return None

    def wait(self) -> None:
        return None


class _Nowhere:
    """The lock of no folder."""

    def require(self) -> Any:
        return None
