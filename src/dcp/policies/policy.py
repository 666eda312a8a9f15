"""Policies for deployment: state and goal in, action out. They have a Condition but no Command: no pool, no planner."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from dcp.critics.actor_rules import actor_rule_of
from dcp.errors import UserError
from dcp.interfaces import Condition, Critic, Network, Problem, Representation, read
from dcp.networks import actor_heads
from dcp.types import Array, EnvSpec, Params

PolicyState = Any
PERIOD, LENGTH = 100, 10  # the paper's burst
_BURST_STREAM = 0x75727374  # keeps the burst's random stream apart from the policy's
_FIXED = ["spec", "network", "critic", "condition", "action_chunk"]  # static fields of a policy as a program's argument


class Policy(Protocol):
    """Declare what acts: our policy, a burst around it, or another library's model."""

    def init(self, key: Array) -> PolicyState: ...

    def act(self, policy_state: PolicyState, state: Array, goal: Array) -> tuple[PolicyState, Array]: ...


class ChunkState(NamedTuple):
    """The chunk of H actions that is being taken."""

    actions: Array  # [..., H * A]
    step: Array  # [...] or []: the next action's index; at 0 a new chunk is planned


def next_chunk_action(chunk: Any, planned: Array, length: int) -> tuple[Any, Array]:
    """Return the chunk's state after this step, and its next action [..., A], or the first of the new chunk `planned`
    [..., H * A]. Without a state, every call takes the first action of a new chunk."""
    if length == 1:
        return chunk, planned
    rows = planned.shape[:-1]
    if not isinstance(chunk, ChunkState):
        return chunk, planned.reshape(*rows, length, -1)[..., 0, :]
    step = jnp.broadcast_to(chunk.step, rows)[..., None]  # [..., 1]
    actions = jnp.where(step == 0, planned, jnp.broadcast_to(chunk.actions, planned.shape))
    action = jnp.take_along_axis(actions.reshape(*rows, length, -1), step[..., None], axis=-2)[..., 0, :]
    return ChunkState(actions, (chunk.step + 1) % length), action


@partial(jax.tree_util.register_dataclass, data_fields=["actor", "critic_params"], meta_fields=_FIXED)
@dataclass(frozen=True)
class DeployedPolicy:
    """Act with the deterministic actor. Deployment only replaces z by g in the condition."""

    spec: EnvSpec
    network: Network
    critic: Critic
    condition: Condition
    actor: Params = field(repr=False)
    critic_params: Params = field(repr=False)
    action_chunk: int = 1

    @property
    def representation(self) -> Representation:
        return read(self.critic, Problem(self.spec.in_chunks(self.action_chunk), self.network), self.critic_params)

    def init(self, key: Array) -> Any:
        """Return the first policy state. If actions are chunks, they are taken open loop, starting with a new one."""
        if self.action_chunk == 1:
            return ()
        return ChunkState(jnp.zeros(self.action_chunk * self.spec.action_size), jnp.zeros((), jnp.int32))

    def act(self, policy_state: Any, state: Array, goal: Array) -> tuple[Any, Array]:
        """Act: state [..., S], goal [..., G] -> action [..., A]. Without a policy_state, plan a new chunk."""
        return next_chunk_action(policy_state, self.plan(state, goal), self.action_chunk)

    def plan(self, state: Array, goal: Array) -> Array:
        """Return the whole chunk: [..., H * A]."""
        return jnp.tanh(self.heads(state, goal)[0])

    def heads(self, state: Array, goal: Array) -> tuple[Array, Array]:
        """Return mean and log std before squashing: [..., H * A] each."""
        condition = self.condition(self.representation, self.spec.achieved(state), goal)
        return actor_heads(self.network, self.actor, state, condition)

    def __call__(self, observation: Any, goal: Any) -> np.ndarray:
        """Act on NumPy arrays, one or many: state [..., S], goal [..., G] -> action [..., A]. One goal may serve many
        states, and one state many goals. Each call plans a new chunk; `Stepper` takes whole chunks."""
        from dcp.policies.numpy_policy import numbers, paired

        state, goal = numbers("observation", observation, UserError), numbers("goal", goal, UserError)
        if state.shape != (self.spec.state_size,) or goal.shape != (self.spec.goal_size,):
            state, goal = paired(state, goal, (self.spec.state_size, self.spec.goal_size), UserError)
        for name, values in (("observation", state), ("goal", goal)):
            if not np.isfinite(values).all():
                raise UserError(f"this policy's {name} has a number that is not finite: check the sensor that gave it")
        return np.asarray(_act(self._on_device, state, goal))

    def planned(self, state: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """Return whole chunks, NumPy in and out: state [B, S], goal [B, G] -> [B, H * A]."""
        return np.asarray(_plan(self._on_device, state, goal))

    @cached_property
    def _on_device(self) -> "DeployedPolicy":
        """Return the policy with its parameters on the device, so that NumPy arrays are not copied at each call."""
        return jax.device_put(self)

    def save(self, path: str | Path, **about: Any) -> Path:
        """Write the policy to a file that `dcp.load_policy` reads. `about`: further metadata for the file."""
        from dcp.policies.policy_file import save_policy

        return save_policy(path, self, {"env": self.spec.name, **about})

    def without_critic(self) -> "DeployedPolicy":
        """Return what deployment and the psi landscape need. A contrastive critic's psi_sa serves only training."""
        return replace(self, critic_params=deployed_params(self.critic, self.critic_params))


def deployed_params(critic: Critic, params: Params) -> Params:
    """Return the critic's parameters that the actor reads, if the critic names them; else all of them."""
    keep = getattr(critic, "deployed", None)
    return params if keep is None else keep(params)


@jax.jit
def _plan(policy: DeployedPolicy, state: Array, goal: Array) -> Array:
    return policy.plan(state, goal)


@jax.jit
def _act(policy: DeployedPolicy, state: Array, goal: Array) -> Array:
    return policy.act((), state, goal)[1]


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


def is_random(step: Any, period: Any, length: Any) -> Any:
    """Return whether the burst acts at this step, counted from 0."""
    return step % period >= period - length


@partial(jax.tree_util.register_dataclass, data_fields=["policy", "period", "length"], meta_fields=[])
@dataclass(frozen=True)
class PeriodicBurst:
    """Add the paper's periodic burst to any policy: uniform actions in the last `length` steps of each `period`.

    So an episode starts with the policy itself, and the share of random steps is exactly L / P. The policy also
    computes its action at random steps, so that its random stream is the same as without the burst.
    """

    policy: Policy
    period: int | Array = PERIOD
    length: int | Array = LENGTH

    @property
    def on_host(self) -> bool:
        return getattr(self.policy, "on_host", False)

    def init(self, key: Array) -> BurstState:
        inner = self.policy.init(key)  # the same key, so that with L = 0 the policy acts as without a burst
        return BurstState(inner, jax.random.fold_in(key, _BURST_STREAM), jnp.zeros((), jnp.int32))

    def act(self, policy_state: BurstState, state: Array, goal: Array) -> tuple[BurstState, Array]:
        inner, action = self.policy.act(policy_state.inner, state, goal)
        key, step = policy_state.key, policy_state.step
        uniform = jax.random.uniform(jax.random.fold_in(key, step), action.shape, minval=-1.0, maxval=1.0)
        action = jnp.where(is_random(step, self.period, self.length), uniform, action)
        return BurstState(inner, key, step + 1), action


def with_burst(policy: "Policy | Callable[..., Any]", period: int = PERIOD, length: int = LENGTH) -> Policy:
    """Return the policy with a burst of `length` steps in every `period`; with length 0 the policy itself."""
    policy = as_policy(policy)
    if period < 1 or not 0 <= length <= period or int(period) != period or int(length) != length:
        raise UserError(f"a burst of {length} steps in a period of {period}: use a period P >= 1 and 0 <= L <= P")
    return PeriodicBurst(policy, period, length) if length else policy


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
