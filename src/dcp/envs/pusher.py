"""Pusher: an arm with seven joints pushes an object over a table to a goal."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from dcp.envs.physics_env import PhysicsEnv
from dcp.physics import Engine, PhysicsState, models
from dcp.types import Array, EnvSpec

FRAMES = 5  # of 0.01: dt = 0.05
ARM, SLIDES = 7, 4  # q: the arm's angles, then the object's and the goal's slides
TIP, OBJECT, GOAL = 5, 7, 8  # links: r_wrist_flex_link, object, goal. Their centres of mass are their origins.

# Slide coordinates are (y, x), from the bodies' place (0.45, -0.05) in the world: low and high corner of each range.
OBJECT_RANGE = ((-0.3, -0.2), (0.0, 0.2))
GOAL_RANGES = {
    "pusher_easy": ((-0.55, -0.2), (-0.25, 0.2)),
    "pusher_hard": ((-0.65, -0.55), (0.35, 0.45)),
}
GOAL_RANGES |= dict.fromkeys(("pusher_hard_far", "pusher_hard_far_any", "pusher_hard_near"), GOAL_RANGES["pusher_hard"])
BASE = (-0.55, -0.45)  # the arm's base, (0, -0.6) in the world, in slide coordinates
MIN_DISTANCE = 0.17  # between object and goal at the start
TRIES = 32


class Pusher(PhysicsEnv):
    """Push an object to a goal. State: the arm's angles, tip, object, the arm's velocities. Goal: the object's place.

    `pusher_hard_far`: the goal lies in Hard's square and is farther from the arm's base than the object, by at least
    0.17. The object's range ends 0.851 from the base and the square 1.273, so such a part always exists, and the
    object is never closer to the goal than 0.17. The goal is uniform over that part except for one draw in 8,000
    (`_far_goal`). `pusher_hard_far_any` and `pusher_hard_near`: Hard's goals that are farther from the base than the
    object, or nearer, and at least 0.17 from the object.
    """

    def __init__(self, name: str, fidelity: str = "paper"):
        self.fidelity = fidelity
        self.goal_range = GOAL_RANGES[name]
        self.arc = name.removeprefix("pusher_hard").removeprefix("_")  # far, far_any, near, or all goals
        self.spec = EnvSpec(
            name=name,
            state_size=20,
            goal_size=3,
            action_size=ARM,
            goal_dims=(10, 11, 12),
            threshold=0.1,
            episode_length=1000,
            physics="generalized",
            fixes=(
                "the object starts at least 0.17 from the goal",
                "success is judged after the step",
                "the goal has the object's height",
            ),
        )

    def model(self) -> mujoco.MjSpec:
        return models.pusher()

    def make_engine(self) -> Engine:
        from dcp.physics.generalized_engine import GeneralizedEngine
        from dcp.physics.kinematics import System

        return GeneralizedEngine(System(self.model().compile()), FRAMES)

    def draw(self, key: Array) -> tuple[Array, Array]:
        key_object, key_goal, key_qd = jax.random.split(key, 3)
        at = _uniform(key_object, OBJECT_RANGE)
        if self.arc == "far":
            goal = _far_goal(key_goal, at, self.goal_range)
        elif self.arc in ("far_any", "near"):
            goal = _arc_goal(key_goal, at, self.goal_range, 1.0 if self.arc == "far_any" else -1.0)
        else:
            goal = _uniform(key_goal, self.goal_range)
        at = _scaled(at, goal) if self.fidelity == "paper" else _moved_away(at, goal)
        qd = jax.random.uniform(key_qd, (ARM + SLIDES,), minval=-0.005, maxval=0.005)
        return jnp.concatenate([jnp.zeros(ARM), at, goal]), qd.at[ARM:].set(0.0)

    def observe(self, physics: PhysicsState, control: Array) -> tuple[Array, Array]:
        pos = physics.x.pos
        goal = pos[GOAL]
        if self.fidelity == "fixed":
            goal = goal.at[2].set(pos[OBJECT, 2])
        return jnp.concatenate([physics.q[:ARM], pos[TIP], pos[OBJECT], physics.qd[:ARM]]), goal

    def judge(self, before: Array, after: Array, goal: Array) -> Array:
        # JaxGCRL judges the state that the step started from (oddity 4).
        return self.near_goal(self.spec.split(before)[0] if self.fidelity == "paper" else after, goal)


def _uniform(key: Array, corners: tuple[tuple[float, float], tuple[float, float]]) -> Array:
    low, high = corners
    return jax.random.uniform(key, (2,), minval=jnp.asarray(low), maxval=jnp.asarray(high))


def _scaled(at: Array, goal: Array) -> Array:
    """Scale an object's place that is too close to the goal away from the origin, as JaxGCRL does (oddity 3)."""
    distance = jnp.linalg.norm(at - goal)
    return at * jnp.where(distance < MIN_DISTANCE, MIN_DISTANCE / distance, 1.0)


def _moved_away(at: Array, goal: Array) -> Array:
    """Move an object that is too close to the goal straight away from it. It may leave its range by at most 0.17."""
    distance = jnp.linalg.norm(at - goal)
    away = jnp.where(distance > 0.0, (at - goal) / jnp.maximum(distance, 1e-9), jnp.array([1.0, 0.0]))
    return jnp.where(distance < MIN_DISTANCE, goal + MIN_DISTANCE * away, at)


def _far_goal(key: Array, at: Array, corners: tuple[tuple[float, float], tuple[float, float]]) -> Array:
    """Draw a goal by rejection: the first of 32 tries, uniform over the square, that is far enough from the base.

    If the square's side corners are too near, the tries come from the far corner's bounding box instead: the same
    distribution with fewer failures. A try fails with probability 0.33 to 0.83, depending on the object's place. If all
    32 fail (0.3 % of the draws for the worst object, 0.012 % over all objects), the goal is uniform over the largest
    square in the far corner that is far enough everywhere. So a goal is always far enough, and nearly uniform.
    """
    base = np.asarray(BASE)
    low, high = np.asarray(corners[0]) - base, float(corners[1][0] - base[0])  # a square: one high for both axes
    least = jnp.linalg.norm(at - jnp.asarray(base)) + MIN_DISTANCE
    # If the side corners are too near, only the far corner remains; its bounding box wastes fewer tries.
    inner = jnp.sqrt(jnp.maximum(least**2 - high**2, 0.0))
    start = jnp.where(least > np.hypot(high, low[0]), inner, low[0])
    key_tries, key_corner = jax.random.split(key)
    tries = start + (high - start) * jax.random.uniform(key_tries, (TRIES, 2))
    far = jnp.linalg.norm(tries, axis=1) >= least
    corner = least / np.sqrt(2.0)
    sure = corner + (high - corner) * jax.random.uniform(key_corner, (2,))
    return jnp.asarray(base) + jnp.where(jnp.any(far), tries[jnp.argmax(far)], sure)


def _arc_goal(key: Array, at: Array, corners: tuple[tuple[float, float], tuple[float, float]], side: float) -> Array:
    """Draw a goal uniformly over the far (side 1) or near (-1) part of the square: the first of 32 tries that lies
    there, at least 0.17 from the object. If all fail (below 1 % for the worst object), it is 0.17 from the object,
    straight away from the base or toward it, which lies in the square too."""
    base = jnp.asarray(BASE)
    low, high = (jnp.asarray(corner) for corner in corners)
    tries = jax.random.uniform(key, (TRIES, 2), minval=low, maxval=high)
    from_base = at - base
    radius = jnp.linalg.norm(from_base)
    beyond = side * (jnp.linalg.norm(tries - base[None], axis=1) - radius) > 0.0
    fits = beyond & (jnp.linalg.norm(tries - at[None], axis=1) >= MIN_DISTANCE)
    sure = at + side * 1.001 * MIN_DISTANCE * from_base / radius
    return jnp.where(jnp.any(fits), tries[jnp.argmax(fits)], sure)
