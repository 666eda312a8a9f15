"""Record evaluation episodes as a Minari data set for offline learners: `dcp record`.

The episodes are those of `dcp eval` with the same seeds: only the seed decides starts and goals.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from dcp.envs.base import Environment, EnvState
from dcp.errors import UserError, install_hint
from dcp.evaluation import Record, rollout
from dcp.interop.goal_task import REWARDS, observation_space
from dcp.lab.trial import Arena, goal_set_key
from dcp.machine.compiling import compiler_options
from dcp.policies.policy import Policy
from dcp.types import Array, EnvSpec

NO_MINARI = f"recording needs Minari: {install_hint('minari')}"


class _Kept(NamedTuple):
    """Hold an environment's own state and the action that led to it. `is_sound` reads q and qd."""

    inner: Any
    action: Array

    @property
    def q(self) -> Array:
        return self.inner.q

    @property
    def qd(self) -> Array:
        return self.inner.qd


@dataclass(frozen=True)
class _Remembering:
    """Wrap an environment so that each state holds the action that led to it, for `_watch` to read."""

    env: Environment

    @property
    def spec(self) -> EnvSpec:
        return self.env.spec

    def reset(self, key: Array) -> EnvState:
        state = self.env.reset(key)
        return state._replace(physics=_Kept(state.physics, jnp.zeros(self.spec.action_size)))

    def step(self, state: EnvState, action: Array) -> EnvState:
        after = self.env.step(state._replace(physics=state.physics.inner), action)
        return after._replace(physics=_Kept(after.physics, jnp.asarray(action, jnp.float32)))


def _watch(state: EnvState) -> tuple[Array, Array, Array]:
    return state.obs, state.physics.action, state.done


class Recorded(NamedTuple):
    """Hold one episode of T steps."""

    seed: int
    obs: np.ndarray  # [T + 1, S + G]
    actions: np.ndarray  # [T, A]
    near_goal: np.ndarray  # [T]
    terminated: bool  # by the environment; False if the time limit or a diverging step ended it


def record_episodes(arena: Arena, policy: Policy) -> Iterator[Recorded]:
    """Play the episodes of `arena` and yield each. An episode whose first step diverges is left out."""
    play = partial(_play, _Remembering(arena.env), arena.episodes, arena.length)
    run = play if getattr(policy, "on_host", False) else jax.jit(play, compiler_options=compiler_options())
    for seed in arena.seeds:
        record = jax.device_get(run(policy, goal_set_key(seed)))
        obs, actions, done = record.watched  # [T + 1, N, ...]
        for i in range(arena.episodes):
            steps = int(record.alive[:, i].sum())
            if steps:
                ended = bool(done[steps, i])
                near_goal = record.near_goal[:steps, i]
                yield Recorded(seed, obs[: steps + 1, i], actions[1 : steps + 1, i], near_goal, ended)


def _play(env: Environment, num_episodes: int, length: int, policy: Policy, key: Array) -> Record:
    return rollout(env, policy, key, num_episodes, length, watch=_watch)


def write_dataset(
    dataset_id: str,
    env: Environment,
    episodes: Iterator[Recorded],
    *,
    reward: str = "zero_one",
    env_spec: Any = None,
    algorithm: str | None = None,
    description: str | None = None,
) -> Any:
    """Write a Minari data set with the goal dictionary of our Gymnasium environments. -> minari.MinariDataset

    `env_spec`: a gymnasium EnvSpec, from which Minari rebuilds the environment.
    """
    minari = load_minari()
    if reward not in REWARDS:
        raise UserError(f"unknown reward {reward!r}: choose {' or '.join(map(repr, REWARDS))}")
    try:
        minari.dataset.minari_dataset.parse_dataset_id(dataset_id)
    except ValueError as error:
        raise UserError(f"{dataset_id!r} is not a name for a data set: write it as dcp/ant_u_maze/name-v0") from error
    if dataset_id in minari.list_local_datasets():
        raise UserError(f"the data set {dataset_id} already exists: name another one with --dataset")
    buffers = [_buffer(env.spec, minari, episode, REWARDS[reward]) for episode in episodes]
    if not buffers:
        raise UserError("every episode diverged at its first step: there is nothing to record")
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # no author, no permalink, ...
        return minari.create_dataset_from_buffers(
            dataset_id,
            buffers,
            env=env_spec,
            observation_space=observation_space(env),
            action_space=spaces.Box(-1.0, 1.0, (env.spec.action_size,), np.float32),
            algorithm_name=algorithm,
            description=description,
        )


def load_minari() -> Any:
    try:
        import h5py  # noqa: F401  # Minari's default format; it would fail at the first write
        import minari
        from minari.data_collector import EpisodeBuffer  # noqa: F401
    except ImportError as error:
        raise UserError(NO_MINARI) from error
    return minari


def _buffer(spec: EnvSpec, minari: Any, episode: Recorded, away: float) -> Any:
    state, goal = spec.split(episode.obs)
    steps, near = len(episode.actions), episode.near_goal
    terminations = np.zeros(steps, bool)
    terminations[-1] = episode.terminated
    at_start = np.zeros(1, bool)  # as in dcp's evaluation, a start at the goal does not count as success
    return minari.data_collector.EpisodeBuffer(
        seed=episode.seed,
        observations={"observation": state, "achieved_goal": spec.achieved(state), "desired_goal": goal},
        actions=np.clip(episode.actions, -1.0, 1.0),
        rewards=list(near.astype(np.float32) + np.float32(away)),
        terminations=list(terminations),
        truncations=list(np.arange(steps) == steps - 1) if not episode.terminated else [False] * steps,
        infos={
            "near_goal": np.concatenate([at_start, near]),
            "is_success": np.concatenate([at_start, np.maximum.accumulate(near)]),
        },
    )
