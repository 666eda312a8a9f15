"""Brax's spring pipeline, composed from its parts, with contacts that are found on the maze's grid.

Two things are left out because they change nothing: walls far away (a contact that does not penetrate has no impulse),
and joint coordinates between the frames of one environment step (nothing reads them there).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from brax import actuator, com, kinematics
from brax.base import Motion
from brax.spring import integrator, joints, pipeline

from dcp.physics.buffers import once
from dcp.physics.contacts import ContactFinder, Contacts
from dcp.physics.vectors import Vec, vec
from dcp.types import Array

if TYPE_CHECKING:
    from brax.base import System
    from brax.spring.base import State


@dataclass(frozen=True)
class SpringEngine:
    sys: "System"
    frames: int
    contacts: ContactFinder

    def __post_init__(self) -> None:
        if self.sys.enable_fluid:
            raise ValueError("the spring engine has no fluid")
        if np.any(self.sys.actuator.bias_q) or np.any(self.sys.actuator.bias_qd):
            raise ValueError("the spring engine takes motors only: others read joint coordinates at every frame")

    def init(self, q: Array, qd: Array) -> "State":
        return pipeline.init(self.sys, q, qd)

    def step(self, state: "State", control: Array) -> "State":
        tau = actuator.to_tau(self.sys, control, state.q, state.qd)

        def frame(state: "State", _: None) -> tuple["State", None]:
            return self._frame(state, tau), None

        state, _ = jax.lax.scan(frame, state, None, self.frames)
        q, qd = kinematics.inverse(self.sys, state.j, state.jd)
        return state.replace(q=q, qd=qd)  # pyright: ignore[reportAttributeAccessIssue]

    def _frame(self, state: Any, tau: Array) -> Any:
        sys = self.sys
        state = state.replace(i_inv=com.inv_inertia(sys, state.x))
        force = joints.resolve(sys, state, tau)
        acceleration = Motion.create(vel=sys.gravity) + Motion(
            ang=jnp.einsum("lij,lj->li", state.i_inv, force.ang), vel=force.vel / state.mass[:, None]
        )
        state = state.replace(xd_i=state.xd_i + acceleration * sys.opt.timestep)
        bump = self._collide(state)
        x_i, xd_i = integrator.integrate(sys, state.x_i, state.xd_i, bump)
        x, xd = com.to_world(sys, x_i, xd_i)
        j, jd, a_p, a_c = kinematics.world_to_joint(sys, x, xd)
        return state.replace(x=x, xd=xd, x_i=x_i, xd_i=xd_i, j=j, jd=jd, a_p=a_p, a_c=a_c)

    def _collide(self, state: Any) -> Motion:
        """Change of each link's velocity by its contacts: the mean impulse over those that act."""
        # Brax's solver reads a single number of inverse inertia for a link: entry `link` of all matrices laid end to
        # end. An oversight, surely; the paper's physics all the same.
        inertia = state.i_inv.reshape(-1)[: state.mass.shape[0]]
        numbers = [inertia[:, None], 1.0 / state.mass[:, None]]
        bodies = [state.x.pos, state.x.rot, state.x_i.pos, state.xd_i.vel, state.xd_i.ang, *numbers]
        total = batch_last(self._impulses)(jnp.concatenate(bodies, axis=1).T)  # [L, 7]
        mean = total[:, :6] / (total[:, 6:] + 1e-8)
        return Motion(
            vel=mean[:, :3] / state.mass[:, None],
            ang=jnp.einsum("lij,lj->li", state.i_inv, mean[:, 3:]),
        )

    def _impulses(self, bodies: Array) -> Array:
        """[18, L, N] -> [L, 7, N]: impulse, angular impulse and number of contacts that act on each link"""
        total = jnp.zeros((bodies.shape[1], 7, bodies.shape[2]))
        for contacts in self.contacts(bodies[:7]):
            total = total + _sum_of_impulses(contacts, bodies[7:], self.sys)
        return total


def batch_last(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A function of [..., N] arrays for use under vmap: environments become the innermost axis, where lanes are full.

    Without it vmap would put them first and leave a CPU three numbers at a time.
    """

    @jax.custom_batching.custom_vmap
    def one(array: Array) -> Array:
        return function(array[..., None])[..., 0]

    @one.def_vmap
    def many(axis_size: int, in_batched: list[bool], array: Array) -> tuple[Array, bool]:
        (is_batched,) = in_batched
        if not is_batched:
            array = jnp.broadcast_to(array, (axis_size, *array.shape))
        return jnp.moveaxis(function(jnp.moveaxis(array, 0, -1)), -1, 0), True

    return one


class _Side:
    """One body of each contact."""

    def __init__(self, bodies: Array, links: np.ndarray, pos: Vec):
        mine = bodies[:, links]  # [11, K, N]
        self.links = links
        self.arm = pos - vec(mine)
        self.velocity = vec(mine[3:]) + vec(mine[6:]).cross(self.arm)
        self.inverse_inertia, self.inverse_mass = mine[9], mine[10]

    def resistance(self, direction: Vec) -> Array:
        """How much a unit impulse at the contact speeds it up by turning the body."""
        turn = self.arm.cross(direction) * self.inverse_inertia
        return direction.dot(turn.cross(self.arm))


def _sum_of_impulses(contacts: Contacts, bodies: Array, sys: "System") -> Array:
    """bodies [11, L, N] -> [L, 7, N]"""
    dist, pos, normal = contacts.touch
    n = -normal  # the direction in which the first body is pushed
    first = _Side(bodies, contacts.first, pos)
    sides = [first]
    velocity = first.velocity
    if contacts.second is not None:
        sides.append(_Side(bodies, contacts.second, pos))
        velocity = velocity - sides[1].velocity
    mass = sum(side.inverse_mass for side in sides)

    approach, mass, velocity = once((n.dot(velocity), mass, velocity))
    resistance = sum(side.resistance(n) for side in sides)
    baumgarte = sys.baumgarte_erp / sys.opt.timestep * dist
    impulse = (-(1.0 + contacts.elasticity) * approach - baumgarte) / (mass + resistance)
    acts = (dist < 0.0) & (approach < 0.0) & (impulse > 0.0)

    # Friction acts against the motion along the surface, and never reverses it.
    sliding = velocity - n * approach
    speed = sliding.norm()
    along = sliding * (1.0 / (1e-6 + speed))
    drag = speed / (mass + sum(side.resistance(along) for side in sides))
    drag = jnp.where(speed > 1e-3, jnp.minimum(drag, contacts.friction * impulse), 0.0)
    p, acts = once(((n * impulse - along * drag) * acts, acts))  # [K, N] each
    total = jnp.zeros((bodies.shape[1], 7, bodies.shape[2]))
    for side, sign in zip(sides, (1.0, -1.0), strict=False):
        parts = jnp.stack([*(p * sign), *(side.arm.cross(p) * sign), acts.astype(p.x.dtype)], axis=1)  # [K, 7, N]
        member = np.eye(bodies.shape[1], dtype=np.float32)[side.links].T  # [L, K]
        total = total + (member @ parts.reshape(len(side.links), -1)).reshape(total.shape)
    return total
