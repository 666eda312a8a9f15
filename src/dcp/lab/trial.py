"""Evaluate policies on frozen sets of episodes. The seed, the environment and their number decide each set.

From Python, call `evaluate`; `sweep` finds the best burst.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from dcp.envs.base import Environment
from dcp.errors import UserError
from dcp.evaluation import Bin, Deployment, Measures, evaluation_key, measure
from dcp.lab.paths import path_lengths
from dcp.lab.targets import Target, environment_of, open_target
from dcp.machine import compiling, devices
from dcp.machine.checks import available_memory
from dcp.policies.policy import DeployedPolicy, Policy
from dcp.policies.wrappers import SampledPolicy, with_burst
from dcp.types import Array, EnvSpec

EPISODES = 128
GOAL_SETS = 0x676F616C  # an evaluation index that training never reaches, so every run sees new episodes
NUMBERS = 3  # kept of each step of an episode, as 32 bits: a distance, three flags, the saturation
COMPILING = "compiling (up to a minute under simulated physics, the first time)"
CONFIRMATION = GOAL_SETS + 1  # the second set of each seed


def goal_set_key(seed: int) -> Array:
    return evaluation_key(seed, GOAL_SETS)


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
        parts = [np.concatenate(part) for part in zip(*(m[:-1] for m in self.by_seed), strict=True)]
        reach = np.mean([m.cumulative_reach for m in self.by_seed], axis=0)
        return Measures(*parts, cumulative_reach=reach)

    @cached_property
    def distances(self) -> tuple[str, np.ndarray]:
        """Return start-to-goal distances [episodes of all seeds]: along a maze's paths, else straight."""
        state, goal = self.spec.split(self.all.start)
        if self.spec.maze is not None and self.spec.goal_dims == self.spec.maze_dims:
            lengths = path_lengths(self.spec.maze, self.spec.achieved(state), goal)
            if np.all(np.isfinite(lengths)):
                return "path", lengths
        return "straight", self.all.start_distance

    def by_distance(self) -> list[Bin]:
        return self.all.by_distance(self.distances[1])

    def goal_sets(self) -> list[str]:
        """Return a fingerprint of each seed's first states and goals: equal ones are the same episodes."""
        return [hashlib.sha256(np.ascontiguousarray(m.start, np.float32).tobytes()).hexdigest() for m in self.by_seed]


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
            run = _program(deployment).compiled_for(policy, keys[0], on_compile=lambda: tell(COMPILING))
        found = []
        for number, key in enumerate(keys, 1):
            tell(f"running, seed {number} of {len(keys)}" if len(keys) > 1 else "running")
            found.append(measure(jax.device_get(run(policy, key))))
        return Trial(self.env.spec, self.length, self.seeds, tuple(found))


def _program(deployment: Deployment) -> compiling.Program:
    try:
        return _shared(deployment)
    except TypeError:  # a user's environment may have no hash
        return _make_program(deployment)


def _make_program(deployment: Deployment) -> compiling.Program:
    return compiling.Program(compiling.jit(deployment.episodes))


_shared = lru_cache(maxsize=4)(_make_program)


def require_room(spec: EnvSpec, episodes: int, length: int, numbers: int) -> None:
    """Refuse episodes that memory cannot hold. `numbers` are kept per step, and all environments run at once."""
    each = 4 * (numbers * (length + 1) + 32 * (spec.state_size + spec.goal_size))  # bytes
    there = available_memory()
    if there is not None and episodes * each > there:
        need, free = f"{episodes * each / 1e9:,.1f} GB", f"{there / 1e9:,.1f} GB"
        raise UserError(
            f"{episodes:,} episodes of {length:,} steps need {need}, and {free} are free: "
            f"use {max(1, there // each):,} or fewer, and several seeds for more"
        )


def arena_for(
    target: Target,
    env: str | Environment | None = None,
    *,
    episodes: int | None = None,
    seeds: Sequence[int] = (0,),
    eval_layout: bool = False,
    fidelity: str | None = None,
    physics: str | None = None,
    randomize: str | None = None,
    episode_length: int | None = None,
) -> Arena:
    """Return where to evaluate the target. Defaults are the run's own, so training's compiled program is reused."""
    made, config = environment_of(target, env, eval_layout, fidelity, physics, randomize), target.config
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
    own = env is None and not eval_layout and physics in (None, target.physics)
    wanted = config.devices if config and own else None
    devices.prepare(wanted, made.spec)
    count = devices.count_devices(None if devices.shortage(wanted or 1) else wanted, episodes, made.spec)
    length = episode_length or (config.episode_length if config else None) or made.spec.episode_length
    require_room(made.spec, episodes, length, NUMBERS)
    return Arena(made, episodes, length, tuple(seeds), count)


def variant(policy: Policy, burst: tuple[int, int] | None = None, stochastic: bool = False) -> Policy:
    """Return the policy as it is to be deployed."""
    if stochastic:
        if not isinstance(policy, DeployedPolicy):
            raise UserError("only a policy of ours has a distribution to draw from: leave out --stochastic")
        policy = SampledPolicy(policy)
    return with_burst(policy, *burst) if burst else policy


def evaluate(
    policy: "str | Path | Policy | Callable[[np.ndarray, np.ndarray], Any]",
    env: str | Environment | None = None,
    *,
    episodes: int | None = None,
    seeds: int | Sequence[int] = (0,),
    burst: tuple[int, int] | None = None,
    stochastic: bool = False,
    eval_layout: bool = False,
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
        eval_layout=eval_layout,
        fidelity=fidelity,
        physics=physics,
        randomize=randomize,
        episode_length=episode_length,
    )
    return arena.trial(variant(target.policy, burst, stochastic))


class Sweep(NamedTuple):
    without: Trial
    tried: dict[tuple[int, int], Trial]  # (P, L) -> its trial, on the same episodes
    best: tuple[int, int]
    confirmed_without: Trial  # on other episodes
    confirmed: Trial


def combinations(periods: Sequence[int], lengths: Sequence[int]) -> list[tuple[int, int]]:
    found = [(period, length) for period in periods for length in lengths if 0 < length < period]
    if not found:
        raise UserError("the sweep has no burst with 0 < L < P: give other --periods and --lengths")
    return found


def sweep(
    arena: Arena, policy: Policy, bursts: Sequence[tuple[int, int]], on_trial: Callable[[str], object] = len
) -> Sweep:
    """Try bursts on one set of episodes and confirm the best on another, because the best of many is partly luck.

    P and L are arguments of one program, so all bursts together are compiled once.
    """

    def trial(burst: tuple[int, int] | None, confirm: bool = False) -> Trial:
        keys = [evaluation_key(seed, CONFIRMATION) for seed in arena.seeds] if confirm else None
        found = arena.trial(with_burst(policy, *burst) if burst else policy, keys)
        on_trial(f"P {burst[0]}, L {burst[1]}" if burst else "no burst")
        return found

    without = trial(None)
    tried = {burst: trial(burst) for burst in bursts}
    best = max(tried, key=lambda burst: _merit(tried[burst], burst))
    return Sweep(without, tried, best, trial(None, confirm=True), trial(best, confirm=True))


def _merit(trial: Trial, burst: tuple[int, int]) -> tuple[float, float, float]:
    """Rank by success, then by time near goal, then by the smaller share of random steps."""
    measures = trial.all
    return float(measures.success.mean()), float(measures.time_near_goal.mean()), -burst[1] / burst[0]
