"""`dcp doctor`: check Python and packages, JAX, GPU, memory, disks and rendering, and train for a moment.

Each check yields rows. Anything that could crash the interpreter runs in its own process.
"""

import importlib
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, metadata, packages_distributions, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dcp import __version__
from dcp.cli.flags import parse
from dcp.cli.main import COMMANDS
from dcp.errors import PACKAGE, UserError, install_hint
from dcp.lab.offscreen import ProbeError, advice, find_backend, first_line, in_a_process

if TYPE_CHECKING:
    from packaging.requirements import Requirement

EXIT_PROBLEM = 1
COLOURS = {"ok": "green", "missing": "yellow", "problem": "bold red"}
LARGE = "humanoid_u_maze"  # the paper's largest
WHOLE = 2.6  # a run's memory divided by that of its large parts, measured by benchmarks/iteration.py on ant_u_maze
NOT_OFFERED = ("dev",)  # extras for work on dcp itself
TRIAL = 2**20  # bytes
# The self-test spends nearly all of its time compiling, and its programs run only briefly: do not optimise them.
COMPILER = "JAX_DISABLE_MOST_OPTIMIZATIONS"
DESCRIPTION = f"""{COMMANDS["doctor"]}

states:
  ok       it works
  missing  dcp works without it; the row says what to install
  problem  dcp does not work without it; the row says what to do

exit code: 0, or 1 if there is a problem"""


@dataclass(frozen=True)
class DoctorOptions:
    runs_dir: Path = Path("runs")
    """The folder for runs, which is checked for room and write access."""
    self_test: bool = True
    """Train for a moment in a temporary folder."""
    json: bool = False
    """Print one JSON object instead of the table."""
    gpu: bool = False
    """Measure training on this device (most of it is compiling), compare it with a CPU's numbers, write a report."""
    gpu_envs: tuple[str, ...] = ()
    """With --gpu: step these environments; default: the paper's nine."""
    gpu_report: Path = Path("dcp_gpu_report.json")
    """With --gpu: where the report goes."""


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


def main(argv: list[str]) -> int:
    try:  # a broken installation may lack rich, which prints everything else
        import rich  # noqa: F401
    except ImportError as error:
        raise UserError(f"{error.name} does not import ({error}): install dcp with its requirements again") from error
    options = parse(DoctorOptions(), argv, "dcp doctor", DESCRIPTION)
    rows = list(_run(_checks(options)))
    problems = [check for check in rows if check.state == "problem"]
    if options.json:
        print(json.dumps({"ok": not problems, "version": __version__, "checks": [asdict(check) for check in rows]}))
    else:
        _show(rows)
    return EXIT_PROBLEM if problems else 0


def _checks(options: DoctorOptions) -> dict[str, Callable[[], Iterable[Check]]]:
    checks: dict[str, Callable[[], Iterable[Check]]] = {
        "Python": python,
        "packages": packages,
        "JAX": jax_starts,
        "GPU": gpu,
        "memory": memory,
        "disk for runs": partial(runs_disk, options.runs_dir),
        "rendering": rendering,
        "extras": extras,
    }
    if options.self_test:
        checks["training"] = self_test
    if options.gpu:
        from dcp.cli import doctor_gpu
        from dcp.lab.paper_values import ENVIRONMENTS

        envs = options.gpu_envs or tuple(ENVIRONMENTS)
        checks["training on this device"] = partial(doctor_gpu.checks, envs, options.gpu_report)
    return checks


def _run(checks: dict[str, Callable[[], Iterable[Check]]]) -> Iterator[Check]:
    """Run the checks, and say on stderr which one runs."""
    from dcp.cli.working import working

    with working() as say:
        for number, (name, check) in enumerate(checks.items(), 1):
            say(f"{number} of {len(checks)}: {name}")
            yield from guarded(name, check)


def _show(rows: list[Check]) -> None:
    from rich.table import Table
    from rich.text import Text

    from dcp.cli.working import show

    table = Table("check", "state", "found")
    for check in rows:
        advice = f"\n-> {check.advice}" if check.advice else ""
        table.add_row(check.name, Text(check.state, COLOURS[check.state]), Text.assemble(check.found, (advice, "bold")))
    show(table)
    print(_verdict(rows))


def _verdict(rows: list[Check]) -> str:
    problems = [check.name for check in rows if check.state == "problem"]
    missing = [check.name for check in rows if check.state == "missing"]
    if problems:
        return f"Broken: {', '.join(problems)}. The table says what to do."
    if missing:
        return f"Everything that is needed works. Missing, but not needed: {', '.join(missing)}."
    return "Everything works."


# The checks


def python() -> Iterator[Check]:
    finding = f"{platform.python_version()} on {platform.system()} {platform.machine()} ({sys.executable})"
    yield Check("Python", "ok", finding)  # an older one cannot read this file


def packages() -> Iterator[Check]:
    """Compare the installed packages with dcp's requirements, and import them. All that are well share one row."""
    needed = requirements(PACKAGE)
    unmet = {r.name: problem for r in needed if (problem := _unmet(r))}
    present = [r.name for r in needed if r.name not in unmet]
    broken = in_a_process(import_all, *present, timeout=300)
    good = [f"{name} {version(name)}" for name in present if name not in broken]
    yield Check("packages", "ok", f"dcp {__version__} with {', '.join(good)}")
    for requirement in needed:
        name, wanted = requirement.name, f"'{requirement.name}{requirement.specifier}'"
        if name in unmet:
            yield Check(name, "problem", unmet[name], f"pip install {wanted}")
        elif name in broken:
            finding = f"{version(name)}, but it does not import ({broken[name]})"
            yield Check(name, "problem", finding, f"pip install --force-reinstall {wanted}")


def import_all(*names: str) -> dict[str, str]:
    modules = {owner.lower(): module for module, owners in packages_distributions().items() for owner in owners}
    failures: dict[str, str] = {}
    for name in names:
        try:
            importlib.import_module(modules.get(name.lower(), name))
        except Exception as error:
            failures[name] = first_line(error)
    return failures


def extras() -> Iterator[Check]:
    for extra in metadata(PACKAGE).get_all("Provides-Extra") or []:
        if extra in NOT_OFFERED:
            continue
        added = of_extra(PACKAGE, extra)
        if problems := [problem for r in added if (problem := _unmet(r))]:
            more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
            yield Check(f"extra {extra}", "missing", problems[0] + more, f"If you want it: {install_hint(extra)}")
        else:
            yield Check(f"extra {extra}", "ok", ", ".join(f"{r.name} {version(r.name)}" for r in added))


def requirements(package: str, extra: str = "") -> list["Requirement"]:
    """Return what this package, with this extra, requires on this machine; nothing if it is not installed."""
    from packaging.requirements import Requirement

    try:
        every = [Requirement(text) for text in requires(package) or []]
    except PackageNotFoundError:
        return []
    return [r for r in every if r.marker is None or r.marker.evaluate({"extra": extra})]


def of_extra(package: str, extra: str) -> list["Requirement"]:
    """Return what the extra adds, nested extras included: the extra cuda adds jax[cuda12] and all that cuda12 adds."""
    plain = {str(r) for r in requirements(package)}
    added = [r for r in requirements(package, extra) if str(r) not in plain]
    return [inner for r in added for inner in (r, *(x for part in r.extras for x in of_extra(r.name, part)))]


def _unmet(requirement: "Requirement") -> str | None:
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        return f"{requirement.name} is not installed"
    if requirement.specifier.contains(installed, prereleases=True):
        return None
    return f"{requirement.name} {installed} is installed, where {requirement.specifier} is needed"


def jax_starts() -> Iterator[Check]:
    probe = look()
    if isinstance(probe, ProbeError):
        chosen = os.environ.get("JAX_PLATFORMS")
        remedy = f"JAX_PLATFORMS is {chosen!r}: unset it, or set it to cpu." if chosen else "Install dcp again."
        yield Check("JAX", "problem", f"does not start ({probe})", remedy)
    else:
        finding = f"{probe['version']} on {probe['cores']} cores; physics runs on {len(probe['devices'])}"
        yield Check("JAX", "ok", f"{finding} x {probe['devices'][0]} ({probe['platform']})")


def gpu() -> Iterator[Check]:
    """Report a GPU that the driver lists but JAX does not use: the usual reason for a slow run."""
    probe = look()
    if not isinstance(probe, ProbeError) and probe["platform"] != "cpu":
        yield Check("GPU", "ok", f"JAX uses it ({probe['platform']})")
        return
    try:
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        answer = subprocess.run(query, capture_output=True, text=True, errors="replace", timeout=30)
    except FileNotFoundError:
        yield Check("GPU", "ok", "none found, none needed")
        return
    names = ", ".join(line.strip() for line in answer.stdout.splitlines() if line.strip())
    if answer.returncode:
        yield Check("GPU", "missing", f"nvidia-smi fails ({names})", "To use the GPU, repair the NVIDIA driver.")
    elif names:
        yield Check("GPU", "missing", f"{names}: there, but JAX does not use it", _use_gpu())
    else:
        yield Check("GPU", "ok", "none found, none needed")


def _use_gpu() -> str:
    chosen = os.environ.get("JAX_PLATFORMS", "")
    if chosen and not {"cuda", "gpu"} & set(chosen.split(",")):
        return f"JAX_PLATFORMS is {chosen!r}: unset it."
    if any(_unmet(r) for r in of_extra(PACKAGE, "cuda")):
        return install_hint("cuda")
    return "JAX's CUDA packages are there, so ask it why: JAX_PLATFORMS=cuda python -c 'import jax; jax.devices()'"


def memory() -> Iterator[Check]:
    probe = look()
    if isinstance(probe, ProbeError):
        yield Check("memory", "missing", "not known while JAX does not start", "See JAX.")
        return
    available, need = probe["available"], WHOLE * probe["memory"]
    has = f"{available / 1e9:.1f} GB available" if available else "unknown"
    finding = f"{has}; the paper's settings take about {need / 1e9:.1f} GB on {LARGE}, its largest"
    if available is None or available >= need:
        yield Check("memory", "ok", finding)
    else:
        yield Check("memory", "missing", finding, "If a run does not fit: --preset laptop, or fewer --replay-rows.")


@cache
def look() -> dict[str, Any] | ProbeError:
    """Return what JAX sees, or why it does not start. Several checks share one start of JAX."""
    try:
        return in_a_process(start_jax, timeout=300)
    except ProbeError as error:
        return error


def start_jax() -> dict[str, Any]:
    import jax

    from dcp.envs.registry import make_env
    from dcp.machine import devices
    from dcp.machine.checks import available_memory, memory_parts
    from dcp.presets import preset_config

    spec = make_env(LARGE).spec
    devices.prepare(None, spec)
    jax.block_until_ready(jax.numpy.ones(8) @ jax.numpy.ones(8))
    parts = memory_parts(preset_config("paper", env=LARGE).resolve(spec.episode_length), spec)
    return {
        "version": jax.__version__,
        "platform": jax.default_backend(),
        "devices": [device.device_kind for device in jax.local_devices()],
        "cores": devices.cores(),
        "available": available_memory(),
        "memory": sum(parts.values()),
    }


def runs_disk(folder: Path) -> Iterator[Check]:
    """Write and remove a file where the folder is or would be created."""
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(bytes(TRIAL))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        finding = f"{folder.absolute()} cannot be written ({error.strerror})"
        yield Check("disk for runs", "problem", finding, "Choose another --runs-dir.")
    else:
        free = shutil.disk_usage(place).free
        yield Check("disk for runs", "ok", f"{free / 1e9:,.1f} GB free for {folder.absolute()}")


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
            probe = in_a_process(train_a_moment, folder, timeout=900, env={COMPILER: os.environ.get(COMPILER, "1")})
        except ProbeError as error:
            advice = "See the rows above; if all of them are ok, report this."
            yield Check("training", "problem", f"the self-test failed ({error})", advice)
            return
    seconds = time.perf_counter() - start
    work = f"{probe['steps']:,} steps and {probe['updates']:,} updates in {seconds:.0f} s"
    finding = f"{work}; every number finite; the saved policy acts as the trained one"
    yield Check("training", "ok", finding)


def train_a_moment(folder: str) -> dict[str, Any]:
    import numpy as np

    from dcp.policies.policy_file import load_policy
    from dcp.presets import preset_config
    from dcp.runs.training import train

    run = train(preset_config("smoke", depth=1), runs_dir=folder, display="none")
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
