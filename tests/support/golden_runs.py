"""Short runs whose every bit is recorded in tests/golden/runs.json: what a change of structure must not change.

`python -m tests.support.golden_runs` compares; with `--record` it writes what it finds. Everything goes through the
command line and the files that it leaves, so that the code behind them may move.
Bits hold for one processor, one set of versions and one way of compiling (`fast` as in `make test`, or `shipped`);
elsewhere the same numbers are compared within a tolerance.
"""

import argparse
import contextlib
import csv
import hashlib
import io
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "golden/runs.json"
SMOKE = ("train", "--preset", "smoke", "--devices", "1", "--no-plots", "--display", "none")
TIMES = ("steps_per_second", "wall_seconds")
CHAOTIC = ("time_near_goal", "success_once", "final_distance", "numbers")  # another rounding soon leads elsewhere
CASES: dict[str, Callable[[Path], dict[str, Any]]] = {}
CHEAP = ("crl", "ssgc", "dcp", "dcp_no_pool", "resumed", "seeds", "evaluation", "export")  # without physics


def _case(function: Callable[[Path], dict[str, Any]]) -> Callable[[Path], dict[str, Any]]:
    CASES[function.__name__.lstrip("_")] = function
    return function


def _dcp(*argv: str) -> str:
    from dcp.cli.main import main

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = main([*argv])
    assert code == 0, (argv, code)
    return said.getvalue()


def of_run(folder: Path) -> dict[str, Any]:
    """Every number of metrics.csv but the times, and a hash of the policy's arrays whatever they are called."""
    with (folder / "metrics.csv").open() as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    return {
        "rows": [{name: value for name, value in row.items() if name not in TIMES} for row in rows],
        "parameters": of_arrays(folder / "policy.safetensors"),
    }


def of_arrays(path: Path) -> str:
    from safetensors.numpy import load_file

    arrays = sorted((str(a.dtype), a.shape, a.tobytes()) for a in load_file(path).values())
    digest = hashlib.sha256()
    for kind, shape, content in arrays:
        digest.update(f"{kind}{shape}".encode() + content)
    return digest.hexdigest()


def _train(runs: Path, env: str, method: str, *more: str) -> dict[str, Any]:
    _dcp(*SMOKE, "--env", env, "--method", method, "--runs-dir", str(runs), *more)
    return of_run(runs / env / method / "seed_0")


@_case
def crl(runs: Path) -> dict[str, Any]:
    return _train(runs, "point_u_maze", "crl")


@_case
def ssgc(runs: Path) -> dict[str, Any]:
    return _train(runs, "point_u_maze", "ssgc", "--final-goal-share", "0.5")


@_case
def dcp(runs: Path) -> dict[str, Any]:
    return _train(runs, "point_u_maze", "dcp")


@_case
def dcp_no_pool(runs: Path) -> dict[str, Any]:
    return _train(runs, "point_u_maze", "dcp_no_pool", "--layer-norm", "--critic-learning-rate", "1e-3")


@_case
def resumed(runs: Path) -> dict[str, Any]:
    """A finished run, trained longer: the run of case `dcp` as another process would find it."""
    folder = runs / "point_u_maze/dcp/seed_0"
    _dcp("train", "--resume", str(folder), "--steps", "6000", "--no-plots", "--display", "none")
    return of_run(folder)


@_case
def seeds(runs: Path) -> dict[str, Any]:
    flags = ["--seeds", "1", "2", "--seeds-as", "vmapped"]
    _dcp(*SMOKE, "--env", "point_u_maze", "--method", "dcp", "--runs-dir", str(runs), *flags)
    return {str(seed): of_run(runs / f"point_u_maze/dcp/seed_{seed}") for seed in (1, 2)}


@_case
def evaluation(runs: Path) -> dict[str, Any]:
    """The zoo's policies: an evaluation depends on no training."""
    said = json.loads(_dcp("eval", "zoo/point_u_maze/dcp", "zoo/point_u_maze/crl", "--episodes", "16", "--json",
                           "--out", str(runs / "eval")))  # fmt: skip
    return {"numbers": _numbers(said)}


@_case
def export(runs: Path) -> dict[str, Any]:
    import numpy as np

    draws = np.random.default_rng(0)
    found: dict[str, Any] = {}
    for form, name in (("numpy", "p.npz"), ("onnx", "p.onnx"), ("stablehlo", "p.stablehlo")):
        path = runs / name
        _dcp("export", "zoo/point_u_maze/dcp", "--format", form, "--out", str(path))
        policy = _open_export(path)
        states, goals = draws.normal(2, 1, (4, 2)).astype(np.float32), draws.normal(2, 1, (4, 2)).astype(np.float32)
        found[form] = [np.asarray(policy(s, g)).astype(float).tolist() for s, g in zip(states, goals, strict=True)]
    return found


def _open_export(path: Path) -> Any:
    from dcp.policies.exports import load_exported

    return load_exported(path)


@_case
def ant(runs: Path) -> dict[str, Any]:
    return _train(runs, "ant_u_maze", "dcp")


@_case
def pusher(runs: Path) -> dict[str, Any]:
    return _train(runs, "pusher_easy", "dcp")


@_case
def pusher_by_mujoco(runs: Path) -> dict[str, Any]:
    return _train(runs, "pusher_easy", "crl", "--physics", "mujoco")


def _numbers(tree: Any) -> list[float]:
    """Return every number of a JSON tree but times, and what is newer than the recordings: flips, exact distances."""
    if isinstance(tree, dict):
        keys = [key for key in sorted(tree) if not any(word in key for word in ("second", "flip", "by_distance"))]
        return [n for key in keys for n in _numbers(tree[key])]
    if isinstance(tree, list):
        return [n for value in tree for n in _numbers(value)]
    return [float(tree)] if isinstance(tree, int | float) and not isinstance(tree, bool) else []


def fingerprint() -> str:
    """What decides the bits besides our code."""
    from importlib.metadata import version

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    processor = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
    # A virtual machine calls every EPYC by that name; what its vectors hold decides how sums are rounded.
    wide = any(line.startswith("flags") and " avx512f " in line for line in lines)
    processor += " with AVX-512" if wide else ""
    packages = (f"{name} {version(name)}" for name in ("jaxlib", "flax", "optax", "mujoco"))
    return "; ".join([processor, *packages, "shipped" if _shipped() else "fast"])


def _shipped() -> bool:
    return os.environ.get("DCP_TESTS_COMPILE") == "shipped"


def differences(wanted: Any, found: Any, exactly: bool, where: str = "") -> list[str]:
    """Where two recordings differ. `exactly`: in any bit; else hashes are passed over and numbers may be rounded."""
    if isinstance(wanted, dict) and isinstance(found, dict) and wanted.keys() == found.keys():
        keys = [key for key in wanted if exactly or key not in CHAOTIC]
        return [d for key in keys for d in differences(wanted[key], found[key], exactly, f"{where}/{key}")]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = enumerate(zip(wanted, found, strict=True))
        return [d for i, (a, b) in pairs for d in differences(a, b, exactly, f"{where}/{i}")]
    if wanted == found or (isinstance(wanted, str) and isinstance(found, str) and not exactly):
        return []
    both = isinstance(wanted, float) and isinstance(found, float)
    if both and not exactly and math.isclose(wanted, found, rel_tol=0.2, abs_tol=0.2):
        return []
    return [f"{where}: {str(wanted)[:40]} was recorded, {str(found)[:40]} found"]


def run(names: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return {name: CASES[name](Path(folder)) for name in names}


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--record", action="store_true")
    options.add_argument("--only", nargs="*", default=list(CASES))
    given = options.parse_args()
    recorded = json.loads(FILE.read_text()) if FILE.exists() else {}
    found, here = run(given.only), fingerprint()
    if given.record:
        recorded.setdefault(here, {}).update(found)
        FILE.write_text(json.dumps(recorded, indent=0))
        return 0
    wanted = recorded.get(here)
    exactly = wanted is not None
    if wanted is None:
        wanted = next(iter(recorded.values()))
    told = {name: differences(wanted[name], found[name], exactly) for name in given.only}
    for name, wrong in told.items():
        print(f"{name}: {'the same' if not wrong else '; '.join(wrong[:5])}")
    print(json.dumps({"exactly": exactly, "differ": [name for name, wrong in told.items() if wrong]}))
    return int(any(told.values()))


if __name__ == "__main__":
    from tests.support import compilation

    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["JAX_NUM_CPU_DEVICES"] = "1"
    os.environ["XLA_FLAGS"] = compilation.xla_flags()
    sys.exit(main())
