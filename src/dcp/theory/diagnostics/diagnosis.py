"""Every measure of one agent: gathered once, each part by itself, as one object of plain numbers."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dcp.config import Config
from dcp.deploy.policy import DeployedPolicy
from dcp.envs.base import Environment
from dcp.envs.geodesic import farthest_goal
from dcp.envs.plane import goals_at, has_plane
from dcp.errors import UserError
from dcp.evaluation.targets import Target, environment_of, open_target
from dcp.methods.direction import Direction
from dcp.methods.pooled_subgoal import PooledSubgoal
from dcp.methods.table import METHODS
from dcp.theory.diagnostics import alignment, calibration, conditioning, controllability, energies, gaps
from dcp.theory.diagnostics.fields import learned
from dcp.theory.diagnostics.truth import Truth, truth_of
from dcp.theory.diagnostics.visits import Visits, gather

SCHEMA_VERSION = 1
EPISODES, STATES, MOVED = 64, 256, 64  # in a point's world; MOVED: states from which actions are tried
PHYSICS_EPISODES, PHYSICS_MOVED = 16, 16
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
    visited = alignment.compare(policy, truth, visits.achieved, visits.goal)
    said = {"truth": truth.name, "visited": alignment.measure(visited, visits.episode)}
    if spec.maze is None or not has_plane(spec):
        subject.notes.append(
            f"the goals of {spec.name} are no points of a maze: the straight line is taken as the true way"
        )
        return said, {
            "points": visits.achieved,
            "learned": visited.shown,
            "true": visited.true,
            "cosine": visited.pulled,
        }
    cells = goals_at(spec.maze.scale * np.argwhere(~spec.maze.walls), visits.goals[0])  # the centre of each free cell
    goals = cells[np.random.default_rng(subject.seed).permutation(len(cells))[:MOST_GOALS]]
    over, which = alignment.over_maze(policy, truth, spec.maze, goals, subject.per_cell)
    said |= {"maze": alignment.measure(over, which), "goals": len(goals)}
    return said, _arrows(subject, goals)


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


def diagnose(
    source: str | Path | DeployedPolicy | Target,
    env: str | Environment | None = None,
    *,
    parts: Sequence[str] = tuple(PARTS),
    episodes: int | None = None,
    states: int = STATES,
    seed: int = 0,
    tell: Callable[[str], object] = len,
) -> dict[str, Any]:
    """The content of diagnosis.json. `tell` hears what is being done; the seed decides episodes, samples, subgoals."""
    start = time.perf_counter()
    target = open_target(source)
    made = environment_of(target, env)
    _require_sense(parts, episodes, states, seed)
    tell("episodes")
    subject = _subject(target, made, episodes, states, seed)
    said, drawn = {}, {}
    for name in [name for name in PARTS if name in parts]:
        tell(name)
        said[name], drawn[name] = PARTS[name](subject)
    said = {name: part for name, part in said.items() if part}
    content = {**_about(target, subject), "notes": subject.notes, **said}
    return _plain({**content, "seconds": time.perf_counter() - start, "drawn": drawn})


def _require_sense(parts: Sequence[str], episodes: int | None, states: int, seed: int) -> None:
    for name in parts:
        if name not in PARTS:
            raise UserError(f"there is no part {name!r}: choose of {', '.join(PARTS)}")
    for name, value, least in (("episodes", episodes, 2), ("states", states, 8), ("seed", seed, 0)):
        if value is not None and value < least:
            raise UserError(f"--{name} is {value}: use {least} or more")


def diagnosed(target: Target) -> DeployedPolicy:
    if not isinstance(target.policy, DeployedPolicy):
        raise UserError(f"{target.label} holds no psi to measure: name the run's folder or its policy.safetensors")
    return target.policy


def _subject(target: Target, env: Environment, episodes: int | None, states: int, seed: int) -> Subject:
    config = target.config or Config(env=target.env or env.spec.name, method=target.about.get("method", "dcp"))
    length = config.resolve(env.spec.episode_length).episode_length or env.spec.episode_length
    count = episodes or (EPISODES if env.spec.physics == "none" else PHYSICS_EPISODES)
    visits = gather(env, diagnosed(target), seed, count, length, states)
    subject = Subject(diagnosed(target), env, config, truth_of(env.spec), visits, seed)
    if target.config is None:
        subject.notes.append("no config lies beside the policy: the scorer has the paper's settings")
    return subject


def _about(target: Target, subject: Subject) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "policy": target.label,
        "about": target.about,
        "env": subject.env.spec.name,
        "fidelity": target.fidelity,
        "actor_sees": "direction" if isinstance(subject.policy.condition, Direction) else "raw_goal",
        "episodes": len(subject.visits.goals),
        "episodes_that_reach": int(np.sum(subject.visits.reached > 0)),
        "states": len(subject.visits.at),
        "seed": subject.seed,
    }


def _plain(tree: Any) -> Any:
    """For JSON, which has no nan and no arrays: what is not known is null, and clouds have five digits."""
    if isinstance(tree, dict):
        return {name: _plain(value) for name, value in tree.items()}
    if isinstance(tree, np.ndarray):
        return _plain([float(f"{x:.5g}") for x in tree] if tree.ndim == 1 else list(tree))
    if isinstance(tree, list | tuple):
        return [_plain(value) for value in tree]
    if isinstance(tree, np.generic):
        return _plain(tree.item())
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree
