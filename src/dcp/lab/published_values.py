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
    config = run.config
    found = []
    evaluated = config.get("eval_env") or config["env"]
    if evaluated != published["eval_env"]:
        found.append(f"evaluated on {published['eval_env']}, ours on {evaluated}")
    if abs(run.env_steps - published["steps"]) > NEAR * published["steps"]:
        found.append(f"{human_count(published['steps'])} steps, ours {human_count(int(run.env_steps))}")
    if config.get("episode_length") not in (None, EPISODE):
        found.append(f"time near the goal is of {EPISODE:,} steps, ours of {config['episode_length']:,}")
    if run.num_evaluations < LAST:
        found.append(f"a mean of the last {LAST} evaluations, ours has {run.num_evaluations}")
    if config.get("physics") != "brax":
        found.append(f"Brax's physics, ours {config.get('physics')}")
    if config.get("fidelity") != "paper":
        found.append("the same start and goal in every episode, ours draws new ones")
    depths = sorted({int(depth) for values in published["values"].values() for depth in values})
    if config.get("network") != "residual":
        found.append(f"residual networks, ours {config.get('network')}")
    elif config["depth"] not in depths:
        found.append(f"depths {', '.join(map(str, depths))}, ours {config['depth']}")
    return found


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
    first = runs[0]
    rows = []
    for source, content in _sources().items():
        published = content["environments"].get(first.config.get("env"))
        if published is None:
            continue
        apart = list(dict.fromkeys(reason for run in runs for reason in differences(run, published)))
        ours = [Cell(first.env), Cell(label), Cell(str(len(runs)), len(runs)), _ours(runs)]
        if apart:
            cells = [Cell(source), absent(), absent("not comparable"), Cell(f"no: {'; '.join(apart)}")]
            rows.append(Row((*ours, *cells), first.env, label))
            continue
        for method, values in published["values"].items():
            if (value := values.get(str(first.config["depth"]))) is None:
                continue
            there = Cell(f"{method}, depth {first.config['depth']}")
            cells = [Cell(source), there, number(*value), Cell("yes")]
            rows.append(Row((*ours, *cells), first.env, label))
    return rows


def _ours(runs: Sequence[Run]) -> Cell:
    """Return the mean over seeds of each run's last evaluations; a run with fewer gives those that it has."""
    finals = [float(np.mean(run.metrics["time_near_goal"][-LAST:])) for run in runs if run.num_evaluations]
    if not finals:
        return absent("no evaluation yet")
    return seeds_cell(seeds_interval(finals))
