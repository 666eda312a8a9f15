"""How XLA should compile our programs on this machine."""

from functools import cache

import jax

from dcp.envs.devices import cores as _cores

# On a CPU, XLA hands matrix products to YNNPACK, which runs those of our sizes (256 x 256 x 256) on one thread.
# Eigen splits them over the cores: benchmarks/learner.py measures both. On one core YNNPACK is the faster of the two.
EIGEN_DOTS = {"xla_cpu_experimental_ynn_fusion_type": ""}
# A few episodes run in an instant, compiling them takes seconds: twice as long with the compiler's optimisations.
QUICK_COMPILE = {"xla_backend_optimization_level": 0}


def compiler_options() -> dict[str, str] | None:
    """For `jax.jit` at the edge. None where XLA's own choice is best, or where it does not know the option."""
    if jax.default_backend() != "cpu" or _cores() < 2:
        return None
    return EIGEN_DOTS if _accepted(tuple(EIGEN_DOTS.items())) else None


@cache
def _accepted(options: tuple[tuple[str, str], ...]) -> bool:
    """An experimental option may vanish with a newer XLA: ask before relying on it. Once, for asking compiles."""
    try:
        jax.jit(lambda x: x + 1, compiler_options=dict(options)).lower(1.0).compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
