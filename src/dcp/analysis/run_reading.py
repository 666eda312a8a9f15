"""One run folder as the analysis sees it: what is there, and in what state. Nothing is filled in, nothing written."""

import csv
import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dcp.analysis.trials import EVALS_DIR
from dcp.config import Config
from dcp.errors import UserError
from dcp.run_folder import CONFIG_FILE, METRICS_FILE, PLOTS_DIR, read_config_file

VIDEOS_DIR = "videos"
FINISHED, NO_EVALUATION, DAMAGED = "finished", "no evaluation", "damaged"
_VIDEO_ENDINGS, _PLOT_ENDINGS = (".mp4", ".gif", ".html"), (".png", ".gif", ".svg", ".pdf")
_EXPECTED = ("env_steps", "success_once", "time_near_goal")


@dataclass(frozen=True)
class EvalRecord:
    """A file that `dcp eval` wrote."""

    path: Path
    content: dict[str, Any]
    run: Path | None = None  # the run folder that it lies in

    @property
    def about(self) -> dict[str, Any]:
        """env, method, seed and env_steps of the policy; may lack any."""
        found = self.content.get("about")
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True, eq=False)  # arrays have no single truth: a run is itself
class Run:
    folder: Path
    config: dict[str, Any] = field(default_factory=dict)  # empty if it cannot be read
    metrics: dict[str, np.ndarray] = field(default_factory=dict)  # column -> one number an evaluation, nan as it is
    state: str = FINISHED  # or: running or stopped at x of y steps; no evaluation; damaged: why
    evals: tuple[EvalRecord, ...] = ()
    videos: tuple[Path, ...] = ()
    plots: tuple[Path, ...] = ()
    label: str = ""  # the method, with settings that set it apart from other runs of the collection
    remark: str = ""  # what a reader must know besides the state

    @property
    def env(self) -> str:
        """Where it was trained; where evaluated too, if that is elsewhere."""
        trained, evaluated = str(self.config.get("env", "")), self.config.get("eval_env")
        return trained if evaluated in (None, trained) else f"{trained} on {evaluated}"

    @property
    def method(self) -> str:
        return str(self.config.get("method", ""))

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    @property
    def budget(self) -> int:
        """Environment steps that were asked for."""
        return int(self.config["steps"])

    @property
    def num_evaluations(self) -> int:
        return len(self.metrics.get("env_steps", ()))

    @property
    def env_steps(self) -> float:
        """At the last evaluation; 0 before the first."""
        return float(self.metrics["env_steps"][-1]) if self.num_evaluations else 0.0

    @property
    def is_damaged(self) -> bool:
        return self.state.startswith(DAMAGED)


def read_run(folder: Path) -> Run:
    """Whatever is wrong with a run is its state, so that one bad run does not take the others with it."""
    evals, bad = read_evals(folder / EVALS_DIR, folder)
    videos, plots = _files(folder / VIDEOS_DIR, _VIDEO_ENDINGS), _files(folder / PLOTS_DIR, _PLOT_ENDINGS)
    run = Run(folder, evals=evals, videos=videos, plots=plots, remark="; ".join(bad))
    try:
        stored = read_config_file(folder / CONFIG_FILE)["config"]
        run = replace(run, config=asdict(Config.from_dict(stored)))  # a field that it lacks had its default
        metrics, torn = read_metrics(folder / METRICS_FILE)
    except UserError as error:
        return replace(run, state=f"{DAMAGED}: {error}")
    remarks = [run.remark, "the last line of metrics.csv is torn and left out" if torn else "", _nans(metrics)]
    run = replace(run, metrics=metrics, remark="; ".join(filter(None, remarks)))
    return replace(run, state=_state(run))


def _state(run: Run) -> str:
    if not run.num_evaluations:
        return NO_EVALUATION
    if run.env_steps >= run.budget:
        return FINISHED
    return f"running or stopped at {run.env_steps:,.0f} of {run.budget:,} steps"


def _nans(metrics: dict[str, np.ndarray]) -> str:
    counts = {name: int(np.sum(~np.isfinite(metrics[name]))) for name in _EXPECTED if name in metrics}
    bad = [
        f"{name} is not finite in {count} of {len(metrics[name])} evaluations"
        for name, count in counts.items()
        if count
    ]
    return "; ".join(bad)


def read_metrics(path: Path) -> tuple[dict[str, np.ndarray], bool]:
    """-> columns, and whether a half-written last line was left out. No file or an empty one: no evaluation yet."""
    if not path.exists():
        return {}, False
    try:
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = [line for line in csv.reader(file) if line] or [[]]
        torn = bool(rows) and not _is_whole(rows[-1], header)
        rows = rows[:-1] if torn else rows
        values = np.asarray([[float(value) for value in row] for row in rows], float).reshape(len(rows), len(header))
    except OSError as error:
        raise UserError(f"cannot read {path.name} ({error.strerror})") from error
    except (ValueError, csv.Error) as error:
        raise UserError(f"{path.name} has a line that is no row of numbers ({error})") from error
    if rows:
        _require_columns(path.name, header, values)
    return dict(zip(header, values.T, strict=True)), torn


def _require_columns(name: str, header: list[str], values: np.ndarray) -> None:
    """values: [evaluations, columns]. What was measured may be nan; when it was measured may not."""
    for column in _EXPECTED:
        if header.count(column) != 1:
            raise UserError(f"{name} {'has two columns' if column in header else 'lacks the column'} {column}")
    steps = values[:, header.index("env_steps")]
    if not np.isfinite(steps).all() or steps[0] < 0:
        raise UserError(f"{name} has a number of steps that is none")
    if not np.all(np.diff(steps) > 0):
        raise UserError(f"{name} has steps that do not increase from row to row")


def _is_whole(row: list[str], header: list[str]) -> bool:
    try:
        return len(list(map(float, row))) == len(header)
    except ValueError:
        return False


def read_evals(folder: Path, run: Path | None) -> tuple[tuple[EvalRecord, ...], list[str]]:
    """-> what `dcp eval` left there, and a sentence for each file that is none of its."""
    records, bad = [], []
    for path in sorted(folder.glob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(content, dict) or not isinstance(content.get("seeds"), list):
                raise ValueError("it holds no result of dcp eval")
            records.append(EvalRecord(path, content, run))
        except (OSError, ValueError, RecursionError) as error:
            bad.append(f"{EVALS_DIR}/{path.name} cannot be read ({error})")
    return tuple(records), bad


def _files(folder: Path, endings: tuple[str, ...]) -> tuple[Path, ...]:
    if not folder.is_dir():
        return ()
    return tuple(sorted(path for path in folder.iterdir() if path.suffix in endings and path.is_file()))
