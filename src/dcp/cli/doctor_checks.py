"""The checks of `dcp doctor`: Python and packages, JAX, GPU, memory, disks, rendering, and a moment of training.

Each check yields rows. Anything that could crash the interpreter runs in its own process.
"""

import importlib
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata, packages_distributions, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dcp import __version__
from dcp.errors import PACKAGE, install_hint
from dcp.lab.offscreen import ProbeError, advice, find_backend, first_line, in_a_process

if TYPE_CHECKING:
    from packaging.requirements import Requirement

OLDEST = (3, 11)
SMALL, LARGE = "ant_u_maze", "humanoid_u_maze"  # the paper's most common body, and its largest
WHOLE = 2.6  # a run's memory divided by that of its large parts, measured by benchmarks/iteration.py on ant_u_maze
NOT_KNOWN = "not known while JAX does not start"
NOT_OFFERED = ("dev",)  # extras for work on dcp itself
# Packages inside another package: importing the outer one would not test them.
_PARTS = {"orbax-checkpoint": "orbax.checkpoint", "mujoco-mjx": "mujoco.mjx"}
TRIAL = 2**20  # bytes
OFF = "off"
OVERRIDES = {"depth": 1}  # of preset smoke
# The self-test spends nearly all of its time compiling, and its programs run only briefly: do not optimise them.
COMPILER = "JAX_DISABLE_MOST_OPTIMIZATIONS"


@dataclass(frozen=True)
class Check:
    """Hold one row. missing: dcp works without it. problem: dcp does not work, and the exit code says so."""

    name: str
    state: Literal["ok", "missing", "problem"]
    found: str
    advice: str = ""  # what to install or do; empty if nothing is wrong


def guarded(name: str, check: Callable[[], Iterable[Check]]) -> list[Check]:
    """Return a check's rows. A check that raises becomes one row, never a traceback."""
    try:
        return list(check())
    except Exception as error:
        advice = "Install dcp with its requirements again; if that does not help, report it."
        return [Check(name, "problem", f"this check failed ({first_line(error)})", advice)]


def python() -> Iterator[Check]:
    finding = f"{platform.python_version()} on {platform.system()} {platform.machine()} ({sys.executable})"
    if sys.version_info >= OLDEST:
        yield Check("Python", "ok", finding)
    else:
        yield Check(
            "Python", "problem", finding, f"Install Python {'.'.join(map(str, OLDEST))} or newer, and dcp in it."
        )


def packages() -> Iterator[Check]:
    """Compare the installed packages with dcp's requirements. All that match share one row."""
    needed = _needed()
    unmet = {r.name: problem for r in needed if (problem := _unmet(r))}
    fitting = [r.name for r in needed if r.name not in unmet]
    broken = _broken(fitting)
    good = [f"{name} {version(name)}" for name in fitting if name not in broken]
    yield Check("packages", "ok", f"dcp {__version__} with {', '.join(good)}")
    for requirement in needed:
        name, wanted = requirement.name, f"'{requirement.name}{requirement.specifier}'"
        if name in unmet:
            yield Check(name, "problem", unmet[name], f"pip install {wanted}")
        elif name in broken:
            finding = f"{version(name)}, but it does not import ({broken[name]})"
            yield Check(name, "problem", finding, f"pip install --force-reinstall {wanted}")


def extras() -> Iterator[Check]:
    for extra in metadata(PACKAGE).get_all("Provides-Extra") or []:
        if extra in NOT_OFFERED:
            continue
        problems = unmet_of_extra(extra)
        if problems:
            more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
            advice = f"If you want it: {install_hint(extra)}"
            yield Check(f"extra {extra}", "missing", problems[0] + more, advice)
        else:
            installed = [f"{r.name} {version(r.name)}" for r in of_extra(PACKAGE, extra)]
            yield Check(f"extra {extra}", "ok", ", ".join(installed))


def _needed() -> list["Requirement"]:
    """Return dcp's requirements, and jaxlib: it is most of JAX and has its own version."""
    own = requirements(PACKAGE)
    try:
        return [*own, *(r for r in requirements("jax") if r.name == "jaxlib")]
    except PackageNotFoundError:
        return own


def requirements(package: str, extra: str = "") -> list["Requirement"]:
    """Return what this package, with this extra, requires on this machine."""
    from packaging.requirements import Requirement

    every = [Requirement(text) for text in requires(package) or []]
    return [r for r in every if r.marker is None or r.marker.evaluate({"extra": extra})]


def of_extra(package: str, extra: str) -> list["Requirement"]:
    """Return what the extra adds, nested extras included: the extra cuda adds jax[cuda12] and all that cuda12 adds."""
    plain = {str(r) for r in requirements(package)}
    added = [r for r in requirements(package, extra) if str(r) not in plain]
    return [inner for r in added for inner in (r, *(x for part in r.extras for x in of_extra_if_there(r.name, part)))]


def of_extra_if_there(package: str, extra: str) -> list["Requirement"]:
    try:
        return of_extra(package, extra)
    except PackageNotFoundError:
        return []


def unmet_of_extra(extra: str) -> list[str]:
    return [problem for r in of_extra(PACKAGE, extra) if (problem := _unmet(r))]


def _unmet(requirement: "Requirement") -> str | None:
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        return f"{requirement.name} is not installed"
    if requirement.specifier.contains(installed, prereleases=True):
        return None
    return f"{requirement.name} {installed} is installed, where {requirement.specifier} is needed"


def _broken(names: list[str]) -> dict[str, str]:
    """Return the installed packages that fail to import, each with the reason."""
    try:
        return in_a_process(import_all, *names, timeout=300)
    except ProbeError:  # the interpreter crashed: import them one at a time to find the culprit
        alone = {name: why for name in names if (why := _alone(name))}
        if not alone:
            raise
        return alone


def _alone(name: str) -> str | None:
    try:
        return in_a_process(import_all, name, timeout=300).get(name)
    except ProbeError as error:
        return str(error)


def import_all(*names: str) -> dict[str, str]:
    modules = {owner.lower(): module for module, owners in packages_distributions().items() for owner in owners}
    failures: dict[str, str] = {}
    for name in names:
        try:
            importlib.import_module(_PARTS.get(name) or modules.get(name.lower(), name))
        except Exception as error:
            failures[name] = first_line(error)
    return failures


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
    """Report a GPU that the driver lists but JAX does not use: the usual reason for a slow run."""
    try:
        backend = look()["platform"]
    except ProbeError:
        backend = "none"
    listed = _nvidia_smi()
    if backend not in ("cpu", "none"):
        yield Check("GPU", "ok", f"JAX uses it ({backend})")
    elif isinstance(listed, str):
        yield Check("GPU", "missing", f"nvidia-smi fails ({listed})", "To use the GPU, repair the NVIDIA driver.")
    elif listed:
        yield Check("GPU", "missing", f"{', '.join(listed)}: there, but JAX does not use it", _use_gpu())
    else:
        yield Check("GPU", "ok", "none found, none needed")


def _nvidia_smi() -> list[str] | str:
    """Return the names of the GPUs, an empty list if nvidia-smi is missing, or why it fails."""
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
        return install_hint("cuda")
    return "JAX's CUDA packages are there, so ask it why: JAX_PLATFORMS=cuda python -c 'import jax; jax.devices()'"


def memory() -> Iterator[Check]:
    try:
        seen = look()
    except ProbeError:
        yield Check("memory", "missing", NOT_KNOWN, "See JAX.")
        return
    available, needs = seen["available"], {env: WHOLE * need for env, need in seen["memory"].items()}
    wanted = ", ".join(f"{gigabytes(need)} on {env}" for env, need in needs.items())
    finding = f"{gigabytes(available) if available else 'unknown'} available; the paper's settings take about {wanted}"
    if available is None or available >= max(needs.values()):
        yield Check("memory", "ok", finding)
    else:
        yield Check("memory", "missing", finding, "If a run does not fit: --preset laptop, or fewer --replay-rows.")


def gigabytes(amount: float) -> str:
    return f"{amount / 1e9:.1f} GB" if amount < 100e9 else f"{amount / 1e9:,.0f} GB"


def look() -> dict[str, Any]:
    """Return what JAX sees, or raise the reason why it does not start. Several checks share one start of JAX."""
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

    from dcp.envs.registry import make_env
    from dcp.machine import compiling, devices
    from dcp.machine.checks import available_memory
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
        # The checkpoints that are kept, and the one being written.
        "checkpoints": (KEPT + 1) * (parts[LARGE]["replay"] + parts[LARGE]["learner and its optimizer"]),
        "cache": None if in_use is None else str(in_use),
        "cache_wanted": os.environ.get(compiling.VARIABLE) or str(compiling.default_folder()),
    }


def _parts(env: str) -> dict[str, int]:
    from dcp.envs.registry import make_env
    from dcp.machine.checks import memory_parts
    from dcp.presets import preset_config

    spec = make_env(env).spec
    return memory_parts(preset_config("paper", env=env).resolve(spec.episode_length), spec)


def runs_disk(folder: Path) -> Iterator[Check]:
    """Check the folder for runs: a run with the paper's settings needs space for its checkpoints."""
    try:
        free = _write(folder)
    except OSError as error:
        yield Check("disk for runs", "problem", _refusal(folder, error), "Choose another --runs-dir.")
        return
    finding, need = f"{gigabytes(free)} free for {folder.absolute()}", 0
    with suppress(ProbeError):  # the check of JAX reports it
        need = look()["checkpoints"]
        finding += f"; a run's checkpoints take up to {gigabytes(need)} at the paper's settings ({LARGE})"
    if free >= need:
        yield Check("disk for runs", "ok", finding)
    else:
        yield Check("disk for runs", "missing", finding, "For such a run make room, or choose another --runs-dir.")


def cache_disk() -> Iterator[Check]:
    """Check the folder of compiled programs. The cache only saves time, so a fault in it is never a problem."""
    try:
        seen = look()
    except ProbeError:
        yield Check("disk for cache", "missing", NOT_KNOWN, "See JAX.")
        return
    folder = Path(seen["cache"] or seen["cache_wanted"]).expanduser()
    if str(folder) == OFF:
        yield Check("disk for cache", "ok", "off, as $DCP_CACHE_DIR says: every run compiles again")
        return
    try:
        yield Check("disk for cache", "ok", f"{gigabytes(_write(folder))} free for {folder}")
    except OSError as error:
        advice = "Every run compiles again until $DCP_CACHE_DIR names a folder that can be written."
        yield Check("disk for cache", "missing", _refusal(folder, error), advice)


def _write(folder: Path) -> int:
    """Write and remove a file where the folder is or would be created. -> free bytes"""
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    with tempfile.TemporaryFile(dir=place) as file:
        file.write(bytes(TRIAL))
        file.flush()
        os.fsync(file.fileno())
    return shutil.disk_usage(place).free


def _refusal(folder: Path, error: OSError) -> str:
    return f"{folder.absolute()} cannot be written ({error.strerror})"


def rendering() -> Iterator[Check]:
    """Try MuJoCo's off-screen rendering: pictures of simulated bodies need it, training does not."""
    backend, failures = find_backend()
    if backend is None:
        yield Check("rendering", "missing", "; ".join(failures) or "no backend is known here", advice())
    else:
        yield Check("rendering", "ok", "; ".join([f"off-screen with MUJOCO_GL={backend}", *failures]))


def self_test() -> Iterator[Check]:
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="dcp-doctor-") as folder:  # removed even if the child crashes
        try:
            seen = in_a_process(train_a_moment, folder, timeout=900, env={COMPILER: os.environ.get(COMPILER, "1")})
        except ProbeError as error:
            advice = "See the rows above; if all of them are ok, report this."
            yield Check("training", "problem", f"the self-test failed ({error})", advice)
            return
    seconds = time.perf_counter() - start
    work = f"{seen['steps']:,} steps and {seen['updates']:,} updates in {seconds:.0f} s"
    finding = f"{work}; every number finite; the saved policy acts as the trained one"
    yield Check("training", "ok", finding)


def train_a_moment(folder: str) -> dict[str, Any]:
    import numpy as np

    from dcp.policies.policy_file import load_policy
    from dcp.presets import preset_config
    from dcp.runs.training import train

    run = train(preset_config("smoke", **OVERRIDES), runs_dir=folder, display="none")
    for row in run.rows:
        for name, value in row.items():
            if not math.isfinite(value):
                raise ProbeError(f"{name} is {value}")
    spec = run.policy.spec
    assert run.folder is not None
    states, goals = np.ones((4, spec.state_size)), np.linspace(0.0, 3.0, 4 * spec.goal_size).reshape(4, -1)
    trained, saved = run.policy(states, goals), load_policy(run.folder)(states, goals)
    if not np.all(np.isfinite(trained)) or not np.array_equal(trained, saved):
        raise ProbeError(f"the saved policy acts as {saved.tolist()}, the trained one as {trained.tolist()}")
    return {"steps": run.rows[-1]["env_steps"], "updates": run.rows[-1]["updates"]}
