"""The report's landscapes: of each method in each maze, the first seed that has a policy. No episode is played."""

from dataclasses import replace
from functools import partial

from dcp.analysis.collection import Collection
from dcp.analysis.landscape_figure import landscapes_figure
from dcp.analysis.landscape_view import View, maze_env, view
from dcp.analysis.path_likeness import Likeness
from dcp.analysis.run_reading import Run
from dcp.analysis.sections import FigureSpec, Section
from dcp.analysis.tables import Cell, Row, Table, number
from dcp.envs.plane import has_plane
from dcp.envs.registry import ENVIRONMENTS, make_env
from dcp.errors import UserError
from dcp.evaluation.targets import open_target
from dcp.run_folder import POLICY_FILE

MOST = 8  # methods and their variants, in one maze
COLUMNS = ("environment", "run", "actor sees", "rank correlation", "basin (%)", "points nearer (%)")
CAPTION = (
    "{env}: distances in psi-space to the goal that is farthest by path, beside the true ones. Colours: 1st to 99th "
    "percentile over the free space. Arrows: the direction that a direction-conditioned actor sees, in the plane."
)
NOTES = (
    "Rank correlation: Spearman's, of the psi-distance and the length of the shortest path, over the free space.",
    "Basin: share of the free space from which going down the psi-distance ends at the goal.",
    "Points nearer: where the direction that a direction-conditioned actor sees leads to a shorter path.",
    "A straight line knows no walls: what lies below it has learned less of the maze than the plane's own distance.",
    "One seed each: a look at single representations, not a statement about methods.",
)


def sections(collection: Collection) -> list[Section]:
    figures, rows, said = [], [], []
    for env in collection.environments:
        views, left = _views(collection, env)
        said += left
        if views:
            name, draw = f"landscape_{env}", partial(landscapes_figure, list(views.values()), "space")
            figures.append(FigureSpec(name, CAPTION.format(env=env), draw, env))
            rows += _rows(env, views)
    if not figures:
        return []
    text = " ".join(["The first seed of each method; `dcp landscape` draws any runs, with their episodes.", *said])
    table = Table("landscapes", "Learned distances against the maze's own", COLUMNS, tuple(rows), NOTES)
    return [Section("psi-distance landscapes", "landscapes", tuple(figures), (table,), text)]


def _views(collection: Collection, env: str) -> tuple[dict[str, View], list[str]]:
    """-> method to the view of its first seed with a policy, and a sentence for what is left out."""
    found, said = {}, []
    methods = [method for place, method in collection.groups if place == env]
    for method in methods[:MOST]:
        run = next((run for run in collection.of(env, method) if (run.folder / POLICY_FILE).is_file()), None)
        if run is None or not _in_a_maze(run):
            continue
        try:
            found[method] = _view(run, method)
        except UserError as error:
            said.append(f"{run.folder} has no landscape: {error}.")
    if found and methods[MOST:]:
        said.append(f"{env}: the landscapes of {', '.join(methods[MOST:])} are left out.")
    return found, said


def _in_a_maze(run: Run) -> bool:
    """Only environments that are known: a stranger's is code, which a report does not run. Nor does it start physics,
    which alone would tell the height of a humanoid's goals: `dcp landscape` does."""
    name = run.config.get("eval_env") or run.config.get("env")
    if name not in ENVIRONMENTS:
        return False
    spec = make_env(name, run.config.get("fidelity", "paper")).spec
    return has_plane(spec) and spec.goal_size == 2


def _view(run: Run, method: str) -> View:
    target = open_target(run.folder)
    return replace(view(target, maze_env(target), rollouts=0), label=f"{method}, seed {run.seed}")


def _rows(env: str, views: dict[str, View]) -> list[Row]:
    rows = []
    for method, seen in views.items():
        sees = "the direction" if seen.sees_direction else "g itself"
        rows.append(Row((Cell(env), Cell(seen.label), Cell(sees), *_cells(seen.likeness)), env, method))
    straight = next(iter(views.values())).straight_line
    return [*rows, Row((Cell(env), Cell("straight line"), Cell(""), *_cells(straight)), env)]


def _cells(likeness: Likeness) -> list[Cell]:
    shares = (number(100.0 * share) for share in (likeness.basin, likeness.nearer))
    return [number(likeness.order, digits=3), *shares]
