"""States without actions, as the critic may learn from them: a body at rest, with no action, stays where it is."""

import jax
import jax.numpy as jnp

from dcp.types import Array, Batch, EnvSpec


def draws(key: Array, updates: int, num_states: int, share: int) -> Array:
    """[updates, share]: which states enter each update, none twice: two equal pairs would be each other's negatives"""
    lots = jax.random.uniform(key, (updates, num_states))
    return jax.lax.top_k(lots, share)[1]  # the highest lots


def with_standing(batch: Batch, states: Array, spec: EnvSpec) -> Batch:
    """The first pairs [B, ...] give way to pairs of these states [M, S]: no action, and the future is the present.

    That is what a hindsight goal of an episode at rest is, whichever later step it is taken from. Without momentum
    (point_soccer) it is the exact truth; for a simulated body it is as true as the body stands still.
    """
    num, achieved = states.shape[0], spec.achieved(states)  # [M, G]
    return Batch(
        state=batch.state.at[:num].set(states),
        action=batch.action.at[:num].set(jnp.zeros((num, spec.action_size))),
        commanded_goal=batch.commanded_goal.at[:num].set(achieved),
        future_goal=batch.future_goal.at[:num].set(achieved),
    )
