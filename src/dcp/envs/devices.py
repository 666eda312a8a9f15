"""Environments split over devices: each device steps its own share, and nothing passes between them meanwhile.

GPUs, or on a CPU one virtual device a core: a physics step is hundreds of small operations, which XLA spreads badly
over the threads of one device. JAX makes virtual devices only while it starts, so it must be told before.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dcp.errors import UserError
from dcp.types import EnvSpec

AXIS = "envs"
_MOST = 64  # virtual devices that are made unasked for on fewer cores: JAX would also try to make a million
_XLA_COUNT = "xla_force_host_platform_device_count"
# XLA ends the process where one CPU device waits 40 s for another, as after Ctrl-Z and fg. Only XLA_FLAGS help.
_PATIENCE, _DAY = "xla_cpu_collective_call_terminate_timeout_seconds", 86_400


@dataclass(frozen=True)
class Split:
    """N environments over these devices, N / n on each. With one device or none named, everything is as JAX has it."""

    devices: tuple[Any, ...] = ()

    @property
    def count(self) -> int:
        return max(len(self.devices), 1)

    @property
    def mesh(self) -> Mesh:
        return Mesh(list(self.devices), (AXIS,))

    def along(self, axis: int) -> NamedSharding:
        """N is this axis."""
        return NamedSharding(self.mesh, PartitionSpec(*[None] * axis, AXIS))

    @property
    def whole(self) -> NamedSharding:
        """A copy on each device."""
        return NamedSharding(self.mesh, PartitionSpec())

    def batched(self, one: Callable[..., Any]) -> Callable[..., Any]:
        """A function of one instance as a function of all N."""
        if self.count == 1:
            return jax.vmap(one)
        spec = PartitionSpec(AXIS)
        # An environment knows of no mesh, so there is nothing in it to check.
        return jax.shard_map(jax.vmap(one), mesh=self.mesh, in_specs=spec, out_specs=spec, check_vma=False)

    def everywhere(self, tree: Any) -> Any:
        return tree if self.count == 1 else jax.device_put(tree, self.whole)

    def on_first(self, tree: Any) -> Any:
        return tree if self.count == 1 else jax.device_put(tree, self.devices[0])

    def that_divides(self, number: int) -> "Split":
        """This split, or none where the number cannot be shared out evenly."""
        return self if number % self.count == 0 else ONE_DEVICE


ONE_DEVICE = Split()


def shortage(count: int) -> str | None:
    """What is wrong with so many devices, in one sentence."""
    there = jax.local_device_count()
    if count <= there:
        return None
    remedy = "" if jax.default_backend() != "cpu" else f", or set JAX_NUM_CPU_DEVICES={count} before Python starts"
    return f"devices is {count}, but JAX has {there}: use at most {there}{remedy}"


def make_split(count: int) -> Split:
    if count > 1 and (problem := shortage(count)):
        raise UserError(problem)
    return Split(tuple(jax.local_devices()[:count])) if count > 1 else ONE_DEVICE


def prepare(devices: int | None, spec: EnvSpec) -> None:
    """Have JAX make enough virtual devices, should it run on the CPU. Too late once it has started.

    Whoever has told JAX a number already, by its own setting or XLA's flag, is not overruled.
    """
    most = min(devices or (1 if spec.physics == "none" else cores()), max(cores(), _MOST))
    if most <= 1:
        return
    flags = os.environ.get("XLA_FLAGS", "")
    if _PATIENCE not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --{_PATIENCE}={_DAY}".strip()
    if jax.config.values.get("jax_num_cpu_devices", -1) < 0 and _XLA_COUNT not in flags:
        try:
            jax.config.update("jax_num_cpu_devices", most)
        except RuntimeError:
            return  # it has started: what it has must do


def count_devices(devices: int | None, num_envs: int, spec: EnvSpec) -> int:
    """As asked for; else one for pure kinematics, and for physics as many as there are and share N out evenly."""
    if devices is not None:
        return devices
    if spec.physics == "none":  # a step is so little work that splitting it costs more than it saves
        return 1
    return max(n for n in range(1, jax.local_device_count() + 1) if num_envs % n == 0)


def cores() -> int:
    """As many as XLA makes threads for: it takes NPROC's word, as a grid sets it where a run gets a share of a machine.

    They decide bits, so a run that is resumed on another machine must get as many.
    """
    told = os.environ.get("NPROC", "")
    if told.isdecimal() and int(told) > 0:
        return int(told)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
