"""What can be drawn of a method's inner life: the direction that the actor sees, and the subgoal of training's scorer.

At deployment z is the goal. The arrow shows what the actor sees of it; the subgoal is what training would have
commanded from here, out of states that the policy itself visits. The policy reads neither.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dcp.analysis.psi_landscape import pulled_back
from dcp.config import Config
from dcp.envs.base import Environment
from dcp.methods.commands import PooledSubgoal
from dcp.methods.conditions import Direction
from dcp.methods.table import make_agent
from dcp.policies.policy import DeployedPolicy, Policy
from dcp.render.episodes import TOGETHER, Episode, play
from dcp.types import Array

_POOL_STREAM = 0x706F6F6C  # keeps the pool's episodes apart from the ones that are shown


def sees_direction(policy: Any) -> bool:
    return isinstance(getattr(policy, "condition", None), Direction)


def has_representation(policy: Any) -> bool:
    return isinstance(policy, DeployedPolicy)


def directions(policy: DeployedPolicy, episode: Episode) -> np.ndarray:
    """[T + 1, 2]: unit vectors in the plane, zero where there is no direction"""
    pulled = np.asarray(pulled_back(policy, jnp.asarray(episode.achieved), jnp.asarray(episode.goal)))[:, :2]
    length = np.linalg.norm(pulled, axis=-1, keepdims=True)
    return np.divide(pulled, length, out=np.zeros_like(pulled), where=length > 0.0)


class Scorer:
    """Training's choice of z, from a pool that this policy's own episodes fill."""

    def __init__(self, command: PooledSubgoal, policy: DeployedPolicy, pool: np.ndarray):
        self.command, self.policy, self.pool = command, policy, pool

    def subgoals(self, episode: Episode, key: Array) -> np.ndarray:
        """[T + 1, G]: chosen anew every period, as in training"""
        period = self.command.period
        at = jnp.asarray(episode.achieved[::period])  # [K, G]: each tick as an environment of its own
        goal = jnp.broadcast_to(jnp.asarray(episode.goal), at.shape)
        chosen = self.command.select_subgoal(jnp.asarray(self.pool), at, goal, self.policy.representation, key)
        return np.repeat(np.asarray(chosen), period, axis=0)[: len(episode.achieved)]


def make_scorer(
    env: Environment, policy: Policy, acting: Policy, config: Config, seed: int, steps: int
) -> Scorer | None:
    """None for a method without a pool. `acting` plays the pool's episodes: the policy, or a burst around it."""
    command = make_agent(config, env.spec).command
    if not isinstance(command, PooledSubgoal) or not isinstance(policy, DeployedPolicy):
        return None
    key = jax.random.fold_in(jax.random.key(seed), _POOL_STREAM)
    states = np.concatenate([episode.achieved for episode in play(env, acting, key, TOGETHER, steps)])  # [K, G]
    order = np.random.default_rng(seed).permutation(len(states))
    return Scorer(command, policy, states[np.resize(order, command.pool_size)])
