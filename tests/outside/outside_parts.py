"""Parts of an algorithm, written as a package outside dcp would. Tests import a copy from a folder of its own."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

import dcp
from dcp.types import MazeLayout


@dataclass(frozen=True)
class NearOrFar:
    """A condition with a setting: the paper's direction and distance, and whether the goal is near."""

    near: float = 1.0
    """Distance in psi-space below which a goal counts as near."""

    def size(self, spec: dcp.EnvSpec, repr_dim: int) -> int:
        return repr_dim + 2

    def __call__(self, representation: dcp.Representation, achieved: jax.Array, commanded: jax.Array) -> jax.Array:
        seen = dcp.Direction()(representation, achieved, commanded)  # [..., D + 1]
        return jnp.concatenate([seen, (seen[..., -1:] < self.near).astype(jnp.float32)], axis=-1)


def farthest(representation, psi_state, psi_candidates, psi_goal):
    """A score: the candidate that is farthest from where the agent stands. [..., C]"""
    return representation.distance(psi_state[..., None, :], psi_candidates)


@dataclass(frozen=True)
class SineNetwork:
    """A network without Flax: one hidden layer of sines."""

    units: int = 24

    def init(self, key, in_size: int, out_size: int):
        first, last = jax.random.split(key)
        return {
            "first": jax.random.normal(first, (in_size, self.units)) / jnp.sqrt(in_size),
            "last": jax.random.normal(last, (self.units, out_size)) / jnp.sqrt(self.units),
        }

    def apply(self, params, x):
        return jnp.sin(x @ params["first"]) @ params["last"]


@dataclass(frozen=True)
class CosineInfoNCE:
    """A critic: InfoNCE over cosines with a learned temperature. It counts its updates, to show what is carried."""

    needs: ClassVar[frozenset[str]] = frozenset({"future_goal"})
    gives: ClassVar[frozenset[str]] = frozenset({"embedding", "distance"})

    repr_dim: int = 12
    temperature: float = 0.1

    def init(self, keys, problem: dcp.Problem) -> dcp.CriticState:
        spec, network = problem
        params = {
            "sa": network.init(keys[0], spec.state_size + spec.action_size, self.repr_dim),
            "g": network.init(keys[1], spec.goal_size, self.repr_dim),
            "log_temperature": jnp.log(self.temperature),
        }
        return dcp.CriticState(params, {"updates": jnp.zeros((), jnp.int32)})

    def loss(self, problem, params, carried, batch, key):
        sa = self._unit(problem.network.apply(params["sa"], jnp.concatenate([batch.state, batch.action], axis=-1)))
        goal = self._unit(problem.network.apply(params["g"], batch.future_goal))
        logits = sa @ goal.T / jnp.exp(params["log_temperature"])  # [B, B]
        loss = -jnp.mean(jnp.diag(logits) - jax.nn.logsumexp(logits, axis=0))
        return loss, {"critic_loss": loss, "temperature": jnp.exp(params["log_temperature"])}

    def after(self, problem, params, carried):
        return {"updates": carried["updates"] + 1}

    def representation(self, problem, params) -> dcp.Representation:
        def encode_goal(goal):
            return self._unit(problem.network.apply(params["g"], goal))

        def distance(psi_from, psi_to):
            return 1.0 - jnp.sum(psi_from * psi_to, axis=-1)

        def value(state, action, goal):
            sa = self._unit(problem.network.apply(params["sa"], jnp.concatenate([state, action], axis=-1)))
            return jnp.sum(sa * encode_goal(goal), axis=-1)

        return dcp.Representation(encode_goal, distance, value)

    @staticmethod
    def _unit(x):
        return x * jax.lax.rsqrt(jnp.sum(x**2, axis=-1, keepdims=True) + 1e-6)


class Square:
    """An environment: a point in an empty square. With a maze and its plane, it can be drawn too."""

    spec = dcp.EnvSpec(
        name="square",
        state_size=2,
        goal_size=2,
        action_size=2,
        goal_dims=(0, 1),
        threshold=0.2,
        episode_length=40,
        maze=MazeLayout(("#####", "#rgg#", "#ggg#", "#ggg#", "#####"), scale=1.0),
        maze_dims=(0, 1),
    )

    def reset(self, key):
        start, goal = jax.random.uniform(key, (2, 2), minval=1.0, maxval=3.0)
        return self._state(start, goal)

    def step(self, state, action):
        position, goal = self.spec.split(state.obs)
        return self._state(jnp.clip(position + 0.1 * action, 1.0, 3.0), goal)

    def _state(self, position, goal):
        near = jnp.linalg.norm(position - goal) < self.spec.threshold
        done = jnp.zeros((), bool)
        return dcp.EnvState(jnp.concatenate([position, goal]), near.astype(jnp.float32), done, near)
