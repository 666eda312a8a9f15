"""Run all measures of one agent on the same states, and return one object of plain numbers: `dcp diagnose`."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dcp.config import Config
from dcp.envs.base import Environment
from dcp.errors import UserError
from dcp.lab.diagnose.direction_measures import alignment, controllability, gaps
from dcp.lab.diagnose.distance_measures import calibration, conditioning, energies
from dcp.lab.diagnose.visited_states import Found, Subject, gather, leads_through_things, truth_of
from dcp.lab.targets import Target, environment_of, open_target, require_known_parts
from dcp.methods.table import CONDITIONS
from dcp.policies.policy import DeployedPolicy

PARTS: dict[str, Callable[[Subject], Found]] = {
    "gaps": gaps,
    "alignment": alignment,
    "controllability": controllability,
    "calibration": calibration,
    "energies": energies,
    "conditioning": conditioning,
}
SCHEMA_VERSION = 1
EPISODES, PHYSICS_EPISODES = 64, 16
STATES = 256


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
    """Return the content of diagnosis.json. The seed decides episodes, samples and subgoals. `tell` is called with the
    name of each step of the work."""
    start = time.perf_counter()
    target = open_target(source)
    made = environment_of(target, env)
    _require_sense(parts, episodes, states, seed)
    if "gaps" in parts:  # they make the agent of the config, and its method may be the policy file's
        require_known_parts(_config(target, made), target.label)
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
            raise UserError(f"there is no part {name!r}: choose from {', '.join(PARTS)}")
    for name, value, least in (("episodes", episodes, 2), ("states", states, 8), ("seed", seed, 0)):
        if value is not None and value < least:
            raise UserError(f"--{name} is {value}: use {least} or more")


def require_psi(target: Target) -> DeployedPolicy:
    """Return the target's policy, or refuse one without a psi."""
    if not isinstance(target.policy, DeployedPolicy):
        raise UserError(f"{target.label} holds no psi to measure: name the run's folder or its policy.safetensors")
    return target.policy


def _config(target: Target, env: Environment) -> Config:
    return target.config or Config(env=target.env or env.spec.name, method=target.about.get("method", "dcp"))


def _subject(target: Target, env: Environment, episodes: int | None, states: int, seed: int) -> Subject:
    config = _config(target, env)
    length = config.resolve(env.spec.episode_length).episode_length or env.spec.episode_length
    count = episodes or (EPISODES if env.spec.physics == "none" else PHYSICS_EPISODES)
    policy = require_psi(target)
    visits = gather(env, policy, seed, count, length, states)
    subject = Subject(policy, env, config, truth_of(env.spec), visits, seed)
    if target.config is None:
        subject.notes.append("there is no config next to the policy: the scorer has the paper's settings")
    if leads_through_things(env):
        subject.notes.append(
            f"the true way of {env.spec.name} leads through what can be pushed, as if it were not there"
        )
    return subject


def _about(target: Target, subject: Subject) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "policy": target.label,
        "about": target.about,
        "env": subject.env.spec.name,
        "fidelity": target.fidelity,
        "physics": subject.env.spec.stepped_by,
        "actor_sees": CONDITIONS.name_of(type(subject.policy.condition)),
        "episodes": len(subject.visits.goals),
        "episodes_that_reach": int(np.sum(subject.visits.reached > 0)),
        "states": len(subject.visits.at),
        "seed": subject.seed,
    }


def _plain(tree: Any) -> Any:
    """Convert for JSON, which has no nan and no arrays: nan becomes null, and arrays are rounded to five digits."""
    if isinstance(tree, dict):
        return {name: _plain(value) for name, value in tree.items()}
    if isinstance(tree, np.ndarray):
        return _plain([float(f"{x:.5g}") for x in tree] if tree.ndim == 1 else list(tree))
    if isinstance(tree, list | tuple):
        return [_plain(value) for value in tree]
    if isinstance(tree, np.generic):
        return _plain(tree.item())
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree
