"""A point in a maze: pure JAX, learned in minutes. Driftless, so that the theory applies exactly, or with inertia."""

import jax
import jax.numpy as jnp

from dcp.envs.base import EnvState, sparse_state
from dcp.envs.maze import slide
from dcp.types import Array, EnvSpec, MazeLayout

RADIUS = 0.08
THRESHOLD = 0.125
EPISODE_LENGTH = 250
START_NOISE = 0.12
SPEED = 0.12  # driftless: position += SPEED * action
FRICTION, FORCE = 0.8, 0.05  # inertia: velocity = FRICTION * velocity + FORCE * action


class PointMaze:
    """State: x, y; with inertia also the velocity. Goal: x, y."""

    def __init__(self, name: str, layout: MazeLayout, inertia: bool = False):
        self.layout, self.inertia = layout, inertia
        self.spec = EnvSpec(
            name=name,
            state_size=4 if inertia else 2,
            goal_size=2,
            action_size=2,
            goal_dims=(0, 1),
            threshold=THRESHOLD,
            episode_length=EPISODE_LENGTH,
            maze=layout,
            maze_dims=(0, 1),
        )

    def reset(self, key: Array) -> EnvState:
        key_start, key_noise, key_goal = jax.random.split(key, 3)
        start = jax.random.choice(key_start, jnp.asarray(self.layout.cells("r")))
        noise = jax.random.uniform(key_noise, (2,), minval=-START_NOISE, maxval=START_NOISE)
        goal = jax.random.choice(key_goal, jnp.asarray(self.layout.cells("g")))
        return self._state(start + noise, jnp.zeros(2), goal)

    def reset_to(self, q: Array, qd: Array) -> EnvState:
        """q: x, y, goal x, goal y. qd: the velocities of these (the goal's are ignored)."""
        q, qd = jnp.asarray(q, jnp.float32), jnp.asarray(qd, jnp.float32)
        return self._state(q[:2], qd[:2], q[2:4])

    def step(self, state: EnvState, action: Array) -> EnvState:
        body, goal = self.spec.split(state.obs)
        action = jnp.clip(action, -1.0, 1.0)
        velocity = FRICTION * body[2:4] + FORCE * action if self.inertia else SPEED * action
        position, blocked = slide(self.layout, RADIUS, body[:2], velocity)
        return self._state(position, jnp.where(blocked, 0.0, velocity), goal)

    def _state(self, position: Array, velocity: Array, goal: Array) -> EnvState:
        body = jnp.concatenate([position, velocity]) if self.inertia else position
        return sparse_state(self.spec, body, goal)
