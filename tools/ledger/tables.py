"""The ledger's tables and its page, made from its entries alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dcp.config import fields_where
from dcp.envs.registry import make_env
from dcp.files.run_folder import CONFIG_FILE, load_run, read_config_file
from dcp.lab.paper_values import CHECKPOINTS, ENVIRONMENTS, checkpoint
from dcp.lab.run_collection import FEWEST_SEEDS, METRICS, Collection, Run, collect, interval_at, values_at
from dcp.lab.statistics import paired_test
from dcp.presets import preset_config
from tools.ledger.entries import checked, entries
from tools.ledger.rules import SCORES, is_finished, rows_of

TABLES_FILE = "README.md"
_MARKS = ("<!-- tables: written by `dcp results check --write` -->", "<!-- end of tables -->")
# Settings that do not change what is learned, or that every environment fills in.
_FREE = set(fields_where(compared=False))


def tables(ledger: Path) -> str:
    """Return README.md's tables: each method on each environment over its seeds, next to the paper's values."""
    folders = [found.folder for found in entries(ledger)]
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
    papers = all(has_papers_settings(run.config) for run in runs)
    name = method if papers or env not in ENVIRONMENTS else f"{method}, not the paper's settings"
    steps = f"{end:,.0f}" if end >= min(run.budget for run in runs) else f"{end:,.0f}, unfinished"
    seeds = ", ".join(str(run.seed) for run in runs)
    scores = [_shown(interval_at(runs, metric, end)) for metric in METRICS]
    return [name, seeds, steps, *scores, _paper(env, method, end) if papers else "-"]


def _shown(interval: Any) -> str:
    if interval is None or not math.isfinite(interval.half_width):
        return "-" if interval is None else f"{interval.mean:.1f}"
    return f"{interval.mean:.1f} ± {interval.half_width:.1f}"


def _paper(env: str, method: str, steps: float) -> str:
    near = next((at for at in CHECKPOINTS if abs(at - steps) <= 0.02 * at), None)
    values = [checkpoint(metric, env, method, near) for metric in METRICS] if near else []
    return "; ".join(f"{value.mean} ± {value.spread}" for value in values if value) or "-"


def has_papers_settings(config: Mapping[str, Any]) -> bool:
    """Tell whether a run's config is the paper's for its task and method, in all that changes what is learned."""
    length = make_env(config["env"]).spec.episode_length
    papers = asdict(preset_config("paper", env=config["env"], method=config["method"]).resolve(length))
    other = [name for name in papers.keys() - _FREE if config.get(name) != papers[name]]
    return not other and config.get("eval_env") in (None, config["env"])


def _gain(collection: Collection, env: str) -> list[str]:
    """Return DCP minus CRL over the seeds that both have, where nothing but the method differs."""
    dcp, crl = collection.of(env, "dcp"), collection.of(env, "crl")
    if not dcp or not crl or collection.settings_apart(env):
        return []
    end = min(max(run.env_steps for run in runs) for runs in (dcp, crl))
    told = []
    for name, metric in METRICS.items():
        test = paired_test(values_at(dcp, name, end), values_at(crl, name, end))
        if test is None or test.difference.count < 2:
            continue
        gap = test.difference
        if gap.count < FEWEST_SEEDS:
            told.append(f"{metric.name} {gap.mean:+.1f} (seeds: {gap.count}, too few for an interval)")
            continue
        p = "" if math.isnan(test.p_value) else f", p = {test.p_value:.3f}"
        told.append(f"{metric.name} {gap.mean:+.1f} ± {gap.half_width:.1f}{p}")
    return ["", f"dcp minus crl, paired by seed, at {end:,.0f} steps: {'; '.join(told)}."] if told else []


def with_tables(page: str, fresh: str) -> str:
    """Return the page of README.md with its tables replaced by the fresh ones."""
    before, _, rest = page.partition(_MARKS[0])
    if not rest:
        before, rest = page.rstrip() + "\n\n", _MARKS[1] + "\n"
    return f"{before}{_MARKS[0]}\n\n{fresh}\n\n{_MARKS[1]}{rest.partition(_MARKS[1])[2]}"


def table_faults(ledger: Path) -> list[str]:
    """Return a sentence if README.md's tables do not match the entries."""
    path = ledger / TABLES_FILE
    page = path.read_text(encoding="utf-8") if path.is_file() else ""
    if page == with_tables(page, tables(ledger)):
        return []
    return [f"{path} has other tables than the entries give: run `dcp results check --write`, and look at the change"]


def index(ledger: Path) -> list[dict[str, Any]]:
    """Return what the ledger's page shows of each entry that has no fault."""
    shown = []
    for found in map(checked, entries(ledger)):
        if found.entry is None or found.faults:
            continue
        record, rows = load_run(found.folder), rows_of(found.folder)
        stored = read_config_file(found.folder / CONFIG_FILE)
        shown.append(
            {
                **{name: record.config[name] for name in ("env", "method", "seed")},
                "steps": int(rows[-1]["env_steps"]),
                "finished": is_finished(found.folder),
                **{name: rows[-1][name] for name in SCORES},
                "by": found.entry.by,
                "added": found.entry.added,
                "processor": stored["machine"].get("processor", ""),
                "hours": rows[-1]["wall_seconds"] / 3600,
                "folder": found.folder.relative_to(ledger).as_posix(),
                "curve": [[row["env_steps"], row["success_once"]] for row in rows],
            }
        )
    return shown
