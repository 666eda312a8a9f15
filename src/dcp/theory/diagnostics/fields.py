"""What the agent's networks say at many states: each program is compiled once for policies of one shape."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dcp.compiling import QUICK_COMPILE
from dcp.methods.conditions import direction_and_magnitude, pulled_back
from dcp.policies.policy import DeployedPolicy
from dcp.types import Array


class Learned(NamedTuple):
    """The way from s to a goal, as psi has it."""

    direction: Array  # [K, D]: u, in psi-space
    magnitude: Array  # [K]: d_psi
    pulled: Array  # [K, G]: J^T u
    descent: Array  # [K, G]: -grad_s d_psi, by differentiating the distance itself


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def learned(policy: DeployedPolicy, achieved: Array, commanded: Array) -> Learned:
    """achieved [K, G], commanded [K, G]. Where both are one point every part is zero."""
    representation = policy.representation

    def of_one(s: Array, z: Array) -> Learned:
        psi_z = representation.encode_goal(z)
        direction, magnitude = direction_and_magnitude(representation.encode_goal(s), psi_z)
        slope = jax.grad(lambda at: representation.distance(representation.encode_goal(at), psi_z))(s)
        descent = jnp.where(magnitude > 0.0, -slope, 0.0)  # a norm has no slope at zero
        return Learned(direction, magnitude[0], pulled_back(representation, s, z), descent)

    return jax.vmap(of_one)(achieved, commanded)


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def actions(policy: DeployedPolicy, state: Array, goal: Array) -> Array:
    """state [K, S], goal [K, G] -> [K, A]: the deployed actor's"""
    return policy.act((), state, goal)[1]


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def psi(policy: DeployedPolicy, goal: Array) -> Array:
    """[K, G] -> [K, D]"""
    return policy.representation.encode_goal(goal)


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def jacobians(policy: DeployedPolicy, achieved: Array) -> Array:
    """[K, G] -> [K, D, G]: J_psi"""
    return jax.vmap(jax.jacfwd(policy.representation.encode_goal))(achieved)


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def energy_distances(policy: DeployedPolicy, state: Array, goal: Array) -> Array:
    """[K, S], [K, G] -> [K]: -energy of the state, the actor's own action toward the goal, and the goal"""
    action = policy.act((), state, goal)[1]
    return -policy.representation.energy(state, action, goal)
