"""How XLA compiles in tests: programs that run for a moment, so that compiling them is most of a test's time.

FAST skips LLVM's optimisation and takes XLA's older emitters of code: a third of the time. What XLA is asked to compute
is the same. `DCP_TESTS_COMPILE=shipped` compiles as for a user; `make test-all` does.
"""

import os

FAST = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)
# The same flags as XLA has them by itself: for the one `jax.jit` of a test that is about the compiled program.
SHIPPED = {
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": False,
    "xla_cpu_use_fusion_emitters": True,
    "xla_cpu_parallel_codegen_split_count": 32,
}


def xla_flags() -> str:
    """What XLA_FLAGS should be, before JAX is imported; subprocesses inherit it."""
    given = os.environ.get("XLA_FLAGS", "")
    if os.environ.get("DCP_TESTS_COMPILE") == "shipped" or FAST in given:
        return given
    return f"{given} {FAST}".strip()
