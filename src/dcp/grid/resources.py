"""What a job needs and what a machine has: cores, memory and GPUs.

A job's peak memory is estimated from the sizes of its runs:

    peak = process + seeds * (arrays + state)

arrays: every part that `checks.memory_parts` knows. state: a second replay, learner and pool, for the copy that a
checkpoint is written from. The constants are measured: docs/grid.md.
"""

import os
import re
import subprocess
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from dcp.config import Settings, cores
from dcp.envs.registry import env_of
from dcp.errors import UserError, install_hint
from dcp.machine.checks import STATE, machine_memory, memory_parts

if TYPE_CHECKING:
    from dcp.grid.jobs import Job

MB = 10**6
# Python, JAX and XLA with programs compiled, before the run's own arrays; by what steps the environment.
PROCESS = {"none": 600 * MB, "spring": 1_800 * MB, "generalized": 1_100 * MB, "mjx": 1_600 * MB, "mujoco": 800 * MB}
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")


@dataclass(frozen=True)
class Resources:
    """What one job occupies while it runs."""

    cores: int = 1
    memory_bytes: int = 0  # estimated by `run_memory`
    gpus: int = 0


@dataclass
class FreeResources:
    """What is still free on this machine. `gpus`: by index."""

    cores: int
    memory_bytes: int | None = None  # None: unknown, so it limits nothing
    gpus: list[str] = field(default_factory=list)
    jobs: int | None = None  # how many more may run at once; None: any number

    def take(self, needed: Resources) -> tuple[str, ...] | None:
        """Reserve what a job needs. -> the indices of its GPUs, or None if it does not fit now"""
        if needed.cores > self.cores or needed.gpus > len(self.gpus) or (self.jobs is not None and self.jobs < 1):
            return None
        if self.memory_bytes is not None and needed.memory_bytes > self.memory_bytes:
            return None
        chosen = tuple(self.gpus[: needed.gpus])
        del self.gpus[: needed.gpus]
        self._add(needed, -1)
        return chosen

    def give_back(self, needed: Resources, chosen: tuple[str, ...]) -> None:
        """Free what a job has taken; `chosen`: its GPUs."""
        self.gpus += chosen
        self._add(needed, +1)

    def _add(self, amount: Resources, sign: int) -> None:
        self.cores += sign * amount.cores
        self.jobs = None if self.jobs is None else self.jobs + sign
        self.memory_bytes = None if self.memory_bytes is None else self.memory_bytes + sign * amount.memory_bytes

    def count(self, needed: Resources) -> int:
        """Return how many such jobs fit at once."""
        free, count = deepcopy(self), 0
        while free.take(needed) is not None:
            count += 1
        return count


def free_here(jobs: int | None = None) -> FreeResources:
    """Return what this machine has for jobs: its cores and GPUs, and nine tenths of its free memory."""
    memory = machine_memory()
    return FreeResources(cores(), None if memory is None else int(0.9 * memory), [gpu.index for gpu in gpus()], jobs)


def require_fit(machines: Sequence[FreeResources], jobs: Sequence["Job"]) -> None:
    """Raise UserError if a job does not fit into any of these empty machines: it would wait forever."""
    for job in jobs:
        needed = job.resources
        if any(machine.count(needed) for machine in machines):
            continue
        most = max((machine.cores for machine in machines), default=0)
        memory = max((machine.memory_bytes or 0 for machine in machines), default=0)
        whole = max((len(machine.gpus) for machine in machines), default=0)
        phrase = "there are" if len(machines) == 1 else "the largest node of the cluster has"
        if needed.cores > most:
            raise UserError(f"a run is to have {needed.cores} cores, but {phrase} {most}: lower --cores-per-run")
        if needed.gpus > whole:
            install = "" if whole else f", or let JAX use NVIDIA's: {install_hint('cuda')}"
            raise UserError(f"a run is to have {needed.gpus} GPUs, but {phrase} {whole}: lower --gpus-per-run{install}")
        if needed.memory_bytes > memory:
            raise UserError(
                f"{job.name} needs about {needed.memory_bytes / 1e9:.1f} GB, but {phrase} {memory / 1e9:.3g} GB: "
                "lower its replay_rows or num_envs, or give more memory"
            )
        raise UserError(f"{job.name} needs cores, memory and GPUs that no single node has together: ask for less")


def require_gpu_memory(jobs: Sequence["Job"], gpus: Sequence[int]) -> None:
    """Raise UserError if a job's arrays exceed its GPUs. `gpus`: bytes of each."""
    for job in jobs if gpus else ():
        needed, available = device_memory(job.settings, len(job.seeds)), job.resources.gpus * min(gpus)
        if available and needed > available:
            raise UserError(
                f"{job.name} needs about {needed / 1e9:.1f} GB of GPUs, but has {available / 1e9:.1f} GB: "
                "raise --gpus-per-run, or use --seeds-as processes"
            )


def run_memory(settings: Settings, seeds: int = 1, *, on_gpu: bool = False) -> int:
    """Estimate a process's peak in bytes of the machine's memory.

    With a GPU, the arrays are in its memory, and only checkpoints pass through the machine's.
    """
    spec = env_of(settings).spec
    parts = memory_parts(settings, spec)
    state = sum(parts[name] for name in STATE)
    arrays = state if on_gpu else sum(parts.values()) + state
    physics = "mujoco" if spec.physics == "mjx" and not on_gpu else spec.physics  # AntPush on a CPU
    process = PROCESS.get(physics, max(PROCESS.values()))  # a user's own environment may have any physics
    return process + seeds * arrays


def device_memory(settings: Settings, seeds: int = 1) -> int:
    """Estimate the bytes of an accelerator's memory that a process takes."""
    return seeds * sum(memory_parts(settings, env_of(settings).spec).values())


def parse_memory(text: str) -> int:
    """Read 12GB, 500M or a number of bytes. -> bytes"""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)B?\s*", text, re.IGNORECASE)
    if not match or float(match[1]) <= 0:
        raise UserError(f"--memory takes an amount such as 12GB, not {text!r}")
    return int(float(match[1]) * _UNITS[match[2].upper()])


class Gpu(NamedTuple):
    index: str
    memory_bytes: int


@cache
def gpus() -> tuple[Gpu, ...]:
    """List NVIDIA's GPUs that JAX can use; if CUDA_VISIBLE_DEVICES is set, only those that it names.

    JAX is not asked: it would take most of a GPU's memory for the grid's own process. Without its plugin for CUDA it
    can use none.
    """
    if not any(find_spec(plugin) for plugin in _PLUGINS):
        return ()
    query = ["nvidia-smi", "--query-gpu=index,memory.total", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    rows = [line.split(",") for line in text.splitlines() if line.count(",") == 1]
    listed = tuple(Gpu(index.strip(), int(float(mib)) * 2**20) for index, mib in rows)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return listed if visible is None else tuple(gpu for gpu in listed if gpu.index in visible.split(","))


def gpu_variables(gpus: tuple[str, ...], any_gpu: bool) -> dict[str, str]:
    """Return the variables of a process that has these GPUs. `any_gpu`: whether the machine has one."""
    if gpus:
        return {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    return {"JAX_PLATFORMS": "cpu"} if any_gpu else {}
