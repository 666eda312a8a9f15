"""Seeds that go on together: on the device one state of K seeds, on the host what each of them has besides."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dcp.policies.policy import DeployedPolicy
from dcp.training.checkpoint import Saver
from dcp.training.loop import Moment, Row, require_sound
from dcp.training.results import Results
from dcp.training.seeds.axis import join, keep, one_of, part_of, stack
from dcp.training.seeds.stages import SeedStages
from dcp.training.trainer import RunState

Position = tuple[int, int]  # unrolls, evaluations: where seeds must agree to go on together


@dataclass(eq=False)
class Member:
    """One seed. `moment.run` is its state only until it joins a group; None then, and before it has begun."""

    results: Results
    saver: Saver
    moment: Moment = field(default_factory=lambda: Moment(None))  # pyright: ignore[reportArgumentType]
    joined: float = 0.0  # when it joined, less the seconds of work that it had behind it

    @property
    def seed(self) -> int:
        return self.results.folder.config.seed

    @property
    def position(self) -> Position:
        return self.moment.unrolls, len(self.moment.rows)

    @property
    def seconds(self) -> float:
        """wall_seconds: of the time in which this seed took part, whole, however many shared it."""
        return time.perf_counter() - self.joined


@dataclass
class Group:
    """As a moment it has what all of its seeds have in common, so that a `Keeper` can judge by it."""

    stages: SeedStages
    members: list[Member] = field(default_factory=list)
    run: RunState | None = None  # of all seeds, in the members' order

    @property
    def seeds(self) -> list[int]:
        return [member.seed for member in self.members]

    @property
    def position(self) -> Position:
        return self.members[0].position

    @property
    def unrolls(self) -> int:
        return self.members[0].moment.unrolls

    @property
    def rows(self) -> list[Row]:
        return self.members[0].moment.rows

    def admit(self, members: Sequence[Member]) -> None:
        """Seeds at this group's position; those without a state begin."""
        begun = [member for member in members if member.moment.run is not None]
        fresh = [member for member in members if member.moment.run is None]
        runs = [self.run] if self.run is not None else []
        if begun:
            runs.append(stack([member.moment.run for member in begun]))
        if fresh:
            config = self.stages.trainer.config
            runs.append(require_sound(self.stages.init([member.seed for member in fresh]), config))
        one_group = runs[0]
        for run in runs[1:]:
            one_group = join(one_group, run)
        self.run = self.stages.place(one_group) if begun or len(runs) > 1 else one_group
        for member in [*begun, *fresh]:
            member.joined = time.perf_counter() - member.moment.seconds
            member.moment.run = None  # pyright: ignore[reportAttributeAccessIssue]
            self.members.append(member)

    def dismiss(self, members: Sequence[Member]) -> None:
        """The others go on without these."""
        places = [place for place, member in enumerate(self.members) if member not in members]
        assert self.run is not None
        self.run = self.stages.place(keep(self.run, places)) if places else None
        self.members = [self.members[place] for place in places]

    def moment_of(self, place: int) -> Moment:
        """One seed's moment, as it would be alone."""
        assert self.run is not None
        return replace(self.members[place].moment, run=one_of(self.run, place))

    def policy_of(self, place: int) -> DeployedPolicy:
        assert self.run is not None
        return self.stages.trainer.policy(part_of(self.run.learner.params, place))


class GroupSaver:
    """All members' checkpoints as a `Keeper` asks for them; all are of the same moment."""

    def __init__(self, group: Group):
        self._group = group

    def save(self, group: Group) -> None:
        for place, member in enumerate(group.members):
            member.saver.save(group.moment_of(place))

    def check(self) -> None:
        for member in self._group.members:
            member.saver.check()

    def wait(self) -> None:
        for member in self._group.members:
            member.saver.wait()


class GroupLock:
    """All members' locks."""

    def __init__(self, group: Group):
        self._group = group

    def require(self) -> None:
        for member in self._group.members:
            member.results.folder.lock.require()
