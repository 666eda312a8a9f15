"""Python, what JAX sees of the machine, and whether the paper's settings fit into its memory."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

from dcp.cli.doctor.check import Check, ProbeError, in_a_process
from dcp.cli.doctor.packages import unmet_of_extra

OLDEST = (3, 11)
SMALL, LARGE = "ant_u_maze", "humanoid_u_maze"  # the paper's most common body, and its largest
# benchmarks/iteration.py measured 2.5 GiB on ant_u_maze, where the large parts of a run are 1.04 GB.
WHOLE = 2.6
NOT_KNOWN = "not known while JAX does not start"


def python() -> Iterator[Check]:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()} ({sys.executable})"
    if sys.version_info >= OLDEST:
        yield Check("Python", "ok", found)
    else:
        yield Check("Python", "problem", found, f"Install Python {'.'.join(map(str, OLDEST))} or newer, and dcp in it.")


def jax_starts() -> Iterator[Check]:
    try:
        seen = look()
    except ProbeError as error:
        yield Check("JAX", "problem", f"does not start ({error})", _restart())
        return
    cores, count = _count(seen["cores"], "core"), len(seen["devices"])
    if seen["platform"] == "cpu":
        yield Check("JAX", "ok", f"{seen['version']} on {cores}; physics runs on {_count(count, 'virtual device')}")
    else:
        yield Check("JAX", "ok", f"{seen['version']} on {count} x {seen['devices'][0]} ({seen['platform']}), {cores}")


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


def _restart() -> str:
    if chosen := os.environ.get("JAX_PLATFORMS"):
        return f"JAX_PLATFORMS is {chosen!r}: unset it, or set it to cpu."
    return "Install it again: pip install --force-reinstall 'jax>=0.10,<0.11'"


def gpu() -> Iterator[Check]:
    """A GPU that the driver lists and JAX does not use is the usual reason for a slow run."""
    try:
        backend = look()["platform"]
    except ProbeError:
        backend = "none"
    listed = _nvidia_smi()
    if backend not in ("cpu", "none"):
        yield Check("GPU", "ok", f"JAX uses it ({backend})")
    elif isinstance(listed, str):
        yield Check("GPU", "missing", f"nvidia-smi fails ({listed})", "To use the GPU, mend the NVIDIA driver.")
    elif listed:
        yield Check("GPU", "missing", f"{', '.join(listed)}: there, but JAX does not use it", _use_gpu())
    else:
        yield Check("GPU", "ok", "none found, none needed")


def _nvidia_smi() -> list[str] | str:
    """The GPUs' names; none without the tool; or why it fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        query = [tool, "--query-gpu=name", "--format=csv,noheader"]
        answer = subprocess.run(query, capture_output=True, text=True, errors="replace", timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = [line.strip() for line in answer.stdout.splitlines() if line.strip()]
    if answer.returncode:
        return (lines or [f"code {answer.returncode}"])[0]
    return lines


def _use_gpu() -> str:
    chosen = os.environ.get("JAX_PLATFORMS", "")
    if chosen and not {"cuda", "gpu"} & set(chosen.split(",")):
        return f"JAX_PLATFORMS is {chosen!r}: unset it."
    if unmet_of_extra("cuda"):
        return "pip install 'dcp[cuda]'"
    return "JAX's CUDA packages are there, so ask it why: JAX_PLATFORMS=cuda python -c 'import jax; jax.devices()'"


def memory() -> Iterator[Check]:
    try:
        seen = look()
    except ProbeError:
        yield Check("memory", "missing", NOT_KNOWN, "See JAX.")
        return
    there, needs = seen["available"], {env: WHOLE * need for env, need in seen["memory"].items()}
    wanted = ", ".join(f"{gigabytes(need)} on {env}" for env, need in needs.items())
    found = f"{gigabytes(there) if there else 'unknown'} available; the paper's settings take about {wanted}"
    if there is None or there >= max(needs.values()):
        yield Check("memory", "ok", found)
    else:
        yield Check("memory", "missing", found, "Where it does not do: --preset laptop, or fewer --replay-rows.")


def gigabytes(amount: float) -> str:
    return f"{amount / 1e9:.1f} GB" if amount < 100e9 else f"{amount / 1e9:,.0f} GB"


def look() -> dict[str, Any]:
    """What JAX sees, or why it sees nothing. Several checks ask; JAX is started once."""
    seen = _look()
    if isinstance(seen, ProbeError):
        raise seen
    return seen


@cache
def _look() -> dict[str, Any] | ProbeError:
    try:
        return in_a_process(start_jax, timeout=300)
    except ProbeError as error:
        return error


def start_jax() -> dict[str, Any]:
    import jax

    from dcp import compiling, devices
    from dcp.checks import available_memory
    from dcp.envs.registry import make_env
    from dcp.runs.checkpoint import KEPT

    devices.prepare(None, make_env(SMALL).spec)
    jax.block_until_ready(jax.numpy.ones(8) @ jax.numpy.ones(8))
    parts = {env: _parts(env) for env in (SMALL, LARGE)}
    in_use = compiling.enable_cache()
    return {
        "version": jax.__version__,
        "platform": jax.default_backend(),
        "devices": [device.device_kind for device in jax.local_devices()],
        "cores": devices.cores(),
        "available": available_memory(),
        "memory": {env: sum(part.values()) for env, part in parts.items()},
        # The last ones, and the one that is being written.
        "checkpoints": (KEPT + 1) * (parts[LARGE]["replay"] + parts[LARGE]["learner and its optimizer"]),
        "cache": None if in_use is None else str(in_use),
        "cache_wanted": os.environ.get(compiling.VARIABLE) or str(compiling.default_folder()),
    }


def _parts(env: str) -> dict[str, int]:
    from dcp.checks import memory_parts
    from dcp.envs.registry import make_env
    from dcp.presets import preset_config

    spec = make_env(env).spec
    return memory_parts(preset_config("paper", env=env).resolve(spec.episode_length), spec)
