"""Any policy as a plain call, for a loop of one's own: what it remembers is kept from call to call."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from dcp.policies.policy import Policy, PolicyState, as_policy
from dcp.types import Array


class Stepper:
    """stepper(observation, goal) -> action, NumPy in and out. One episode at a time: `reset` begins the next.

    stepper = Stepper(with_burst(load_policy(path), 100, 10))
    """

    def __init__(self, policy: "Policy | Callable[..., Any]", seed: int = 0):
        self.policy = as_policy(policy)
        self._act = _act if getattr(self.policy, "on_host", False) else jax.jit(_act)
        self.reset(seed)

    def reset(self, seed: int = 0) -> None:
        self._state = self.policy.init(jax.random.key(seed))

    def __call__(self, observation: Any, goal: Any) -> np.ndarray:
        """[..., S], [..., G] -> [..., A]; each call is a step, whatever its batch."""
        state, goal = np.asarray(observation, np.float32), np.asarray(goal, np.float32)
        self._state, action = self._act(self.policy, self._state, state, goal)
        return np.asarray(action)


def _act(policy: Policy, policy_state: PolicyState, state: Any, goal: Any) -> tuple[PolicyState, Array]:
    return policy.act(policy_state, state, goal)
