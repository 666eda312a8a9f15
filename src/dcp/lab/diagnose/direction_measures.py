"""Measure an agent's learned direction: theorem 2's gaps, alignment with the true path, theorem 3's controllability.

Each part takes a `Study` and returns its numbers and what to draw.
"""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.config import Config
from dcp.envs.base import Environment, EnvState, is_sound
from dcp.envs.mazes import goals_at, has_plane, unit
from dcp.lab.diagnose.distance_measures import rank_correlation
from dcp.lab.diagnose.visited_states import Result, Study, Truth, Visits, actions, learned
from dcp.lab.paths import cell_points
from dcp.lab.statistics import clustered_mean, clustered_share
from dcp.lab.style import arrows_per_cell
from dcp.lab.trial import cached_by_env
from dcp.machine.compiling import QUICK_COMPILE
from dcp.methods.commands import PooledSubgoal
from dcp.methods.table import COMMANDS, make_agent, make_part, named_parts
from dcp.policies.policy import DeployedPolicy
from dcp.types import Array

SLACK_BINS = (0.0, 1.0, 4.0, 16.0, np.inf)  # in units of the environment's threshold
ORACLE_SHARES = (0.2, 0.8)  # of the path from s to g
MOST_GOALS = 16  # free cells of a maze that serve as goals of its alignment
STEPS = (1, 10, 50)  # k of controllability
OFFSET = 0.25  # of an action in [-1, 1]
MOVES = 0.01  # of the threshold: smaller moves count as none
MOVED, PHYSICS_MOVED = 64, 16  # states from which actions are tried


Gaps = dict[str, np.ndarray]  # of one kind of z at K states, see `gaps_to`


def gaps(study: Study) -> Result:
    """Measure whether a subgoal z shows the actor the same direction as the goal g.

        gap(s; z, g) = | d(z) - d(g) |,   d(x) = unit(-grad_s d_psi(s, x))

    It lies in [0, 2]: 0 where both point the same way, sqrt(2) at a right angle, 2 opposite. The theorem bounds it by
    8 sqrt(2 L delta)/m + 2 sqrt(2 L eps)/m, where eps is the detour over z: slack = d*(s,z) + d*(z,g) - d*(s,g).
    DCP's actor reads the same in psi-space, u(x) = unit(psi(x) - psi(s)). We also measure the gap of the distance that
    it reads, |d_psi(s,z) - d_psi(s,g)| / d_psi(s,g), and of its action, |a(s,z) - a(s,g)|.
    """
    config = study.config
    by_kind = {kind: gaps_to(study, z) for kind, z in choose_subgoals(study).items()}
    has_pool = isinstance(make_part("command", config), PooledSubgoal)
    if not has_pool:
        study.notes.append(f"{config.method} has no scorer of its own: its z is what the settings would pick")
    drawn = {kind: {"slack": each["slack"], "gap": each["state"]} for kind, each in by_kind.items()}
    return {**summarize_gaps(by_kind, study.visits), "score": config.score, "has_pool": has_pool}, drawn


def choose_subgoals(study: Study) -> dict[str, np.ndarray]:
    """Return z [K, G] by kind. The scorer has the run's settings, even if its method has no pool."""
    visits, seed = study.visits, study.seed
    rng = np.random.default_rng(seed)
    command = make_agent(with_paper_command(study.config), visits.spec).command
    assert isinstance(command, PooledSubgoal)
    pool = visits.pool(command.pool_size, seed)

    @partial(jax.jit, compiler_options=QUICK_COMPILE)
    def select(policy: DeployedPolicy, pool: Array, achieved: Array, goal: Array, key: Array) -> Array:
        return command.select_subgoal(pool, achieved, goal, policy.representation, key)

    shares = rng.uniform(*ORACLE_SHARES, len(visits.at))
    return {
        "scorer": np.asarray(select(study.policy, pool, visits.achieved, visits.goal, jax.random.key(seed))),
        "random": pool[rng.integers(0, len(pool), len(visits.at))],
        "oracle": study.truth.between(visits.achieved, visits.goal, shares),
    }


def with_paper_command(config: Config) -> Config:
    """Return the config with the paper's command, without the settings of another one."""
    own, settings = named_parts(config)["command"], config.component_settings
    if COMMANDS.get(own, own) is not PooledSubgoal:
        settings = {name: value for name, value in settings.items() if not name.startswith("command.")}
    return replace(config, command="pooled_subgoal", component_settings=settings)


def gaps_to(study: Study, subgoal: np.ndarray) -> Gaps:
    """Compare the direction to z [K, G] with the direction to g at every sampled state; each measure is [K]."""
    policy, truth, visits = study.policy, study.truth, study.visits
    achieved, goal, subgoal_32 = visits.achieved, visits.goal, subgoal.astype(np.float32)
    toward_z, toward_g = (jax.device_get(learned(policy, achieved, x)) for x in (subgoal_32, goal))
    act_z, act_g = (np.asarray(actions(policy, visits.state, x.astype(np.float32))) for x in (subgoal, goal))
    to_z, onward = truth.lengths(achieved, subgoal), truth.lengths(subgoal, goal)
    with np.errstate(invalid="ignore"):
        slack = to_z + onward - truth.lengths(achieved, goal)
    return {
        "state": _apart(unit(toward_z.descent), unit(toward_g.descent)),  # of the unit gradients: theorem 2's left side
        "psi": _apart(toward_z.direction, toward_g.direction),
        "magnitude": np.abs(toward_z.magnitude - toward_g.magnitude) / np.maximum(toward_g.magnitude, 1e-12),
        "action": np.linalg.norm(act_z - act_g, axis=1),
        "slack": np.where(np.isfinite(slack), np.maximum(slack, 0.0), np.nan),  # the detour; nan if there is no path
        "to_z": to_z,
        "onward": onward,
    }


def _apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the distances [K] of two directions; nan if one of them is zero (z at s)."""
    both = np.any(a != 0.0, axis=1) & np.any(b != 0.0, axis=1)
    return np.where(both, np.linalg.norm(a - b, axis=1), np.nan)


def summarize_gaps(by_kind: dict[str, Gaps], visits: Visits) -> dict[str, Any]:
    """Return the JSON object for all kinds. The bins of slack hold every z that was visited, so no oracle's."""
    visited = [by_kind[kind] for kind in ("scorer", "random") if kind in by_kind]
    slack, gap = (np.concatenate([g[name] for g in visited]) for name in ("slack", "state"))
    known = np.isfinite(slack) & np.isfinite(gap)
    slack, gap, episode = slack[known], gap[known], np.tile(visits.episode, len(visited))[known]
    by_slack = []
    for low, high in pairwise(threshold * visits.spec.threshold for threshold in SLACK_BINS):
        inside = (slack >= low) & (slack < high)
        if inside.any():
            mean = clustered_mean(gap[inside], episode[inside], 0.0, 2.0).as_json()
            by_slack.append({"low": low, "high": high, "states": int(inside.sum()), "gap": mean})
    return {
        "kinds": {kind: _summary(of_kind, visits) for kind, of_kind in by_kind.items()},
        "by_slack": by_slack,
        "slack_and_gap": rank_correlation(slack, gap, episode).as_json(),
        "threshold": visits.spec.threshold,
    }


def _summary(kind: Gaps, visits: Visits) -> dict[str, Any]:
    """Summarise one kind. z is on the path if the detour over z is below the threshold for reaching a goal.

    A z at g or at s is on every path: `midway` leaves out both, `state_away` leaves out the gaps of a z at g.
    """
    threshold, episode = visits.spec.threshold, visits.episode
    known = np.isfinite(kind["slack"])
    at_state, at_goal = kind["to_z"][known] < threshold, kind["onward"][known] < threshold
    on_path = (kind["slack"][known] < threshold) | at_state | at_goal
    most = {"state": 2.0, "psi": 2.0, "magnitude": np.inf, "action": np.inf, "slack": np.inf}
    shares = {"on_path": on_path, "on_path_midway": on_path & ~at_state & ~at_goal, "at_goal": at_goal}
    return {
        **{name: clustered_mean(kind[name], episode, 0.0, high).as_json() for name, high in most.items()},
        "state_away": clustered_mean(kind["state"][known][~at_goal], episode[known][~at_goal], 0.0, 2.0).as_json(),
        **{name: clustered_share(holds, episode[known]).as_json() for name, holds in shares.items()},
        "states": int(known.sum()),
    }


# Alignment: does the learned direction point along the true path?


class Alignment(NamedTuple):
    """Hold the alignment at K points, each with a goal. Cosines are nan where a direction is zero or not known."""

    pulled_back: np.ndarray  # [K]: cosine of J^T u with the true direction
    descent: np.ndarray  # [K]: of -grad_s d_psi
    straight_line: np.ndarray  # [K]
    another_goal: np.ndarray  # [K]: of J^T u toward another goal
    difference: float  # the largest |J^T u - (-grad_s d_psi)|, relative to the longest of them
    shown: np.ndarray  # [K, G]: J^T u as unit vectors
    true: np.ndarray  # [K, G]


def alignment(study: Study) -> Result:
    """Measure the cosine of the learned direction with the shortest path's first step.

    The learned direction has two forms: -grad_s d_psi, and the pullback J^T u of the direction in psi-space. For a norm
    they are equal (the paper's identity); we measure both, and their difference. 1 is along the path, 0 across it, -1
    away from it. There are two baselines:

    - the straight line to the goal. An untrained psi is nearly linear, and a random linear map into many dimensions
      keeps directions: a result no better than the straight line was not learned.
    - chance: the learned direction toward another place than the goal (a random visited place; over the maze a random
      point). It is above 0 if most places lie on one side.
    """
    policy, truth, visits, spec = study.policy, study.truth, study.visits, study.env.spec
    others = np.random.default_rng(study.seed).permutation(visits.achieved)
    visited = align(policy, truth, visits.achieved, visits.goal, others)
    numbers = {"truth": truth.name, "visited": summarize_alignment(visited, visits.episode)}
    if spec.maze is None or not has_plane(spec):
        study.notes.append(
            f"the goals of {spec.name} are not points of a maze: the straight line is taken as the true way"
        )
        return numbers, {"visited": visited.pulled_back}
    points = cell_points(spec.maze, arrows_per_cell(spec.maze))
    cells = goals_at(spec.maze.scale * np.argwhere(~spec.maze.walls), visits.goals[0])  # the centre of each free cell
    goals = cells[np.random.default_rng(study.seed).permutation(len(cells))[:MOST_GOALS]]
    over, which = _align_over(study, points, goals, study.seed)
    numbers |= {"maze": summarize_alignment(over, which), "goals": len(goals)}
    # Arrows over the maze for one goal: the farthest by path, at the height of the others.
    goal = np.append(spec.maze.farthest_goal(), goals[0, 2:]) if len(spec.maze.cells("g")) else goals[0]
    one, _ = _align_over(study, points, goal[None], seed=0)
    arrows = {"points": points, "learned": one.shown[:, :2], "true": one.true[:, :2], "cosine": one.pulled_back}
    place = {"goal": goal, "maze": list(spec.maze.rows), "scale": spec.maze.scale}
    return numbers, {**arrows, **place, "visited": visited.pulled_back}


def align(policy: DeployedPolicy, truth: Truth, achieved: np.ndarray, goal: np.ndarray, other: np.ndarray) -> Alignment:
    """Compare directions from achieved [K, G] to goal [K, G]; other [K, G] are goals unrelated to these."""
    at = achieved.astype(np.float32)
    own, elsewhere = (jax.device_get(learned(policy, at, x.astype(np.float32))) for x in (goal, other))
    true = truth.directions(achieved, goal)  # [K, G]

    def cosine(vectors: np.ndarray) -> np.ndarray:
        ways = unit(np.asarray(vectors, float))
        return np.where(np.any(ways != 0.0, axis=1), np.sum(ways * true, axis=1), np.nan)

    return Alignment(
        pulled_back=cosine(own.pulled),
        descent=cosine(own.descent),
        straight_line=cosine(goal - achieved),
        another_goal=cosine(elsewhere.pulled),
        difference=float(np.abs(own.pulled - own.descent).max()) / max(float(np.abs(own.pulled).max()), 1e-12),
        shown=unit(own.pulled),
        true=true,
    )


def _align_over(study: Study, points: np.ndarray, goals: np.ndarray, seed: int) -> tuple[Alignment, np.ndarray]:
    """Align every point [., 2] with every goal [M, G]; also return each pair's goal [K]."""
    achieved = np.concatenate([goals_at(points, goal) for goal in goals])
    which = np.repeat(np.arange(len(goals)), len(points))
    others = np.random.default_rng(seed).integers(0, len(achieved), len(achieved))
    return align(study.policy, study.truth, achieved, goals[which], achieved[others]), which


def summarize_alignment(alignment: Alignment, groups: np.ndarray) -> dict[str, Any]:
    """Return the JSON object. groups [K]: episodes or goals, whose number decides the intervals."""
    known = np.isfinite(alignment.pulled_back)
    cosines = ("pulled_back", "descent", "straight_line", "another_goal")
    nearer = {"nearer": alignment.pulled_back, "straight_line_nearer": alignment.straight_line}
    return {
        **{name: clustered_mean(getattr(alignment, name), groups, -1.0, 1.0).as_json() for name in cosines},
        **{name: clustered_share(of[known] > 0.0, groups[known]).as_json() for name, of in nearer.items()},
        "largest_difference": alignment.difference,
        "points": int(known.sum()),
    }


# Controllability: theorem 3


def controllability(study: Study) -> Result:
    """Measure how much of the learned direction actions can follow, and whether that is the useful part.

    psi_g reads goal coordinates, but torques change velocities, so at one instant no action moves what psi reads, for
    any body with inertia. So we measure the map over k environment steps: x_k(e) are the goal coordinates after k steps
    from s under the actor's own actions with a constant offset e, and M_k = d x_k / d e [G, A] by central differences.

        v   = unit(-grad_s d_psi(s, g))        the learned direction, in goal coordinates
        P_k = projection onto the image of M_k: the directions in which actions can move the goal coordinates in k steps
        share    = |P_k v|                     of the learned direction that actions can move
        cosine   = cos(P_k v, t)               of that part with t, the direction that reduces the true distance
        progress = (P_k v) . t                 both at once: 0 where actions move nothing

    A direction counts as movable if the offset moves the goal coordinates by 1% of the environment's threshold or more.
    """
    env, policy, visits = study.env, study.policy, study.visits
    count = min(PHYSICS_MOVED if env.spec.physics != "none" else MOVED, len(visits.at))
    achieved, goal, episodes = visits.achieved[:count], visits.goal[:count], visits.episode[:count]
    descent = np.asarray(learned(policy, achieved, goal).descent)
    true = study.truth.directions(achieved, goal)
    steps = {
        str(k): summarize_controllability(controllable(moves, descent, true, env.spec.threshold), episodes)
        for k, moves in action_maps(env, policy, visits.env_state(count), goal, STEPS).items()
    }
    return {"steps": steps, "offset": OFFSET, "truth": study.truth.name}, {}


def action_maps(
    env: Environment, policy: DeployedPolicy, start: EnvState, goal: np.ndarray, steps: tuple[int, ...]
) -> dict[int, np.ndarray]:
    """Return M_k of states [K, ...] as {k: [K, G, A]}; nan if a body diverged."""
    maps = np.asarray(_maps_program(env, steps)(policy, start, jnp.asarray(goal)))  # [len(steps), K, G, A]
    return dict(zip(steps, maps, strict=True))


@cached_by_env
def _maps_program(env: Environment, steps: tuple[int, ...]) -> Any:
    return jax.jit(partial(_maps, env, steps), compiler_options=QUICK_COMPILE)


def _maps(env: Environment, steps: tuple[int, ...], policy: DeployedPolicy, start: EnvState, goal: Array) -> Array:
    """Step all offsets of all states together, [K, 1 + 2A, ...]. The copy without offset decides all actions."""
    size = env.spec.action_size
    offsets = OFFSET * jnp.concatenate([jnp.zeros((1, size)), jnp.eye(size), -jnp.eye(size)])  # [1 + 2A, A]
    copies = jax.tree.map(lambda x: jnp.repeat(x, len(offsets), axis=0), start)  # [K * (1 + 2A), ...]

    def step(copies: EnvState, _: None) -> tuple[EnvState, Array]:
        leaders = env.spec.split(copies.obs[:: len(offsets)])[0]  # [K, S]
        action = policy.act((), leaders, goal)[1]
        action = jnp.clip(action, -1.0 + OFFSET, 1.0 - OFFSET)  # so that every offset stays within the range
        offset = (action[:, None] + offsets[None]).reshape(-1, size)
        after = jax.vmap(env.step)(copies, offset)
        sound = jax.vmap(partial(is_sound, env.spec))(after)
        achieved = env.spec.achieved(env.spec.split(after.obs)[0])
        return after, jnp.where(sound[:, None], achieved, jnp.nan)

    _, achieved = jax.lax.scan(step, copies, None, max(steps))  # [T, K * (1 + 2A), G]
    chosen = achieved[jnp.asarray(steps) - 1].reshape(len(steps), -1, len(offsets), env.spec.goal_size)
    ahead, behind = chosen[:, :, 1 : 1 + size], chosen[:, :, 1 + size :]
    return jnp.swapaxes(ahead - behind, 2, 3) / (2.0 * OFFSET)  # [len(steps), K, G, A]


def controllable(moves: np.ndarray, descent: np.ndarray, true: np.ndarray, threshold: float) -> dict[str, np.ndarray]:
    """Project descent [K, G] onto what actions can move, M [K, G, A], and compare with true [K, G]; each is [K]."""
    sound = np.all(np.isfinite(moves), axis=(1, 2), keepdims=True)[:, 0, 0]  # [K]
    left, strength, _ = np.linalg.svd(np.where(sound[:, None, None], moves, 0.0), full_matrices=False)
    movable = OFFSET * strength >= MOVES * threshold  # [K, R]
    basis = np.where(movable[:, None, :], left, 0.0)  # [K, G, R]
    direction = unit(np.asarray(descent, float))
    part, true_part = (np.einsum("kgr,khr,kh->kg", basis, basis, x) for x in (direction, np.nan_to_num(true)))
    known = sound & np.any(direction != 0.0, axis=1) & np.isfinite(true).all(axis=1)
    share, progress = np.linalg.norm(part, axis=1), np.sum(part * true, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = np.where(share > 1e-9, progress / share, np.nan)
    measures = {
        "share": share,
        "cosine": cosine,  # nan if actions can move nothing
        "progress": progress,
        "true_share": np.linalg.norm(true_part, axis=1),  # of the true direction
        "movable": movable.any(axis=1),  # whether actions can move the goal coordinates at all
        "reach": OFFSET * strength[:, 0],  # how far the strongest offset moves them
    }
    return {name: np.where(known, values, np.nan) for name, values in measures.items()}


def summarize_controllability(measured: dict[str, np.ndarray], episodes: np.ndarray) -> dict[str, Any]:
    known = np.isfinite(measured["share"])
    bounds = {"share": (0, 1), "cosine": (-1, 1), "progress": (-1, 1), "true_share": (0, 1), "reach": (0, np.inf)}
    return {
        **{name: clustered_mean(measured[name], episodes, *bound).as_json() for name, bound in bounds.items()},
        "movable": clustered_share(measured["movable"][known] > 0.0, episodes[known]).as_json(),
        "states": int(known.sum()),
    }
