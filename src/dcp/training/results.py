"""What a run leaves in its folder as it goes: config, policy, rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dcp.policies.policy import DeployedPolicy
from dcp.training import sinks
from dcp.training.folder import RunFolder
from dcp.training.trainer import RunState

Row = dict[str, float]


@dataclass(frozen=True)
class TrainedRun:
    folder: Path
    rows: list[Row]  # as in metrics.csv: one an evaluation
    policy: DeployedPolicy
    state: RunState


@dataclass
class Results:
    folder: RunFolder
    resumed: bool
    tensorboard: bool = False
    wandb: bool = False
    rows: list[Row] = field(default_factory=list)
    _outputs: list[sinks.Sink] = field(default_factory=list)

    def begin(self, rows: Sequence[Row]) -> None:
        """`rows`: those of a run that goes on."""
        if self.resumed:
            self.folder.save_config()  # with the budget as it is now
            self.folder.fault.unlink(missing_ok=True)  # of an earlier process
        self.rows = list(rows)
        self._outputs = sinks.make_sinks(self.folder, self.tensorboard, self.wandb, self.rows)

    def add(self, policy: DeployedPolicy, row: Row) -> None:
        """The policy first: a row in metrics.csv says that its policy is on disk."""
        self.folder.save_policy(policy, row)
        self.folder.keep()
        for sink in self._outputs:
            sink.write(row)
        self.rows.append(row)

    def close(self) -> None:
        while self._outputs:
            self._outputs.pop().close()

    def leave(self, last: int | None) -> None:
        """A folder in which there is nothing to keep goes. `last`: environment steps at the newest checkpoint."""
        if not (self.rows or self.resumed or last is not None or self.folder.fault.exists()):
            self.folder.discard()
