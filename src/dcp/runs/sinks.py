"""Write a run's config, policy and rows to its folder, and its rows to the loggers that were asked for."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dcp.algorithm import RunState
from dcp.policies.policy import DeployedPolicy
from dcp.policies.policy_file import write_whole
from dcp.runs.folder import RunFolder
from dcp.runs.tracking import Sink, Tracking, make_sinks

Row = dict[str, float]


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
    tracking: Tracking = field(default_factory=Tracking)
    keep_policies: bool = False  # the policy of every evaluation
    rows: list[Row] = field(default_factory=list)
    _outputs: list[Sink] = field(default_factory=list)

    def begin(self, rows: Sequence[Row]) -> None:
        """Write the config and open the sinks. `rows`: those of a resumed run."""
        if self.resumed:
            self.folder.save_config()  # with the current budget
            self.folder.fault.unlink(missing_ok=True)  # of an earlier process
        self.rows = list(rows)
        self._outputs = [CsvSink(self.folder.metrics, self.rows)]
        self._outputs += make_sinks(self.folder.path, self.folder.config, self.tracking, self.rows)

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
