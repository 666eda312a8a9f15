"""The parts of a diagnosis: each measures one thing of a subject. -> what is said of it, and what is drawn"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dcp.config import Config
from dcp.envs.base import Environment
from dcp.envs.geodesic import farthest_goal
from dcp.envs.plane import goals_at, has_plane
from dcp.methods.commands import PooledSubgoal
from dcp.methods.table import METHODS
from dcp.policies.policy import DeployedPolicy
from dcp.theory.diagnostics import alignment, calibration, conditioning, controllability, energies, gaps
from dcp.theory.diagnostics.fields import learned
from dcp.theory.diagnostics.truth import Truth
from dcp.theory.diagnostics.visits import Visits

MOVED, PHYSICS_MOVED = 64, 16  # states from which actions are tried
MOST_GOALS = 16  # free cells of a maze, as goals of its alignment
DRAWN = 400  # points of a cloud


@dataclass(frozen=True)
class Subject:
    """An agent, where it is looked at, and the states at which."""

    policy: DeployedPolicy
    env: Environment
    config: Config
    truth: Truth
    visits: Visits
    seed: int
    notes: list[str] = field(default_factory=list)  # a sentence for all that was left out

    @property
    def per_cell(self) -> int:
        """Points in each direction: a large maze has fewer, or nobody could tell its arrows apart."""
        return 4 if self.env.spec.maze is not None and max(self.env.spec.maze.walls.shape) <= 6 else 2


Part = Callable[[Subject], tuple[dict[str, Any], dict[str, Any]]]  # -> what is said, what is drawn


def _gaps(subject: Subject) -> tuple[dict[str, Any], dict[str, Any]]:
    policy, truth, visits = subject.policy, subject.truth, subject.visits
    chosen = gaps.choose(policy, subject.config, truth, visits, subject.seed)
    found = {kind: gaps.compare(policy, truth, visits, z) for kind, z in chosen.items()}
    said = gaps.measure(found, visits)
    drawn = {kind: {"slack": each.slack, "gap": each.state} for kind, each in found.items()}
    has_pool = METHODS[subject.config.method].command is PooledSubgoal
    if not has_pool:
        subject.notes.append(f"{subject.config.method} has no scorer of its own: its z is what the settings would pick")
    return {**said, "score": subject.config.score, "has_pool": has_pool}, drawn


def _alignment(subject: Subject) -> tuple[dict[str, Any], dict[str, Any]]:
    policy, truth, visits, spec = subject.policy, subject.truth, subject.visits, subject.env.spec
    others = np.random.default_rng(subject.seed).permutation(visits.achieved)
    visited = alignment.compare(policy, truth, visits.achieved, visits.goal, others)
    said = {"truth": truth.name, "visited": alignment.measure(visited, visits.episode)}
    if spec.maze is None or not has_plane(spec):
        subject.notes.append(
            f"the goals of {spec.name} are no points of a maze: the straight line is taken as the true way"
        )
        return said, {"visited": visited.pulled}
    cells = goals_at(spec.maze.scale * np.argwhere(~spec.maze.walls), visits.goals[0])  # the centre of each free cell
    goals = cells[np.random.default_rng(subject.seed).permutation(len(cells))[:MOST_GOALS]]
    over, which = alignment.over_maze(policy, truth, spec.maze, goals, subject.per_cell, subject.seed)
    said |= {"maze": alignment.measure(over, which), "goals": len(goals)}
    return said, {**_arrows(subject, goals), "visited": visited.pulled}


def _arrows(subject: Subject, goals: np.ndarray) -> dict[str, Any]:
    """One goal's arrows over the maze: the goal that is farthest by path, at the height of the others."""
    layout = subject.env.spec.maze
    assert layout is not None
    goal = np.append(farthest_goal(layout), goals[0, 2:]) if len(layout.cells("g")) else goals[0]
    at = alignment.points_of(layout, subject.per_cell)
    found, _ = alignment.over_maze(subject.policy, subject.truth, layout, goal[None], subject.per_cell)
    arrows = {"points": at, "learned": found.shown[:, :2], "true": found.true[:, :2], "cosine": found.pulled}
    return {**arrows, "goal": goal, "maze": list(layout.rows), "scale": layout.scale}


def _controllability(subject: Subject) -> tuple[dict[str, Any], dict[str, Any]]:
    physics = subject.env.spec.physics != "none"
    count = min(PHYSICS_MOVED if physics else MOVED, len(subject.visits.at))
    visits, goal = subject.visits, subject.visits.goal[:count]
    achieved = visits.achieved[:count]
    moves = controllability.maps(subject.env, subject.policy, visits.env_state(count), goal, controllability.STEPS)
    descent = np.asarray(learned(subject.policy, achieved, goal).descent)
    true = subject.truth.directions(achieved, goal)
    said = {
        str(k): controllability.measure(
            controllability.compare(m, descent, true, subject.env.spec.threshold), visits.episode[:count]
        )
        for k, m in moves.items()
    }
    return {"steps": said, "offset": controllability.OFFSET, "truth": subject.truth.name}, {}


def _calibration(subject: Subject) -> tuple[dict[str, Any], dict[str, Any]]:
    said, drawn = calibration.measure(subject.policy, subject.truth, subject.visits, subject.seed)
    if not said["episodes_that_reach"]:
        subject.notes.append("no episode reached its goal, so there are no steps to the goal to compare with")
    return said, {name: {"x": x[:DRAWN], "d_psi": y[:DRAWN]} for name, (x, y) in drawn.items()}


def _energies(subject: Subject) -> tuple[dict[str, Any], dict[str, Any]]:
    if not energies.has_critic(subject.policy):
        subject.notes.append(
            "the policy was saved without its critic psi_sa, so its energy was not measured: name the run's own folder"
        )
        return {}, {}
    if subject.policy.energy not in ("norm", "l2"):
        subject.notes.append(f"the energy {subject.policy.energy} is no distance, so no triangle was measured")
        return {}, {}
    return energies.measure(subject.policy, subject.visits, subject.seed), {}


def _conditioning(subject: Subject) -> tuple[dict[str, Any], dict[str, Any]]:
    return conditioning.measure(subject.policy, subject.visits), {}


PARTS: dict[str, Part] = {
    "gaps": _gaps,
    "alignment": _alignment,
    "controllability": _controllability,
    "calibration": _calibration,
    "energies": _energies,
    "conditioning": _conditioning,
}
