"""The paper's periodic burst: a deployed policy acts at random for a few steps of each period, and needs no retraining.

The last L steps of each period of P are random, so that an episode starts with the policy itself, and the share of
random steps is exactly L / P.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dcp.errors import UserError
from dcp.policies.policy import Policy, as_policy
from dcp.types import Array

PERIOD, LENGTH = 100, 10  # the paper's
_STREAM = 0x6275727374  # keeps the burst's random stream apart from the policy's


class BurstState(NamedTuple):
    inner: Any  # the policy's own
    key: Array
    step: Array  # []: steps so far


def is_random(step: Any, period: Any, length: Any) -> Any:
    """Whether the burst acts at this step, counted from 0."""
    return step % period >= period - length


@partial(jax.tree_util.register_dataclass, data_fields=["policy", "period", "length"], meta_fields=[])
@dataclass(frozen=True)
class PeriodicBurst:
    """Any policy, interrupted. What it would have done is computed all the same: its own random stream goes on."""

    policy: Policy
    period: int | Array = PERIOD
    length: int | Array = LENGTH

    @property
    def on_host(self) -> bool:
        return getattr(self.policy, "on_host", False)

    def init(self, key: Array) -> BurstState:
        inner = self.policy.init(key)  # the very key: with L = 0 the policy does what it does alone
        return BurstState(inner, jax.random.fold_in(key, _STREAM & 0xFFFFFFFF), jnp.zeros((), jnp.int32))

    def act(self, policy_state: BurstState, state: Array, goal: Array) -> tuple[BurstState, Array]:
        inner, action = self.policy.act(policy_state.inner, state, goal)
        key, step = policy_state.key, policy_state.step
        uniform = jax.random.uniform(jax.random.fold_in(key, step), action.shape, minval=-1.0, maxval=1.0)
        action = jnp.where(is_random(step, self.period, self.length), uniform, action)
        return BurstState(inner, key, step + 1), action


def with_burst(policy: "Policy | Callable[..., Any]", period: int = PERIOD, length: int = LENGTH) -> Policy:
    """The policy with a burst of `length` steps in every `period`; with length 0 the policy itself."""
    policy = as_policy(policy)
    if period < 1 or not 0 <= length <= period or int(period) != period or int(length) != length:
        raise UserError(f"a burst of {length} steps in a period of {period}: use a period P >= 1 and 0 <= L <= P")
    return PeriodicBurst(policy, period, length) if length else policy
