"""The critic as others may see it: the one place where networks meet what reads them."""

import jax
import jax.numpy as jnp

from dcp.critics.energies import ENERGIES
from dcp.errors import UserError
from dcp.methods.interface import Representation
from dcp.networks import Networks
from dcp.types import Array, Params


def bind(networks: Networks, encoders: Params, energy: str = "norm") -> Representation:
    """The one gradient boundary: whoever reads psi through this never trains it."""
    encoders = jax.lax.stop_gradient(encoders)

    def encode_goal(goal: Array) -> Array:
        return networks.psi_g(encoders, goal)

    def distance(psi_a: Array, psi_b: Array) -> Array:
        return jnp.linalg.norm(psi_a - psi_b, axis=-1)

    def state_action_energy(state: Array, action: Array, goal: Array) -> Array:
        if "psi_sa" not in encoders:
            raise UserError(
                "this policy was saved without its critic psi_sa: use the policy file of a run's own folder"
            )
        return ENERGIES[energy].plain(networks.psi_sa(encoders, state, action), encode_goal(goal))

    return Representation(encode_goal, distance, state_action_energy)
