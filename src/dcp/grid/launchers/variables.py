"""What a run's process must find in its environment, wherever a scheduler starts it."""

from dcp.grid.jobs import Resources


def variables(resources: Resources) -> dict[str, str]:
    """As many threads for XLA as the run has cores, whatever the machine has: they decide its bits."""
    told = {"NPROC": str(resources.cores)}
    if 0 < resources.gpus < 1:  # JAX takes three quarters of a GPU unless it is told
        told["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{0.9 * resources.gpus:.3f}"
    return told
