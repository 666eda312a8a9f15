"""Word, draw, write and read what `dcp diagnose` measured: its table, its figures, its file, the report's section.

Each panel of a figure asks a question in its title and says how to read the answer.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from dcp.errors import UserError
from dcp.files.validation import read_json
from dcp.lab.result_tables import Cell, FigureSpec, Row, Section, Table, absent, writing_to
from dcp.lab.run_collection import Collection
from dcp.lab.style import (
    BLUE,
    GOAL_COLOUR,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    arrows_per_cell,
    draw_arrows,
    draw_maze,
    house_style,
    save,
)
from dcp.policies.policy_file import write_whole
from dcp.types import MazeLayout

FOLDER, FILE = "diagnosis", "diagnosis.json"
DIAGNOSIS_SCHEMA = 1  # of the files that can be read here
UNKNOWN = "-"
MOST_OVERVIEWS = 6  # in a page; the table has every run
COLUMNS = ("measure", "value", "95% interval", "to compare with")
NOTES = (
    "Intervals are over episodes (over the maze: goals) of one agent and do not cover other seeds.",
    "A waypoint z is on the way if the detour through it is shorter than the radius within which a goal is reached.",
    "Straight line: a direction that knows no walls. Chance: the learned direction toward another place.",
)

Content = dict[str, Any]  # of diagnosis.json
Estimate = dict[str, Any]  # mean, low, high; None if not known


def write_diagnosis(folder: Path, content: Content, with_figures: bool = True) -> list[Path]:
    """Write the numbers and the figures, and remove figures of an earlier diagnosis."""
    with writing_to(folder):
        for name in (OVERVIEW, REGIME):  # by name, because --out may hold the user's own pictures
            (folder / f"{name}.png").unlink(missing_ok=True)
        write_whole(folder / FILE, json.dumps(content, indent=1, allow_nan=False).encode())
        drawn = figures(content) if with_figures else {}
        return [folder / FILE, *(save(make(), folder / f"{name}.png") for name, make in drawn.items())]


def read_diagnosis(folder: Path) -> Content | None:
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


# In words.


class Finding(NamedTuple):
    """One row of the table that `dcp diagnose` prints."""

    measure: str
    text: str
    interval: str  # 95%, over episodes
    beside: str  # to compare with
    value: float | None

    @property
    def cells(self) -> tuple[Cell, ...]:
        number = absent() if self.text == UNKNOWN else Cell(self.text, self.value)
        return Cell(self.measure), number, Cell(self.interval), Cell(self.beside)


def findings(content: Content) -> list[Finding]:
    """Return the rows of every part that was measured."""
    return [finding for name, word in _WORDS.items() if content.get(name) for finding in word(content[name])]


def _gaps_in_words(part: Content) -> Iterator[Finding]:
    scorer, random, oracle = (part["kinds"][kind] for kind in ("scorer", "random", "oracle"))
    whose = "the scorer's waypoints z" if part["has_pool"] else "waypoints z that a scorer would choose"
    beside = f"random visited z {_plain(random['state'])}, z on the true way {_plain(oracle['state'])}; 0: the same way"
    yield _number(f"Gap between the directions to {whose} and to the goal g", scorer["state"], beside)
    beside = f"random visited z {_plain(random['state_away'])}"
    yield _number("The same gap, without the z that are at g", scorer["state_away"], beside)
    places = {"on_path": "on the way to g", "at_goal": "at g itself", "on_path_midway": "midway, neither here nor at g"}
    for name, place in places.items():
        yield _share(f"Part of {whose} {place}", scorer[name], f"of random visited z {_percent(random[name])}")


def _alignment_in_words(part: Content) -> Iterator[Finding]:
    places = {"maze": "over the maze", "visited": "at visited states"}
    for each, where in ((part[key], where) for key, where in places.items() if key in part):
        beside = (
            f"straight line {_plain(each['straight_line'])}, chance {_plain(each['another_goal'])}; 1: the same way"
        )
        yield _number(f"Cosine of the learned with the true direction, {where}", each["pulled_back"], beside)
        beside = f"straight line {_percent(each['straight_line_nearer'])}"
        yield _share(f"Points at which it leads nearer to g, {where}", each["nearer"], beside)


def _controllability_in_words(part: Content) -> Iterator[Finding]:
    for k, each in part["steps"].items():
        held = f"in {k} step{'s' if k != '1' else ''}"
        beside = f"of the true direction {_percent(each['true_share'])}"
        yield _share(f"Movable part of the learned direction, {held}", each["share"], beside)
        beside = "1: all of the movable part is of use, whatever its size"
        yield _number(f"Cosine of the movable part with the true direction, {held}", each["cosine"], beside)
        yield _number(f"Progress, {held}", each["progress"], "movable part times cosine: the figure's third bar")


def _calibration_in_words(part: Content) -> Iterator[Finding]:
    names = {
        "hindsight": "steps between visited states, rank correlation",
        "steps_to_goal": "steps to the goal",
        "true_way": "the true way's length",
    }
    for name, what in names.items():
        order = part[name]["rank_correlation"]
        yield _number(f"Learned distance and {what}", order, "1: the same order, 0: none")


def _regime_in_words(part: Content) -> Iterator[Finding]:
    yield Finding("Regime", part["words"], UNKNOWN, "coverage, z and the goal, where they are known", None)
    if (cells := part.get("cells_in_episodes")) is not None:
        yield Finding("Free cells that these episodes visit", f"{cells:.0%}", UNKNOWN, "100%", cells)
    first_and_last = {"coverage": "Coverage in training", "place_of_z": "Place of z from s (0%) to g (100%)"}
    for name, what in first_and_last.items():
        if name in part:
            first, last = part[name]
            yield Finding(what, f"{last:.0%}", UNKNOWN, f"at the first evaluation {first:.0%}", last)
    beside = f"in the first third {_plain(part['early_distance'])}; 1: as far as two visited states are apart"
    yield _number("Learned distance to the goal, last third of an episode", part["late_distance"], beside)
    if pair := part.get("distance"):
        beside = f"under the first kept policy {pair[0]:.2f}, at the same states"
        yield Finding("Learned distance to the goal, last policy", f"{pair[1]:.2f}", UNKNOWN, beside, pair[1])


_WORDS: dict[str, Callable[[Content], Iterator[Finding]]] = {
    "gaps": _gaps_in_words,
    "alignment": _alignment_in_words,
    "controllability": _controllability_in_words,
    "calibration": _calibration_in_words,
    "regime": _regime_in_words,
}


def _number(measure: str, estimate: Estimate, beside: str, form: str = ".2f") -> Finding:
    low, high = estimate["low"], estimate["high"]
    interval = UNKNOWN if low is None or high is None else f"{low:{form}} to {high:{form}}"
    return Finding(measure, _plain(estimate, form), interval, beside, estimate["mean"])


def _share(measure: str, estimate: Estimate, beside: str) -> Finding:
    return _number(measure, estimate, beside, ".0%")


def _plain(estimate: Estimate, form: str = ".2f") -> str:
    return UNKNOWN if estimate["mean"] is None else f"{estimate['mean']:{form}}"


def _percent(estimate: Estimate) -> str:
    return _plain(estimate, ".0%")


def diagnosis_sections(collection: Collection) -> list[Section]:
    """Show what `dcp diagnose` left in run folders. Nothing is measured here."""
    drawn, rows, remarks = [], [], []
    for (env, method), runs in collection.groups.items():
        for run in runs:
            try:
                content = read_diagnosis(run.folder)
                if content is None:
                    continue
                measured = findings(content)
                make = figures(content).get(OVERVIEW)
            except (UserError, LookupError, TypeError, ValueError, AttributeError) as error:
                remarks.append(f"{run.folder} has no readable diagnosis: {error}.")
                continue
            whose = Cell(env), Cell(f"{method}, seed {run.seed}")
            rows += [Row((*whose, *each.cells), env, method) for each in measured]
            if make is not None:
                caption = f"{env}, {method}, seed {run.seed}: what its representation knows, next to the truth."
                drawn.append(FigureSpec(f"diagnosis_{env}_{method}_{run.seed}", caption, make, env, method))
    if not rows and not remarks:
        return []
    if drawn[MOST_OVERVIEWS:]:
        remarks.append(f"{len(drawn) - MOST_OVERVIEWS} further overviews are in the folders `<run>/{FOLDER}`.")
    table = Table("diagnoses", "What representations know", ("environment", "run", *COLUMNS), tuple(rows), NOTES)
    text = " ".join(["Agents that `dcp diagnose` has measured.", *remarks])
    return [Section("Diagnoses", "diagnoses", tuple(drawn[:MOST_OVERVIEWS]), (table,) if rows else (), text)]


# As figures.

PALE = "#B8BEC4"
AGREEMENT = "coolwarm_r"  # red: against the true direction; blue: along it
KIND_NAMES = {"scorer": "chosen by\nthe scorer", "random": "random\nvisited state", "oracle": "on the\ntrue way"}
KIND_COLOURS = {"scorer": BLUE, "random": ORANGE, "oracle": GREEN}
PLACES = {"at the goal": PURPLE, "on the way, in between": GREEN, "where it is": SKY, "off the way": PALE}
RIGHT_ANGLE = 2.0**0.5


def draw_directions(axes: Axes, content: Content) -> None:
    """Draw the maze with the learned and the true arrows; without a maze, a histogram of cosines."""
    drawn = content["drawn"]["alignment"]
    if "maze" not in drawn:
        return _draw_cosines(axes, drawn, content["alignment"]["visited"])
    layout = MazeLayout(tuple(drawn["maze"]), float(drawn["scale"]))
    draw_maze(axes, layout)
    points, shown, true = (_array(drawn[name]).reshape(-1, 2) for name in ("points", "learned", "true"))
    length = 0.8 * layout.scale / arrows_per_cell(layout)
    cosine = np.clip(_array(drawn["cosine"]), -1.0, 1.0)
    scale = ScalarMappable(Normalize(-1.0, 1.0), AGREEMENT)
    draw_arrows(axes, points, shown, length, color=scale.to_rgba(np.nan_to_num(cosine)), width=0.0085)
    draw_arrows(axes, points, true, length, color=INK, width=0.0028, alpha=0.75)
    x, y = drawn["goal"][:2]
    axes.plot([y], [x], "*", markersize=16, color=GOAL_COLOUR, markeredgecolor="white", zorder=6)
    bar = axes.figure.colorbar(scale, cax=axes.inset_axes((1.02, 0.0, 0.03, 1.0)), ticks=[-1, 0, 1])
    bar.ax.set_yticklabels(["opposite", "across", "the same"], fontsize=8)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    axes.set(xlabel="", ylabel="", xticks=[], yticks=[])
    maze = content["alignment"]["maze"]
    mean, straight, chance = (maze[name]["mean"] for name in ("pulled_back", "straight_line", "another_goal"))
    note = "Thick, coloured: learned; thin, black: true. Star: the goal."
    note += f"\nMean cosine over goals {mean:.2f}; straight line {straight:.2f}; chance {chance:.2f}"
    _titled(axes, "Does the learned direction follow the maze?", note)


def _draw_cosines(axes: Axes, drawn: Content, visited: Content) -> None:
    cosine = _array(drawn["visited"])
    axes.hist(cosine[np.isfinite(cosine)], bins=np.linspace(-1.0, 1.0, 21).tolist(), color=BLUE, edgecolor="white")
    axes.axvline(0.0, color=INK, linewidth=0.8, linestyle=":")
    axes.set_xlim(-1.0, 1.0)
    axes.set_xticks([-1.0, 0.0, 1.0], ["opposite", "across", "the same"])
    axes.set_ylabel("visited states")
    mean, chance = (visited[name]["mean"] for name in ("pulled_back", "another_goal"))
    note = "" if mean is None or chance is None else f", mean {mean:.2f}; chance {chance:.2f}"
    _titled(axes, "Does the learned direction lead to the goal?", f"Its cosine with the straight way{note}")


def draw_gaps(axes: Axes, content: Content) -> None:
    kinds = content["gaps"]["kinds"]
    for at, (kind, each) in enumerate(kinds.items()):
        _bar(axes, at, each["state"], KIND_COLOURS[kind])
    axes.axhline(RIGHT_ANGLE, color=INK, linewidth=0.8, linestyle=":")
    axes.text(len(kinds) - 0.5, RIGHT_ANGLE + 0.03, "a right angle", ha="right", va="bottom", fontsize=8)
    axes.set_xticks(range(len(kinds)), [_kind_name(kind, content) for kind in kinds])
    axes.set_ylim(0.0, 2.0)
    axes.set_ylabel("difference of the directions")
    has_pool = content["gaps"]["has_pool"]
    use = "In training a waypoint replaces the goal." if has_pool else "This method trains without waypoints."
    _titled(axes, "Does a waypoint show the goal's direction?", f"{use} 0: same direction; 2: opposite")


def _kind_name(kind: str, content: Content) -> str:
    return KIND_NAMES[kind] if kind != "scorer" or content["gaps"]["has_pool"] else "a scorer\nwould choose"


def draw_waypoints(axes: Axes, content: Content) -> None:
    """Draw where the scorer's z are: at the goal, on the way, or off it."""
    kinds = [(kind, content["gaps"]["kinds"][kind]) for kind in ("random", "scorer")]
    for at, (_, each) in enumerate(kinds):
        goal, midway, on = (each[name]["mean"] or 0.0 for name in ("at_goal", "on_path_midway", "on_path"))
        shares, left = (goal, midway, max(on - goal - midway, 0.0), 1.0 - on), 0.0
        for share, (name, colour) in zip(shares, PLACES.items(), strict=True):
            axes.barh(at, 100.0 * share, 0.62, 100.0 * left, color=colour, label=name if at == 0 else None)
            if share > 0.07:
                axes.text(100.0 * (left + share / 2), at, f"{share:.0%}", ha="center", va="center", fontsize=9)
            left += share
    axes.set_yticks(range(len(kinds)), [_kind_name(kind, content) for kind, _ in kinds])
    axes.set_xlim(0.0, 100.0)
    axes.set_ylim(-1.35, len(kinds) - 0.5)
    axes.set_xlabel("% of waypoints")
    axes.legend(loc="lower left", fontsize=9, ncols=2)
    axes.grid(False)
    _titled(axes, "Where do the waypoints lie?", "On the way: the detour is shorter than the goal's radius")


def draw_detours(axes: Axes, content: Content) -> None:
    rows = content["gaps"]["by_slack"]
    for at, row in enumerate(rows):
        _bar(axes, at, row["gap"], PURPLE)
    names = [
        f"{row['low']:.3g} to\n{row['high']:.3g}" if row["high"] else f"more than\n{row['low']:.3g}" for row in rows
    ]
    axes.set_xticks(range(len(rows)), names)
    axes.set_ylim(0.0, 2.0)
    axes.set_xlabel("detour by way of the waypoint")
    axes.set_ylabel("difference of the directions")
    order = content["gaps"]["slack_and_gap"]["mean"]
    ending = "" if order is None else f" Rank correlation {order:.2f}"
    _titled(axes, "Do detours change the direction?", f"Theory: no detour, no difference.{ending}")


def draw_calibration(axes: Axes, content: Content) -> None:
    drawn = content["drawn"]["calibration"]["hindsight"]
    order = content["calibration"]["hindsight"]["rank_correlation"]["mean"]
    x, y = _array(drawn["x"]), _array(drawn["d_psi"])
    axes.plot(x, y, ".", markersize=4, alpha=0.4, color=BLUE)
    if len(x) >= 20:
        edges = np.unique(np.nanquantile(x, np.linspace(0.0, 1.0, 9)))
        which = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, len(edges) - 2)
        groups = [which == i for i in range(len(edges) - 1) if np.any(which == i)]
        middle, height = ([float(np.median(values[group])) for group in groups] for values in (x, y))
        axes.plot(middle, height, "o-", color=INK, markersize=4, label="median")
        axes.legend(fontsize=8, loc="lower right")
    axes.set(xlabel="steps between two visited states", ylabel="learned distance")
    axes.set_xlim(left=0.0)
    axes.set_ylim(bottom=0.0)
    note = "no pairs" if order is None else f"Rank correlation {order:.2f} (1: the same order, 0: none)"
    _titled(axes, "Is the learned distance a measure of time?", note)


def draw_controllability(axes: Axes, content: Content) -> None:
    steps = content["controllability"]["steps"]
    bars = {
        "share": ("movable part, learned direction", BLUE),
        "true_share": ("movable part, true direction", PALE),
        "progress": ("progress: movable part times cosine", GREEN),
    }
    for i, (name, (label, colour)) in enumerate(bars.items()):
        for at, each in enumerate(steps.values()):
            _bar(axes, at + 0.27 * (i - 1), each[name], colour, 0.25, label if at == 0 else None)
    axes.axhline(0.0, color=INK, linewidth=0.8)
    axes.set_xticks(range(len(steps)), [f"{k} step{'s' if k != '1' else ''}" for k in steps])
    axes.set_ylim(min(0.0, *(each["progress"]["low"] or 0.0 for each in steps.values())) - 0.02, 1.4)
    axes.set_yticks(np.linspace(0.0, 1.0, 6))
    axes.set_ylabel("of a direction of length 1")
    axes.legend(fontsize=7.5, loc="upper left", ncols=1)
    note = "Within k steps. 0: actions cannot move along it at all; 1: along all of it"
    _titled(axes, "Can actions follow the learned direction?", note)


def draw_regime(axes: Axes, content: Content) -> None:
    drawn, part = content["drawn"]["regime"], content["regime"]
    curves = drawn.get("training", {})
    lines = {
        "success_once": ("success", GREEN),
        "coverage": ("coverage", BLUE),
        "place_of_z": ("z from s to g", ORANGE),
    }
    for name, (label, colour) in lines.items():
        if name in curves:
            axes.plot(_array(curves["env_steps"]), 100.0 * _array(curves[name]), color=colour, label=label)
    if kept := drawn.get("kept"):
        axes.plot(_array(kept["env_steps"]), 100.0 * _array(kept["distance"]), color=PURPLE, label="distance to g")
    if axes.lines:
        axes.set(xlabel="environment steps", ylabel="%")
        axes.legend(fontsize=8)
    else:
        _bar(axes, 0, part["early_distance"], SKY)
        _bar(axes, 1, part["late_distance"], PURPLE)
        axes.set_xticks([0, 1], ["first third of\nan episode", "last third"])
        axes.set_ylabel("learned distance to the goal")
    axes.set_ylim(bottom=0.0)
    _titled(axes, "Which regime is the run in?", str(part["words"]).replace("; ", ";\n"))


def _array(values: Any) -> np.ndarray:
    return np.asarray(values, float)


def _bar(
    axes: Axes, at: float, estimate: dict[str, Any], colour: str, width: float = 0.62, label: str | None = None
) -> None:
    """Draw a bar with its interval and its number; nothing for an unknown value."""
    mean, low, high = (estimate[name] for name in ("mean", "low", "high"))
    axes.bar(at, mean or 0.0, width, color=colour, label=label)
    if mean is None:
        return
    if low is not None and high is not None:
        axes.plot([at, at], [low, high], color=INK, linewidth=1.2)
    axes.text(at, max(mean, high or mean, 0.0) + 0.02, f"{mean:.2f}", ha="center", va="bottom", fontsize=8)


def _titled(axes: Axes, question: str, note: str) -> None:
    axes.set_title(question, loc="left", fontweight="bold", pad=10 + 11 * (note.count("\n") + 1))
    axes.text(0.0, 1.02, note, transform=axes.transAxes, fontsize=8.5, va="bottom", color="#5A5A5A")


DrawPanel = Callable[[Axes, Content], None]
OVERVIEW, REGIME = "overview", "regime"  # names of the figures' files
PANELS: tuple[tuple[str, DrawPanel], ...] = (  # of the overview: the part that each needs, and what draws it
    ("alignment", draw_directions),
    ("gaps", draw_gaps),
    ("gaps", draw_waypoints),
    ("controllability", draw_controllability),
    ("calibration", draw_calibration),
    ("gaps", draw_detours),
)


def figures(content: Content) -> dict[str, Callable[[], Figure]]:
    """Return name -> function that draws it, for every figure with numbers."""
    panels = [panel for part, panel in PANELS if content.get(part)]
    drawn: dict[str, Callable[[], Figure]] = {OVERVIEW: partial(overview_figure, content, panels)} if panels else {}
    return drawn | ({REGIME: partial(regime_figure, content)} if content.get("regime") else {})


def overview_figure(content: Content, panels: Sequence[DrawPanel]) -> Figure:
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    about = content.get("about") or {}
    agent = about.get("method") or content["policy"]
    seed = "" if about.get("seed") is None else f", seed {about['seed']}"
    reach = f"{content['episodes_that_reach']} of {content['episodes']} episodes reach their goal"
    with house_style():
        figure = Figure(figsize=(4.9 * columns, 4.3 * rows + 0.6), layout="constrained")
        for at, panel in enumerate(panels):
            panel(figure.add_subplot(rows, columns, at + 1), content)
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)  # pyright: ignore[reportOptionalMemberAccess, reportCallIssue]
        title = f"{agent}{seed} on {content['env']}: what its representation knows ({reach})"
        figure.suptitle(title, x=0.012, ha="left", fontsize=13)
    return figure


def regime_figure(content: Content) -> Figure:
    with house_style():
        figure = Figure(figsize=(5.2, 4.4), layout="constrained")
        draw_regime(figure.add_subplot(), content)
    return figure
