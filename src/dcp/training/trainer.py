"""The paper's loop: unroll, insert, relabel, update. The whole run is one pytree, and every stage a pure function."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dcp.config import Config
from dcp.deploy.policy import DeployedPolicy
from dcp.envs.base import Environment
from dcp.envs.episodes import Episodes
from dcp.envs.registry import make_env
from dcp.evaluation import evaluate
from dcp.learner import Learner, LearnerParams, LearnerState, make_networks
from dcp.methods.table import make_agent
from dcp.replay import buffer, hindsight
from dcp.replay.buffer import ReplayState
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
    """A resolved config with what it names, built once. Its methods are pure; the edge jits them."""

    config: Config
    env: Environment
    eval_env: Environment
    learner: Learner
    rollout: Rollout

    def init(self) -> RunState:
        key = jax.random.key(self.config.seed)
        key_learner, key_acting, key_run = jax.random.split(key, 3)
        acting = self.rollout.init(key_acting)
        spec, num_envs = self.learner.spec, self.config.num_envs
        row = Transition(
            state=jnp.zeros((num_envs, spec.state_size)),
            action=jnp.zeros((num_envs, spec.action_size)),
            commanded_goal=jnp.zeros((num_envs, spec.goal_size)),
            episode_id=jnp.zeros(num_envs, jnp.int32),
        )
        replay = buffer.init(row, self.config.replay_rows)
        return RunState(self.learner.init(key_learner), acting, replay, key_run, jnp.zeros((), jnp.int32))

    def collect(self, run: RunState, key: Array) -> tuple[RunState, Metrics]:
        """One unroll of every environment into the replay."""
        acting, rows, metrics = self.rollout.collect(run.learner.params, run.acting, key, self.config.unroll_length)
        replay = buffer.insert(run.replay, rows)
        return run._replace(acting=acting, replay=replay, unrolls=run.unrolls + 1), metrics

    def prefill(self, run: RunState) -> RunState:
        """One unroll by the untrained policy, with no update."""
        key, key_collect = jax.random.split(run.key)
        return self.collect(run._replace(key=key), key_collect)[0]

    def sample(self, replay: ReplayState, key: Array) -> tuple[Batch, Array]:
        """-> every pair of a fresh window for each environment, and the shuffled order of their batches"""
        key_window, key_future, key_shuffle = jax.random.split(key, 3)
        c = self.config
        assert c.window is not None
        windows = buffer.sample_windows(replay, c.window, key_window)
        pairs = hindsight.relabel(windows, self.learner.spec, c.discount, key_future)
        order = hindsight.shuffled_batches(c.num_envs * (c.window - 1), c.batch_size, key_shuffle)
        return pairs, order

    def updates(self, learner: LearnerState, pairs: Batch, order: Array, key: Array) -> tuple[LearnerState, Metrics]:
        """One pass over the pairs; metrics are means over the pass."""

        def one(learner: LearnerState, step: tuple[Array, Array]) -> tuple[LearnerState, Metrics]:
            indices, noise = step
            return self.learner.step(learner, jax.tree.map(lambda x: x[indices], pairs), noise)

        keys = jax.random.split(key, order.shape[0])
        noise = jax.vmap(self.learner.noise, in_axes=(0, None))(keys, order.shape[1])  # [updates, B, A]
        learner, metrics = jax.lax.scan(one, learner, (order, noise))
        return learner, jax.tree.map(jnp.mean, metrics)

    def iteration(self, run: RunState) -> tuple[RunState, Metrics]:
        key, key_collect, key_sample, key_update = jax.random.split(run.key, 4)
        run, acting_metrics = self.collect(run._replace(key=key), key_collect)
        pairs, order = self.sample(run.replay, key_sample)
        learner, metrics = self.updates(run.learner, pairs, order, key_update)
        return run._replace(learner=learner), metrics | acting_metrics

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

    def evaluate(self, params: LearnerParams, key: Array) -> Metrics:
        length = self.config.episode_length
        assert length is not None
        return evaluate(self.eval_env, self.policy(params), key, self.config.eval_episodes, length)


def make_trainer(config: Config) -> Trainer:
    """Build what the config names; the config comes back resolved."""
    env = make_env(config.env)
    config = config.resolve(env.spec.episode_length)
    eval_env = make_env(config.eval_env or config.env)
    agent = make_agent(config, env.spec)
    networks = make_networks(config, env.spec, agent.condition)
    learner = Learner(config, env.spec, networks, agent.condition, agent.actor_goal)
    assert config.episode_length is not None
    episodes = Episodes(env, config.num_envs, config.episode_length, config.fidelity)
    return Trainer(config, env, eval_env, learner, Rollout(episodes, agent.command, learner))
