"""A diagnosis in plain words: what was measured, what was found, and what to hold it against."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

UNKNOWN = "-"
Estimate = dict[str, Any]  # mean, low, high; None where it is not known


class Found(NamedTuple):
    measure: str
    found: str
    interval: str  # 95%, over episodes
    beside: str  # to compare with
    value: float | None


def rows(content: dict[str, Any]) -> list[list[Found]]:
    """A group of rows for each part that was measured."""
    return [list(speak(content[name])) for name, speak in _SPEAKERS.items() if content.get(name)]


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
        yield _share(f"Part of the learned direction that actions can move {held}", found["share"], beside)
        beside = "1: all of that part is of use"
        yield _number(f"Cosine of what they can move {held} with the true direction", found["cosine"], beside)


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
    yield _share("Its difference between there and back", part["asymmetry"], "no fault: a way back may be longer")
    yield _share("Its distance from a state to itself, of a usual distance", part["at_home"], "0%")


def _conditioning(part: dict[str, Any]) -> Iterator[Found]:
    used = part["psi_rank"]
    yield Found("Dimensions that the representation uses", f"{used:.1f}", UNKNOWN, f"of {part['psi_size']}", used)
    least = "Least sensitive direction of the representation, of the most sensitive"
    yield _share(least, part["smallest_by_largest"], "100%: all alike; 0%: one direction is not seen")


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


_SPEAKERS: dict[str, Callable[[dict[str, Any]], Iterator[Found]]] = {
    "gaps": _gaps,
    "alignment": _alignment,
    "controllability": _controllability,
    "calibration": _calibration,
    "energies": _energies,
    "conditioning": _conditioning,
}
