"""What XLA compiled once is kept on disk: the second run of a kind starts in seconds."""

import os
import tempfile
from pathlib import Path

import jax

VARIABLE = "DCP_CACHE_DIR"
OFF = "off"


def default_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "dcp" / "xla"


def enable(folder: str | Path | None = None) -> Path | None:
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
