"""The states that an agent visits: episodes of the actor as it explores in training, and a sample of their states."""

from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np

from dcp.compiling import QUICK_COMPILE
from dcp.envs.base import Environment, EnvState
from dcp.errors import UserError
from dcp.evaluation.rollout import Record, rollout
from dcp.policies.policy import DeployedPolicy, SampledPolicy
from dcp.types import Array, EnvSpec


class Visits(NamedTuple):
    """H episodes of T steps, and K of their states that are not at their goal yet."""

    spec: EnvSpec
    states: np.ndarray  # [T + 1, H, S]
    goals: np.ndarray  # [H, G]
    ends: np.ndarray  # [H]: the index of each episode's last state
    reached: np.ndarray  # [H]: the index of the first state near the goal; -1 if none is
    env_states: EnvState  # [T + 1, H, ...]: whole, physics included
    at: np.ndarray  # [K, 2]: time and episode of the sampled states

    @property
    def episode(self) -> np.ndarray:
        """[K]"""
        return self.at[:, 1]

    @property
    def state(self) -> np.ndarray:
        """[K, S]"""
        return self.states[tuple(self.at.T)]

    @property
    def achieved(self) -> np.ndarray:
        """[K, G]"""
        return self.spec.achieved(self.state)

    @property
    def goal(self) -> np.ndarray:
        """[K, G]"""
        return self.goals[self.episode]

    def env_state(self, count: int) -> EnvState:
        """[count, ...]: the first of the sampled, ready to be stepped"""
        time, episode = self.at[:count].T
        return jax.tree.map(lambda x: x[time, episode], self.env_states)

    def pool(self, size: int, seed: int) -> np.ndarray:
        """[size, G]: achieved goals of any moment, as training's pool would hold them; repeated if there are fewer"""
        alive = np.arange(len(self.states))[:, None] <= self.ends[None]  # [T + 1, H]
        achieved = self.spec.achieved(self.states[alive])
        return achieved[np.resize(np.random.default_rng(seed).permutation(len(achieved)), size)]


def gather(env: Environment, policy: DeployedPolicy, seed: int, episodes: int, length: int, states: int) -> Visits:
    """The stochastic actor, as it fills training's pool. The seed decides everything."""
    key = jax.random.key(seed)
    try:
        run = _program(env, episodes, length)
    except TypeError:  # a user's environment may have no hash
        run = _program.__wrapped__(env, episodes, length)
    record: Record = jax.device_get(run(policy, key))
    observed, goals = env.spec.split(record.watched.obs)  # [T + 1, H, ...]
    ends = np.asarray(record.alive).sum(axis=0)
    near = record.near_goal
    reached = np.where(near.any(axis=0), near.argmax(axis=0) + 1, -1)
    far = np.linalg.norm(env.spec.achieved(observed) - goals, axis=-1) >= env.spec.threshold  # [T + 1, H]
    counts = far & (np.arange(length + 1)[:, None] <= ends[None])
    return Visits(
        env.spec,
        observed,
        goals[0],
        ends,
        reached,
        record.watched,
        _sample(counts, states, np.random.default_rng(seed)),
    )


def _run(env: Environment, episodes: int, length: int, policy: DeployedPolicy, key: Array) -> Record:
    return rollout(env, SampledPolicy(policy), key, episodes, length, watch=_everything)


def _everything(state: EnvState) -> EnvState:
    return state


@lru_cache(maxsize=4)
def _program(env: Environment, episodes: int, length: int) -> Any:
    return jax.jit(partial(_run, env, episodes, length), compiler_options=QUICK_COMPILE)


def _sample(counts: np.ndarray, states: int, rng: np.random.Generator) -> np.ndarray:
    """[K, 2]: random moments of `counts` [T + 1, H], as many of each episode as there are, or nearly so."""
    found = []
    for episode in range(counts.shape[1]):
        times = rng.permutation(np.flatnonzero(counts[:, episode]))
        found += [(rank, time, episode) for rank, time in enumerate(times[:states])]
    if not found:
        raise UserError("every state of these episodes is at its goal already: choose another --env or --seed")
    return np.array([(time, episode) for _, time, episode in sorted(found, key=lambda x: x[0])[:states]])
