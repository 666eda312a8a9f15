"""Show other papers' numbers next to ours, only if environment, layout, steps and metric agree.

`published.json` is an extract: time at goal of Scaled CRL (its table 1) and of ChronoSRL (its website's data). A number
is shown if a run was trained and evaluated in the same way; otherwise the table says what differs.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from dcp.lab.method_tables import seeds_cell
from dcp.lab.result_tables import Cell, Row, Section, Table, absent, number
from dcp.lab.run_collection import Collection, Run, seeds_interval
from dcp.lab.style import human_count

LAST = 5  # evaluations that a published value is the mean of
EPISODE = 1000  # steps
NEAR = 0.01  # how far our steps may lie from theirs, as a share of theirs
_COLUMNS = ("environment", "method", "seeds", "time near goal, ours", "source", "method there", "published", "compared")


@cache
def _sources() -> dict[str, Any]:
    return json.loads(files("dcp.lab").joinpath("published.json").read_text(encoding="utf-8"))["sources"]


def differences(run: Run, published: Mapping[str, Any]) -> list[str]:
    """Return all differences between a run and the published runs of its environment; empty if there are none."""
    config, steps = run.config, published["steps"]
    evaluated, network = config.get("eval_env") or config["env"], config.get("network")
    length = config.get("episode_length")
    depths = sorted({int(depth) for values in published["values"].values() for depth in values})
    checks = (
        (evaluated == published["eval_env"], f"evaluated on {published['eval_env']}, ours on {evaluated}"),
        (abs(run.env_steps - steps) <= NEAR * steps, f"{human_count(steps)} steps, ours {human_count(run.env_steps)}"),
        (length in (None, EPISODE), f"time near the goal is of {EPISODE:,} steps, ours of {length or 0:,}"),
        (run.num_evaluations >= LAST, f"a mean of the last {LAST} evaluations, ours has {run.num_evaluations}"),
        (config.get("physics") == "brax", f"Brax's physics, ours {config.get('physics')}"),
        (config.get("fidelity") == "paper", "the same start and goal in every episode, ours draws new ones"),
        (network == "residual", f"residual networks, ours {network}"),
        (
            network != "residual" or config["depth"] in depths,
            f"depths {', '.join(map(str, depths))}, ours {config['depth']}",
        ),
    )
    return [words for agrees, words in checks if not agrees]


def published_sections(collection: Collection) -> list[Section]:
    """Return the section if an environment of the collection is among the published ones."""
    rows = [row for (_, label), runs in collection.groups.items() for row in _rows(label, runs)]
    if not rows:
        return []
    notes = [f"{name}: {source['title']}; ± {source['spread']}." for name, source in _sources().items()]
    notes.append(
        f"Time near goal: steps of {EPISODE:,}, the mean of a run's last {LAST} evaluations, then over seeds; ours "
        "with a 95% interval, of two seeds their range. A published value is shown if environment, layout, steps, "
        "metric and depth agree."
    )
    table = Table("published", "Compared with published values", _COLUMNS, tuple(rows), tuple(notes))
    return [Section("Published values", "published", tables=(table,))]


def _rows(label: str, runs: Sequence[Run]) -> list[Row]:
    """Compare the mean over seeds of each run's last evaluations; a run with fewer gives those that it has."""
    first = runs[0]
    finals = [float(np.mean(run.metrics["time_near_goal"][-LAST:])) for run in runs if run.num_evaluations]
    mean = seeds_cell(seeds_interval(finals)) if finals else absent("no evaluation yet")
    ours, rows = [Cell(first.env), Cell(label), Cell(str(len(runs)), len(runs)), mean], []
    for source, content in _sources().items():
        published = content["environments"].get(first.config.get("env"))
        if published is None:
            continue
        apart = list(dict.fromkeys(reason for run in runs for reason in differences(run, published)))
        theirs = [[absent(), absent("not comparable"), Cell(f"no: {'; '.join(apart)}")]]
        if not apart:
            depth = first.config["depth"]
            known = {method: of[str(depth)] for method, of in published["values"].items() if str(depth) in of}
            theirs = [[Cell(f"{m}, depth {depth}"), number(*value), Cell("yes")] for m, value in known.items()]
        rows += [Row((*ours, Cell(source), *cells), first.env, label) for cells in theirs]
    return rows
