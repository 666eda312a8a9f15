"""The paper's tables and figures: the runs that each needs, and each as the runs at hand give it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import NamedTuple

from matplotlib.figure import Figure

from dcp.config import Config
from dcp.files.run_folder import POLICY_FILE
from dcp.lab import paper_values
from dcp.lab.burst_tables import BOLD, STD, burst_tables, saturation_table
from dcp.lab.curves import strip_figure
from dcp.lab.landscape_figure import landscapes_figure
from dcp.lab.method_tables import checkpoint_table, summary_table
from dcp.lab.paper_values import BASELINE, ENVIRONMENTS, METHOD, METHODS, TASKS
from dcp.lab.psi_landscape import ROLLOUTS, goal_of, maze_env, view
from dcp.lab.pusher_goals import geometry_sections
from dcp.lab.result_tables import DASH, Cell, FigureSpec, Row, Section, Table, absent
from dcp.lab.run_collection import Collection, Run, in_order
from dcp.lab.targets import open_target
from dcp.presets import preset_config

PAIR = (METHOD, BASELINE)
VIDEO_ENV, VIDEO_SEED = "pusher_hard", 123
BIG_MAZE = "ant_big_maze"
FIRST_BURSTS = "then `dcp eval {}/<env>/<method>/seed_[012] --episodes 32 --burst` for each environment and method"


class Beside(NamedTuple):
    what: str
    ours: str
    papers: str


@dataclass(frozen=True)
class Artefact:
    """One table or figure. `sections` makes it from runs with the paper's settings; None: a command does."""

    title: str
    environments: Sequence[str] = ()
    methods: Sequence[str] = METHODS
    num_seeds: int = 5
    sections: Callable[[Collection], list[Section]] | None = None
    num_values: int = 0  # that the paper prints, counted as `beside` counts ours
    command: str = ""  # where `dcp paper NAME` does not make it

    def needs(self) -> list[Config]:
        """Return the paper's runs behind it."""
        runs = product(self.environments, self.methods, range(self.num_seeds))
        return [preset_config("paper", env=env, method=method, seed=seed) for env, method, seed in runs]

    def beside(self, collection: Collection) -> list[Beside]:
        """Return every value of ours that has one of the paper beside it."""
        sections = self.sections(collection) if self.sections and self.environments else []
        return [pair for section in sections for table in section.tables for pair in values_beside(table)]


def values_beside(table: Table) -> list[Beside]:
    """Return the pairs of columns that belong together: 10M and 10M paper, Saturation (%) and Paper."""
    pairs = []
    for at, column in enumerate(table.columns):
        names = (f"{column} paper", f"{column}, paper", "Paper" if column == "Saturation (%)" else "")
        mate = next((table.columns.index(name) for name in names if name in table.columns), None)
        for row in table.rows if mate is not None else ():
            ours, papers = row.cells[at].text, row.cells[mate or 0].text
            if DASH not in (ours, papers) and " at " not in papers:  # else at other steps
                what = " ".join(filter(None, (row.environment or row.cells[0].text, row.method, column)))
                pairs.append(Beside(what, ours + row.cells[at].marker, papers))
    return pairs


def papers_runs(collection: Collection) -> Collection:
    """Return the runs of the paper's methods and environments that have its settings."""
    return collection.where(lambda run: bool(run.config) and not paper_values.settings_apart(run.config))


def other_runs(collection: Collection) -> Collection:
    """Return the runs of the paper's methods and environments that have other settings."""
    of_the_paper = collection.where(lambda run: run.config.get("env") in ENVIRONMENTS and run.method in METHODS)
    return of_the_paper.where(lambda run: bool(paper_values.settings_apart(run.config)))


# What makes each. They take runs with the paper's settings alone, so labels are the methods' names.


def _curves(collection: Collection) -> list[Section]:
    if not collection.groups:
        return []
    figure = FigureSpec("figure2", "Learning curves", partial(strip_figure, collection))
    return [Section("Learning curves", "figure2", (figure,))]


def _summary(collection: Collection) -> list[Section]:
    table = summary_table(collection)
    if table is None:
        return []
    rows = [replace(row, cells=(row.cells[0], Cell(TASKS[row.environment]), *row.cells[1:])) for row in table.rows]
    columns = (table.columns[0], "Task", *table.columns[1:])
    return [_one(replace(table, name="table1", columns=columns, rows=tuple(rows)))]


def _bursts(collection: Collection) -> list[Section]:
    """Return the paper's form of its table: both methods in a row, on the same episodes."""
    period, length = paper_values.burst_setting()
    name = f"burst_{period}_{length}"
    table = next((table for table in burst_tables(collection) if table.name == name), None)
    if table is None:
        return []
    named = [dict(zip(table.columns, row.cells, strict=True)) for row in table.rows]
    cells = {(row["Environment"].text, row["Method"].text): row for row in named}
    minus = f"Gain minus {BASELINE}'s"
    both = f"{METHOD} minus {BASELINE}"
    shown = {both: minus, f"{both}, paper": f"{minus[5:].capitalize()}, paper"}
    of_method = {"reach": "Reach (%)", "reach, paper": "Reach, paper", "gain": "Gain by the burst"}
    of_method |= {"gain, paper": "Gain, paper", "W/T/L": "Wins/ties/losses", "W/T/L, paper": "W/T/L, paper"}
    places = {f"{method} {short}": (method, column) for method in PAIR for short, column in of_method.items()}
    places |= {short: (METHOD, column) for short, column in shown.items()}
    environments = dict.fromkeys(env for env, _ in cells)
    rows = [
        Row((Cell(env), *(cells.get((env, m), {}).get(column, absent()) for m, column in places.values())), env)
        for env in environments
    ]
    notes = (STD, BOLD, *(note for note in table.notes if note not in (STD, BOLD)))
    return [_one(Table("table2", table.title, ("Environment", *places), tuple(rows), notes))]


def _saturation(collection: Collection) -> list[Section]:
    table = saturation_table(collection)
    return [] if table is None else [_one(replace(table, name="table3"))]


def _checkpoints(name: str, metric: str, collection: Collection) -> list[Section]:
    return [_one(replace(checkpoint_table(collection, metric), name=name))] if collection.groups else []


def _one(table: Table) -> Section:
    return Section(table.title, table.name, tables=(table,))


def pairs_of_policies(collection: Collection, environment: str) -> list[tuple[Run, Run]]:
    """Return DCP's and CRL's runs of each seed that both have, with a policy, in the order of the seeds."""
    sides = [{run.seed: run for run in collection.of(environment, method)} for method in PAIR]
    return [
        (sides[0][seed], sides[1][seed])
        for seed in sorted(sides[0].keys() & sides[1].keys())
        if all((side[seed].folder / POLICY_FILE).is_file() for side in sides)
    ]


def _landscape(name: str, which: int, collection: Collection) -> list[Section]:
    """Draw one seed's pair in the paper's maze, or in another if it has none. The paper chose its seeds by outcome."""
    mazes = in_order(env for env in collection.environments if TASKS[env] == "Navigation" and "humanoid" not in env)
    places = sorted(mazes, key=lambda env: env != BIG_MAZE)
    choices = [(env, pairs[which]) for env in places if len(pairs := pairs_of_policies(collection, env)) > which]
    if not choices:
        return []
    environment, runs = choices[0]
    caption = f"{environment}, seed {runs[0].seed}: distances in psi-space, coloured over each run's own episodes"
    spec = FigureSpec(name, caption, partial(_landscape_figure, runs))
    other = "" if environment == BIG_MAZE else f"No pair of {BIG_MAZE} is at hand, so this is {environment}."
    return [Section("psi-distance landscapes", name, (spec,), text=other)]


def _landscape_figure(runs: Sequence[Run]) -> Figure:
    targets = [open_target(run.folder) for run in runs]
    envs = [maze_env(target) for target in targets]
    views = [view(target, env, goal_of(env, None), ROLLOUTS) for target, env in zip(targets, envs, strict=True)]
    return landscapes_figure(views, "paper", with_directions=False)


def video_runs(collection: Collection) -> Sequence[Run]:
    """Return DCP's and CRL's run of the first seed that both have."""
    return next(iter(pairs_of_policies(collection, VIDEO_ENV)), ())


ARTEFACTS: Mapping[str, Artefact] = {
    "figure1": Artefact("three ways of conditioning", command="python -m tools.docs.conditioning_figure"),
    "figure2": Artefact("learning curves", ENVIRONMENTS, sections=_curves),
    "table1": Artefact("DCP against CRL, arrows", ENVIRONMENTS, PAIR, 5, _summary, 18),
    "table2": Artefact("periodic bursts", ENVIRONMENTS, PAIR, 3, _bursts, 50),
    "table3": Artefact("saturation", ENVIRONMENTS, PAIR, 3, _saturation, 18),
    "table4": Artefact("success", ENVIRONMENTS, METHODS, 5, partial(_checkpoints, "table4", "success_once"), 99),
    "table5": Artefact("time near", ENVIRONMENTS, METHODS, 5, partial(_checkpoints, "table5", "time_near_goal"), 99),
    "figure3a": Artefact("psi landscapes", (BIG_MAZE,), PAIR, 1, partial(_landscape, "figure3a", 0)),
    "figure3b": Artefact("the pusher's goals", sections=lambda _: geometry_sections()),
    "figure4": Artefact("psi landscapes of another seed", (BIG_MAZE,), PAIR, 2, partial(_landscape, "figure4", 1)),
    "videos": Artefact("two episodes of PusherHard", (VIDEO_ENV,), PAIR, 1),
    "theorems": Artefact("1 to 3", command="python -m tools.theory.figures"),
}  # fmt: skip


Hours = Callable[[Config, float], float | None]  # that a run takes here from so many steps on, if that is known


def overview(collection: Collection, hours: Hours, runs_dir: str) -> Table:
    """Return the list of everything, with what the runs at hand give."""
    runs, others = papers_runs(collection), other_runs(collection)
    columns = ("The paper", "Made by", "Runs needed", "Runs here", "Ours", "The paper's", "Settings", "Hours left")
    rows = [_listed(name, ARTEFACTS[name], runs, others, hours) for name in ARTEFACTS]
    notes = (
        f"Missing runs: `dcp grid --preset paper --runs-dir {runs_dir}`. Tables 2 and 3: "
        f"{FIRST_BURSTS.format(runs_dir)}.",
        "Hours left: one run after another on all cores of this machine, right within a factor of two or so.",
        "A value stands here only where every setting agrees.",
        *others.apart_notes(),
    )
    return Table("paper", "The paper's tables and figures", columns, tuple(rows), notes)


def _listed(name: str, artefact: Artefact, runs: Collection, others: Collection, hours: Hours) -> Row:
    needs = artefact.needs()
    steps = {(*key, run.seed): run.env_steps for key, group in runs.groups.items() for run in group}
    steps_of = {config: steps.get((config.env, config.method, config.seed)) for config in needs}
    begun = {config: at for config, at in steps_of.items() if at is not None}
    done = sum(at >= config.steps for config, at in begun.items())
    furthest = f", to {max(begun.values()) / 1e6:.3g}M steps" if begun else ""
    pairs = artefact.beside(runs)
    different = [r for r in others.runs if r.config["env"] in artefact.environments and r.method in artefact.methods]
    number = f" ({len(pairs)} of {artefact.num_values} values)"
    settings = ["the paper's"] * bool(begun) + [f"{len(different)} with others"] * bool(different)
    hours_left = [hours(config, at or 0.0) for config, at in steps_of.items()]
    known_hours = [each for each in hours_left if each is not None]
    cells = (
        Cell(f"{name}, {artefact.title}"),
        Cell(artefact.command or f"dcp paper {name}"),
        Cell(str(len(needs)), len(needs)),
        Cell(f"{done} finished, {len(begun) - done} begun{furthest}" if begun else DASH),
        Cell("; ".join(f"{pair.what} {pair.ours}" for pair in pairs[:2]) + number * bool(pairs) or DASH),
        Cell("; ".join(pair.papers for pair in pairs[:2]) or DASH),
        Cell("; ".join(settings) or DASH),
        Cell(f"{float(f'{sum(known_hours):.2g}'):,.0f}" if len(known_hours) == len(hours_left) else DASH),
    )
    return Row(cells)
