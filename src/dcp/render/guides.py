"""What can be drawn of a method's inner life: the direction that the actor sees, and the subgoal of training's scorer.

At deployment z is the goal. The arrow shows what the actor sees of it; the subgoal is what training would have
commanded from here, out of states that the policy itself visits. The policy reads neither.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dcp.config import Config
from dcp.deploy.policy import DeployedPolicy, Policy
from dcp.envs.base import Environment
from dcp.methods.direction import Direction, direction_and_magnitude
from dcp.methods.pooled_subgoal import PooledSubgoal
from dcp.methods.table import make_agent
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


@jax.jit
def pulled_back(policy: DeployedPolicy, achieved: Array, goal: Array) -> Array:
    """J^T u: the direction u = (psi(g) - psi(s)) / |psi(g) - psi(s)| in the goal's coordinates.

    J is psi_g's Jacobian at the achieved goal [T, G]. Of all small moves in these coordinates, the one along J^T u
    takes psi(s) farthest along u.
    """
    representation = policy.representation
    psi_goal = representation.encode_goal(goal)  # [D]

    def at(achieved: Array) -> Array:
        psi_s, pull = jax.vjp(representation.encode_goal, achieved)
        direction, _ = direction_and_magnitude(psi_s, psi_goal)
        return pull(direction)[0]

    return jax.vmap(at)(achieved)


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
