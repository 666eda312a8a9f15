"""`dcp latency`: what a single step costs in each form, measured in turns on this machine."""

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table

from dcp.cli.flags import POSITIONAL, parse
from dcp.cli.main import COMMANDS
from dcp.cli.tables import show
from dcp.errors import UserError

if TYPE_CHECKING:
    from dcp.deploy.latency import Latency

RUNTIMES = {"onnx": "onnxruntime", "stablehlo": "stablehlo", "numpy": "numpy"}  # by format: how the table calls it


@dataclass(frozen=True)
class LatencyOptions:
    policy: Annotated[str, POSITIONAL] = ""
    """A run's folder, a policy file or zoo/<env>/<method>: all forms. An exported file: that form."""
    steps: int = 5000
    """Steps that are timed in each form, once with one goal and once with a new goal at each."""
    json: bool = False
    """Print the results as JSON in place of the table."""


def main(argv: list[str]) -> int:
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
    from dcp.deploy.latency import Case, measure

    forms, missing = _forms(options.policy)
    cases: dict[tuple[str, bool], Any] = {}
    for name, policy in forms.items():
        sizes = getattr(policy, "spec", policy)
        for same in (True, False):
            cases[name, same] = Case(policy, sizes.state_size, sizes.goal_size, same)
    found = measure(cases, options.steps)
    return {name: _row(found[name, True], found[name, False]) for name in forms}, missing


def _row(same: "Latency", new: "Latency") -> dict[str, float]:
    return {
        "p50_microseconds": round(same.p50, 2),
        "p99_microseconds": round(same.p99, 2),
        "new_goal_p50_microseconds": round(new.p50, 2),
        "new_goal_p99_microseconds": round(new.p99, 2),
    }


def _forms(path: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Callables by name, without any burst; and what this machine lacks."""
    from dcp.deploy.exported import ENDINGS, is_exported, load_exported

    if is_exported(path):
        exported = load_exported(path)
        exported.burst = None  # a random action costs nothing
        ending = {ENDINGS[form]: name for form, name in RUNTIMES.items()}
        return {ending[Path(path).suffix]: exported}, {}
    from dcp.deploy.export.write import export_policy
    from dcp.policies.policy_file import load_policy

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
