"""How much memory a job's process will take at its peak, from the sizes of its runs.

    peak = process + seeds * (arrays + state)

arrays: every part that `checks.memory_parts` knows; state: replay, learner and pool once more, for the copy that a
checkpoint is written from. The constants are measured: docs/grid.md.
"""

from collections.abc import Sequence

from dcp.checks import memory_parts
from dcp.config import Settings
from dcp.envs.registry import env_of
from dcp.errors import UserError
from dcp.grid.jobs import Job

MB = 10**6
# Python, JAX and XLA with programs compiled, before the run's own arrays; by what steps the environment.
PROCESS = {"none": 600 * MB, "spring": 1_800 * MB, "generalized": 1_100 * MB, "mjx": 1_600 * MB, "mujoco": 800 * MB}
STATE = ("replay", "learner and its optimizer", "the pool")


def run_memory(settings: Settings, seeds: int = 1, *, on_gpu: bool = False) -> int:
    """Bytes of the machine's memory. On a GPU the arrays lie there, and only checkpoints pass through the host."""
    spec = env_of(settings).spec
    parts = memory_parts(settings, spec)
    state = sum(parts[name] for name in STATE)
    arrays = state if on_gpu else sum(parts.values()) + state
    process = PROCESS.get(spec.physics, max(PROCESS.values()))  # an environment of one's own may have any
    return process + seeds * arrays


def device_memory(settings: Settings, seeds: int = 1) -> int:
    """Bytes of an accelerator's memory."""
    return seeds * sum(memory_parts(settings, env_of(settings).spec).values())


def require_gpu_memory(jobs: Sequence[Job], gpus: Sequence[int]) -> None:
    """Each job's arrays must fit into its share of the smallest GPU. `gpus`: bytes of each."""
    for job in jobs if gpus else ():
        share, needed = job.resources.gpus, device_memory(job.settings, len(job.seeds))
        there = share * min(gpus)
        if share and needed > there:
            raise UserError(
                f"{job.name} needs about {needed / 1e9:.1f} GB of a GPU, but its share is {there / 1e9:.1f} GB: raise "
                "--gpus-per-run, or use --seeds-as processes"
            )
