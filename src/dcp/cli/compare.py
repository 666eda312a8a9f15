"""`dcp compare A B`: how two runs differ, what each reached, and both curves in one plot."""

import json as json_text
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dcp.cli.flags import POSITIONAL, parse
from dcp.cli.main import COMMANDS, show
from dcp.errors import UserError

if TYPE_CHECKING:
    from dcp.lab.compare_runs import Comparison, PairedEval, Side
    from dcp.lab.result_tables import Table


@dataclass(frozen=True)
class CompareOptions:
    runs: Annotated[tuple[str, ...], POSITIONAL] = ()
    """Two run folders: A and B."""
    out: Path = Path("compare.png")
    """The picture's file; a PDF of the same name is written next to it."""
    json: bool = False
    """Print what was found as JSON instead of the tables."""


def main(argv: list[str]) -> int:
    options = parse(CompareOptions(), argv, "dcp compare", COMMANDS["compare"])
    if len(options.runs) != 2:
        raise UserError(f"dcp compare takes two run folders, not {len(options.runs)}: dcp compare A B")
    from dcp.cli.landscape import require_picture, save_both

    require_picture(options.out)
    from dcp.lab.compare_runs import compare, comparison_figure
    from dcp.lab.evaluation_results import finite

    found = compare(*options.runs)
    files = save_both(comparison_figure(found), options.out) if found.metrics else []
    if options.json:
        print(json_text.dumps(finite(_as_json(found, files)), indent=1))
    else:
        _show(found, files)
    return 0


def _show(found: "Comparison", files: list[Path]) -> None:
    from dcp.lab.compare_runs import comparison_tables, curves_in_text

    for name, side in (("A", found.a), ("B", found.b)):
        print(f"{name}: {side.run.folder} ({side.run.state})")
    if not found.settings:
        print("No setting differs.")
    if not found.versions:
        print("They were trained by the same versions." if found.a.versions else "Neither kept its versions.")
    for table in comparison_tables(found):
        _print(table)
    for line in curves_in_text(found):
        print(line)
    if not found.metrics:
        print("Nothing to plot: one of the two has no evaluation yet.")
    if files:
        print(f"Wrote {' and '.join(map(str, files))}.")


def _print(table: "Table") -> None:
    from rich.table import Table as RichTable

    shown = RichTable(title=table.title, title_justify="left", title_style="bold")
    for at, column in enumerate(table.columns):
        shown.add_column(column, justify="right" if table.is_numeric(at) else "left")
    for row in table.rows:
        shown.add_row(*(cell.text for cell in row.cells))
    print()
    show(shown)
    for note in table.notes:
        print(note)


def _as_json(found: "Comparison", files: list[Path]) -> dict[str, Any]:
    shared = {metric: found.shared(metric)._asdict() for metric in found.metrics}
    return {
        "a": str(found.a.run.folder),
        "b": str(found.b.run.folder),
        "states": [found.a.run.state, found.b.run.state],
        "settings": {each.name: [each.a, each.b] for each in found.settings},
        "versions": {each.name: [each.a, each.b] for each in found.versions},
        "same_episodes": found.same_episodes,
        "results": {metric: [_results(side, metric) for side in (found.a, found.b)] for metric in found.metrics},
        "common": {
            metric: {"env_steps" if name == "steps" else name: column.tolist() for name, column in columns.items()}
            for metric, columns in shared.items()
        },
        "evals": [_eval_as_json(each) for each in found.paired_evals],
        "files": list(map(str, files)),
    }


def _results(side: "Side", metric: str) -> dict[str, Any]:
    """Return all evaluations of one run as they are shown, and its last and its best: [steps, value]."""
    from dcp.lab.curves import curve

    steps, values = curve(side.run.metrics, metric)
    points = {"last": side.last(metric), "best": side.best(metric)}
    return {**points, "env_steps": steps.tolist(), "values": values.tolist()}


def _eval_as_json(each: "PairedEval") -> dict[str, Any]:
    """Return one evaluation for JSON. Gains are a minus b on the same episodes: [mean, half width of the 95% CI]."""
    gains = {"success_gain": each.gain, "time_near_goal_gain": each.time_gain}
    return {
        "name": each.name,
        "success": each.success,
        **{name: [float(gain.mean), float(gain.half_width)] for name, gain in gains.items()},
        "wins": each.wins,
        "ties": each.ties,
        "losses": each.losses,
    }
