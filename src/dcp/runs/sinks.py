"""Write a run's rows to TensorBoard and W&B, if asked."""

import dataclasses
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Protocol

from dcp.errors import UserError
from dcp.loop import Row
from dcp.runs.folder import RunFolder

_OPTIONAL = {"tensorboard": "tensorboardX", "wandb": "wandb"}  # extra -> module


class Sink(Protocol):
    def write(self, row: Row) -> None: ...

    def close(self) -> None: ...


class TensorboardSink:
    def __init__(self, folder: RunFolder, rows: Sequence[Row] = ()):
        from tensorboardX import SummaryWriter

        again = int(rows[-1]["env_steps"]) + 1 if rows else None  # TensorBoard drops older points from this step on
        self._writer = SummaryWriter(str(folder.tensorboard), purge_step=again)

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
    """Refuse, before training, a sink whose package is missing."""
    for extra, wanted in (("tensorboard", tensorboard), ("wandb", wandb)):
        if wanted and find_spec(_OPTIONAL[extra]) is None:
            raise UserError(f"--{extra} needs a package that is not installed: pip install 'dcp-rl[{extra}]'")


def make_sinks(folder: RunFolder, tensorboard: bool, wandb: bool, rows: Sequence[Row] = ()) -> list[Sink]:
    """Make the sinks. `rows`: those of a resumed run; W&B starts a new run for the rows that follow them."""
    sinks: list[Sink] = []
    if tensorboard:
        sinks.append(TensorboardSink(folder, rows))
    if wandb:
        sinks.append(WandbSink(folder))
    return sinks
