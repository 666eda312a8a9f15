"""What is deployed: state and goal in, action out. No pool, no planner: a policy takes a Condition, never a Command."""

from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from dcp.errors import UserError
from dcp.learner import bind
from dcp.methods.interface import Condition, Representation
from dcp.networks.agent_networks import Networks
from dcp.types import Array, EnvSpec, Params

PolicyState = Any


class Policy(Protocol):
    """Anything that acts: ours, a burst around it, another library's model."""

    def init(self, key: Array) -> PolicyState: ...

    def act(self, policy_state: PolicyState, state: Array, goal: Array) -> tuple[PolicyState, Array]: ...


@dataclass(frozen=True)
class DeployedPolicy:
    """The deterministic actor. Replacing z by g in the condition is all that deployment changes."""

    networks: Networks
    condition: Condition
    spec: EnvSpec
    actor: Params
    encoders: Params
    energy: str = "norm"

    @property
    def representation(self) -> Representation:
        return bind(self.networks, self.encoders, self.energy)

    def init(self, key: Array) -> tuple[()]:
        return ()

    def act(self, policy_state: tuple[()], state: Array, goal: Array) -> tuple[tuple[()], Array]:
        """state [..., S], goal [..., G] -> action [..., A]"""
        condition = self.condition(self.representation, self.spec.achieved(state), goal)
        mean, _ = self.networks.actor(self.actor, state, condition)
        return policy_state, jnp.tanh(mean)

    def __call__(self, observation: Any, goal: Any) -> np.ndarray:
        """NumPy in, NumPy out, one or many: state [..., S], goal [..., G] -> action [..., A]"""
        state, goal = np.asarray(observation, np.float32), np.asarray(goal, np.float32)
        for name, value, size in (
            ("observation", state, self.spec.state_size),
            ("goal", goal, self.spec.goal_size),
        ):
            if value.ndim == 0 or value.shape[-1] != size:
                raise UserError(f"this policy's {name} has {size} numbers, not shape {value.shape}")
        return np.asarray(_act(self.networks, self.condition, self.spec, self.actor, self.encoders, state, goal))


def _deterministic(
    networks: Networks, condition: Condition, spec: EnvSpec, actor: Params, encoders: Params, state: Array, goal: Array
) -> Array:
    return DeployedPolicy(networks, condition, spec, actor, encoders).act((), state, goal)[1]


_act = jax.jit(_deterministic, static_argnums=(0, 1, 2))
