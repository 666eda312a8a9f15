"""How much memory a job's process will take at its peak, from the sizes of its runs.

    peak = process + compiler + seeds * (state + transient) + seeds * checkpoint

state: replay, learner and its optimizer, pool; transient: the largest of one iteration's pairs and one evaluation;
checkpoint: the state once more, on the host, while it is written. The constants are measured: see docs/grid.md.
"""

from dcp.checks import memory_parts
from dcp.config import Settings
from dcp.envs.registry import make_env

MB = 10**6
# Python, JAX and XLA with programs compiled, before the run's own arrays; by what steps the environment.
PROCESS = {"none": 500 * MB, "spring": 1_000 * MB, "generalized": 1_000 * MB, "mjx": 1_500 * MB}
STATE = ("replay", "learner and its optimizer", "the pool")


def run_memory(settings: Settings, seeds: int = 1, *, on_gpu: bool = False) -> int:
    """Bytes of the machine's memory. On a GPU the arrays lie there, and only checkpoints pass through the host."""
    spec = make_env(settings.env, settings.fidelity).spec
    parts = memory_parts(settings, spec)
    state = sum(parts[name] for name in STATE)
    arrays = state if on_gpu else sum(parts.values()) + state
    return PROCESS[spec.physics] + seeds * arrays


def device_memory(settings: Settings, seeds: int = 1) -> int:
    """Bytes of an accelerator's memory."""
    return seeds * sum(memory_parts(settings, make_env(settings.env, settings.fidelity).spec).values())
