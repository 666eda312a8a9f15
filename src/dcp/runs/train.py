"""A run, or several seeds, from config to folder: check, train, evaluate, write down; and resume."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from dcp import compiling, hosts
from dcp.algorithm import Algorithm, Programs, RunState, make_algorithm
from dcp.checks import check
from dcp.config import Config, Settings
from dcp.errors import RunError
from dcp.policies.policy import DeployedPolicy
from dcp.runs import checkpoint, sinks
from dcp.runs.checkpoint import Moment, Saver, latest_moment
from dcp.runs.display import Display, DisplayKind, Progress, SeedsDisplay, make_display, make_seeds_display
from dcp.runs.folder import RunFolder, claim, reopen
from dcp.runs.loop import (
    Cadence,
    Evaluation,
    Group,
    GroupLock,
    GroupSaver,
    Keeper,
    Member,
    Row,
    begin,
    run_loop,
    run_seeds,
)
from dcp.runs.multihost import convene, pieces, spread, start
from dcp.runs.run_status import Budget, evaluation_points, holds_run, read_plan, require_named, steps_to_go_on_with
from dcp.runs.seeds import SeedStages, in_one_program, require_memory, require_seeds, require_whole
from dcp.runs.sinks import Results, TrainedRun
from dcp.runs.stopping import Interrupted, NotFiniteError, StopRequest, explained

OnEval = Callable[[Evaluation], None]


def train(
    config: Config,
    on_eval: OnEval | None = None,
    *,
    runs_dir: str | Path = "runs",
    overwrite: bool = False,
    tensorboard: bool = False,
    wandb: bool = False,
    display: DisplayKind = "auto",
    cache: str | Path | None = None,
    cadence: Cadence = Cadence(),  # noqa: B008
) -> TrainedRun:
    """Train and write `<runs_dir>/<env>/<method>/seed_<n>/`.

    `on_eval` is called after each evaluation; its `run` is valid within the call only (its buffers are reused).
    `cache` is a folder for compiled programs, or "off"; see `dcp.compiling`. `cadence`: when to checkpoint.
    With several hosts (`dcp.hosts.join`) each calls this; what host 0 was given counts, and it alone writes.
    """
    if not hosts.is_first():
        return follow(cache)
    compiling.enable_cache(cache)
    convene(config)
    check(config)
    sinks.require(tensorboard, wandb)
    trainer = make_algorithm(config)
    folder = claim(runs_dir, trainer.config, overwrite)
    return _Session(trainer, Results(folder, False, tensorboard, wandb), on_eval, display, cadence).run()


def resume(
    run: str | Path,
    on_eval: OnEval | None = None,
    *,
    steps: int | None = None,
    env: str | None = None,
    eval_env: str | None = None,
    tensorboard: bool = False,
    wandb: bool = False,
    display: DisplayKind = "auto",
    cache: str | Path | None = None,
    cadence: Cadence = Cadence(),  # noqa: B008
) -> TrainedRun:
    """Continue the run in this folder as if it had never stopped; with `steps`, train it longer than was planned.

    A run without a checkpoint begins again: its config decides every number, so that too ends as it would have.
    `env`, `eval_env`: a run folder that names an environment as module:factory names code; name it too, to allow it.
    """
    if not hosts.is_first():
        return follow(cache)
    compiling.enable_cache(cache)
    sinks.require(tensorboard, wandb)
    folder = reopen(run, steps)
    try:
        convene(folder.config)
        require_named(folder.config, {"env": env, "eval-env": eval_env})
        check(folder.config)
        trainer = make_algorithm(folder.config)
    except BaseException:
        folder.lock.release()
        raise
    return _Session(trainer, Results(folder, True, tensorboard, wandb), on_eval, display, cadence).run()


@dataclass
class _Session:
    """One process's part of a run."""

    trainer: Algorithm
    results: Results
    on_eval: OnEval | None
    display: DisplayKind
    cadence: Cadence

    def run(self) -> TrainedRun:
        folder, results = self.results.folder, self.results
        saver = Saver(folder.checkpoints, folder.config)
        announce(folder)
        try:
            with ExitStack() as stack:
                stack.callback(saver.close)
                stack.callback(results.close)
                shown = stack.enter_context(make_display(self.display, self.trainer.config, folder.path))
                stop = stack.enter_context(StopRequest(shown.stopping))
                points = evaluation_points(self.trainer.config, folder.earlier)
                keeper = Keeper(saver, folder.lock, self.cadence, stop, len(points))
                state = run_loop(
                    self.trainer,
                    lambda evaluation: self._record(evaluation, shown),
                    shown.progress,
                    keeper,
                    lambda stages: self._start(stages, saver, shown),
                    points,
                )
                saver.wait()
        except BaseException as error:
            fault = explained(error, folder, saver.last)
            results.leave(saver.last)
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted(folder.path, len(results.rows), saver.last) from None
            if fault:
                raise RunError(fault) from error
            raise
        finally:
            folder.lock.release()
        return TrainedRun(folder.path, results.rows, self.trainer.policy(state.learner.params), state)

    def _start(self, stages: Programs, saver: Saver, shown: Display) -> Moment:
        resumed, folder = self.results.resumed, self.results.folder
        moment = latest_moment(folder.path, folder.config, stages, saver, shown.note) if resumed else None
        if moment is not None:
            shown.resumed(moment.unrolls, len(moment.rows))
        elif hosts.count() > 1:
            hosts.tell({"moment": None})
        moment = moment or begin(stages)
        self.results.begin(moment.rows)
        return moment

    def _record(self, evaluation: Evaluation, shown: Display) -> None:
        self.results.add(self.trainer.policy(evaluation.run.learner.params), evaluation.row)
        shown.evaluation(evaluation.row)
        if self.on_eval is not None:
            self.on_eval(evaluation)


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
        trainer = make_algorithm(config)
        try:
            state = run_loop(trainer, lambda e: rows.append(e.row), at_boundary=keeper, start=_joined, points=points)
        except KeyboardInterrupt:
            raise Interrupted(folder, len(rows), attendant.last) from None
    return TrainedRun(folder, rows, trainer.policy(state.learner.params), state)


def _joined(stages: Programs) -> Moment:
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


OnSeedEval = Callable[[int, dict[str, float]], None]  # seed, row


@dataclass(frozen=True)
class SeedRun:
    """One seed's results, all of them in its folder too."""

    seed: int
    folder: Path
    rows: list[dict[str, float]]  # as in metrics.csv: one an evaluation
    policy: DeployedPolicy


class SeedsFaultError(RunError):
    """Some seeds dropped out; `trained` are the others."""

    def __init__(self, faults: Sequence[str], trained: dict[int, SeedRun]):
        others = ", the others are trained" if trained else ""
        count = "1 seed" if len(faults) == 1 else f"{len(faults)} seeds"
        super().__init__(f"{count} dropped out{others}: {'; '.join(faults)}")
        self.trained = trained


def train_seeds(
    config: Config,
    seeds: Sequence[int],
    on_eval: OnSeedEval | None = None,
    *,
    runs_dir: str | Path = "runs",
    overwrite: bool = False,
    resume: bool = False,
    tensorboard: bool = False,
    display: DisplayKind = "auto",
    cache: str | Path | None = None,
    cadence: Cadence = Cadence(),  # noqa: B008
) -> dict[int, SeedRun]:
    """Train these seeds as one program; `config.seed` is not used. -> the runs that were trained here, by seed.

    Each seed's results are those that it would have alone, but for the order of floating-point sums, in an ordinary
    run folder. `steps_per_second` of a seed are its own steps by the time that all took together, `wall_seconds` the
    whole time in which it took part: the speed of all is the sum, the time is shared.

    With `resume`, finished seeds are left as they are and others go on from their checkpoints. Where these stand at
    different points, the ones that are behind go first, and the others join as they catch up.

    A seed whose loss is not finite drops out with a fault.json, and the others go on; `SeedsFaultError` tells it then.
    """
    compiling.enable_cache(cache)
    seeds = tuple(seeds)
    require_seeds(seeds)
    config = in_one_program(replace(config, seed=seeds[0]), len(seeds))
    check(config)
    require_memory(config, len(seeds))
    sinks.require(tensorboard, wandb=False)
    config = make_algorithm(config).config  # resolved
    runs = _begin(config, seeds, Path(runs_dir), overwrite, resume, tensorboard)
    session = Session(display, cadence, on_eval or (lambda seed, row: None))
    trained = session.run(runs)
    done = {seed: SeedRun(seed, run.folder.path, run.rows, policy) for seed, run, policy in trained}
    if session.faults:
        raise SeedsFaultError(session.faults, done)
    return done


def _begin(
    config: Config, seeds: Sequence[int], runs_dir: Path, overwrite: bool, resume: bool, tensorboard: bool
) -> list[Results]:
    """Those that are to be trained, each with its folder locked; all of them or, after an error, none."""
    with ExitStack() as undo:
        runs = []
        for seed in seeds:
            mine = replace(config, seed=seed)
            path = runs_dir / mine.run_path
            if resume and holds_run(path):
                require_whole(path, read_plan(path)[0])
                require_named(mine, {"env": config.env, "eval-env": config.eval_env})
                if (steps := steps_to_go_on_with(path, mine)) is None:
                    continue
                folder = reopen(path, steps)
                undo.callback(folder.lock.release)
                runs.append(Results(folder, resumed=True, tensorboard=tensorboard))
            else:
                folder = claim(runs_dir, mine, overwrite)
                undo.callback(folder.discard)
                runs.append(Results(folder, resumed=False, tensorboard=tensorboard))
        undo.pop_all()
    return runs


class SeedsInterrupted(Interrupted):
    """Stopped by a signal. `folder`, `evaluations` and `env_steps` are those of the seed whose checkpoint is behind."""

    def __init__(self, stops: Sequence[Interrupted]):
        there = [stop for stop in stops if stop.env_steps is not None] or stops
        behind = min(there, key=lambda stop: stop.env_steps or 0)
        super().__init__(behind.folder, behind.evaluations, behind.env_steps)
        self.stops = tuple(stops)


@dataclass
class Session:
    display: DisplayKind
    cadence: Cadence
    on_eval: Callable[[int, Row], None]
    faults: list[str] = field(default_factory=list)
    _members: list[Member] = field(default_factory=list)
    _dropped: list[Member] = field(default_factory=list)
    _trained: list[tuple[int, Results, DeployedPolicy]] = field(default_factory=list)

    def run(self, runs: Sequence[Results]) -> list[tuple[int, Results, DeployedPolicy]]:
        """-> what was trained to its end"""
        if not runs:
            return []
        first = runs[0].folder
        self._members = [Member(run, Saver(run.folder.checkpoints, run.folder.config)) for run in runs]
        try:
            with ExitStack() as stack:
                for member in self._members:
                    stack.callback(member.saver.close)
                    stack.callback(member.results.close)
                shown = stack.enter_context(make_seeds_display(self.display, first.config, first.path))
                stop = stack.enter_context(StopRequest(shown.stopping))
                for lane in _lanes(self._members):
                    self._train(lane, shown, stop)
        except BaseException as error:
            told = self._left(error)
            if told is error:
                raise
            raise told from (None if isinstance(error, KeyboardInterrupt) else error)
        finally:
            for member in self._members:
                member.results.folder.lock.release()
        return self._trained

    def _train(self, lane: list[Member], shown: SeedsDisplay, stop: StopRequest) -> None:
        folder = lane[0].results.folder
        trainer = make_algorithm(folder.config)
        for member in lane:
            self._start(member, trainer, shown)
        group = Group(SeedStages(trainer))
        points = evaluation_points(folder.config, folder.earlier)
        keeper = Keeper(cast(Any, GroupSaver(group)), cast(Any, GroupLock(group)), self.cadence, stop, len(points))
        run_seeds(group, lane, points, _Watcher(self, shown), cast(Any, keeper))
        for place, member in enumerate(group.members):
            member.saver.wait()
            self._trained.append((member.seed, member.results, group.policy_of(place)))

    def _start(self, member: Member, trainer: Algorithm, shown: SeedsDisplay) -> None:
        results = member.results
        if results.resumed:
            path, config = results.folder.path, results.folder.config
            stages = _OnHost(replace(trainer, config=config))
            member.moment = latest_moment(path, config, stages, member.saver, shown.note) or member.moment
        results.begin(member.moment.rows)

    def drop(self, member: Member, error: NotFiniteError) -> str:
        """-> what happened, in one sentence"""
        member.saver.close()  # what was begun is whole then
        fault = explained(error, member.results.folder, member.saver.last)
        self.faults.append(f"seed {member.seed}: {fault}")
        self._dropped.append(member)
        return self.faults[-1]

    def _left(self, error: BaseException) -> BaseException:
        """After an end before the end: what to raise. A folder in which there is nothing to keep goes."""
        reasons = (explained(error, member.results.folder, member.saver.last) for member in self._members)
        fault = next((reason for reason in reasons if reason), None)
        stops = [
            Interrupted(member.results.folder.path, len(member.results.rows), member.saver.last)
            for member in self._members
            if member not in self._dropped
        ]
        for member in self._members:
            member.results.leave(member.saver.last)
        if isinstance(error, KeyboardInterrupt):
            return SeedsInterrupted(stops)  # of at least one: else nothing would have run
        return RunError(fault) if fault else error


class _Watcher:
    """What happens to a group goes into the folders, and to the display."""

    def __init__(self, session: Session, shown: SeedsDisplay):
        self._session, self._shown = session, shown

    def joined(self, group: Group) -> None:
        self._shown.joined(group.seeds, *group.position)

    def progress(self, group: Group, progress: Progress) -> None:
        self._shown.progress(progress)

    def evaluated(self, group: Group, rows: list[Row]) -> None:
        for place, (member, row) in enumerate(zip(group.members, rows, strict=True)):
            member.results.add(group.policy_of(place), row)
        self._shown.evaluated(rows)
        for member, row in zip(group.members, rows, strict=True):
            self._session.on_eval(member.seed, row)

    def dropped(self, group: Group, member: Member, error: NotFiniteError) -> None:
        self._shown.note(f"{self._session.drop(member, error)}{'. The others go on.' if group.members else ''}")
        if group.members:
            self._shown.joined(group.seeds, *group.position)


class _OnHost(Programs):
    """A checkpoint's arrays stay on the host: seeds are put together before they go to the device."""

    def place(self, run: RunState) -> RunState:
        return run


def _lanes(members: Sequence[Member]) -> list[list[Member]]:
    """Seeds that can ever go on together: of one and the same plan. Others train one after another."""

    def plan(member: Member) -> str:
        folder = member.results.folder
        return f"{replace(folder.config, seed=0)} {folder.earlier}"

    return [list(lane) for _, lane in groupby(sorted(members, key=plan), plan)]
