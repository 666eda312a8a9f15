"""Policies for deployment: state and goal in, action out. They have a Condition but no Command: no pool, no planner.

A policy is saved as named arrays and one JSON string; `policy_file` loads it.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save

from dcp.actor import ChunkState, actor_heads, next_chunk_action
from dcp.components import describe
from dcp.errors import UserError
from dcp.files import write_whole
from dcp.interfaces import Condition, Critic, Network, Problem, Representation, representation_of
from dcp.networks import in_task_units, scaled_goal, scaled_state
from dcp.types import Array, EnvSpec, Params, named_arrays

PolicyState = Any
_FIXED = ["spec", "network", "critic", "condition", "action_chunk"]  # static fields of a policy as a program's argument

POLICY_SCHEMA_VERSION = 4  # 2 stores the parts as components; 3 has action chunks; 4 has a scale or a control
KINDS = ("network", "critic", "condition")  # the parts of a policy
METADATA_KEY = "dcp"  # the only metadata entry, because safetensors writes several in no fixed order
CHECKSUM = "sha256"


class Policy(Protocol):
    """Declare what acts: our policy, a burst around it, or another library's model."""

    def init(self, key: Array) -> PolicyState: ...

    def act(self, policy_state: PolicyState, state: Array, goal: Array) -> tuple[PolicyState, Array]: ...


@partial(jax.tree_util.register_dataclass, data_fields=["actor", "critic_params", "scale"], meta_fields=_FIXED)
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
    scale: Any = ()

    @property
    def representation(self) -> Representation:
        """Return what others may read of the critic, for states and goals in the task's own units."""
        return in_task_units(self._scaled_representation(), self.scale, self.spec)

    def _scaled_representation(self) -> Representation:
        problem = Problem(self.spec.in_chunks(self.action_chunk), self.network)
        return representation_of(self.critic, problem, self.critic_params)

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
        state, goal = scaled_state(self.scale, state), scaled_goal(self.scale, self.spec, goal)
        condition = self.condition(self._scaled_representation(), self.spec.achieved(state), goal)
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


def save_policy(path: str | Path, policy: DeployedPolicy, about: Mapping[str, Any]) -> Path:
    """Write the policy completely or not at all. `about` says where it comes from: env, method, and more."""
    path, by_tool = Path(path), policy.spec.control != "joints"
    # The scale in use is among the arrays. An older dcp does not know these fields, and reads what it can.
    omitted = {"action_chunk", "scale"} | ({"control"} if not by_tool else set())
    metadata: dict[str, Any] = {
        "schema_version": 4 if policy.scale or by_tool else 3 if policy.action_chunk > 1 else 2,
        "spec": {name: value for name, value in asdict(policy.spec).items() if name not in omitted},
        **{kind: describe(kind, getattr(policy, kind)) for kind in KINDS},
        "about": dict(about),
        **({"action_chunk": policy.action_chunk} if policy.action_chunk > 1 else {}),
        **({"scaled": True} if policy.scale else {}),
    }
    named = named_arrays({"actor": policy.actor, "critic": policy.critic_params, "scale": policy.scale})
    arrays = {name: np.asarray(array, order="C") for name, array in named.items()}
    metadata[CHECKSUM] = checksum(json.loads(json.dumps(metadata)), arrays)  # as JSON returns it: tuples become lists
    write_whole(path, save(arrays, {METADATA_KEY: json.dumps(metadata)}))
    return path


def checksum(metadata: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of the metadata, without the checksum itself, and of every array with its name and shape."""
    content = {name: value for name, value in metadata.items() if name != CHECKSUM}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, str(array.dtype), array.shape]).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
