"""The humanoid's tasks, in the open and in a maze: move the torso to a place."""

from functools import cached_property

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from dcp.envs.physics_env import PhysicsEnv
from dcp.physics import Engine, PhysicsState, models
from dcp.physics.kinematics import System, Transform, compose, matrix, velocity_at
from dcp.types import Array, EnvSpec, MazeLayout

Q, V, A, LINKS = 24, 23, 17, 11  # without the target
INIT_Q = np.array([0.0, 0.0, 1.4, 1.0] + [0.0] * 22, np.float32)  # the target's x, y last
TARGET_HEIGHT = 1.25
HEALTHY_Z = (1.0, 2.0)
TIMESTEP, FRAMES = 0.0015, 10  # dt = 0.015
SPRING_GEAR = [350.0] * 11 + [100.0] * 6  # Brax's values for spring physics; other physics use the stock model's
CONTROL_LIMIT = 0.4
HEALTHY_REWARD, CONTROL_COST = 5.0, 0.1
TARGET_DISTANCE = (1.0, 5.0)  # in the open, from the start


class Humanoid(PhysicsEnv):
    """Reach a target in the open. State: q, qd, inertia, velocity about the centre of mass, actuator forces. Goal: the
    target's x, y, z.

    In paper fidelity the state includes the target's entries, and the centre of mass includes the target's kilogram.
    """

    links = "moving"
    healthy_z = HEALTHY_Z

    def __init__(self, name: str, fidelity: str = "paper", layout: MazeLayout | None = None):
        self.layout, self.fidelity = layout, fidelity
        links, target = (LINKS + 1, 2) if fidelity == "paper" else (LINKS, 0)
        self._links, self._q, self._v = links, Q + target, V + target
        self.spec = EnvSpec(
            name=name,
            state_size=self._q + self._v + 10 * links + 6 * links + self._v,
            goal_size=3,
            action_size=A,
            goal_dims=(0, 1, 2),
            threshold=0.5,
            episode_length=1000,
            maze=layout,
            maze_dims=None if layout is None else (0, 1),
            physics="spring",
            fixes=("the state no longer holds the target's position, velocity and inertia (S 268 becomes 246)",),
        )

    def model(self) -> mujoco.MjSpec:
        spec = models.humanoid()
        for geom in spec.geoms:
            if geom.name != "floor":
                geom.contype, geom.conaffinity = 1, 0
        spec.geom("floor").contype = 1
        if self.layout is not None:
            models.add_walls(spec, self.layout)
        models.add_target(spec, height=TARGET_HEIGHT, radius=0.5, range_=100.0)
        if self.spec.physics == "spring":
            for actuator, gear in zip(spec.actuators, SPRING_GEAR, strict=True):
                actuator.gear = [gear, 0, 0, 0, 0, 0]
        return spec

    def make_engine(self) -> Engine:
        from dcp.physics.spring_engine import spring_engine

        return spring_engine(self.model(), TIMESTEP, FRAMES, self.layout)

    def draw(self, key: Array) -> tuple[Array, Array]:
        """Draw a start at the origin and a target at a uniform distance and angle from it."""
        key_distance, key_angle = jax.random.split(key)
        low, high = TARGET_DISTANCE
        distance = jax.random.uniform(key_distance, minval=low, maxval=high)
        angle = jax.random.uniform(key_angle, maxval=2.0 * jnp.pi)
        return self.upright(jnp.zeros(2), distance * jnp.stack([jnp.cos(angle), jnp.sin(angle)]))

    def upright(self, start: Array, goal: Array) -> tuple[Array, Array]:
        """Return q and qd without noise for start [2] and goal [2]."""
        return jnp.asarray(INIT_Q).at[:2].set(start).at[-2:].set(goal), jnp.zeros(V + 2)

    def control(self, action: Array) -> Array:
        return CONTROL_LIMIT * action

    def reward(self, state: Array, goal: Array, control: Array, near_goal: Array) -> Array:
        cost = CONTROL_COST * jnp.sum(jnp.square(control))
        return HEALTHY_REWARD - jnp.linalg.norm(state[:3] - goal) - cost

    def observe(self, physics: PhysicsState, control: Array) -> tuple[Array, Array]:
        inertia, velocity = self._centre_of_mass(physics)
        forces = self._system.torques(control)[: self._v]
        state = jnp.concatenate(
            [physics.q[: self._q], physics.qd[: self._v], inertia.reshape(-1), velocity.reshape(-1), forces]
        )
        return state, jnp.append(physics.q[Q:], TARGET_HEIGHT)

    @cached_property
    def _system(self) -> System:
        return System(self.model().compile())

    def _centre_of_mass(self, physics: PhysicsState) -> tuple[Array, Array]:
        """Return each link's inertia about the centre of mass with its mass [L, 10], and its velocities [L, 6]."""
        model, bodies = self._system.model, slice(1, self._links + 1)  # without the world
        mass, pos, rot = (
            jnp.asarray(values[bodies], jnp.float32) for values in (model.body_mass, model.body_ipos, model.body_iquat)
        )
        x, xd = (jax.tree.map(lambda leaf: leaf[: self._links], part) for part in (physics.x, physics.xd))
        centres = compose(x, Transform(pos, rot))
        whole = jnp.sum(mass)
        centre = jnp.sum(mass[:, None] * centres.pos, axis=0) / whole  # [3]
        about = jax.vmap(_inertia_about)(centres.pos - centre[None], centres.rot, mass)
        inertia = jnp.concatenate([about.reshape(self._links, 9), mass[:, None]], axis=1)
        motion = velocity_at(xd, centres.pos - x.pos)
        return inertia, jnp.concatenate([mass[:, None] * motion.vel / whole, motion.ang], axis=1)


def _inertia_about(lever: Array, rot: Array, mass: Array) -> Array:
    """Return a link's inertia [3, 3] about a point `lever` away from its centre of mass. Its own is 1 about any axis:
    spring physics gives every link a unit inertia of rotation (the model's spring_inertia_scale is 1)."""
    cross, turn = jnp.cross(lever, -jnp.eye(3)), matrix(rot)
    return turn @ jnp.eye(3) @ turn.T + cross @ cross.T * mass


class HumanoidMaze(Humanoid):
    """Reach a goal cell's centre from a maze's start cell."""

    def __init__(self, name: str, layout: MazeLayout, fidelity: str = "paper"):
        super().__init__(name, fidelity, layout)
        self.layout: MazeLayout = layout

    def draw(self, key: Array) -> tuple[Array, Array]:
        key_start, key_goal = jax.random.split(key)
        start = jax.random.choice(key_start, jnp.asarray(self.layout.cells("r")))
        return self.upright(start, jax.random.choice(key_goal, jnp.asarray(self.layout.cells("g"))))
