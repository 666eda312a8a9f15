"""Choose how XLA compiles our programs on this machine, and where it keeps what it has compiled."""

import os
import stat
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax

from dcp.config import cores
from dcp.errors import UserError

VARIABLE = "DCP_CACHE_DIR"
OFF = "off"


def default_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "dcp" / "xla"


def enable_cache(folder: str | Path | None = None) -> Path | None:
    """Use this folder; without one, $DCP_CACHE_DIR or the user's cache. "off" turns the cache off.

    A cache that JAX has already is kept. One that cannot be written is left out, because it only saves time, and so is
    one into which somebody else can write, because it holds programs that the next run executes. -> the folder in use
    """
    of_jax = jax.config.values.get("jax_compilation_cache_dir")
    if folder is None and of_jax:
        return Path(of_jax)
    choice = folder or os.environ.get(VARIABLE) or default_folder()
    if str(choice) == OFF:
        jax.config.update("jax_compilation_cache_dir", None)
        return None
    path = Path(choice).expanduser()
    if not _is_writable(path):
        return None
    if problem := _openness(path):
        print(f"dcp: compiled programs are not kept: {path} {problem}", file=sys.stderr)
        return None
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    return path


def _is_writable(path: Path) -> bool:
    """Return whether files can be made in this folder, which is made for this user alone if it is not there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path):
            return True
    except OSError:
        return False


def _openness(path: Path) -> str | None:
    """Say who else can write into this folder, and what to do; None if nobody can."""
    status = path.stat()
    if status.st_uid != os.geteuid():
        return f"belongs to another user: name a folder of your own by ${VARIABLE}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written by others: empty it and `chmod 700` it, or name another folder by ${VARIABLE}"
    return None


# On a CPU, XLA hands matrix products to YNNPACK, which runs those of our sizes (256 x 256 x 256) on one thread.
# Eigen splits them over the cores: benchmarks/learner.py measures both. On one core YNNPACK is the faster of the two.
EIGEN_DOTS = {"xla_cpu_experimental_ynn_fusion_type": ""}
# On a GPU a step of 512 environments is hundreds of small kernels, and handing each to the device takes longer than it
# runs. XLA joins them to CUDA graphs, but not across a loop or a branch: the host hands over every round, and waits
# where only the device knows how many there are. "loops" has it put loops and branches into graphs too, and graphs of
# two kernels already; "xla" is XLA's own choice; "off" has no graphs, for a driver that fails with them.
# No number depends on it. The variable DCP_GPU_GRAPHS chooses; `dcp doctor --gpu` measures all three.
_IN_GRAPHS = "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,DYNAMIC_SLICE_FUSION"
GPU_GRAPHS: dict[str, dict[str, str | int]] = {
    "loops": {"xla_gpu_enable_command_buffer": f"{_IN_GRAPHS},CONDITIONAL,WHILE", "xla_gpu_graph_min_graph_size": 2},
    "xla": {},
    "off": {"xla_gpu_enable_command_buffer": ""},
}
GRAPHS_VARIABLE = "DCP_GPU_GRAPHS"
# Since Ampere a GPU multiplies float32 with TF32's 10 bits unless it is told not to. An update of ours is bound by its
# launches, so full precision should cost little, and results then differ from a CPU's by the order of sums alone.
# JAX_DEFAULT_MATMUL_PRECISION=tensorfloat32 (or any other) is kept.
_PRECISION = "jax_default_matmul_precision"
FULL = "highest"
# A few episodes run in an instant, compiling them takes seconds: twice as long with the compiler's optimisations.
QUICK_COMPILE = {"xla_backend_optimization_level": 0}


def compiler_options() -> dict[str, str] | dict[str, str | int] | None:
    """For `jax.jit` at the edge. None where XLA's own choice is best, or where it does not know the option."""
    backend = jax.default_backend()
    keep_precision()
    if backend in ("gpu", "cuda"):
        options = GPU_GRAPHS[gpu_graphs()]
        return options if options and _accepted(tuple(options.items())) else None
    if backend != "cpu" or cores() < 2:
        return None
    return EIGEN_DOTS if _accepted(tuple(EIGEN_DOTS.items())) else None


def keep_precision() -> None:
    """Have products of float32 keep full precision on a GPU, unless the user has set another."""
    if jax.default_backend() in ("gpu", "cuda") and jax.config.values.get(_PRECISION) is None:
        jax.config.update(_PRECISION, FULL)


def jit(function: Callable[..., Any], **options: Any) -> Any:
    """Return `jax.jit` of the function with our compiler options for this machine."""
    return jax.jit(function, compiler_options=compiler_options(), **options)


def gpu_graphs() -> str:
    """Return the row of GPU_GRAPHS that is in force."""
    choice = os.environ.get(GRAPHS_VARIABLE) or "loops"
    if choice not in GPU_GRAPHS:
        raise UserError(f"{GRAPHS_VARIABLE} is {choice!r}: set it to one of {', '.join(GPU_GRAPHS)}, or unset it")
    return choice


@cache
def _accepted(options: tuple[tuple[str, str | int | bool], ...]) -> bool:
    """Try options before relying on them: XLA may not know one any longer, or a driver may fail with it. Once each.

    The trial is a loop whose end only its data knows: the hardest that the options are asked to take.
    """

    def count(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda x: x.sum() < 100.0, lambda x: x + 1.0, x)

    try:
        counted = jax.jit(count, compiler_options=dict(options))(jax.numpy.zeros(8))
        return bool((counted == 13.0).all())
    except jax.errors.JaxRuntimeError:
        return False
