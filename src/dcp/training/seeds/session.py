"""One process's part in the runs of several seeds."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, cast

from dcp.errors import RunError
from dcp.policies.policy import DeployedPolicy
from dcp.training.checkpoint import Saver
from dcp.training.display import DisplayKind
from dcp.training.faults import explained
from dcp.training.health import NotFiniteError
from dcp.training.keeper import Cadence, Interrupted, Keeper
from dcp.training.loop import Progress, Row
from dcp.training.results import Results
from dcp.training.resumption import latest_moment
from dcp.training.schedule import evaluation_points
from dcp.training.seeds.display import SeedsDisplay, make_seeds_display
from dcp.training.seeds.group import Group, GroupLock, GroupSaver, Member
from dcp.training.seeds.loop import run_seeds
from dcp.training.seeds.stages import SeedStages
from dcp.training.signals import StopRequest
from dcp.training.stages import Stages
from dcp.training.trainer import RunState, Trainer, make_trainer


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
        trainer = make_trainer(folder.config)
        for member in lane:
            self._start(member, trainer, shown)
        group = Group(SeedStages(trainer))
        points = evaluation_points(folder.config, folder.earlier)
        keeper = Keeper(cast(Any, GroupSaver(group)), cast(Any, GroupLock(group)), self.cadence, stop, len(points))
        run_seeds(group, lane, points, _Watcher(self, shown), cast(Any, keeper))
        for place, member in enumerate(group.members):
            member.saver.wait()
            self._trained.append((member.seed, member.results, group.policy_of(place)))

    def _start(self, member: Member, trainer: Trainer, shown: SeedsDisplay) -> None:
        results = member.results
        if results.resumed:
            stages = _OnHost(replace(trainer, config=results.folder.config))
            member.moment = latest_moment(results.folder, stages, member.saver, shown.note) or member.moment
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


class _OnHost(Stages):
    """A checkpoint's arrays stay on the host: seeds are put together before they go to the device."""

    def place(self, run: RunState) -> RunState:
        return run


def _lanes(members: Sequence[Member]) -> list[list[Member]]:
    """Seeds that can ever go on together: of one and the same plan. Others train one after another."""

    def plan(member: Member) -> str:
        folder = member.results.folder
        return f"{replace(folder.config, seed=0)} {folder.earlier}"

    return [list(lane) for _, lane in groupby(sorted(members, key=plan), plan)]
