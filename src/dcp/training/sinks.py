"""Where the rows of metrics go: always to metrics.csv; to TensorBoard and W&B on request."""

import csv
import dataclasses
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from dcp.errors import UserError
from dcp.training.folder import RunFolder

Row = dict[str, float]
_OPTIONAL = {"tensorboard": "tensorboardX", "wandb": "wandb"}  # extra -> module


class Sink(Protocol):
    def write(self, row: Row) -> None: ...

    def close(self) -> None: ...


class CsvSink:
    """One row an evaluation, on disk at once. The first row declares the columns; no later row may differ."""

    def __init__(self, path: Path):
        self._file = path.open("w", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file)
        self._columns: list[str] | None = None

    def write(self, row: Row) -> None:
        if self._columns is None:
            self._columns = list(row)
            self._writer.writerow(self._columns)
        if row.keys() != set(self._columns):
            changed = sorted(row.keys() ^ set(self._columns))
            raise ValueError(f"metrics changed within the run: {', '.join(changed)}")
        self._writer.writerow([row[name] for name in self._columns])
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class TensorboardSink:
    def __init__(self, folder: RunFolder):
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(str(folder.tensorboard))

    def write(self, row: Row) -> None:
        for name, value in row.items():
            self._writer.add_scalar(name, value, int(row["env_steps"]))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandbSink:
    def __init__(self, folder: RunFolder):
        import wandb  # pyright: ignore[reportMissingImports]

        c = folder.config
        try:
            self._run: Any = wandb.init(project="dcp", name=c.run_path, config=dataclasses.asdict(c), dir=folder.path)
        except Exception as error:
            raise UserError(f"W&B did not start ({error}): run `wandb login`, or set WANDB_MODE=offline") from error

    def write(self, row: Row) -> None:
        self._run.log(row, step=int(row["env_steps"]))

    def close(self) -> None:
        self._run.finish()


def require(tensorboard: bool, wandb: bool) -> None:
    """Before anything is trained: are the packages there?"""
    for extra, wanted in (("tensorboard", tensorboard), ("wandb", wandb)):
        if wanted and find_spec(_OPTIONAL[extra]) is None:
            raise UserError(f"--{extra} needs a package that is not installed: pip install 'dcp[{extra}]'")


def make_sinks(folder: RunFolder, tensorboard: bool, wandb: bool) -> list[Sink]:
    sinks: list[Sink] = [CsvSink(folder.metrics)]
    if tensorboard:
        sinks.append(TensorboardSink(folder))
    if wandb:
        sinks.append(WandbSink(folder))
    return sinks
