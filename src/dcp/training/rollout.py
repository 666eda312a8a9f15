"""Experience: one unroll of every environment as a scan on the device."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dcp.envs.episodes import Episodes, EpisodeState
from dcp.envs.maze import share_of_cells_visited
from dcp.learner import Learner, LearnerParams
from dcp.methods.interface import Command, CommandState
from dcp.methods.pool_seed import Seeds
from dcp.networks import sample_squashed
from dcp.types import Array, Metrics, Transition


class ActingState(NamedTuple):
    episodes: EpisodeState
    command: CommandState


@dataclass(frozen=True)
class Rollout:
    """Static settings. What steps the environments, on the device or in C on the host, is their engine's affair."""

    episodes: Episodes
    command: Command
    learner: Learner
    seeds: Seeds | None = None

    def init(self, key: Array) -> ActingState:
        episodes = self.episodes.reset(key)
        state, goal = self.learner.spec.split(episodes.env.obs)
        seeds = None if self.seeds is None else jnp.asarray(self.seeds.pool.rows)  # [slots, G]
        return ActingState(episodes, self.command.init(self.learner.spec.achieved(state), goal, seeds))

    def collect(
        self, params: LearnerParams, acting: ActingState, key: Array, length: int
    ) -> tuple[ActingState, Transition, Metrics]:
        """-> acting, transitions [T, N, ...], what happened (means over the unroll)"""

        def step(acting: ActingState, key: Array) -> tuple[ActingState, tuple[Transition, Metrics]]:
            return self.step(params, acting, key)

        acting, (transitions, metrics) = jax.lax.scan(step, acting, jax.random.split(key, length))
        metrics = {name: jnp.mean(values) for name, values in metrics.items()}
        spec = self.learner.spec
        if spec.maze is not None and spec.maze_dims is not None:
            positions = transitions.state[..., jnp.asarray(spec.maze_dims)].reshape(-1, 2)  # [T * N, 2]
            metrics["cells_visited"] = share_of_cells_visited(spec.maze, positions)
        return acting, transitions, metrics

    def step(
        self, params: LearnerParams, acting: ActingState, key: Array
    ) -> tuple[ActingState, tuple[Transition, Metrics]]:
        """Algorithm 1, RolloutStep, for all environments. Every method draws from the same keys."""
        key_command, key_noise, key_reset = jax.random.split(key, 3)
        learner, episodes = self.learner, acting.episodes
        state, goal = learner.spec.split(episodes.env.obs)  # [N, S], [N, G]
        achieved = learner.spec.achieved(state)  # [N, G]
        representation = learner.representation(params.encoders)

        command, commanded = self.command.step(acting.command, achieved, goal, representation, key_command)
        condition = learner.condition(representation, achieved, commanded)
        mean, log_std = learner.networks.actor(params.actor, state, condition)
        action, _ = sample_squashed(mean, log_std, jax.random.normal(key_noise, mean.shape))  # [N, A]

        metrics = self.command.metrics(command, achieved, goal)
        metrics["train_near_goal"] = jnp.mean(episodes.env.near_goal)
        transition = Transition(state, action, commanded, episodes.episode_id)
        acting = ActingState(self.episodes.step(episodes, action, key_reset), command)
        return acting, (transition, metrics)
