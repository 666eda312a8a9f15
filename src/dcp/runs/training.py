"""`dcp.train`, `dcp.resume` and `dcp.train_seeds`: train a config into run folders, and resume stopped runs."""

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from dcp import compiling, hosts
from dcp.algorithm import Algorithm, RunState, make_algorithm
from dcp.checks import check, check_algorithm
from dcp.components import shown
from dcp.config import Config, Settings
from dcp.envs.base import Environment
from dcp.envs.registry import ENVIRONMENTS
from dcp.errors import RunError, UserError
from dcp.policies.policy import DeployedPolicy
from dcp.presets import PRESETS
from dcp.runs import checkpoint, sinks
from dcp.runs.checkpoint import Row, Saver
from dcp.runs.display import Display, DisplayKind, Progress, make_display
from dcp.runs.folder import RunFolder, claim, reopen
from dcp.runs.loop import Cadence, Checkpointer, Evaluation, Group, Member, OneRun, Watcher, run_loop
from dcp.runs.multihost import start_host, start_hosts
from dcp.runs.run_status import Budget, budget_to_resume_with, evaluation_points, holds_run, read_plan, require_named
from dcp.runs.seeds import SeedPrograms, in_one_program, require_memory, require_seeds, require_whole
from dcp.runs.sinks import Results, TrainedRun
from dcp.runs.stopping import Interrupted, NotFiniteError, SeedsInterrupted, StopRequest, explained

OnEval = Callable[[Evaluation], None]
OnSeedEval = Callable[[int, Row], None]  # seed, row


def train(
    what: Algorithm | Config | Environment | str | None = None,
    on_eval: OnEval | None = None,
    *,
    runs_dir: str | Path | None = "runs",
    overwrite: bool = False,
    resume: bool = False,
    tensorboard: bool = False,
    wandb: bool = False,
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
    `cache` is a folder for compiled programs, or "off"; see `dcp.compiling`.
    With several hosts (`dcp.hosts.join`) each calls this; host 0's arguments count, and only host 0 writes.
    """
    if not hosts.is_first():
        return follow(cache, what.code.values() if isinstance(what, Config) else ())
    compiling.enable_cache(cache)
    sinks.require(tensorboard, wandb)
    algorithm = _algorithm(what, settings)
    if runs_dir is None:
        return _train_in_memory(algorithm, on_eval, display)
    path = Path(runs_dir) / algorithm.config.run_path
    if resume and holds_run(path):
        outputs: dict[str, Any] = {"tensorboard": tensorboard, "wandb": wandb, "keep_policies": keep_policies}
        outputs |= {"display": display, "cadence": cadence}
        steps = budget_to_resume_with(path, algorithm.config)
        return _resume(path, on_eval, steps=steps, algorithm=algorithm, cache=cache, **outputs)
    results = Results(claim(runs_dir, algorithm.config, overwrite), False, tensorboard, wandb, keep_policies)
    session = _session_of_one(algorithm, results.folder, on_eval, display, cadence)
    ((_, policy),) = session.train([results])
    return TrainedRun(results.folder.path, results.rows, policy, session.state)


def _algorithm(what: Algorithm | Config | Environment | str | None, settings: dict[str, Any]) -> Algorithm:
    if hosts.count() > 1 and not isinstance(what, Config | str | None):
        raise UserError("several hosts tell each other names, not objects: give dcp.train a Config")
    if isinstance(what, Algorithm):
        algorithm = _with_settings(what, settings) if settings else what
        check_algorithm(algorithm)
        return algorithm
    if what is None or isinstance(what, Config | str):
        if isinstance(what, str) and what in PRESETS and what not in ENVIRONMENTS:
            raise UserError(
                f"{what!r} is a preset, not an environment: write dcp.train(dcp.presets.preset_config({what!r}))"
            )
        named = {"env": what} if isinstance(what, str) else {}
        base = vars(what) if isinstance(what, Config) else {}
        config = Config.from_dict({**base, **named, **settings}) if base or named or settings else Config()
        start_hosts(config)
        check(config)
        return make_algorithm(config)
    if not isinstance(what, Environment):
        raise UserError(f"dcp.train takes an Algorithm, a Config or an environment, not a {type(what).__name__}")
    algorithm = Algorithm(what, config=Config.from_dict(settings))
    check_algorithm(algorithm)
    return algorithm


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


def _train_in_memory(algorithm: Algorithm, on_eval: OnEval | None, display: DisplayKind) -> TrainedRun:
    """Train without a folder, checkpoints or files, and return the result."""
    config = algorithm.config
    member = Member(config, Saver(None, config))
    with ExitStack() as stack:
        stack.callback(member.saver.close)
        watcher = _InMemory(stack.enter_context(make_display(display, config, None)), on_eval)
        stop = stack.enter_context(StopRequest(watcher.display.stopping))
        group = Group(OneRun(algorithm), evaluation_points(config), watcher)
        run_loop(group, [member], Checkpointer(Cadence(0, 0), stop))
        return TrainedRun(None, member.moment.rows, group.policy_of(0), group.run)


@dataclass
class _InMemory(Watcher):
    display: Display
    on_eval: OnEval | None

    def joined(self, group: Group) -> None:
        self.display.joined(group.seeds, *group.position)

    def progress(self, progress: Progress) -> None:
        self.display.progress(progress)

    def evaluated(self, group: Group, rows: list[Row]) -> None:
        self.display.evaluated(rows)
        if self.on_eval is not None:
            self.on_eval(Evaluation(rows[0], group.run))


def resume(
    run: str | Path,
    on_eval: OnEval | None = None,
    *,
    steps: int | None = None,
    algorithm: Algorithm | None = None,
    code: Collection[str] = (),
    tensorboard: bool = False,
    wandb: bool = False,
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
    if not hosts.is_first():
        return follow(cache, code)
    compiling.enable_cache(cache)
    sinks.require(tensorboard, wandb)
    folder = reopen(run, steps)
    try:
        start_hosts(folder.config)
        if algorithm is None:
            require_named(folder.config, code)
            check(folder.config)
            algorithm = make_algorithm(folder.config)
        else:
            algorithm = _that_began(algorithm, folder)
    except BaseException:
        folder.lock.release()
        raise
    results = Results(folder, True, tensorboard, wandb, keep_policies)
    session = _session_of_one(algorithm, folder, on_eval, display, cadence)
    ((_, policy),) = session.train([results])
    return TrainedRun(folder.path, results.rows, policy, session.state)


def _that_began(algorithm: Algorithm, folder: RunFolder) -> Algorithm:
    """Return the algorithm with the run's config; refuse one with other environments or parts than the run's."""
    same = replace(algorithm, config=folder.config)  # its config now names its own parts, if they are others
    has = {name: getattr(same.config, name) for name in algorithm.decided | same.decided}
    has |= {name: getattr(algorithm.config, name) for name in ("env", "eval_env", "fidelity", "randomize")}
    stored = {name: getattr(folder.config, name) for name in sorted(has)}
    names = [name for name in stored if has[name] != stored[name]]
    names = [name for name in names if stored[name] not in (None, {})] or names  # None: as the method has it
    if names:
        told = (f"{name} {shown(stored[name])} where the algorithm has {shown(has[name])}" for name in names)
        raise UserError(f"{folder.path} was begun with {', '.join(told)}: give the algorithm that began the run")
    return same


_resume = resume  # `train` has an argument of that name


def _session_of_one(
    algorithm: Algorithm, folder: RunFolder, on_eval: OnEval | None, display: DisplayKind, cadence: Cadence
) -> "_Session":
    """Make the session of a single run, and tell the other hosts about it."""
    if hosts.count() > 1:
        budgets = [asdict(budget) for budget in folder.earlier]
        hosts.send({"config": asdict(folder.config), "earlier": budgets, "folder": str(folder.path)})
    session = _Session(lambda config: OneRun(algorithm), display, cadence)
    if on_eval is not None:
        session.on_eval = lambda member, row, run: on_eval(Evaluation(row, run))
    return session


def follow(cache: str | Path | None = None, code: Collection[str] = ()) -> TrainedRun:
    """Take part in host 0's run, on every other host: run the same programs in the same order, write nothing.

    `code`: the parts and environments, as module:name, that host 0 may name; this host's command names them too.
    """
    compiling.enable_cache(cache)
    settings = Settings(**hosts.receive())
    require_named(settings, code)
    start_host(settings)
    told = hosts.receive()
    require_named(Settings(**told["config"]), code)
    config, folder = Config.from_dict(told["config"]), Path(told["folder"])
    points = evaluation_points(config, tuple(Budget(**budget) for budget in told["earlier"]))
    member = Member(config, Saver(None, config))
    with StopRequest() as stop:
        group = Group(OneRun(make_algorithm(config)), points)
        try:
            member.run, member.moment = checkpoint.receive(group.programs.shapes())
            run_loop(group, [member], Checkpointer(Cadence(0, 0), stop))
        except KeyboardInterrupt:
            raise Interrupted(folder, len(member.moment.rows), member.saver.last) from None
    return TrainedRun(folder, member.moment.rows, group.policy_of(0), group.run)


@dataclass(frozen=True)
class SeedRun:
    """Hold one seed's results, all of which are also in its folder."""

    seed: int
    folder: Path
    rows: list[Row]  # as in metrics.csv: one per evaluation
    policy: DeployedPolicy


class SeedsFaultError(RunError):
    """Report that some seeds dropped out; `trained` holds the others."""

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
    keep_policies: bool = False,
    display: DisplayKind = "auto",
    cache: str | Path | None = None,
    cadence: Cadence = Cadence(),  # noqa: B008
) -> dict[int, SeedRun]:
    """Train these seeds as one program; `config.seed` is not used. -> the runs that were trained here, by seed

    Each seed has an ordinary run folder with the results that it would have alone, except for the order of
    floating-point sums. A seed's `steps_per_second` counts its own steps over the time that all took together, so the
    total speed is the sum; its `wall_seconds` is the whole time in which it took part.

    With `resume`, finished seeds stay as they are and others resume from their checkpoints. If these are at different
    points, the seeds that are behind train first, and the others join when they have caught up.

    A seed whose loss is not finite drops out with a fault.json, and the others continue: see `SeedsFaultError`.
    """
    compiling.enable_cache(cache)
    seeds = tuple(seeds)
    require_seeds(seeds)
    config = in_one_program(replace(config, seed=seeds[0]), len(seeds))
    check(config)
    require_memory(config, len(seeds))
    sinks.require(tensorboard, wandb=False)
    config = make_algorithm(config).config  # resolved
    outputs: dict[str, Any] = {"tensorboard": tensorboard, "keep_policies": keep_policies}
    runs = _open_folders(config, seeds, Path(runs_dir), overwrite, resume, outputs)
    session = _Session(lambda config: SeedPrograms(make_algorithm(config)), display, cadence, several=True)
    if on_eval is not None:
        session.on_eval = lambda member, row, run: on_eval(member.config.seed, row)
    trained = {
        results.folder.config.seed: SeedRun(results.folder.config.seed, results.folder.path, results.rows, policy)
        for results, policy in session.train(runs)
    }
    if session.faults:
        raise SeedsFaultError(session.faults, trained)
    return trained


def _open_folders(
    config: Config, seeds: Sequence[int], runs_dir: Path, overwrite: bool, resume: bool, outputs: dict[str, Any]
) -> list[Results]:
    """Lock the folders of the runs to train and return these runs; after an error, none stays locked."""
    with ExitStack() as undo:
        runs = []
        for seed in seeds:
            mine = replace(config, seed=seed)
            path = runs_dir / mine.run_path
            if resume and holds_run(path):
                require_whole(path, read_plan(path)[0])
                require_named(read_plan(path)[0], config.code.values())
                if (steps := budget_to_resume_with(path, mine)) is None:
                    continue
                folder = reopen(path, steps)
                undo.callback(folder.lock.release)
                runs.append(Results(folder, resumed=True, **outputs))
            else:
                folder = claim(runs_dir, mine, overwrite)
                undo.callback(folder.discard)
                runs.append(Results(folder, resumed=False, **outputs))
        undo.pop_all()
    return runs


@dataclass
class _Session(Watcher):
    """Train one run or several seeds in this process, and report to their folders and to the display."""

    make_programs: Callable[[Config], OneRun | SeedPrograms]
    kind: DisplayKind
    cadence: Cadence
    several: bool = False
    on_eval: Callable[[Member, Row, RunState], None] = lambda member, row, run: None
    faults: list[str] = field(default_factory=list)  # of seeds that dropped out
    state: RunState = None  # pyright: ignore[reportAssignmentType]  # of the group that was trained last
    _results: dict[Member, Results] = field(default_factory=dict)
    _dropped: list[Member] = field(default_factory=list)
    _display: Display = field(default_factory=Display)

    def train(self, runs: Sequence[Results]) -> list[tuple[Results, DeployedPolicy]]:
        """Train the runs. -> those that were trained to the end"""
        if not runs:
            return []
        first, trained = runs[0].folder, []
        for run in runs:
            folder = run.folder
            saver = Saver(folder.checkpoints, folder.config, folder.lock.is_held)
            self._results[Member(folder.config, saver, folder.lock)] = run
        try:
            with ExitStack() as stack:
                for member, run in self._results.items():
                    stack.callback(member.saver.close)
                    stack.callback(run.close)
                self._display = stack.enter_context(make_display(self.kind, first.config, first.path, self.several))
                stop = stack.enter_context(StopRequest(self._display.stopping))
                for members in self._by_plan():
                    group = self._start(members)
                    run_loop(group, members, Checkpointer(self.cadence, stop))
                    self.state = group.run
                    for place, member in enumerate(group.members):
                        member.saver.wait()
                        trained.append((self._results[member], group.policy_of(place)))
        except BaseException as error:
            told = self._left(error)
            if told is error:
                raise
            raise told from (None if isinstance(error, KeyboardInterrupt) else error)
        finally:
            for run in runs:
                run.folder.lock.release()
        return trained

    def _by_plan(self) -> list[list[Member]]:
        """Group the runs by plan: only runs with the same plan can train together. Groups train one after another."""

        def plan(member: Member) -> str:
            return f"{replace(member.config, seed=0)} {self._results[member].folder.earlier}"

        return [list(members) for _, members in groupby(sorted(self._results, key=plan), plan)]

    def _start(self, members: list[Member]) -> Group:
        """Load each member's checkpoint and open its files."""
        folder = self._results[members[0]].folder
        group = Group(self.make_programs(folder.config), evaluation_points(folder.config, folder.earlier), self)
        for member in members:
            results, found = self._results[member], None
            if results.resumed:
                path, shapes = results.folder.path, group.programs.shapes()
                found = checkpoint.load_latest(path, member.config, shapes, member.saver, self._display.note)
            if found is not None:
                member.run, member.moment = found
                checkpoint.require_planned(member.moment, member.config, group.points, results.folder.path)
            elif hosts.count() > 1:
                hosts.send({"moment": None})
            results.begin(member.moment.rows)
        return group

    def joined(self, group: Group) -> None:
        self._display.joined(group.seeds, *group.position)

    def progress(self, progress: Progress) -> None:
        self._display.progress(progress)

    def evaluated(self, group: Group, rows: list[Row]) -> None:
        for place, (member, row) in enumerate(zip(group.members, rows, strict=True)):
            self._results[member].add(group.policy_of(place), row)
        self._display.evaluated(rows)
        for member, row in zip(group.members, rows, strict=True):
            self.on_eval(member, row, group.run)

    def dropped(self, group: Group, member: Member, error: NotFiniteError) -> None:
        """Drop a seed and continue with the others; a single run ends here."""
        if not self.several:
            raise error
        member.saver.close()  # completes a write in progress
        self.faults.append(
            f"seed {member.config.seed}: {explained(error, self._results[member].folder, member.saver.last)}"
        )
        self._dropped.append(member)
        self._display.note(f"{self.faults[-1]}{'. The others continue.' if group.members else ''}")
        if group.members:
            self.joined(group)

    def _left(self, error: BaseException) -> BaseException:
        """Return what to raise after the run ended early, and remove folders that hold no result."""
        last = {member: member.saver.last for member in self._results}
        reasons = (explained(error, run.folder, last[member]) for member, run in self._results.items())
        fault = next((reason for reason in reasons if reason), None)
        stops = [
            Interrupted(run.folder.path, len(run.rows), last[member])
            for member, run in self._results.items()
            if member not in self._dropped
        ]
        for member, run in self._results.items():
            run.leave(last[member])
        if isinstance(error, KeyboardInterrupt):
            return SeedsInterrupted(stops) if self.several else stops[0]
        return RunError(fault) if fault else error
