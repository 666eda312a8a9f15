"""Search over the settings of a grid: Optuna proposes trials, a launcher trains their runs, metrics.csv judges them.

All that is known is in <runs-dir>/study.db (Optuna's, by SQLite) and in the run folders of trial_<number>/. A search
that was stopped or killed continues from both: its open trials keep their choices, and their runs resume.

The database may be a stranger's. Optuna keeps every value in it as a number, a name or JSON (storages/_rdb/models.py);
only its journal and its CMA-ES sampler use pickle, and neither is used here. What a stored trial chose passes the same
checks as a grid file, so it cannot name code that the user did not.
"""

import math
import time
import warnings
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from dcp.errors import RunError, UserError, one_line, printable, shown
from dcp.files import METRICS_FILE, require_no_links_out
from dcp.files.run_folder import read_metrics
from dcp.grid.grid_display import Line, LineReader, LiveTable, PlainTable
from dcp.grid.grid_file import check_runs
from dcp.grid.jobs import Entry, Job, JobStatus, SeedsAs, fault, make_jobs, survey
from dcp.grid.launcher import POLL, STOPPING, LocalLauncher, retriable, signals_interrupt
from dcp.grid.resources import FreeResources, Resources, require_fit
from dcp.grid.tune_file import TuneFile, optuna_package, suggest

STUDY_FILE = "study.db"
STUDY = "dcp"  # its name in the database
STARTUP = 5  # finished trials before any is pruned
MOST_FAILURES = 10  # one after another, as on a full disk, where every trial would be used up within seconds
RETRIES = 1  # of a run that failed by itself, such as one that was killed


def open_study(runs_dir: Path, make: bool = True) -> Any:
    """Return the study of this folder. With `make` False it must be there already."""
    optuna = optuna_package()
    file = runs_dir / STUDY_FILE
    for name in (STUDY_FILE, f"{STUDY_FILE}-journal", f"{STUDY_FILE}-wal"):
        require_no_links_out(runs_dir / name, of=runs_dir)
    if not make and not file.is_file():
        raise UserError(f"there is no {file}: start the search, or name its folder by --runs-dir")
    try:
        url = (
            import_module("sqlalchemy")
            .URL.create("sqlite", database=str(file.absolute()))
            .render_as_string(hide_password=False)
        )
        study = optuna.create_study(
            storage=optuna.storages.RDBStorage(url), study_name=STUDY, direction="maximize", load_if_exists=True
        )
        study.get_trials(deepcopy=False)
    except Exception as error:  # of SQLite, SQLAlchemy, Alembic or Optuna, for a file that none of them wrote
        raise UserError(
            f"{file} is no study that can be read ({one_line(error)}): choose another --runs-dir"
        ) from error
    return study


def prepare(study: Any, fingerprint: str, seed: int, warmup: int) -> None:
    """Choose sampler and pruner; raise UserError if the study's trials are of another file.

    `warmup`: evaluations before which no trial is pruned.
    """
    optuna = optuna_package()
    begun = len(study.get_trials(deepcopy=False))
    if begun and study.user_attrs.get("file") != fingerprint:
        raise UserError(
            f"the folder's {begun} trials are of other settings, so their scores cannot be compared with new ones: "
            "choose another --runs-dir (only trials and prune of [tune] may change)"
        )
    study.set_user_attr("file", fingerprint)
    # A restart with the same seed would propose the first trials again. The liar keeps open trials apart.
    with warnings.catch_warnings(action="ignore"):  # the liar is new in Optuna 4
        study.sampler = optuna.samplers.TPESampler(seed=(seed + begun) % 2**32, constant_liar=True)
    study.pruner = optuna.pruners.MedianPruner(STARTUP, warmup)


@dataclass
class Trial:
    """A trial that is being trained. `of`: Optuna's object."""

    of: Any
    entries: list[Entry]
    jobs: list[Job]
    reported: int  # evaluations that Optuna knows
    attempts: dict[str, int] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)

    @property
    def names(self) -> set[str]:
        return {job.name for job in self.jobs}


@dataclass
class Search:
    """Train trials until as many as asked for have begun and ended, or a signal stops them with checkpoints."""

    file: TuneFile
    study: Any
    launcher: LocalLauncher
    free: FreeResources  # the launcher's own
    each: Resources
    seeds_as: SeedsAs
    runs_dir: Path  # absolute
    display: PlainTable | LiveTable
    trials: int
    where: Sequence[str] = ()
    own_code: Sequence[str] = ()
    imports: Sequence[str] = ()
    poll: float = POLL
    stopped: bool = False  # by a signal
    _failures: int = 0  # one after another
    _live: list[Trial] = field(default_factory=list)
    _reader: LineReader = field(default_factory=LineReader)

    def __post_init__(self) -> None:
        self._machine = deepcopy(self.free)

    def run(self) -> None:
        with signals_interrupt():
            try:
                self._until_ended()
            except KeyboardInterrupt:
                self.stopped = True
                self.display.note(STOPPING)
                self.launcher.stop()
            finally:
                self.launcher.close()

    def _until_ended(self) -> None:
        trials = optuna_package().trial
        begun = self.study.get_trials(deepcopy=False)
        for stored in (trial for trial in begun if trial.state == trials.TrialState.RUNNING):
            self._begin(trials.Trial(self.study, stored._trial_id), stored.intermediate_values)
        count = len(begun)
        while self._live or count < self.trials:
            statuses = self.launcher.poll()
            for trial in list(self._live):
                self._look(trial, statuses)
            if lines := [line for trial in self._live for line in trial.lines]:
                self.display.update(lines)
            if count < self.trials and self._has_room(statuses):
                count += 1
                self._begin(self.study.ask())
            else:
                time.sleep(self.poll)

    def _has_room(self, statuses: dict[str, JobStatus]) -> bool:
        """Return whether another trial could train at once: an early one would know fewer results."""
        jobs = [job for trial in self._live for job in trial.jobs]
        waiting = any(statuses[job.name].state == "waiting" for job in jobs)
        return not waiting and (not jobs or self.free.count(jobs[-1].resources) > 0)

    def _begin(self, of: Any, reported: dict[int, float] | None = None) -> None:
        """Submit a trial's runs. `reported`: of a trial that an earlier process began."""
        try:
            chosen = {name: suggest(of, name, values) for name, values in self.file.space.items()}
            runs = check_runs(self.file.runs(of.number, chosen, self.where), self.own_code)
        except ValueError as error:  # the values do not fit together, or a stranger's study has others than [search]
            self._end(of, "FAIL", str(error))
            return
        entries = survey(runs, self.runs_dir)
        jobs = make_jobs(entries, self.runs_dir, self.each, self.seeds_as, Path.cwd(), self.imports)
        trial = Trial(of, entries, jobs, max(reported or {0: 0.0}))
        try:
            require_fit([self._machine], jobs)
        except UserError as error:
            self._end(of, "FAIL", str(error))
            return
        self._live.append(trial)
        self._submit(trial, jobs)

    def _submit(self, trial: Trial, jobs: Sequence[Job]) -> None:
        for job in jobs:
            trial.attempts[job.name] = trial.attempts.get(job.name, 0) + 1
        self.launcher.submit(jobs)

    def _look(self, trial: Trial, statuses: dict[str, JobStatus]) -> None:
        """Report what a trial's runs have reached, and end it if all have ended, one has failed, or it is too bad."""
        before = [line.row for line in trial.lines]
        trial.lines = self._reader.lines(trial.entries, trial.jobs, statuses, trial.attempts)
        if again := [job for job in trial.jobs if self._deserves_another(trial, job, statuses[job.name])]:
            self._submit(trial, again)
            return
        broken = [line for line in trial.lines if line.state in ("failed", "stopped")]
        finished = all(line.state == "finished" for line in trial.lines)
        is_new = [line.row for line in trial.lines] != before and self._report(trial)
        if broken:
            diverged = any(fault(job) for job in trial.jobs)  # a bad choice of settings, as a pruned one is
            self._stop(trial, "PRUNED" if diverged else "FAIL", broken[0].why)
        elif finished:
            self._stop(trial, "COMPLETE")
        elif is_new and self.file.options.prune and trial.of.should_prune():
            self._stop(trial, "PRUNED", f"below the median at evaluation {trial.reported}")

    def _deserves_another(self, trial: Trial, job: Job, status: JobStatus) -> bool:
        ended = status.state in ("failed", "stopped") and retriable(status.code) and not fault(job)
        return ended and trial.attempts[job.name] <= RETRIES

    def _curves(self, trial: Trial) -> list[np.ndarray]:
        """Return the metric of each run: a number per evaluation."""
        curves = []
        for entry in trial.entries:
            file = self.runs_dir / entry.run.path / METRICS_FILE
            columns, _ = read_metrics(file) if file.exists() else ({}, False)
            if columns and self.file.options.metric not in columns:
                names = ", ".join(name for name in columns if name not in ("evaluation", "env_steps"))
                raise UserError(f"metrics.csv has no column {shown(self.file.options.metric)}: choose one of {names}")
            curves.append(columns.get(self.file.options.metric, np.empty(0)))
        return curves

    def _report(self, trial: Trial) -> bool:
        """Tell Optuna the score so far, at each evaluation that all of the trial's runs have reached. Return whether
        there was one, and not the last."""
        curves, before = self._curves(trial), trial.reported
        for evaluation in range(before + 1, min(map(len, curves)) + 1):
            trial.of.report(score([curve[:evaluation] for curve in curves], self.file.options.last), evaluation)
            trial.reported = evaluation
        return before < trial.reported < min(entry.run.settings.num_evals for entry in trial.entries)

    def _stop(self, trial: Trial, state: str, why: str = "") -> None:
        self._live.remove(trial)
        rows = [line.row for line in trial.lines if line.row is not None]
        trial.of.set_user_attr("minutes", sum(row.get("wall_seconds", 0.0) for row in rows) / 60)
        value = score(self._curves(trial), self.file.options.last) if state == "COMPLETE" else None
        if value is not None and not math.isfinite(value):
            state, why, value = "FAIL", f"its score is {value}", None
        self._end(trial.of, state, why, value)
        self.launcher.end(trial.names)

    def _end(self, of: Any, state: str, why: str = "", value: float | None = None) -> None:
        why = printable(" ".join(why.split()))
        if why:
            of.set_user_attr("why", why)
        self.study.tell(of, value, state=optuna_package().trial.TrialState[state])
        number = f"{self.file.options.metric} {value:.4g}" if value is not None else f"{state.lower()} ({why})"
        self.display.note(f"trial {of.number}: {number}")
        self._failures = self._failures + 1 if state == "FAIL" else 0
        if self._failures == MOST_FAILURES:
            raise RunError(
                f"the last {MOST_FAILURES} trials have failed ({why}): correct that and start the search again"
            )


def score(curves: Sequence[np.ndarray], last: int) -> float:
    """Return the mean over runs of the mean of each run's last evaluations."""
    return float(np.mean([float(np.mean(curve[-last:])) if len(curve) else math.nan for curve in curves]))
