"""Drives seeds through their budget together.

Those that have come less far go first; at the point where others stand, these join. A seed whose numbers are no longer
finite drops out, and the rest go on without it.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from dcp.training.health import NotFiniteError, require_finite
from dcp.training.loop import Progress, Row, add_row
from dcp.training.seeds.axis import part_of
from dcp.training.seeds.group import Group, Member
from dcp.training.seeds.stages import SeedStages


class Watcher(Protocol):
    """Is told what happens."""

    def joined(self, group: Group) -> None: ...

    def progress(self, group: Group, progress: Progress) -> None: ...

    def evaluated(self, group: Group, rows: list[Row]) -> None: ...

    def dropped(self, group: Group, member: Member, error: NotFiniteError) -> None: ...


def run_seeds(
    group: Group,
    members: Sequence[Member],
    points: list[int],
    watcher: Watcher,
    at_boundary: Callable[[Group], None] = lambda _: None,
) -> None:
    """Until every member that did not drop out has had its last evaluation. `points`: iterations at each of them.

    `at_boundary` is called after each unroll and after each evaluation.
    """
    loop, waiting = _Loop(group, points, watcher), sorted(members, key=lambda member: member.position)
    while True:
        waiting = loop.admit(waiting)
        if not group.members:
            return
        if loop.evaluation_is_due():
            loop.evaluate()
        elif len(group.rows) == len(points):
            return
        else:
            loop.unroll()
        if group.members:
            at_boundary(group)


class _Loop:
    def __init__(self, group: Group, points: list[int], watcher: Watcher):
        self.group, self.points, self.watcher = group, points, watcher
        self.stages: SeedStages = group.stages
        self.config = group.stages.trainer.config  # but for the seed, every member's
        self._paced: tuple[float, int] = (0.0, 0)  # seconds and iterations since the last evaluation, or a joining

    def admit(self, waiting: list[Member]) -> list[Member]:
        """-> those that still wait"""
        if not waiting:
            return waiting
        here = self.group.position if self.group.members else waiting[0].position
        arriving = [member for member in waiting if member.position == here]
        if arriving:
            self.group.admit(arriving)
            self._paced = (0.0, 0)
            self.watcher.joined(self.group)
        return [member for member in waiting if member not in arriving]

    def evaluation_is_due(self) -> bool:
        done, evaluations = self.group.unrolls - self.config.num_prefill_unrolls, len(self.group.rows)
        return evaluations < len(self.points) and done == self.points[evaluations]

    def evaluate(self) -> None:
        group = self.group
        assert group.run is not None
        scores = self.stages.evaluate(group.run.learner.params, group.seeds, len(group.rows))
        diverged = self.stages.diverged(group.run)
        rows = [
            add_row(member.moment, self.config, score, lost, self._paced, member.seconds)
            for member, score, lost in zip(group.members, scores, diverged, strict=True)
        ]
        self._paced = (0.0, 0)
        self.watcher.evaluated(group, rows)

    def unroll(self) -> None:
        group, since = self.group, time.perf_counter()
        metrics: Any = None
        assert group.run is not None
        if group.unrolls < self.config.num_prefill_unrolls:
            group.run = jax.block_until_ready(self.stages.prefill(group.run))
        else:
            group.run, metrics = jax.block_until_ready(self.stages.iteration(group.run))
            metrics = {name: np.asarray(values) for name, values in metrics.items()}  # [K]; in a row's order
            self._paced = (self._paced[0] + time.perf_counter() - since, self._paced[1] + 1)
        for place, member in enumerate(group.members):
            member.moment.unrolls += 1
            member.moment.seconds = member.seconds
            if metrics is not None:
                member.moment.metrics.append({name: float(values[place]) for name, values in metrics.items()})
        if metrics is not None:
            self._drop_what_is_not_finite()
        if group.members:
            self.watcher.progress(group, Progress(group.unrolls, metrics))

    def _drop_what_is_not_finite(self) -> None:
        group, lost = self.group, []
        assert group.run is not None
        env_steps = group.unrolls * self.config.env_steps_per_unroll
        finite = self.stages.finite(group.run)
        for place, member in enumerate(group.members):
            metrics = member.moment.metrics[-1]
            if finite[place] and all(map(math.isfinite, metrics.values())):
                continue
            try:
                require_finite(metrics, part_of(group.run.learner, place), env_steps)
            except NotFiniteError as error:
                lost.append((member, error))
        if lost:
            group.dismiss([member for member, _ in lost])
        for member, error in lost:
            self.watcher.dropped(group, member, error)
