"""Evaluate policies on frozen sets of episodes, and write the results. The seed, the environment and their number
decide each set. From Python, call `evaluate`.
"""

import csv
import hashlib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
import numpy as np

from dcp.envs.base import Environment
from dcp.errors import UserError
from dcp.evaluation import Deployment, Measures, evaluation_key, measure
from dcp.lab.paths import TruePaths
from dcp.lab.result_tables import finite, writing_to
from dcp.lab.run_collection import EVALS_DIR
from dcp.lab.statistics import Interval, Paired, episode_interval, paired_episodes, success_interval, weighted_interval
from dcp.lab.targets import Target, environment_of, open_target
from dcp.machine import compiling, devices
from dcp.machine.checks import available_memory
from dcp.policies.policy import DeployedPolicy, Policy
from dcp.policies.policy_file import write_whole
from dcp.policies.wrappers import SampledPolicy, with_burst
from dcp.types import Array, EnvSpec

EPISODES = 128
EVAL_STREAM = 0x676F616C  # an evaluation index that training never reaches, so every run sees new episodes
NUMBERS = 3  # kept of each step of an episode, as 32 bits: a distance, three flags, the saturation; and signs
COMPILING = "compiling if it must (up to a minute under simulated physics)"
RESULT_SCHEMA = 1  # of the files of results
_EPISODE_COLUMNS = ("success", "first_reach", "time_near_goal", "start_distance", "final_distance", "saturation")
_EPISODE_COLUMNS += ("action_flips",)


P = ParamSpec("P")
R = TypeVar("R")


def cached_by_env(make: Callable[P, R]) -> Callable[P, R]:
    """Keep the last four results of `make(env, ...)`. An environment without a hash gets a fresh one each time."""
    shared = lru_cache(maxsize=4)(make)

    @wraps(make)
    def get(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            hash(args)
        except TypeError:
            return make(*args, **kwargs)
        return shared(*args, **kwargs)

    return get


def goal_set_key(seed: int) -> Array:
    return evaluation_key(seed, EVAL_STREAM)


BINS = 4  # of the distance between start and goal


class Bin(NamedTuple):
    """Episodes by the distance from start to goal: from `low` up to `high`, which only the last bin includes."""

    low: float
    high: float
    episodes: int
    successes: int


@dataclass(frozen=True)
class Trial:
    """N episodes of each seed, by one policy."""

    spec: EnvSpec
    episode_length: int
    seeds: tuple[int, ...]
    by_seed: tuple[Measures, ...]

    @cached_property
    def all(self) -> Measures:
        """Return the episodes of all seeds together."""
        of_seeds = {name: [getattr(m, name) for m in self.by_seed] for name in Measures._fields}
        reach = np.mean(of_seeds.pop("cumulative_reach"), axis=0)  # by step; all others are by episode
        return Measures(cumulative_reach=reach, **{name: np.concatenate(parts) for name, parts in of_seeds.items()})

    @cached_property
    def distances(self) -> tuple[str, np.ndarray]:
        """Return start-to-goal distances [episodes of all seeds]: along a maze's paths, else straight."""
        state, goal = self.spec.split(self.all.start)
        if self.spec.maze is not None and self.spec.goal_dims == self.spec.maze_dims:
            lengths = TruePaths(self.spec.maze).lengths(self.spec.achieved(state), goal)
            if np.all(np.isfinite(lengths)):
                return "path", lengths
        return "straight", self.all.start_distance

    def by_distance(self) -> list[Bin]:
        return by_distance(self.all, self.distances[1])

    def goal_sets(self) -> list[str]:
        """Return a fingerprint of each seed's first states and goals: equal ones are the same episodes."""
        return [hashlib.sha256(np.ascontiguousarray(m.start, np.float32).tobytes()).hexdigest() for m in self.by_seed]


def by_distance(measures: Measures, distance: np.ndarray | None = None, bins: int = BINS) -> list[Bin]:
    """Return success by the distance from start to goal; `distance` [N] replaces the straight line's."""
    distance = measures.start_distance if distance is None else distance
    edges = np.linspace(distance.min(), distance.max(), bins + 1)
    where = np.clip(np.searchsorted(edges, distance, side="right") - 1, 0, bins - 1)  # [N]
    return [
        Bin(float(edges[i]), float(edges[i + 1]), int(np.sum(where == i)), int(np.sum(measures.success[where == i])))
        for i in range(bins)
    ]


@dataclass(frozen=True)
class Arena:
    """Set where policies are evaluated, and on which episodes."""

    env: Environment
    episodes: int
    length: int
    seeds: tuple[int, ...]
    count: int = 1  # devices

    def trial(self, policy: Policy, keys: Sequence[Array] | None = None, tell: Callable[[str], object] = len) -> Trial:
        """Evaluate a policy on the frozen set of each seed, or on `keys`. `tell` is called with what takes time."""
        split = devices.make_split(self.count).if_divides(self.episodes)
        deployment = Deployment(self.env, self.episodes, self.length, split)
        keys = keys or [goal_set_key(seed) for seed in self.seeds]
        if getattr(policy, "on_host", False):
            run = deployment.episodes
        else:
            policy = split.everywhere(policy)
            run = _program(deployment)
            tell(COMPILING)
        by_seed = []
        for number, key in enumerate(keys, 1):
            tell(f"running, seed {number} of {len(keys)}" if len(keys) > 1 else "running")
            by_seed.append(measure(jax.device_get(run(policy, key))))
        return Trial(self.env.spec, self.length, self.seeds, tuple(by_seed))


@cached_by_env
def _program(deployment: Deployment) -> Callable[[Policy, Array], Any]:
    return compiling.jit(deployment.episodes)


def require_room(spec: EnvSpec, episodes: int, length: int, numbers: int) -> None:
    """Refuse episodes that memory cannot hold. `numbers` are kept per step, and all environments run at once."""
    each = 4 * (numbers * (length + 1) + 32 * (spec.state_size + spec.goal_size))  # bytes
    available = available_memory()
    if available is not None and episodes * each > available:
        need, free = f"{episodes * each / 1e9:,.1f} GB", f"{available / 1e9:,.1f} GB"
        raise UserError(
            f"{episodes:,} episodes of {length:,} steps need {need}, and {free} are free: "
            f"use {max(1, available // each):,} or fewer, and several seeds for more"
        )


def arena_for(
    target: Target,
    env: str | Environment | None = None,
    *,
    episodes: int | None = None,
    seeds: Sequence[int] = (0,),
    fidelity: str | None = None,
    physics: str | None = None,
    randomize: str | None = None,
    episode_length: int | None = None,
) -> Arena:
    """Return where to evaluate the target. Defaults are the run's own, so training's compiled program is reused."""
    made, config = environment_of(target, env, fidelity, physics, randomize), target.config
    if episodes is None:
        episodes = config.eval_episodes if config else EPISODES
    length = 1 if episode_length is None else episode_length
    for name, value in (("episodes", episodes), ("seeds", len(seeds)), ("episode length", length)):
        if value < 1 or value != int(value):
            raise UserError(f"{name} is {value}: use a whole number from 1")
    for seed in seeds:
        if not 0 <= seed < 2**32:
            raise UserError(f"the seed {seed} names no episodes: use whole numbers from 0, below 2**32")
    if len(set(seeds)) != len(seeds):
        raise UserError(f"the seeds {' '.join(map(str, seeds))} name a set of episodes twice: name each once")
    own = env is None and physics in (None, target.physics)
    num_devices = config.devices if config and own else None
    devices.prepare(num_devices, made.spec)
    count = devices.count_devices(None if devices.shortage(num_devices or 1) else num_devices, episodes, made.spec)
    length = episode_length or (config.episode_length if config else None) or made.spec.episode_length
    require_room(made.spec, episodes, length, NUMBERS + -(-made.spec.action_size // 4))
    return Arena(made, episodes, length, tuple(seeds), count)


def variant(
    policy: Policy, burst: tuple[int, int] | None = None, stochastic: bool = False, burst_first: bool = False
) -> Policy:
    """Return the policy as it is to be deployed."""
    if stochastic:
        if not isinstance(policy, DeployedPolicy):
            raise UserError("only a policy of ours has a distribution to draw from: leave out --stochastic")
        policy = SampledPolicy(policy)
    return with_burst(policy, *burst, burst_first) if burst else policy


def evaluate(
    policy: "str | Path | Policy | Callable[[np.ndarray, np.ndarray], Any]",
    env: str | Environment | None = None,
    *,
    episodes: int | None = None,
    seeds: int | Sequence[int] = (0,),
    burst: tuple[int, int] | None = None,
    stochastic: bool = False,
    fidelity: str | None = None,
    physics: str | None = None,
    randomize: str | None = None,
    episode_length: int | None = None,
) -> Trial:
    """Evaluate any policy on any environment: a path, a policy, or a function of state [N, S] and goal [N, G]."""
    compiling.enable_cache()
    seeds = (seeds,) if isinstance(seeds, int) else seeds
    target = open_target(policy)
    arena = arena_for(
        target,
        env,
        episodes=episodes,
        seeds=seeds,
        fidelity=fidelity,
        physics=physics,
        randomize=randomize,
        episode_length=episode_length,
    )
    return arena.trial(variant(target.policy, burst, stochastic))


# What an evaluation found: intervals over episodes, and the files in the run's folder.


def estimates(measures: Measures) -> dict[str, Interval]:
    return {
        "success_once": success_interval(measures.success),
        "time_near_goal": episode_interval(measures.time_near_goal),
        "first_reach": episode_interval(measures.first_reach[measures.success]),  # of the episodes that reached
        "final_distance": episode_interval(measures.final_distance),
        "saturation": weighted_interval(measures.saturation, measures.steps, 0.0, 1.0),
        "action_flips": weighted_interval(measures.action_flips, np.maximum(measures.steps - 1, 0), 0.0, 1.0),
    }


def paired(before: Measures, after: Measures) -> Paired:
    if not np.array_equal(before.start, after.start):
        raise UserError("two evaluations on different episodes cannot be paired: use the same seeds and environment")
    return paired_episodes((before.success, before.time_near_goal), (after.success, after.time_near_goal))


def as_json(trial: Trial, about: dict[str, Any]) -> dict[str, Any]:
    """Return everything but the single episodes, which are in the CSV file."""
    measures = trial.all
    return {
        "schema_version": RESULT_SCHEMA,
        **about,
        "env": trial.spec.name,
        "episode_length": trial.episode_length,
        "episodes": len(measures.success),
        "diverged_episodes": int(measures.diverged.sum()),
        "summary": {name: estimate.as_json() for name, estimate in estimates(measures).items()},
        "seeds": [
            {"seed": seed, "goal_set_sha256": fingerprint, **one.summary()}
            for seed, fingerprint, one in zip(trial.seeds, trial.goal_sets(), trial.by_seed, strict=True)
        ],
        "distance": trial.distances[0],
        "by_distance": [part._asdict() for part in trial.by_distance()],
        "cumulative_reach": [round(float(share), 6) for share in measures.cumulative_reach],
    }


def as_csv(trial: Trial) -> str:
    """Return one row per episode."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    goal = [f"goal_{i}" for i in range(trial.spec.goal_size)]
    writer.writerow(["seed", "episode", "distance", *_EPISODE_COLUMNS, "diverged", "steps", *goal])
    along, at = trial.distances[1], 0
    for seed, m in zip(trial.seeds, trial.by_seed, strict=True):
        goals = trial.spec.split(m.start)[1]  # [N, G]
        for i in range(len(m.success)):
            numbers = [_plain(getattr(m, name)[i]) for name in (*_EPISODE_COLUMNS, "diverged", "steps")]
            writer.writerow([seed, i, _plain(along[at]), *numbers, *(_plain(x) for x in goals[i])])
            at += 1
    return lines.getvalue()


def _plain(value: Any) -> int | float:
    """Return a bool as 0 or 1, and a float32 as the shortest text that reads back as the same number."""
    return int(value) if np.issubdtype(type(value), np.integer) or isinstance(value, np.bool_) else float(str(value))


def write_results(folder: Path, name: str, content: dict[str, Any], trial: Trial) -> list[Path]:
    """Write <folder>/evals/<name>.json and .csv, each completely or not at all."""
    paths = [folder / EVALS_DIR / f"{name}{ending}" for ending in (".json", ".csv")]
    with writing_to(folder / EVALS_DIR):
        write_whole(paths[0], json.dumps(finite(content), indent=1, allow_nan=False).encode())
        write_whole(paths[1], as_csv(trial).encode())
    return paths
