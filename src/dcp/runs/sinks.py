"""Write a run's config, policy and rows to its folder, and on request its rows to TensorBoard and W&B."""

import csv
import dataclasses
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from dcp.algorithm import RunState
from dcp.errors import UserError, install_hint
from dcp.policies.policy import DeployedPolicy
from dcp.policies.policy_file import write_whole
from dcp.runs.folder import RunFolder

Row = dict[str, float]
_OPTIONAL = {"tensorboard": "tensorboardX", "wandb": "wandb"}  # extra -> module


class Sink(Protocol):
    def write(self, row: Row) -> None: ...

    def close(self) -> None: ...


class CsvSink:
    """Write one row per evaluation to disk at once. The first row sets the columns, and later rows must match.

    `rows`: those of a resumed run. The file is rewritten with them, whatever an earlier process left in it.
    """

    def __init__(self, path: Path, rows: Sequence[Row] = ()):
        self._columns: list[str] | None = None
        before = io.StringIO(newline="")
        self._writer = csv.writer(before)
        for row in rows:
            self._write(row)
        write_whole(path, before.getvalue().encode())
        self._file = path.open("a", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file)

    def write(self, row: Row) -> None:
        self._write(row)
        self._file.flush()

    def _write(self, row: Row) -> None:
        if self._columns is None:
            self._columns = list(row)
            self._writer.writerow(self._columns)
        if row.keys() != set(self._columns):
            changed = sorted(row.keys() ^ set(self._columns))
            raise ValueError(f"metrics changed within the run: {', '.join(changed)}")
        self._writer.writerow([row[name] for name in self._columns])

    def close(self) -> None:
        self._file.close()


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
            raise UserError(f"--{extra} needs a package that is not installed: {install_hint(extra)}")


def make_sinks(folder: RunFolder, tensorboard: bool, wandb: bool, rows: Sequence[Row] = ()) -> list[Sink]:
    """Make the sinks. `rows`: those of a resumed run; W&B starts a new run for the rows that follow them."""
    sinks: list[Sink] = [CsvSink(folder.metrics, rows)]
    if tensorboard:
        sinks.append(TensorboardSink(folder, rows))
    if wandb:
        sinks.append(WandbSink(folder))
    return sinks


@dataclass(frozen=True)
class TrainedRun:
    folder: Path | None  # None: trained without one
    rows: list[Row]  # as in metrics.csv: one per evaluation
    policy: DeployedPolicy
    state: RunState


@dataclass
class Results:
    folder: RunFolder
    resumed: bool
    tensorboard: bool = False
    wandb: bool = False
    keep_policies: bool = False  # the policy of every evaluation
    rows: list[Row] = field(default_factory=list)
    _outputs: list[Sink] = field(default_factory=list)

    def begin(self, rows: Sequence[Row]) -> None:
        """Write the config and open the sinks. `rows`: those of a resumed run."""
        if self.resumed:
            self.folder.save_config()  # with the current budget
            self.folder.fault.unlink(missing_ok=True)  # of an earlier process
        self.rows = list(rows)
        self._outputs = make_sinks(self.folder, self.tensorboard, self.wandb, self.rows)

    def add(self, policy: DeployedPolicy, row: Row) -> None:
        """Write the policy, then the row, so that each row in metrics.csv has its policy on disk."""
        self.folder.save_policy(policy, row, self.keep_policies)
        self.folder.keep()
        for sink in self._outputs:
            sink.write(row)
        self.rows.append(row)

    def close(self) -> None:
        while self._outputs:
            self._outputs.pop().close()

    def leave(self, last: int | None) -> None:
        """Remove the folder if it holds no result. `last`: environment steps at the newest checkpoint."""
        if not (self.rows or self.resumed or last is not None or self.folder.fault.exists()):
            self.folder.discard()
