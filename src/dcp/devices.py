"""Environments split over devices: each device steps its own share, and nothing passes between them meanwhile.

The devices are GPUs, or on a CPU one virtual device per core: a physics step is hundreds of small operations, which
XLA spreads badly over the threads of one device. JAX makes virtual devices only while it starts, so it must be told
before. Several hosts (`dcp.hosts`) are one row of devices, as many of each.
"""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dcp import hosts
from dcp.errors import UserError
from dcp.types import EnvSpec

AXIS = "envs"
_MOST = 64  # virtual devices that are made unasked for on fewer cores: JAX would also try to make a million
_XLA_COUNT = "xla_force_host_platform_device_count"
# XLA ends the process where one CPU device waits 40 s for another, as after Ctrl-Z and fg. Only XLA_FLAGS help.
_PATIENCE, _DAY = "xla_cpu_collective_call_terminate_timeout_seconds", 86_400
# Rows of a batch on each accelerator from which splitting the batch should pay: below, an update is a hundred small
# kernels whose number does not shrink, and each split update waits for its sums. By reasoning, not measured.
_ROWS_THAT_PAY = 1_024


@dataclass(frozen=True)
class Split:
    """N environments over these devices, N / n on each. With one device or none named, everything is as JAX has it."""

    devices: tuple[Any, ...] = ()

    @property
    def count(self) -> int:
        return max(len(self.devices), 1)

    @property
    def spans_hosts(self) -> bool:
        """Then every host runs the same programs, and none can see all of an array that is split."""
        return len({device.process_index for device in self.devices}) > 1

    @property
    def mesh(self) -> Mesh:
        return Mesh(list(self.devices), (AXIS,))

    def along(self, axis: int) -> NamedSharding:
        """N is this axis."""
        return NamedSharding(self.mesh, PartitionSpec(*[None] * axis, AXIS))

    @property
    def whole(self) -> NamedSharding:
        """Return a copy on each device."""
        return NamedSharding(self.mesh, PartitionSpec())

    def batched(self, one: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of one instance as a function of all N."""
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
    """Return in one sentence what is wrong with this number of devices."""
    number = hosts.count()
    there = _on_every_host() * number
    if count > there:
        wanted = -(-count // number)
        remedy = "" if jax.default_backend() != "cpu" else f", or set JAX_NUM_CPU_DEVICES={wanted} before Python starts"
        return f"devices is {count}, but JAX has {there}: use at most {there}{remedy}"
    if count % number:
        return f"devices {count} cannot be shared out evenly over {number} hosts: use a multiple of {number}"
    return None


def make_split(count: int) -> Split:
    """Choose as many devices of each host, host by host."""
    if count == 1:
        return ONE_DEVICE
    if problem := shortage(count):
        raise UserError(problem)
    number = hosts.count()
    if number == 1:
        return Split(tuple(jax.local_devices()[:count]))
    of_hosts = [[device for device in jax.devices() if device.process_index == host] for host in range(number)]
    return Split(tuple(device for own in of_hosts for device in own[: count // number]))


def _on_every_host() -> int:
    """Return devices that each host has."""
    if hosts.count() == 1:
        return jax.local_device_count()
    return min(Counter(device.process_index for device in jax.devices()).values())


def prepare(devices: int | None, spec: EnvSpec) -> None:
    """Have JAX make enough virtual devices, should it run on the CPU. Too late once it has started.

    Whoever has told JAX a number already, by its own setting or XLA's flag, is not overruled.
    """
    asked = -(-devices // hosts.count()) if devices else None  # of this host
    most = min(asked or (cores() if spec.steps_pay_splitting else 1), max(cores(), _MOST))
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
    """Return the number asked for; else one per host, or where splitting pays the most that divide N evenly."""
    if devices is not None:
        return devices
    number = hosts.count()
    if not spec.steps_pay_splitting:
        return number
    return number * max((n for n in range(1, _on_every_host() + 1) if num_envs % (n * number) == 0), default=1)


def unfit_for_hosts(devices: int | None, num_envs: int) -> str | None:
    """Return in one sentence what is wrong with this number of environments for these hosts."""
    number = hosts.count()
    if devices is not None or num_envs % number == 0:
        return None
    fits = -(-num_envs // number) * number
    return f"{number} hosts cannot share out num_envs {num_envs} evenly: try num_envs {fits}"


def splitting_pays(batch_size: int, count: int) -> bool:
    """Whether batches too are split, where nobody says so. See docs/devices.md for what was measured.

    The virtual devices of one CPU share its threads: there one device has them all. Hosts do not.
    """
    if count == 1 or batch_size % count:
        return False
    if jax.default_backend() == "cpu":
        return hosts.count() > 1
    return batch_size // count >= _ROWS_THAT_PAY


def cores() -> int:
    """As many as XLA makes threads for: it takes NPROC's word, as a grid sets it where a run gets a share of a machine.

    They decide bits, so a run that is resumed on another machine must get as many.
    """
    told = os.environ.get("NPROC", "")
    if told.isdecimal() and int(told) > 0:
        return int(told)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
