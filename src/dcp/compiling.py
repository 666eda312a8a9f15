"""How XLA compiles our programs on this machine, and where it keeps what it has compiled."""

import os
import tempfile
from collections.abc import Callable
from functools import cache, lru_cache, wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import jax

from dcp.devices import cores as _cores

VARIABLE = "DCP_CACHE_DIR"
OFF = "off"
P = ParamSpec("P")
R = TypeVar("R")


def default_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "dcp" / "xla"


def enable_cache(folder: str | Path | None = None) -> Path | None:
    """Use this folder; without one, $DCP_CACHE_DIR or the user's cache. "off" turns the cache off.

    A cache that JAX has been given already is kept. One that cannot be written is left out: it only saves time.
    -> the folder in use
    """
    given = jax.config.values.get("jax_compilation_cache_dir")
    if folder is None and given:
        return Path(given)
    chosen = folder or os.environ.get(VARIABLE) or default_folder()
    if str(chosen) == OFF:
        jax.config.update("jax_compilation_cache_dir", None)
        return None
    path = Path(chosen).expanduser()
    if not _writable(path):
        return None
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    return path


def _writable(path: Path) -> bool:
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path):
            return True
    except OSError:
        return False


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


def cached_by_env(make: Callable[P, R]) -> Callable[P, R]:
    """Keep the last four results of `make(env, ...)`. An environment without a hash gets a fresh one each time."""
    shared = lru_cache(maxsize=4)(make)

    @wraps(make)
    def get(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            hash(args)
        except TypeError:
            return make(*args, **kwargs)
        return shared(*args, **kwargs)

    return get
