"""`dcp.train`: train a config, an algorithm or an environment, into a run folder or without one."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dcp.algorithm import Algorithm, RunState, make_algorithm, restarted
from dcp.config import Config, Tracking
from dcp.envs.base import Environment, is_exact
from dcp.envs.registry import ENVIRONMENTS, env_of
from dcp.errors import RunError, UserError, shown, worker_error_in
from dcp.loop import (
    Budget,
    Callback,
    Evaluation,
    HostState,
    OnEval,
    Row,
    evaluation_points,
    require_sound_start,
    train_loop,
)
from dcp.machine import compiling, devices
from dcp.machine.checks import check, check_algorithm
from dcp.machine.programs import Programs, on_devices
from dcp.machine.signals import Interrupted, StopRequest
from dcp.policies.policy import DeployedPolicy
from dcp.presets import PRESETS
from dcp.runs.checkpoint import Cadence, CheckpointTimer
from dcp.runs.display import DisplayKind, Progress, make_display
from dcp.runs.folder import RunFolder, claim, holds_run

NOT_EXACT = (
    "is simulated in worker processes, which no checkpoint holds: a resumed run begins their episodes again, and does "
    "not end with the same bits"
)


@dataclass(frozen=True)
class TrainedRun:
    """Hold what training gives back; a run with a folder has all but `state` there too."""

    folder: Path | None  # None: trained without one
    rows: list[Row]  # as in metrics.csv: one per evaluation
    policy: DeployedPolicy
    state: RunState


def train(
    what: Algorithm | Config | Environment | str | None = None,
    on_eval: OnEval | None = None,
    *,
    runs_dir: str | Path | None = "runs",
    overwrite: bool = False,
    resume: bool = False,
    tensorboard: bool = False,
    wandb: bool = False,
    tracking: Tracking | None = None,
    keep_policies: bool = False,
    display: DisplayKind = "auto",
    cache: str | Path | None = None,
    cadence: Cadence = Cadence(),  # noqa: B008
    **settings: Any,
) -> TrainedRun:
    """Train and write `<runs_dir>/<env>/<method>/seed_<n>/`; with `runs_dir` None, train and write nothing.

    `what`: an `Algorithm`, a `Config`, or an environment or its name; `settings` are fields of the config. With an
    `Algorithm` these are such as steps and seed, not those that its environment and parts have decided.
    `on_eval` is called after each evaluation; its `run` is valid only within the call (its buffers are reused).
    `resume`: resume the run in the folder, if there is one. `cadence`: when to checkpoint.
    `keep_policies`: also keep the policy of each evaluation, in the folder policies/.
    `tracking`: TensorBoard, W&B and trackio, with their project, group and names; `wandb=True` takes the defaults.
    `cache` is a folder for compiled programs, or "off"; see `dcp.machine.compiling`.
    """
    compiling.enable_cache(cache)
    tracking = installed(tracking or Tracking(tensorboard=tensorboard, wandb=wandb))
    algorithm = _algorithm(what, settings)
    if runs_dir is None:
        with StopRequest() as stop:
            return _Session(algorithm.config, algorithm, on_eval, display, stop).train()
    path = Path(runs_dir) / algorithm.config.run_path
    outputs: dict[str, Any] = {"tracking": tracking, "keep_policies": keep_policies}
    if resume and holds_run(path):
        from dcp.runs import resuming
        from dcp.runs.run_status import budget_to_resume_with

        steps = budget_to_resume_with(path, algorithm.config)
        options: dict[str, Any] = {**outputs, "display": display, "cache": cache, "cadence": cadence}
        return resuming.resume(path, on_eval, steps=steps, algorithm=algorithm, **options)
    with StopRequest() as stop:  # from the moment that there is a folder
        folder = claim(runs_dir, algorithm.config, overwrite, **outputs)
        return FolderSession(folder.config, algorithm, on_eval, display, stop, folder, cadence).train()


def installed(tracking: Tracking) -> Tracking:
    """Return it, or refuse a logger whose package is missing."""
    if tracking.loggers:
        from dcp.runs.tracking import require

        require(tracking)
    return tracking


def _algorithm(what: Algorithm | Config | Environment | str | None, settings: dict[str, Any]) -> Algorithm:
    """Return the algorithm to train, on this machine's devices."""
    if isinstance(what, Algorithm):
        algorithm = _with_settings(what, settings) if settings else what
    elif what is None or isinstance(what, Config | str):
        if isinstance(what, str) and what in PRESETS and what not in ENVIRONMENTS:
            raise UserError(
                f"{what!r} is a preset, not an environment: write dcp.train(dcp.presets.preset_config({what!r}))"
            )
        env = {"env": what} if isinstance(what, str) else {}
        base = vars(what) if isinstance(what, Config) else {}
        return algorithm_of(Config.from_dict({**base, **env, **settings}))
    elif isinstance(what, Environment):
        algorithm = Algorithm(what, config=Config.from_dict(settings))
    else:
        raise UserError(f"dcp.train takes an Algorithm, a Config or an environment, not a {type(what).__name__}")
    check_algorithm(algorithm)
    return on_devices(algorithm)


def algorithm_of(config: Config) -> Algorithm:
    """Check the config, and return its algorithm on this machine's devices."""
    check(config)
    devices.prepare(config.devices, env_of(config).spec)  # before JAX starts
    return on_devices(make_algorithm(config))


def _with_settings(algorithm: Algorithm, settings: dict[str, Any]) -> Algorithm:
    """Return the algorithm with other settings; refuse those that its environments and parts have decided."""
    config = Config.from_dict({**vars(algorithm.config), **settings})
    for name in sorted(algorithm.decided):
        asked, has = getattr(config, name), getattr(algorithm.config, name)
        if asked != has:
            raise UserError(
                f"{name} {shown(asked)} comes too late for this algorithm, which is made with {shown(has)}: give it to "
                "dcp.Algorithm, or give dcp.train a Config"
            )
    return replace(algorithm, config=config)


@dataclass
class _Session(Callback):
    """Train a run without a folder: show it, call `on_eval`, and stop it when a signal asks for that."""

    config: Config  # of the run, with its planned budget
    algorithm: Algorithm
    on_eval: OnEval | None
    kind: DisplayKind
    stop: StopRequest

    def train(self) -> TrainedRun:
        """Train to the last evaluation."""
        path, points = self.path, evaluation_points(self.config, self.earlier)  # after these iterations
        with self.reporting(), make_display(self.kind, self.config, path) as self.display:
            self.stop.notice = self.display.stopping
            if not self.is_exact:
                self.display.note(f"{self.config.env} {NOT_EXACT}")
            programs = Programs(self.algorithm, donate=self.is_exact)  # a run whose workers fail is still there
            try:
                run, host = self.begin(programs, points)
                self.display.joined([self.config.seed], host.unrolls, len(host.rows))
                run = train_loop(programs, self.config, points, run, host, self)
            except Exception as error:
                if fault := worker_error_in(error):
                    self.worker_failed()
                    raise fault from None
                raise
        return TrainedRun(path, host.rows, self.algorithm.policy(run), run)

    @property
    def path(self) -> Path | None:
        return None

    @property
    def is_exact(self) -> bool:
        """Return whether the run's arrays hold all of it."""
        return is_exact(self.algorithm.env)

    def worker_failed(self) -> None:
        """Keep what can be kept of a run whose simulations have failed."""

    @property
    def earlier(self) -> tuple[Budget, ...]:
        return ()

    def reporting(self) -> AbstractContextManager[None]:
        return nullcontext()

    def begin(self, programs: Programs, points: list[int]) -> tuple[RunState, HostState]:
        return require_sound_start(programs.init(), self.config), HostState()

    def unrolled(self, host: HostState) -> None:
        filled = host.unrolls > self.config.num_prefill_unrolls
        self.display.progress(Progress(host.unrolls, host.metrics[-1:] if filled else None))

    def evaluated(self, run: RunState, row: Row) -> None:
        self.display.evaluated([row])
        if self.on_eval is not None:
            self.on_eval(Evaluation(row, run))

    def boundary(self, run: RunState, host: HostState) -> None:
        if self.stop.signal is not None and len(host.rows) < self.config.num_evals:
            raise KeyboardInterrupt(self.stop.signal.name)


@dataclass
class FolderSession(_Session):
    """Train a run into its folder, with checkpoints."""

    folder: RunFolder
    cadence: Cadence

    def __post_init__(self) -> None:
        self.timer = CheckpointTimer(self.cadence, self.config.num_evals)
        self.latest: tuple[RunState, HostState] | None = None  # where a run could be saved that cannot go on

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def earlier(self) -> tuple[Budget, ...]:
        return self.folder.earlier

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Say in a sentence what ended the run, keep what can be kept, and leave no folder locked."""
        folder = self.folder
        try:
            with closing(folder):
                yield
        except BaseException as error:
            from dcp.runs.run_status import why_it_ended

            reason = why_it_ended(error, folder)
            folder.leave()
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted(folder.path, len(folder.rows), folder.saver.last) from None
            if reason:
                raise RunError(reason) from error
            raise
        finally:
            folder.lock.release()

    def begin(self, programs: Programs, points: list[int]) -> tuple[RunState, HostState]:
        """Load the newest checkpoint, or start the run; open the run's files."""
        checkpoint = None
        if self.folder.resumed:
            from dcp.runs.run_status import load_latest

            checkpoint = load_latest(self.folder, programs.shapes(), points, self.display.note)
        self.folder.begin(checkpoint[1].rows if checkpoint else [], self.display.note)
        if checkpoint is None:
            return super().begin(programs, points)
        run = programs.place(checkpoint[0])
        return run if self.is_exact else restarted(run), checkpoint[1]

    def worker_failed(self) -> None:
        if self.latest is not None:
            self.folder.saver.save(*self.latest)
            self.folder.saver.wait()

    def evaluated(self, run: RunState, row: Row) -> None:
        self.folder.add(self.algorithm.policy(run), row)
        super().evaluated(run, row)

    def boundary(self, run: RunState, host: HostState) -> None:
        """Save a checkpoint when one is due, and stop after one if a signal asks for it."""
        stopping = self.stop.signal is not None and not self.timer.is_last(host)
        saver = self.folder.saver
        self.folder.lock.require()
        saver.check()
        self.latest = None if self.is_exact else (run, host)
        if stopping or self.timer.is_due(host):
            saver.save(run, host)
            self.timer.saved()
        if stopping or self.timer.is_last(host):
            saver.wait()
        super().boundary(run, host)
