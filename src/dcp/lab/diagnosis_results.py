"""Write and read the results of `dcp diagnose`: the file in the run's folder, rows in words, the report's section."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dcp.errors import UserError
from dcp.files.validation import read_json
from dcp.lab.diagnosis_figures import OVERVIEW, PANELS, figures
from dcp.lab.result_tables import Cell, FigureSpec, Row, Section, Table, absent, writing_to
from dcp.lab.run_collection import Collection, Run
from dcp.lab.style import save
from dcp.policies.policy_file import write_whole

FOLDER, FILE = "diagnosis", "diagnosis.json"
DIAGNOSIS_SCHEMA = 1  # of the files that can be read here
UNKNOWN = "-"
MOST_OVERVIEWS = 6  # in a page; the table has every run
COLUMNS = ("environment", "run", "measure", "found", "95% interval", "to compare with")
NOTES = (
    "Intervals are over episodes (over the maze: goals) of one agent and do not cover other seeds.",
    "A waypoint z is on the way if the detour through it is shorter than the radius within which a goal is reached.",
    "Straight line: a direction that knows no walls. Chance: the learned direction toward another place.",
)

Estimate = dict[str, Any]  # mean, low, high; None if not known


def write_diagnosis(folder: Path, content: dict[str, Any], with_figures: bool = True) -> list[Path]:
    """Write the numbers and the figures, and remove figures of an earlier diagnosis."""
    with writing_to(folder):
        for name in (OVERVIEW, *PANELS):  # by name, because --out may hold the user's own pictures
            (folder / f"{name}.png").unlink(missing_ok=True)
        write_whole(folder / FILE, json.dumps(content, indent=1, allow_nan=False).encode())
        drawn = figures(content) if with_figures else {}
        return [folder / FILE, *(save(make(), folder / f"{name}.png") for name, make in drawn.items())]


def read_diagnosis(folder: Path) -> dict[str, Any] | None:
    """Return the diagnosis in a run's folder; None without one."""
    path = folder / FOLDER / FILE
    if not path.is_file():
        return None
    try:
        content = read_json(path)
        if not isinstance(content, dict) or not isinstance(content.get("drawn"), dict):
            raise ValueError("it holds no result of dcp diagnose")
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}): run `dcp diagnose` again") from error
    if content.get("schema_version") != DIAGNOSIS_SCHEMA:
        raise UserError(f"{path} has schema {content.get('schema_version')}: run `dcp diagnose` again")
    return content


class Found(NamedTuple):
    measure: str
    found: str
    interval: str  # 95%, over episodes
    beside: str  # to compare with
    value: float | None


def found_rows(content: dict[str, Any]) -> list[list[Found]]:
    """Return a group of rows for each part that was measured."""
    return [list(say(content[name])) for name, say in _WORDS.items() if content.get(name)]


def _gaps(part: dict[str, Any]) -> Iterator[Found]:
    scorer, random, oracle = (part["kinds"][kind] for kind in ("scorer", "random", "oracle"))
    whose = "the scorer's waypoints z" if part["has_pool"] else "waypoints z that a scorer would choose"
    beside = f"random visited z {_plain(random['state'])}, z on the true way {_plain(oracle['state'])}; 0: the same way"
    yield _number(f"Gap between the directions to {whose} and to the goal g", scorer["state"], beside)
    beside = f"random visited z {_plain(random['state_away'])}"
    yield _number("The same gap, without the z that are at g", scorer["state_away"], beside)
    places = {"on_path": "on the way to g", "at_goal": "at g itself", "on_path_midway": "midway, neither here nor at g"}
    for name, place in places.items():
        yield _share(f"Part of {whose} {place}", scorer[name], f"of random visited z {_percent(random[name])}")


def _alignment(part: dict[str, Any]) -> Iterator[Found]:
    places = {"maze": "over the maze", "visited": "at visited states"}
    for key, where in ((key, where) for key, where in places.items() if key in part):
        found = part[key]
        beside = (
            f"straight line {_plain(found['straight_line'])}, chance {_plain(found['another_goal'])}; 1: the same way"
        )
        yield _number(f"Cosine of the learned with the true direction, {where}", found["pulled_back"], beside)
        beside = f"straight line {_percent(found['straight_line_nearer'])}"
        yield _share(f"Points at which it leads nearer to g, {where}", found["nearer"], beside)


def _controllability(part: dict[str, Any]) -> Iterator[Found]:
    for k, found in part["steps"].items():
        held = f"in {k} step{'s' if k != '1' else ''}"
        beside = f"of the true direction {_percent(found['true_share'])}"
        yield _share(f"Movable part of the learned direction, {held}", found["share"], beside)
        beside = "1: all of the movable part is of use, whatever its size"
        yield _number(f"Cosine of the movable part with the true direction, {held}", found["cosine"], beside)
        beside = "movable part times cosine: the figure's third bar"
        yield _number(f"Progress, {held}", found["progress"], beside)


def _calibration(part: dict[str, Any]) -> Iterator[Found]:
    yield _order("Learned distance and steps between visited states, rank correlation", part["hindsight"])
    yield _order("Learned distance and steps to the goal", part["steps_to_goal"])
    yield _order("Learned distance and the true way's length", part["true_way"])


def _order(measure: str, found: dict[str, Any]) -> Found:
    return _number(measure, found["rank_correlation"], "1: the same order, 0: none")


def _energies(part: dict[str, Any]) -> Iterator[Found]:
    yield _share(
        "Triples in which the critic's distance breaks the triangle inequality", part["triangle_violations"], "0%"
    )
    yield _share("Its difference between there and back", part["asymmetry"], "not a fault: the way back may be longer")
    yield _share("Its distance from a state to itself, of a usual distance", part["at_home"], "0%")


def _conditioning(part: dict[str, Any]) -> Iterator[Found]:
    used = part["psi_rank"]
    yield Found("Dimensions that the representation uses", f"{used:.1f}", UNKNOWN, f"of {part['psi_size']}", used)
    least = "Least sensitive direction of the representation, of the most sensitive"
    yield _share(least, part["smallest_by_largest"], "100%: all equal; 0%: one direction has no effect")


def _number(measure: str, estimate: Estimate, beside: str) -> Found:
    low, high = estimate["low"], estimate["high"]
    interval = UNKNOWN if low is None or high is None else f"{low:.2f} to {high:.2f}"
    return Found(measure, _plain(estimate), interval, beside, estimate["mean"])


def _share(measure: str, estimate: Estimate, beside: str) -> Found:
    low, high = estimate["low"], estimate["high"]
    interval = UNKNOWN if low is None or high is None else f"{max(low, 0.0):.0%} to {high:.0%}"
    return Found(measure, _percent(estimate), interval, beside, estimate["mean"])


def _plain(estimate: Estimate) -> str:
    return UNKNOWN if estimate["mean"] is None else f"{estimate['mean']:.2f}"


def _percent(estimate: Estimate) -> str:
    return UNKNOWN if estimate["mean"] is None else f"{estimate['mean']:.0%}"


_WORDS: dict[str, Callable[[dict[str, Any]], Iterator[Found]]] = {
    "gaps": _gaps,
    "alignment": _alignment,
    "controllability": _controllability,
    "calibration": _calibration,
    "energies": _energies,
    "conditioning": _conditioning,
}


def diagnosis_sections(collection: Collection) -> list[Section]:
    """Show what `dcp diagnose` left in run folders. Nothing is measured here."""
    drawn, lines, said = [], [], []
    for (env, method), runs in collection.groups.items():
        for run in runs:
            try:
                content = read_diagnosis(run.folder)
                if content is None:
                    continue
                found = [row for group in found_rows(content) for row in group]
                make = figures(content).get(OVERVIEW)
            except (UserError, LookupError, TypeError, ValueError, AttributeError) as error:
                said.append(f"{run.folder} has no readable diagnosis: {error}.")
                continue
            lines += [_found_row(run, env, method, each) for each in found]
            if make is not None:
                caption = f"{env}, {method}, seed {run.seed}: what its representation knows, next to the truth."
                drawn.append(FigureSpec(f"diagnosis_{env}_{method}_{run.seed}", caption, make, env, method))
    if not lines and not said:
        return []
    if drawn[MOST_OVERVIEWS:]:
        said.append(f"{len(drawn) - MOST_OVERVIEWS} further overviews are in the folders `<run>/{FOLDER}`.")
    table = Table("diagnoses", "What representations know", COLUMNS, tuple(lines), NOTES)
    text = " ".join(["Agents that `dcp diagnose` has measured.", *said])
    return [Section("Diagnoses", "diagnoses", tuple(drawn[:MOST_OVERVIEWS]), (table,) if lines else (), text)]


def _found_row(run: Run, env: str, method: str, found: Found) -> Row:
    number = absent() if found.value is None else Cell(found.found, found.value)
    words = (Cell(found.interval), Cell(found.beside))
    return Row((Cell(env), Cell(f"{method}, seed {run.seed}"), Cell(found.measure), number, *words), env, method)
