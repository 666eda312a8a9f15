"""The ledger's tables and its page, made from its entries alone."""

import json
import math
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from dcp.components import one_line
from dcp.errors import UserError
from dcp.files.run_folder import CONFIG_FILE, read_config_file
from dcp.files.validation import MEGABYTE, FormatError, read_text
from dcp.lab.paper_values import CHECKPOINTS, ENVIRONMENTS, checkpoint, settings_apart
from dcp.lab.paper_values import METHODS as PAPERS_METHODS
from dcp.lab.paper_values import end as paper_end
from dcp.lab.run_collection import FEWEST_SEEDS, METRICS, Collection, Run, collect, interval_at, nearest, values_at
from dcp.lab.statistics import paired_test
from dcp.policies.policy_file import write_whole
from dcp.runs.run_status import read_plan
from tools.ledger.entries import Entry, EntryFile
from tools.ledger.rules import SCORES, is_finished, rows_of

TABLES_FILE = "README.md"
_MARKS = ("<!-- tables: written by `python -m tools.ledger check --write` -->", "<!-- end of tables -->")


def tables(entries: Sequence[Entry]) -> str:
    """Return README.md's tables: each method on each environment over its seeds, next to the paper's values.

    Only entries without faults count, of those that `check_all` returns.
    """
    folders = [entry.folder for entry in entries if not entry.faults]
    if not folders:
        return "No run has been added yet."
    collection = collect(folders)
    return "\n\n".join(f"### {env}\n\n{_table(collection, env)}" for env in collection.environments)


def _table(collection: Collection, env: str) -> str:
    head = ("method", "seeds", "steps", *(metric.label for metric in METRICS.values()), "the paper there")
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for method in collection.methods:
        for end, runs in _by_end(collection.of(env, method)).items():
            lines.append("| " + " | ".join(_cells(env, method, end, runs)) + " |")
    return "\n".join([*lines, *_gain(collection, env)])


def _by_end(runs: Sequence[Run]) -> dict[float, list[Run]]:
    """Return the runs by the steps that they have reached, the farthest first: an unfinished one has its own row."""
    ends = sorted({run.env_steps for run in runs}, reverse=True)
    return {end: [run for run in runs if run.env_steps == end] for end in ends}


def _cells(env: str, method: str, end: float, runs: Sequence[Run]) -> list[str]:
    papers = not any(settings_apart(run.config) for run in runs)
    name = method if papers or env not in ENVIRONMENTS else f"{method}, not the paper's settings"
    steps = f"{end:,.0f}" if end >= min(run.budget for run in runs) else f"{end:,.0f}, unfinished"
    seeds = ", ".join(str(run.seed) for run in runs)
    scores = [_shown(interval_at(runs, metric, end)) for metric in METRICS]
    return [name, seeds, steps, *scores, _paper(env, method, end, runs) if papers else "-"]


def _shown(interval: Any) -> str:
    if interval is None or not math.isfinite(interval.half_width):
        return "-" if interval is None else f"{interval.mean:.1f}"
    return f"{interval.mean:.1f} ± {interval.half_width:.1f}"


def _paper(env: str, method: str, end: float, runs: Sequence[Run]) -> str:
    """Return the paper's values at the checkpoint that the report would quote these runs at, if it is their end."""
    for steps in CHECKPOINTS:
        if all((at := nearest(run, steps)) is not None and run.metrics["env_steps"][at] == end for run in runs):
            values = [checkpoint(metric, env, method, steps) for metric in METRICS]
            return "; ".join(f"{value.mean} ± {value.spread}" for value in values if value) or "-"
    return "-"


def _gain(collection: Collection, env: str) -> list[str]:
    """Return DCP minus CRL over the seeds that both have, where nothing but the method differs."""
    dcp, crl = collection.of(env, "dcp"), collection.of(env, "crl")
    if not dcp or not crl or collection.settings_apart(env):
        return []
    end = min(max(run.env_steps for run in runs) for runs in (dcp, crl))
    gains = []
    for name, metric in METRICS.items():
        test = paired_test(values_at(dcp, name, end), values_at(crl, name, end))
        if test is None or test.difference.count < 2:
            continue
        gap = test.difference
        if gap.count < FEWEST_SEEDS:
            gains.append(f"{metric.name} {gap.mean:+.1f} (seeds: {gap.count}, too few for an interval)")
            continue
        p = "" if math.isnan(test.p_value) else f", p = {test.p_value:.3f}"
        gains.append(f"{metric.name} {gap.mean:+.1f} ± {gap.half_width:.1f}{p}")
    return ["", f"dcp minus crl, paired by seed, at {end:,.0f} steps: {'; '.join(gains)}."] if gains else []


def with_tables(page: str, fresh: str) -> str:
    """Return the page of README.md with its tables replaced by the fresh ones."""
    before, _, rest = page.partition(_MARKS[0])
    if not rest:
        before, rest = page.rstrip() + "\n\n", _MARKS[1] + "\n"
    return f"{before}{_MARKS[0]}\n\n{fresh}\n\n{_MARKS[1]}{rest.partition(_MARKS[1])[2]}"


def read_page(ledger: Path) -> str:
    """Return the ledger's README.md; a heading, if there is none yet."""
    try:
        return read_text(ledger / TABLES_FILE, most=MEGABYTE)
    except FileNotFoundError:
        return "# Results\n"
    except (OSError, FormatError) as error:
        raise UserError(f"{ledger / TABLES_FILE} cannot be read ({one_line(error)}): restore it") from error


def write_tables(ledger: Path, entries: Sequence[Entry]) -> None:
    """Write README.md's tables from the entries that `check_all` returned, and leave the rest of the page."""
    write_whole(ledger / TABLES_FILE, with_tables(read_page(ledger), tables(entries)).encode())


def table_faults(ledger: Path, entries: Sequence[Entry]) -> list[str]:
    """Return a sentence if README.md's tables do not match the entries that `check_all` returned."""
    path = ledger / TABLES_FILE
    try:
        page = read_page(ledger)
    except UserError as error:
        return [str(error)]
    if page == with_tables(page, tables(entries)):
        return []
    command = "python -m tools.ledger check --write"
    return [f"{path} has other tables than the entries give: run `{command}`, and look at the change"]


def index(ledger: Path, entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return what the ledger's page shows of each entry without faults, of those that `check_all` returned."""
    sound = [(entry.folder, entry.content) for entry in entries if entry.content is not None and not entry.faults]
    return [_shown_entry(ledger, folder, content) for folder, content in sound]


PUBLISHED_DEPTHS = ("4", "64")  # of those that published.json has: the shallowest of both papers, and the deepest


def by_other_code() -> list[dict[str, Any]]:
    """Return what papers print of runs by their own code, for the ledger's page. Nobody here has evaluated them."""
    rows = []
    for env in ENVIRONMENTS:
        for method in PAPERS_METHODS:
            steps = paper_end(env) or 0
            success, near = (checkpoint(metric, env, method, steps) for metric in ("success_once", "time_near_goal"))
            if success and near:
                by = "the paper, tables 4 and 5 (5 seeds)"
                rows.append(_by_others(env, env, method, steps, near.mean, by, success.mean / 100))
    content = json.loads(files("dcp.lab").joinpath("published.json").read_text(encoding="utf-8"))
    for source in content["sources"].values():
        for env, there in source["environments"].items():
            for method, depths in there["values"].items():
                for depth in (depth for depth in PUBLISHED_DEPTHS if depth in depths):
                    named = (env, there["eval_env"], f"{method}, depth {depth}")
                    rows.append(_by_others(*named, there["steps"], depths[depth][0], source["title"]))
    return rows


def _by_others(
    env: str, eval_env: str, method: str, steps: int, near: float, by: str, success: float | None = None
) -> dict[str, Any]:
    known = {"env": env, "layout": layout(eval_env), "method": method, "steps": steps, "by": by}
    blank: dict[str, Any] = dict.fromkeys(("seed", "added", "processor", "folder"), "")
    unknown: dict[str, Any] = dict.fromkeys(("updates", "minutes"))
    scores = {"success_once": success, "time_near_goal": near}
    return {**known, **scores, **blank, **unknown, "finished": True, "evaluated": "not re-evaluated", "curve": []}


def layout(eval_env: str) -> str:
    """Return which goals an evaluation draws."""
    return "far goals" if "_eval" in eval_env else "all goals"


def _shown_entry(ledger: Path, folder: Path, content: EntryFile) -> dict[str, Any]:
    config, rows = read_plan(folder)[0], rows_of(folder)  # with what config.json leaves out
    return {
        **{name: getattr(config, name) for name in ("env", "method", "seed")},
        "layout": layout(config.eval_env or config.env),
        "steps": int(rows[-1]["env_steps"]),
        "updates": int(rows[-1]["updates"]),
        "finished": is_finished(folder),
        **{name: rows[-1][name] for name in SCORES},
        "by": content.by,
        "added": content.added,
        "processor": read_config_file(folder / CONFIG_FILE)["machine"].get("processor", ""),
        "minutes": rows[-1]["wall_seconds"] / 60,
        "evaluated": "again, when it was added",
        "folder": folder.relative_to(ledger).as_posix(),
        "curve": [[row["env_steps"], row["success_once"]] for row in rows],
    }
