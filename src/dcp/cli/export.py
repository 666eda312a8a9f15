"""`dcp export`: write a policy as one file that runs without dcp. `dcp latency`: time a single step in each form.

Inputs differ from step to step, and the forms take turns.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from rich.table import Table

from dcp.cli.flags import POSITIONAL, parse
from dcp.cli.main import COMMANDS
from dcp.cli.working import show
from dcp.errors import UserError
from dcp.policies.exports import ENDINGS, export_policy, format_of, is_exported, load_exported
from dcp.policies.policy_file import load_policy

RUNTIMES = {"onnx": "onnxruntime", "stablehlo": "stablehlo", "numpy": "numpy"}  # format -> its name in the table
TURN = 50  # steps of one form before the next takes over
WARM_UP = 5  # untimed steps at the start of a turn: another form has just filled the processor's caches
INPUTS = 1024  # different observations

Step = Callable[[np.ndarray, np.ndarray], Any]


@dataclass(frozen=True)
class ExportOptions:
    run: Annotated[str, POSITIONAL] = ""
    """A run's folder, a policy file, or zoo/<env>/<method>."""
    format: Literal["onnx", "stablehlo", "numpy"] | None = None
    """onnx: runs in onnxruntime. stablehlo: needs only JAX. numpy: needs only NumPy, and is the fastest. Default:
    what the ending of --out says (.onnx, .stablehlo, .npz), else onnx."""
    out: Path | None = None
    """Default: policy.onnx, policy.stablehlo or policy.npz in the run's folder."""


def main(argv: list[str]) -> int:
    options = parse(ExportOptions(), argv, "dcp export", COMMANDS["export"])
    if not options.run:
        raise UserError("nothing to export: name a run's folder or a policy file")
    form = options.format or ("onnx" if options.out is None else format_of(options.out))
    if options.out is not None and not options.out.parent.is_dir():
        raise UserError(f"there is no folder {options.out.parent}: make it first, or choose another --out")
    out = export_policy(options.run, form, options.out)
    spec = load_policy(options.run).spec
    sizes = f"state [{spec.state_size}], goal [{spec.goal_size}] -> action [{spec.action_size}]"
    print(f"Wrote {out} ({out.stat().st_size / 1000:,.0f} kB): {sizes}.")
    return 0


# dcp latency


class Latency(NamedTuple):
    """Hold the microseconds of a single step."""

    p50: float
    p99: float
    turns: tuple[float, ...]  # the median of each turn

    def over(self, other: "Latency") -> float:
        """Return how many times as long a step takes, compared turn by turn: what disturbs both at once cancels."""
        return float(np.median(np.divide(self.turns, other.turns)))


class Case(NamedTuple):
    """Hold a policy, its sizes, and whether its goal stays the same from step to step."""

    step: Step
    state_size: int
    goal_size: int
    same_goal: bool = True
    before: Callable[[], Any] | None = None  # called before each step and not timed: the rest of a robot's loop


@dataclass(frozen=True)
class LatencyOptions:
    policy: Annotated[str, POSITIONAL] = ""
    """A run's folder, a policy file or zoo/<env>/<method>: all forms. An exported file: that form."""
    steps: int = 5000
    """Steps to time in each form, once with a fixed goal and once with a new goal at each step."""
    json: bool = False
    """Print the results as JSON instead of the table."""


def latency(argv: list[str]) -> int:
    options = parse(LatencyOptions(), argv, "dcp latency", COMMANDS["latency"])
    if not options.policy:
        raise UserError("nothing to time: name a run's folder, a policy file or an exported file")
    if options.steps < 1:
        raise UserError(f"--steps {options.steps} times nothing: use 1 or more, such as 5000")
    times, missing = _times(options)
    if options.json:
        print(json.dumps({"policy": options.policy, "steps": options.steps, "forms": times, "missing": missing}))
        return 0
    _show(times)
    for name, reason in missing.items():
        print(f"{name}: {reason}")
    return 0


def _times(options: LatencyOptions) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    forms, missing = _forms(options.policy)
    cases: dict[tuple[str, bool], Any] = {}
    for name, policy in forms.items():
        sizes = getattr(policy, "spec", policy)
        for same in (True, False):
            cases[name, same] = Case(policy, sizes.state_size, sizes.goal_size, same)
    latencies = measure(cases, options.steps)
    return {name: _row(latencies[name, True], latencies[name, False]) for name in forms}, missing


def _row(same: Latency, new: Latency) -> dict[str, float]:
    return {
        "p50_microseconds": round(same.p50, 2),
        "p99_microseconds": round(same.p99, 2),
        "new_goal_p50_microseconds": round(new.p50, 2),
        "new_goal_p99_microseconds": round(new.p99, 2),
    }


def _forms(path: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the callables by name, and the reason for each form that this machine lacks."""
    if is_exported(path):
        exported = load_exported(path)
        ending = {ENDINGS[form]: name for form, name in RUNTIMES.items()}
        return {ending[Path(path).suffix]: exported}, {}
    forms: dict[str, Any] = {"jax": load_policy(path)}
    missing: dict[str, str] = {}
    with TemporaryDirectory() as folder:
        for form, name in RUNTIMES.items():
            try:
                forms[name] = load_exported(export_policy(path, form, Path(folder) / f"policy{ENDINGS[form]}"))
            except UserError as error:
                missing[name] = str(error)
    return forms, missing


def _show(times: dict[str, dict[str, float]]) -> None:
    table = Table("form", title="a single step, in microseconds", title_justify="left")
    for column in ("p50", "p99", "p50, new goal each step", "p99, new goal each step"):
        table.add_column(column, justify="right")
    for name, row in times.items():
        table.add_row(name, *(f"{value:.1f}" for value in row.values()))
    show(table)


def measure(cases: Mapping[Any, Case], steps: int) -> dict[Any, Latency]:
    """Time `steps` of each case in turns, so that other processes disturb all cases alike."""
    inputs = {name: _inputs(case) for name, case in cases.items()}
    for name, case in cases.items():  # compile, and allocate what is allocated once
        for number in range(20 * WARM_UP):
            case.step(*inputs[name][number])
    turns: dict[Any, list[list[int]]] = {name: [] for name in cases}
    for start in range(0, steps, TURN):
        for name, case in cases.items():
            turns[name].append(_turn(case, inputs[name], start, min(TURN, steps - start)))
    return {name: _latency(latencies) for name, latencies in turns.items()}


def _latency(turns: list[list[int]]) -> Latency:
    p50, p99 = np.percentile(np.concatenate(turns), (50, 99)) / 1000.0
    return Latency(float(p50), float(p99), tuple(float(np.median(turn)) / 1000.0 for turn in turns))


def _turn(case: Case, inputs: list[tuple[np.ndarray, np.ndarray]], start: int, count: int) -> list[int]:
    times, step = [], case.step
    for number in range(start - WARM_UP, start + count):
        state, goal = inputs[number % INPUTS]
        if case.before is not None:
            case.before()
        begin = time.perf_counter_ns()
        step(state, goal)
        times.append(time.perf_counter_ns() - begin)
    return times[WARM_UP:]


def _inputs(case: Case) -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(0)
    states = random.normal(0.0, 3.0, (INPUTS, case.state_size)).astype(np.float32)
    goals = random.normal(0.0, 3.0, (INPUTS, case.goal_size)).astype(np.float32)
    return [(state, goals[0 if case.same_goal else number].copy()) for number, state in enumerate(states)]
