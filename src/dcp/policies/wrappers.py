"""Policies around policies: sampled actions, Python functions, the paper's bursts, and one call per step."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.actor import actor_rule_of, next_chunk_action
from dcp.errors import UserError
from dcp.policies.policy import DeployedPolicy, Policy, PolicyState
from dcp.types import Array

PERIOD, LENGTH = 100, 10  # the paper's burst
BURST_STREAM = 0x75727374  # keeps the burst's random stream apart from the policy's


@partial(jax.tree_util.register_dataclass, data_fields=["policy"], meta_fields=[])
@dataclass(frozen=True)
class SampledPolicy:
    """Act as in training, by the critic's actor rule: tanh of a sample, or TD3's noise around tanh of the mean."""

    policy: DeployedPolicy

    def init(self, key: Array) -> tuple[Array, Any]:
        return key, self.policy.init(key)

    def act(self, policy_state: tuple[Array, Any], state: Array, goal: Array) -> tuple[tuple[Array, Any], Array]:
        key, key_noise = jax.random.split(policy_state[0])
        mean, log_std = self.policy.heads(state, goal)
        noise = jax.random.normal(key_noise, mean.shape)
        planned = actor_rule_of(self.policy.critic).explore(mean, log_std, noise)
        chunk, action = next_chunk_action(policy_state[1], planned, self.policy.action_chunk)
        return (key, chunk), action


@dataclass(frozen=True)
class HostPolicy:
    """Act with any NumPy function, state [N, S], goal [N, G] -> action [N, A]: another library's model, an export.

    Python calls it at every step, and calls `restart`, if given, when new episodes begin.
    """

    function: Callable[[np.ndarray, np.ndarray], Any]
    restart: Callable[[], object] | None = None
    on_host: ClassVar[bool] = True

    def init(self, key: Array) -> tuple[()]:
        if self.restart is not None:
            self.restart()
        return ()

    def act(self, policy_state: tuple[()], state: Array, goal: Array) -> tuple[tuple[()], Array]:
        action = jnp.asarray(self.function(np.asarray(state), np.asarray(goal)), jnp.float32)
        if action.ndim != state.ndim or action.shape[:-1] != state.shape[:-1]:
            raise UserError(
                f"the policy gave actions of shape {action.shape} for states {state.shape}: give one action per state"
            )
        return (), action


def as_policy(policy: "Policy | Callable[[np.ndarray, np.ndarray], Any]") -> Policy:
    """Return a policy unchanged, and a plain function or an exported policy as a `HostPolicy`."""
    if hasattr(policy, "act"):
        return policy  # pyright: ignore[reportReturnType]
    if not callable(policy):
        raise UserError(f"a {type(policy).__name__} does not act: give a policy, or a function of state and goal")
    return HostPolicy(policy, getattr(policy, "reset", None))


class BurstState(NamedTuple):
    inner: Any  # the policy's own state
    key: Array
    step: Array  # []: steps so far


def is_random(step: Any, period: Any, length: Any, first: bool = False) -> Any:
    """Return whether the burst acts at this step, counted from 0: in the last steps of a period, or in the first."""
    return step % period < length if first else step % period >= period - length


@partial(jax.tree_util.register_dataclass, data_fields=["policy", "period", "length"], meta_fields=["first"])
@dataclass(frozen=True)
class PeriodicBurst:
    """Add the paper's periodic burst to any policy: uniform actions in the last `length` steps of each `period`.

    So an episode starts with the policy itself, and the share of random steps is exactly L / P. The policy also
    computes its action at random steps, so that its random stream is the same as without the burst. `first`: in the
    first steps of each period, the other reading of the paper's words.
    """

    policy: Policy
    period: int | Array = PERIOD
    length: int | Array = LENGTH
    first: bool = False

    @property
    def on_host(self) -> bool:
        return getattr(self.policy, "on_host", False)

    def init(self, key: Array) -> BurstState:
        inner = self.policy.init(key)  # the same key, so that with L = 0 the policy acts as without a burst
        return BurstState(inner, jax.random.fold_in(key, BURST_STREAM), jnp.zeros((), jnp.int32))

    def act(self, policy_state: BurstState, state: Array, goal: Array) -> tuple[BurstState, Array]:
        inner, action = self.policy.act(policy_state.inner, state, goal)
        key, step = policy_state.key, policy_state.step
        uniform = jax.random.uniform(jax.random.fold_in(key, step), action.shape, minval=-1.0, maxval=1.0)
        action = jnp.where(is_random(step, self.period, self.length, self.first), uniform, action)
        return BurstState(inner, key, step + 1), action


def with_burst(
    policy: "Policy | Callable[..., Any]", period: int = PERIOD, length: int = LENGTH, first: bool = False
) -> Policy:
    """Return the policy with a burst of `length` steps in every `period`; with length 0 the policy itself."""
    policy = as_policy(policy)
    if period < 1 or not 0 <= length <= period or int(period) != period or int(length) != length:
        raise UserError(f"a burst of {length} steps in a period of {period}: use a period P >= 1 and 0 <= L <= P")
    return PeriodicBurst(policy, period, length, first) if length else policy


class Stepper:
    """Call any policy as a function that keeps the policy's state: stepper(observation, goal) -> action.

    stepper = Stepper(with_burst(load_policy(path), 100, 10)). It plays one episode at a time; `reset` starts the next.
    """

    def __init__(self, policy: "Policy | Callable[..., Any]", seed: int = 0):
        self.policy = as_policy(policy)
        self._act = _step if getattr(self.policy, "on_host", False) else jax.jit(_step)
        self.reset(seed)

    def reset(self, seed: int = 0) -> None:
        self._state = self.policy.init(jax.random.key(seed))

    def __call__(self, observation: Any, goal: Any) -> np.ndarray:
        """Take one step for the whole batch: [..., S], [..., G] -> [..., A]."""
        state, goal = np.asarray(observation, np.float32), np.asarray(goal, np.float32)
        self._state, action = self._act(self.policy, self._state, state, goal)
        return np.asarray(action)


def _step(policy: Policy, policy_state: PolicyState, state: Any, goal: Any) -> tuple[PolicyState, Array]:
    return policy.act(policy_state, state, goal)
