"""What a run's process must find in its environment, wherever it is started."""

from dcp.grid.jobs import Resources


def variables(resources: Resources) -> dict[str, str]:
    """By a scheduler: as many threads for XLA as the run has cores, whatever the machine has: they decide its bits."""
    return {"NPROC": str(resources.cores), **memory_share(resources.gpus)}


def memory_share(gpus: float) -> dict[str, str]:
    """JAX takes three quarters of a GPU's memory unless it is told."""
    return {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 * gpus:.3f}"} if 0 < gpus < 1 else {}
