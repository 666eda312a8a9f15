"""Measure the theorems' quantities on a trained agent: `dcp diagnose`. Letters as in `types`; K states, H episodes.

`visited_states` plays the episodes at whose states everything is measured. `direction_measures` has gaps, alignment and
controllability, `distance_measures` calibration and where the run stands.
`results` draws and words what they return.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dcp.config import Config
from dcp.envs.base import Environment
from dcp.errors import UserError
from dcp.lab.diagnose.direction_measures import alignment, controllability, gaps
from dcp.lab.diagnose.distance_measures import calibration, regime
from dcp.lab.diagnose.visited_states import Result, Study, gather, leads_through_things, truth_of
from dcp.lab.result_tables import finite
from dcp.lab.targets import Target, environment_of, open_target, require_known_parts, require_psi
from dcp.methods.table import CONDITIONS
from dcp.policies.policy import DeployedPolicy

_ORDER = (gaps, alignment, controllability, calibration, regime)
PARTS: dict[str, Callable[[Study], Result]] = {part.__name__: part for part in _ORDER}
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
    require_parts(parts)
    for name, value, least in (("episodes", episodes, 2), ("states", states, 8), ("seed", seed, 0)):
        if value is not None and value < least:
            raise UserError(f"--{name} is {value}: use {least} or more")
    config = target.config or Config(env=target.env or made.spec.name, method=target.about.get("method", "dcp"))
    if "gaps" in parts:  # they make the agent of the config, and its method may be the policy file's
        require_known_parts(config, target.label)
    tell("episodes")
    spec, policy = made.spec, require_psi(target)
    count = episodes or (EPISODES if spec.physics == "none" else PHYSICS_EPISODES)
    length = config.resolve(spec.episode_length).episode_length or spec.episode_length
    visits = gather(made, policy, seed, count, length, states)
    own_folder = target.folder if target.config is not None else None
    study = Study(policy, made, config, truth_of(spec), visits, seed, own_folder)
    if target.config is None:
        study.notes.append("there is no config next to the policy: the scorer has the paper's settings")
    if leads_through_things(made):
        study.notes.append(f"the true way of {spec.name} leads through what can be pushed, as if it were not there")
    numbers, drawn = {}, {}
    for name in [name for name in PARTS if name in parts]:
        tell(name)
        numbers[name], drawn[name] = PARTS[name](study)
    about = {
        "schema_version": SCHEMA_VERSION,
        "policy": target.label,
        "about": target.about,
        "env": spec.name,
        "fidelity": target.fidelity,
        "physics": spec.stepped_by,
        "actor_sees": CONDITIONS.name_of(type(policy.condition)),
        "episodes": len(visits.goals),
        "episodes_that_reach": int(np.sum(visits.reached > 0)),
        "states": len(visits.at),
        "seed": seed,
        "notes": study.notes,
    }
    measured = {name: part for name, part in numbers.items() if part}
    return finite({**about, **measured, "seconds": time.perf_counter() - start, "drawn": drawn})


def require_parts(names: Sequence[str]) -> None:
    for name in names:
        if name not in PARTS:
            raise UserError(f"there is no part {name!r}: choose from {', '.join(PARTS)}")
