"""The report's diagnoses: what `dcp diagnose` left in run folders. Nothing is measured here."""

from dcp.analysis.collection import Collection
from dcp.analysis.diagnosis import files
from dcp.analysis.diagnosis.figures import OVERVIEW, figures
from dcp.analysis.diagnosis.words import Found, rows
from dcp.analysis.run_reading import Run
from dcp.analysis.sections import FigureSpec, Section
from dcp.analysis.tables import DASH, Cell, Row, Table
from dcp.errors import UserError

MOST = 6  # overviews in a page; the table has every run
COLUMNS = ("environment", "run", "measure", "found", "95% interval", "to compare with")
NOTES = (
    "Intervals are over episodes (over the maze: goals) of one agent: they say nothing of other seeds.",
    "A waypoint z is on the way if the detour by way of it is shorter than the radius within which a goal is reached.",
    "Straight line: a direction that knows no walls. Chance: the learned direction toward another place.",
)


def sections(collection: Collection) -> list[Section]:
    drawn, lines, said = [], [], []
    for (env, method), runs in collection.groups.items():
        for run in runs:
            try:
                content = files.read(run.folder)
                if content is None:
                    continue
                found = [row for group in rows(content) for row in group]
                make = figures(content).get(OVERVIEW)
            except (UserError, LookupError, TypeError, ValueError, AttributeError) as error:
                said.append(f"{run.folder} has no readable diagnosis: {error}.")
                continue
            lines += [_row(run, env, method, each) for each in found]
            if make is not None:
                caption = f"{env}, {method}, seed {run.seed}: what its representation knows, beside the truth."
                drawn.append(FigureSpec(f"diagnosis_{env}_{method}_{run.seed}", caption, make, env, method))
    if not lines and not said:
        return []
    if drawn[MOST:]:
        said.append(f"{len(drawn) - MOST} further overviews are in the folders `<run>/{files.FOLDER}`.")
    table = Table("diagnoses", "What representations know", COLUMNS, tuple(lines), NOTES)
    text = " ".join(["Agents that `dcp diagnose` has looked at.", *said])
    return [Section("Diagnoses", "diagnoses", tuple(drawn[:MOST]), (table,) if lines else (), text)]


def _row(run: Run, env: str, method: str, found: Found) -> Row:
    number = Cell(
        found.found if found.value is not None else DASH, float("nan") if found.value is None else found.value
    )
    words = (Cell(found.interval), Cell(found.beside))
    return Row((Cell(env), Cell(f"{method}, seed {run.seed}"), Cell(found.measure), number, *words), env, method)
