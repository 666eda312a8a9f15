"""`dcp.train` and `dcp.resume`: train a config into a run folder, and resume stopped runs."""

import signal
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dcp.algorithm import Algorithm, RunState, make_algorithm
from dcp.components import shown
from dcp.config import Config
from dcp.envs.base import Environment
from dcp.envs.registry import ENVIRONMENTS, env_of
from dcp.errors import RunError, UserError
from dcp.loop import Callback, Evaluation, HostState, OnEval, Row, require_sound_start, train_loop
from dcp.machine import compiling, devices
from dcp.machine.checks import check, check_algorithm
from dcp.machine.programs import Programs, on_devices
from dcp.presets import PRESETS
from dcp.runs import checkpoint
from dcp.runs.checkpoint import Cadence, CheckpointTimer, Saver
from dcp.runs.display import Display, DisplayKind, Progress, make_display
from dcp.runs.folder import RunFolder, claim, reopen
from dcp.runs.run_status import budget_to_resume_with, evaluation_points, holds_run, require_named
from dcp.runs.sinks import Results, TrainedRun
from dcp.runs.stopping import Interrupted, StopRequest, explained
from dcp.runs.tracking import Tracking


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
    tracking = tracking or Tracking(tensorboard=tensorboard, wandb=wandb)
    tracking.require()
    algorithm = _algorithm(what, settings)
    if runs_dir is None:
        with StopRequest() as stop:
            return _train(algorithm, None, on_eval, display, Cadence(0, 0), stop)
    path = Path(runs_dir) / algorithm.config.run_path
    if resume and holds_run(path):
        outputs: dict[str, Any] = {"tracking": tracking, "keep_policies": keep_policies}
        outputs |= {"display": display, "cadence": cadence}
        steps = budget_to_resume_with(path, algorithm.config)
        return _resume(path, on_eval, steps=steps, algorithm=algorithm, cache=cache, **outputs)
    with StopRequest() as stop:  # from the moment that there is a folder
        results = Results(claim(runs_dir, algorithm.config, overwrite), False, tracking, keep_policies)
        return _train(algorithm, results, on_eval, display, cadence, stop)


def resume(
    run: str | Path,
    on_eval: OnEval | None = None,
    *,
    steps: int | None = None,
    algorithm: Algorithm | None = None,
    code: Collection[str] = (),
    tensorboard: bool = False,
    wandb: bool = False,
    tracking: Tracking | None = None,
    keep_policies: bool = False,
    display: DisplayKind = "auto",
    cache: str | Path | None = None,
    cadence: Cadence = Cadence(),  # noqa: B008
) -> TrainedRun:
    """Resume the run in this folder as if it had never stopped; with `steps`, train it longer than planned.

    A run without a checkpoint starts again: its config decides every number, so the result is the same.
    `code`: a run folder may name parts or environments as module:name; list those that you allow.
    `algorithm`: the one that started the run, if its environment or its parts have no names; others are refused.
    """
    compiling.enable_cache(cache)
    tracking = tracking or Tracking(tensorboard=tensorboard, wandb=wandb)
    tracking.require()
    with StopRequest() as stop:
        folder = reopen(run, steps)
        try:
            if algorithm is None:
                require_named(folder.config, code)
                algorithm = _from_config(folder.config)
            else:
                algorithm = _require_same_algorithm(algorithm, folder)
        except BaseException:
            folder.lock.release()
            raise
        results = Results(folder, True, tracking, keep_policies)
        return _train(algorithm, results, on_eval, display, cadence, stop)


_resume = resume  # `train` has an argument of that name


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
        return _from_config(Config.from_dict({**base, **env, **settings}))
    elif isinstance(what, Environment):
        algorithm = Algorithm(what, config=Config.from_dict(settings))
    else:
        raise UserError(f"dcp.train takes an Algorithm, a Config or an environment, not a {type(what).__name__}")
    check_algorithm(algorithm)
    return on_devices(algorithm)


def _from_config(config: Config) -> Algorithm:
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


def _require_same_algorithm(algorithm: Algorithm, folder: RunFolder) -> Algorithm:
    """Return the algorithm with the run's config; refuse one with other environments or parts than the run's."""
    same = replace(algorithm, config=folder.config)  # its config now names its own parts, if they are others
    has = {name: getattr(same.config, name) for name in algorithm.decided | same.decided}
    has |= {name: getattr(algorithm.config, name) for name in ("env", "eval_env", "fidelity", "randomize")}
    stored = {name: getattr(folder.config, name) for name in sorted(has)}
    names = [name for name in stored if has[name] != stored[name]]
    names = [name for name in names if stored[name] not in (None, {})] or names  # None: as the method has it
    if names:
        differences = (f"{name} {shown(stored[name])} where the algorithm has {shown(has[name])}" for name in names)
        raise UserError(f"{folder.path} was begun with {', '.join(differences)}: give the algorithm that began the run")
    return same


def _train(
    algorithm: Algorithm,
    results: Results | None,
    on_eval: OnEval | None,
    display: DisplayKind,
    cadence: Cadence,
    stop: StopRequest,
) -> TrainedRun:
    """Train the algorithm, into the folder of the results if there are any. After an error, no folder stays locked."""
    config = algorithm.config if results is None else results.folder.config
    earlier = () if results is None else results.folder.earlier
    points = evaluation_points(config, earlier)
    session = _Session(config, algorithm, results, on_eval, CheckpointTimer(cadence, len(points)), stop)
    try:
        with ExitStack() as stack:
            folder = None
            if results is not None:
                folder = results.folder.path
                session.saver = Saver(results.folder.checkpoints, config, results.folder.lock.is_held)
                stack.callback(session.saver.close)
                stack.callback(results.close)
            session.display = stack.enter_context(make_display(display, config, folder))
            stop.notice = session.display.stopping
            programs = Programs(algorithm)
            run, host = session.begin(programs, points)
            session.display.joined([config.seed], host.unrolls, len(host.rows))
            run = train_loop(programs, config, points, run, host, session)
            if session.saver is not None:
                session.saver.wait()
            folder = None if results is None else results.folder.path
            return TrainedRun(folder, host.rows, algorithm.policy(run), run)
    except BaseException as error:
        replacement = session.on_early_exit(error)
        if replacement is error:
            raise
        raise replacement from (None if isinstance(error, KeyboardInterrupt) else error)
    finally:
        if results is not None:
            results.folder.lock.release()


@dataclass
class _Session(Callback):
    """Connect the loop to a run's folder, its checkpoints, the display and the user's signals."""

    config: Config
    algorithm: Algorithm
    results: Results | None
    on_eval: OnEval | None
    timer: CheckpointTimer
    stop: StopRequest
    saver: Saver | None = None
    display: Display = None  # pyright: ignore[reportAssignmentType]

    def begin(self, programs: Programs, points: list[int]) -> tuple[RunState, HostState]:
        """Load the newest checkpoint, or start the run; open the run's files."""
        checkpointed = None
        if self.results is not None and self.saver is not None:
            path = self.results.folder.path
            if self.results.resumed:
                shapes = programs.shapes()
                checkpointed = checkpoint.load_latest(path, self.config, shapes, self.saver, self.display.note)
            if checkpointed is not None:
                checkpoint.require_planned(checkpointed[1], self.config, points, path)
            self.results.begin(checkpointed[1].rows if checkpointed else [])
        if checkpointed is not None:
            return programs.place(checkpointed[0]), checkpointed[1]
        return require_sound_start(programs.init(), self.config), HostState()

    def unrolled(self, host: HostState) -> None:
        filled = host.unrolls > self.config.num_prefill_unrolls
        self.display.progress(Progress(host.unrolls, host.metrics[-1:] if filled else None))

    def evaluated(self, run: RunState, row: Row) -> None:
        if self.results is not None:
            self.results.add(self.algorithm.policy(run), row)
        self.display.evaluated([row])
        if self.on_eval is not None:
            self.on_eval(Evaluation(row, run))

    def boundary(self, run: RunState, host: HostState) -> None:
        """Save a checkpoint when one is due, and stop after one if a signal asks for it."""
        stopping = self.stop.signal is not None and not self.timer.is_last(host)
        if self.saver is not None and self.results is not None:
            self.results.folder.lock.require()
            self.saver.check()
            if stopping or self.timer.is_due(host):
                self.saver.save(run, host)
                self.timer.saved()
            if stopping:
                self.saver.wait()
        if stopping:
            raise KeyboardInterrupt(signal.Signals(self.stop.signal or 0).name)

    def on_early_exit(self, error: BaseException) -> BaseException:
        """Return what to raise after the run ended early, and remove a folder that holds no result."""
        if self.results is None:
            return error
        last = None if self.saver is None else self.saver.last
        reason = explained(error, self.results.folder, last)
        self.results.leave(last)
        if isinstance(error, KeyboardInterrupt):
            return Interrupted(self.results.folder.path, len(self.results.rows), last)
        return RunError(reason) if reason else error
