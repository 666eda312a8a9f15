"""Theorem 2's quantity on a trained agent: does a subgoal z show the actor the same direction as the goal g?

    gap(s; z, g) = | d(z) - d(g) |,   d(x) = unit(-grad_s d_psi(s, x))

It lies in [0, 2]: 0 where both point the same way, sqrt(2) at a right angle, 2 opposite. The theorem bounds it by
8 sqrt(2 L delta)/m + 2 sqrt(2 L eps)/m, where eps is the detour by way of z: slack = d*(s,z) + d*(z,g) - d*(s,g).
The same in psi-space, u(x) = unit(psi(x) - psi(s)), is what the actor of DCP reads; beside it stand the distance that
it reads, |d_psi(s,z) - d_psi(s,g)| / d_psi(s,g), and what it makes of both, |a(s,z) - a(s,g)|.
"""

from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np

from dcp.compiling import QUICK_COMPILE
from dcp.config import Config
from dcp.envs.plane import unit
from dcp.methods.commands import PooledSubgoal
from dcp.policies.policy import DeployedPolicy
from dcp.statistics import clustered_mean, clustered_share
from dcp.theory.diagnostics.correlation import rank_correlation
from dcp.theory.diagnostics.fields import actions, learned
from dcp.theory.diagnostics.truth import Truth
from dcp.theory.diagnostics.visits import Visits
from dcp.types import Array

KINDS = ("scorer", "random", "oracle")
SLACK_BINS = (0.0, 1.0, 4.0, 16.0, np.inf)  # in the environment's thresholds
ORACLE_SHARES = (0.2, 0.8)  # of the way from s to g


class Gaps(NamedTuple):
    """Of one kind of z, at K states."""

    subgoal: np.ndarray  # [K, G]
    state: np.ndarray  # [K]: of the unit gradients, theorem 2's left side
    psi: np.ndarray  # [K]: of the directions in psi-space
    magnitude: np.ndarray  # [K]: of the distances, relative to that to g
    action: np.ndarray  # [K]: of the actor's outputs
    slack: np.ndarray  # [K]: the detour, in the goal's units; nan where no path leads
    there: np.ndarray  # [K]: d*(s, z)
    onward: np.ndarray  # [K]: d*(z, g)


def choose(policy: DeployedPolicy, config: Config, truth: Truth, visits: Visits, seed: int) -> dict[str, np.ndarray]:
    """Kind -> z [K, G]. The scorer has the run's own settings; a method without a pool is shown what they would do."""
    rng = np.random.default_rng(seed)
    command = PooledSubgoal.make(config, visits.spec)
    pool = visits.pool(command.pool_size, seed)
    chosen = _select(command, policy, pool, visits.achieved, visits.goal, jax.random.key(seed))
    shares = rng.uniform(*ORACLE_SHARES, len(visits.at))
    return {
        "scorer": np.asarray(chosen),
        "random": pool[rng.integers(0, len(pool), len(visits.at))],
        "oracle": truth.between(visits.achieved, visits.goal, shares),
    }


@partial(jax.jit, static_argnums=0, compiler_options=QUICK_COMPILE)
def _select(
    command: PooledSubgoal, policy: DeployedPolicy, pool: Array, achieved: Array, goal: Array, key: Array
) -> Array:
    return command.select_subgoal(pool, achieved, goal, policy.representation, key)


def compare(policy: DeployedPolicy, truth: Truth, visits: Visits, subgoal: np.ndarray) -> Gaps:
    achieved, goal = visits.achieved, visits.goal
    toward_z = jax.device_get(learned(policy, achieved, subgoal.astype(np.float32)))
    toward_g = jax.device_get(learned(policy, achieved, goal))
    act_z, act_g = (np.asarray(actions(policy, visits.state, x.astype(np.float32))) for x in (subgoal, goal))
    there, onward = truth.lengths(achieved, subgoal), truth.lengths(subgoal, goal)
    with np.errstate(invalid="ignore"):
        slack = there + onward - truth.lengths(achieved, goal)
    return Gaps(
        subgoal=subgoal,
        state=_apart(unit(toward_z.descent), unit(toward_g.descent)),
        psi=_apart(toward_z.direction, toward_g.direction),
        magnitude=np.abs(toward_z.magnitude - toward_g.magnitude) / np.maximum(toward_g.magnitude, 1e-12),
        action=np.linalg.norm(act_z - act_g, axis=1),
        slack=np.where(np.isfinite(slack), np.maximum(slack, 0.0), np.nan),
        there=there,
        onward=onward,
    )


def _apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[K]: nan where one of the two is no direction (z at s)."""
    both = np.any(a != 0.0, axis=1) & np.any(b != 0.0, axis=1)
    return np.where(both, np.linalg.norm(a - b, axis=1), np.nan)


def measure(found: dict[str, Gaps], visits: Visits) -> dict[str, Any]:
    """What the JSON says of all kinds."""
    return {
        "kinds": {kind: _summary(gaps, visits) for kind, gaps in found.items()},
        "by_slack": _by_slack(found, visits),
        "slack_and_gap": rank_correlation(*_joined(found, visits)).as_json(),
        "threshold": visits.spec.threshold,
    }


def _summary(gaps: Gaps, visits: Visits) -> dict[str, Any]:
    """On path: the detour by way of z is shorter than the distance at which a goal counts as reached.

    A z that is g itself, or s, is on every path: `midway` leaves both out, `state_away` the gaps of a z at g.
    """
    threshold, episode = visits.spec.threshold, visits.episode
    known = np.isfinite(gaps.slack)
    at_state, at_goal = gaps.there[known] < threshold, gaps.onward[known] < threshold
    on_path = (gaps.slack[known] < threshold) | at_state | at_goal
    most = {"state": 2.0, "psi": 2.0, "magnitude": np.inf, "action": np.inf, "slack": np.inf}
    return {
        **{name: clustered_mean(getattr(gaps, name), episode, 0.0, high).as_json() for name, high in most.items()},
        "state_away": clustered_mean(gaps.state[known][~at_goal], episode[known][~at_goal], 0.0, 2.0).as_json(),
        "on_path": clustered_share(on_path, episode[known]).as_json(),
        "on_path_midway": clustered_share(on_path & ~at_state & ~at_goal, episode[known]).as_json(),
        "at_goal": clustered_share(at_goal, episode[known]).as_json(),
        "states": int(known.sum()),
    }


def _joined(found: dict[str, Gaps], visits: Visits) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Slack, gap and episode of every z that was visited: the scorer's and the random ones."""
    kinds = [found[kind] for kind in ("scorer", "random") if kind in found]
    slack, gap = np.concatenate([g.slack for g in kinds]), np.concatenate([g.state for g in kinds])
    known = np.isfinite(slack) & np.isfinite(gap)
    return slack[known], gap[known], np.tile(visits.episode, len(kinds))[known]


def _by_slack(found: dict[str, Gaps], visits: Visits) -> list[dict[str, Any]]:
    slack, gap, episode = _joined(found, visits)
    rows = []
    for low, high in pairwise(SLACK_BINS):
        inside = (slack >= low * visits.spec.threshold) & (slack < high * visits.spec.threshold)
        if inside.any():
            edges = {"low": low * visits.spec.threshold, "high": high * visits.spec.threshold}
            mean = clustered_mean(gap[inside], episode[inside], 0.0, 2.0)
            rows.append({**edges, "states": int(inside.sum()), "gap": mean.as_json()})
    return rows
