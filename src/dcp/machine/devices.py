"""Split environments over devices: each device steps its own share, and nothing passes between them meanwhile.

The devices are GPUs, or on a CPU one virtual device per core: a physics step is hundreds of small operations, which
XLA spreads badly over the threads of one device. JAX makes virtual devices only while it starts, so it must be told
before.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dcp.config import Settings, cores
from dcp.errors import UserError
from dcp.types import EnvSpec

S = TypeVar("S", bound=Settings)
AXIS = "envs"
MAX_AUTOMATIC_DEVICES = 64  # virtual devices on a machine of fewer cores; JAX itself has no bound
_XLA_COUNT = "xla_force_host_platform_device_count"
# XLA ends the process where one CPU device waits 40 s for another, as after Ctrl-Z and fg. Only XLA_FLAGS help.
_PATIENCE, _DAY = "xla_cpu_collective_call_terminate_timeout_seconds", 86_400
# Rows of a batch on each GPU from which splitting the batch should pay: below, an update is a hundred small kernels
# whose number does not shrink, and each split update waits for its sums. By reasoning, not measured.
_ROWS_THAT_PAY = 1_024


@dataclass(frozen=True)
class Split:
    """N environments over these devices, N / n on each. With one device or none named, everything is as JAX has it.

    Called like `jax.vmap`, it makes a function of one environment a function of all N.
    """

    devices: tuple[Any, ...] = ()

    @property
    def count(self) -> int:
        return max(len(self.devices), 1)

    @property
    def mesh(self) -> Mesh:
        return Mesh(list(self.devices), (AXIS,))

    def along(self, axis: int) -> NamedSharding:
        """Return the sharding that splits this axis over the devices."""
        return NamedSharding(self.mesh, PartitionSpec(*[None] * axis, AXIS))

    @property
    def whole(self) -> NamedSharding:
        """Return the sharding with a copy on each device."""
        return NamedSharding(self.mesh, PartitionSpec())

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if self.count == 1:
            return jax.vmap(function)
        spec = PartitionSpec(AXIS)
        # An environment knows of no mesh, so there is nothing in it to check.
        return jax.shard_map(jax.vmap(function), mesh=self.mesh, in_specs=spec, out_specs=spec, check_vma=False)

    def everywhere(self, tree: Any) -> Any:
        return tree if self.count == 1 else jax.device_put(tree, self.whole)

    def on_first(self, tree: Any) -> Any:
        return tree if self.count == 1 else jax.device_put(tree, self.devices[0])

    def if_divides(self, number: int) -> "Split":
        """Return this split, or no split if the number cannot be shared out evenly."""
        return self if number % self.count == 0 else ONE_DEVICE


ONE_DEVICE = Split()


def shortage(count: int) -> str | None:
    """Return in one sentence what is wrong with this number of devices."""
    available = jax.local_device_count()
    if count <= available:
        return None
    remedy = "" if jax.default_backend() != "cpu" else f", or set JAX_NUM_CPU_DEVICES={count} before Python starts"
    return f"devices is {count}, but JAX has {available}: use at most {available}{remedy}"


def make_split(count: int) -> Split:
    if count == 1:
        return ONE_DEVICE
    if problem := shortage(count):
        raise UserError(problem)
    return Split(tuple(jax.local_devices()[:count]))


def prepare(devices: int | None, spec: EnvSpec) -> None:
    """Have JAX make enough virtual devices, should it run on the CPU. Too late once it has started.

    A number that the user gave JAX, by its own setting or XLA's flag, is kept.
    """
    number = devices or (cores() if steps_pay_splitting(spec, on_cpu=True) else 1)
    count = min(number, max(cores(), MAX_AUTOMATIC_DEVICES))
    if count <= 1:
        return
    flags = os.environ.get("XLA_FLAGS", "")
    if _PATIENCE not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --{_PATIENCE}={_DAY}".strip()
    if jax.config.values.get("jax_num_cpu_devices", -1) < 0 and _XLA_COUNT not in flags:
        try:
            jax.config.update("jax_num_cpu_devices", count)
        except RuntimeError:
            return  # JAX has started, with the devices that it has


def flags_besides_ours(flags: str) -> str:
    """Return XLA's flags in order, without those by which `prepare` and users make devices: a config says how many."""
    return " ".join(sorted(flag for flag in flags.split() if _PATIENCE not in flag and _XLA_COUNT not in flag))


def steps_pay_splitting(spec: EnvSpec, on_cpu: bool | None = None) -> bool:
    """Tell whether devices should share this task's steps.

    Kinematics is too little work; MuJoCo's engine has threads of its own, and it steps AntPush on a CPU.
    """
    if spec.physics == "mjx":
        return not (jax.default_backend() == "cpu" if on_cpu is None else on_cpu)
    return spec.physics not in ("none", "mujoco")


def count_devices(devices: int | None, num_envs: int, spec: EnvSpec) -> int:
    """Return the number asked for; else 1, or where splitting pays the most devices that divide N evenly."""
    if devices is not None:
        return devices
    if not steps_pay_splitting(spec):
        return 1
    return max((n for n in range(1, jax.local_device_count() + 1) if num_envs % n == 0), default=1)


def splitting_pays(batch_size: int, count: int) -> bool:
    """Tell whether batches too are split, where the config leaves it open. See docs/gpus.md for measurements.

    The virtual devices of one CPU share its threads: there one device has them all.
    """
    if count == 1 or batch_size % count or jax.default_backend() == "cpu":
        return False
    return batch_size // count >= _ROWS_THAT_PAY


def with_devices(settings: S, spec: EnvSpec) -> S:
    """Return settings that say on how many devices a run is. The bits of a run hold for one layout of devices."""
    prepare(settings.devices, spec)
    count = count_devices(settings.devices, settings.num_envs, spec)
    batches = settings.split_batches or ("on" if splitting_pays(settings.batch_size, count) else "off")
    return replace(settings, devices=count, split_batches=batches)
