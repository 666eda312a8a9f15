"""The paper's loop: unroll, insert, relabel, update. The whole run is one pytree, and every part a pure function."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dcp import devices
from dcp.config import Config
from dcp.devices import ONE_DEVICE, Split
from dcp.envs.base import Environment
from dcp.envs.episodes import Episodes
from dcp.envs.registry import env_of
from dcp.evaluation.program import Deployment
from dcp.learner import Learner, LearnerParams, LearnerState, make_networks
from dcp.methods.pool_seed import seeds_of
from dcp.methods.table import make_agent
from dcp.policies.policy import DeployedPolicy
from dcp.replay import (
    ReplayState,
    init_replay,
    insert,
    relabel,
    resting_draws,
    sample_windows,
    shuffled_batches,
    with_resting_pairs,
)
from dcp.training.rollout import ActingState, Rollout
from dcp.types import Array, Batch, Metrics, Transition


class RunState(NamedTuple):
    learner: LearnerState
    acting: ActingState
    replay: ReplayState
    key: Array
    unrolls: Array  # []: so far; everything that is counted follows from it


@dataclass(frozen=True)
class Trainer:
    """A resolved config with what it names, built once. Its methods are pure; `Stages` jits them."""

    config: Config
    env: Environment
    eval_env: Environment
    learner: Learner
    rollout: Rollout
    split: Split = ONE_DEVICE

    def init_experience(self, key: Array) -> tuple[ActingState, ReplayState]:
        spec, num_envs = self.learner.spec, self.config.num_envs
        row = Transition(
            state=jnp.zeros((num_envs, spec.state_size)),
            action=jnp.zeros((num_envs, spec.action_size)),
            commanded_goal=jnp.zeros((num_envs, spec.goal_size)),
            episode_id=jnp.zeros(num_envs, jnp.int32),
        )
        return self.rollout.init(key), init_replay(row, self.config.replay_rows)

    def collect(
        self, params: LearnerParams, acting: ActingState, replay: ReplayState, key: Array
    ) -> tuple[ActingState, ReplayState, Metrics]:
        """One unroll of every environment into the replay."""
        acting, rows, metrics = self.rollout.collect(params, acting, key, self.config.unroll_length)
        return acting, insert(replay, rows), metrics

    def windows(self, replay: ReplayState, key: Array) -> Transition:
        """A fresh window of each environment's rows, [T, N, ...]"""
        assert self.config.window is not None
        return sample_windows(replay, self.config.window, key)

    def pairs(self, windows: Transition, key_future: Array, key_shuffle: Array) -> tuple[Batch, Array]:
        """-> every pair of the windows, with its hindsight goal, and the shuffled order of their batches"""
        pairs = relabel(windows, self.learner.spec, self.config.discount, key_future)
        order = shuffled_batches(pairs.state.shape[0], self.config.batch_size, key_shuffle)
        return pairs, order

    def updates(self, learner: LearnerState, pairs: Batch, order: Array, key: Array) -> tuple[LearnerState, Metrics]:
        """One pass over the pairs; metrics are means over the pass."""

        def one(learner: LearnerState, step: tuple[Array, Array, Array | None]) -> tuple[LearnerState, Metrics]:
            indices, noise, states = step
            batch = jax.tree.map(lambda x: x[indices], pairs)
            return self.learner.step(learner, batch, noise, self._for_critic(batch, states))

        keys = jax.random.split(key, order.shape[0])
        noise = jax.vmap(self.learner.noise, in_axes=(0, None))(keys, order.shape[1])  # [updates, B, A]
        if self.splits_batches:  # each device takes its share of every batch; XLA sums and gathers what all must know
            order, noise = jax.lax.with_sharding_constraint((order, noise), self.split.along(1))
        learner, metrics = jax.lax.scan(one, learner, (order, noise, self._standing(order, key)))
        return learner, jax.tree.map(jnp.mean, metrics)

    def _standing(self, order: Array, key: Array) -> Array | None:
        """[updates, M, S]: the pool's seeds that enter the critic's part of each update, where they are to"""
        seeds = self.rollout.seeds
        if seeds is None or seeds.critic is None:
            return None
        states = jnp.asarray(seeds.critic.rows)  # [K, S]
        share = min(round((self.config.pool_seed_fraction or 0.0) * self.config.batch_size), states.shape[0])
        return states[resting_draws(jax.random.fold_in(key, 1), order.shape[0], states.shape[0], share)]

    def _for_critic(self, batch: Batch, states: Array | None) -> Batch | None:
        return None if states is None else with_resting_pairs(batch, states, self.learner.spec)

    def learn(
        self, learner: LearnerState, windows: Transition, key_future: Array, key_shuffle: Array, key_update: Array
    ) -> tuple[LearnerState, Metrics]:
        pairs, order = self.pairs(windows, key_future, key_shuffle)
        return self.updates(learner, pairs, order, key_update)

    def policy(self, params: LearnerParams) -> DeployedPolicy:
        """What this run would deploy now."""
        return DeployedPolicy(
            self.learner.networks,
            self.learner.condition,
            self.learner.spec,
            params.actor,
            params.encoders,
            self.config.energy,
        )

    @property
    def splits_batches(self) -> bool:
        return self.split.count > 1 and self.config.split_batches == "on"

    @property
    def deployment(self) -> Deployment:
        assert self.config.episode_length is not None
        return Deployment(self.eval_env, self.config.eval_episodes, self.config.episode_length, self.split)


def make_trainer(config: Config) -> Trainer:
    """Build what the config names; the config comes back resolved."""
    env = env_of(config)
    devices.prepare(config.devices, env.spec)
    config = config.resolve(env.spec.episode_length)
    count = devices.count_devices(config.devices, config.num_envs, env.spec)
    batches = config.split_batches or ("on" if devices.splitting_pays(config.batch_size, count) else "off")
    config = replace(config, devices=count, split_batches=batches)  # bits are promised for one layout: it is noted
    seeds, sha256 = seeds_of(config, env.spec)
    config = replace(config, pool_seed_sha256=sha256)
    split = devices.make_split(count)
    eval_env = env if config.eval_env == config.env else env_of(config, config.eval_env)
    agent = make_agent(config, env.spec)
    networks = make_networks(config, env.spec, agent.condition)
    learner = Learner(config, env.spec, networks, agent.condition, agent.actor_goal)
    assert config.episode_length is not None
    episodes = Episodes(env, config.num_envs, config.episode_length, config.fidelity, split)
    return Trainer(config, env, eval_env, learner, Rollout(episodes, agent.command, learner, seeds), split)
