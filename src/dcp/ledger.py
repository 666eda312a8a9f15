"""The ledger of results: one folder per submitted run, which anyone can check, evaluate again and rerun.

    results/<env>/<method>/seed_<n>_<id>/
      config.json, metrics.csv, policy.safetensors    as the run left them
      entry.json                                      who ran it, how, checksums, and the evaluation that was repeated
    results/README.md                                 the tables, written by `dcp results check --write`

An entry is a run folder without checkpoints, so `dcp report results`, `dcp eval` and `dcp train --config` read it.
"""

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from dcp import validation
from dcp.analysis.paper_values import CHECKPOINTS, checkpoint
from dcp.analysis.run_collection import METRICS, Collection, Run, collect, common_end, interval_at, values_at
from dcp.config import Config, Settings
from dcp.errors import UserError
from dcp.policies.policy_file import policy_about, write_whole
from dcp.run_folder import (
    CHECKPOINTS_DIR,
    CONFIG_FILE,
    FAULT_FILE,
    METRICS_FILE,
    POLICY_FILE,
    load_run,
    read_config_file,
)
from dcp.runs.checkpoint_files import DamagedError, checkpoints, read_record
from dcp.runs.run_status import evaluation_points, read_plan
from dcp.statistics import paired_test

ENTRY_FILE, TABLES_FILE = "entry.json", "README.md"
ENTRY_SCHEMA_VERSION = 1
KEPT = (CONFIG_FILE, METRICS_FILE, POLICY_FILE)
LARGEST_POLICY = 8_000_000  # bytes: a ledger is a git repository
SCORES = tuple(METRICS)  # success_once, time_near_goal
_SAME_RUN = ("env", "method", "seed", "fidelity", "physics")  # what both a policy file and its run's config say
_TABLES = ("<!-- tables: written by `dcp results check --write` -->", "<!-- end of tables -->")

Row = dict[str, float]


@dataclass(frozen=True)
class Repeated:
    """Hold a repeat of the evaluation that wrote the policy: the same policy on the same episodes."""

    evaluation: int  # from 1
    scores: dict[str, float]
    standard_errors: dict[str, float]  # over episodes, as measured now


@dataclass(frozen=True)
class Entry:
    """Hold the content of entry.json."""

    by: str
    command: str
    added: str  # a date
    finished: bool
    env_steps: int
    sha256: dict[str, str]  # file -> checksum
    repeated: Repeated
    commit: str = ""  # of dcp's source, if known
    note: str = ""
    schema_version: int = ENTRY_SCHEMA_VERSION


@dataclass(frozen=True)
class Found:
    """Hold an entry of the ledger, with one sentence for each fault in it."""

    folder: Path
    entry: Entry | None
    faults: list[str] = field(default_factory=list)


# What a run must satisfy to be added, and an entry to stay.


def row_faults(config: Config, points: Sequence[int], rows: Sequence[Mapping[str, float]]) -> list[str]:
    """Return a sentence for each row that no run of this config can log. `points`: iterations at each evaluation."""
    found = []
    for number, row in enumerate(rows, 1):
        where = f"row {number} of {METRICS_FILE}"
        missing = [name for name in ("evaluation", "env_steps", "wall_seconds", *SCORES) if name not in row]
        if missing:
            return [f"{where} lacks {', '.join(missing)}: add a run folder of `dcp train`"]
        if not all(map(math.isfinite, row.values())):
            found.append(f"{where} holds a number that is not finite: a run that diverged cannot be added")
            continue
        if number > len(points) or row["env_steps"] != _steps_at(config, points[number - 1]):
            found.append(f"{where} is at {row['env_steps']:,.0f} steps, where its config evaluates at no such point")
        if row["evaluation"] != number:
            found.append(f"{where} calls itself evaluation {row['evaluation']:g}")
        found += _impossible(config, where, row)
        if number > 1 and row["wall_seconds"] <= rows[number - 2]["wall_seconds"]:
            found.append(f"{where} has a clock that does not advance")
    return found or ([] if rows else [f"{METRICS_FILE} has no evaluation yet: add the run later"])


def _impossible(config: Config, where: str, row: Mapping[str, float]) -> list[str]:
    """Return a row's impossible scores. Means times episodes are whole numbers, and a success needs a step near."""
    episodes, length = config.eval_episodes, config.episode_length or math.inf
    success, near = row["success_once"], row["time_near_goal"]
    told = []
    for name, value in (("successes", success), ("steps near the goal", near)):
        if abs(value * episodes - round(value * episodes)) > 1e-3 * max(1.0, value):
            told.append(f"{where} has {value * episodes:.3f} {name} in {episodes} episodes: not a whole number")
    if not (0 <= success <= 1 and success - 1e-6 <= near <= success * length + 1e-6):
        told.append(f"{where} has success {success:g} with {near:g} steps near the goal, which cannot both be")
    return told


def _steps_at(config: Config, iterations: int) -> int:
    return (config.num_prefill_unrolls + iterations) * config.env_steps_per_unroll


def folder_faults(folder: Path) -> list[str]:
    """Return a sentence for each fault that the files of a run folder or an entry show."""
    try:
        config, earlier = read_plan(folder)
        rows = _rows(folder)
        about = policy_about(folder)
    except UserError as error:
        return [" ".join(str(error).split())]
    faults = row_faults(config, evaluation_points(config, earlier), rows)
    for name in _SAME_RUN:
        if about.get(name, getattr(config, name)) != getattr(config, name):
            faults.append(
                f"{POLICY_FILE} is of {name} {about[name]}, but {CONFIG_FILE} says {getattr(config, name)}: "
                "the policy is another run's, or the config was edited"
            )
    if rows and "env_steps" in rows[-1] and about.get("env_steps") != rows[-1]["env_steps"]:
        faults.append(
            f"{POLICY_FILE} is of {about.get('env_steps')} steps, but the last row of {METRICS_FILE} "
            f"is at {rows[-1]['env_steps']:.0f}: the policy is another one's, or rows are missing"
        )
    return faults


def _rows(folder: Path) -> list[Row]:
    metrics = load_run(folder).metrics
    return [{name: float(column[i]) for name, column in metrics.items()} for i in range(len(metrics["env_steps"]))]


def run_faults(folder: Path) -> list[str]:
    """Return the reasons why a run cannot be added, before anything is computed."""
    if (folder / FAULT_FILE).exists():
        return [f"the run ended by a fault (see {folder / FAULT_FILE}): resume it, or start it again"]
    faults = folder_faults(folder)
    if faults:
        return faults
    stored = read_config_file(folder / CONFIG_FILE)["config"]
    if missing := sorted({each.name for each in fields(Settings)} - stored.keys()):
        return [f"{CONFIG_FILE} lacks {', '.join(missing)}: it was written by an older dcp; run it again"]
    if code := read_plan(folder)[0].code:
        return [f"the run names code of its own ({', '.join(code.values())}), which nobody else has"]
    if (folder / POLICY_FILE).stat().st_size > LARGEST_POLICY:
        return [f"{POLICY_FILE} has more than {LARGEST_POLICY // 10**6} MB, too much for a ledger"]
    return _edited(folder)


def _edited(folder: Path) -> list[str]:
    """Return faults where metrics.csv differs from the rows in the run's newest checkpoint."""
    for path in checkpoints(folder / CHECKPOINTS_DIR):
        try:
            kept = read_record(path)["rows"]
        except (DamagedError, LookupError, TypeError):
            continue
        for number, (then, now) in enumerate(zip(kept, _rows(folder), strict=False), 1):
            if other := [name for name, value in then.items() if now.get(name) != value]:
                return [
                    f"row {number} of {METRICS_FILE} has {other[0]} {now.get(other[0])}, "
                    f"but the checkpoint has {then[other[0]]}: the file was edited"
                ]
        return []
    return []


# Evaluating a policy again.


def repeat(folder: Path) -> Repeated:
    """Repeat the evaluation that wrote the policy, on the same episodes, and return its scores."""
    from dcp.evaluation.measures import training_scores
    from dcp.evaluation.rollout import evaluation_key
    from dcp.evaluation.targets import open_target
    from dcp.evaluation.trial import arena_for

    target = open_target(folder)
    if target.config is None:
        raise UserError(f"{folder} has a policy that does not belong to its {CONFIG_FILE}")
    number = len(_rows(folder))
    measures = arena_for(target).trial(target.policy, [evaluation_key(target.config.seed, number - 1)]).all
    scores = training_scores(measures)
    per_episode = {"success_once": measures.success, "time_near_goal": measures.time_near_goal}
    errors = {name: float(np.std(values, ddof=1) / math.sqrt(len(values))) for name, values in per_episode.items()}
    return Repeated(number, {name: scores[name] for name in SCORES}, errors)


TOLERANCE = 2.0 * math.sqrt(2.0)


def differs(folder: Path, now: Repeated) -> list[str]:
    """Return a sentence for each score that differs from the log by more than two standard errors of the difference.

    On the machine that trained the policy, with as many cores, every number is equal. Elsewhere the physics rounds
    differently, and after some steps the episodes are others: both numbers have the standard error over episodes.
    """
    config, last = read_plan(folder)[0], _rows(folder)[-1]
    least = {"success_once": 1 / config.eval_episodes, "time_near_goal": (config.episode_length or 1000) / 1000}
    told = []
    for name, value in now.scores.items():
        if abs(value - last[name]) > max(TOLERANCE * now.standard_errors[name], least[name]):
            told.append(
                f"{METRICS_FILE} says {name} {last[name]:.4g}, but the policy scores {value:.4g} ± "
                f"{now.standard_errors[name]:.2g} on the same episodes: the log or the policy is not this run's"
            )
    return told


# Adding and reading.


def add(run: Path, ledger: Path, by: str, note: str = "", commit: str = "", today: date | None = None) -> Path:
    """Check a run, evaluate its policy again, and add it to the ledger. -> the entry's folder"""
    if not by.strip():
        raise UserError("say who ran it: --by 'Your Name'")
    if faults := run_faults(run):
        raise UserError(f"{run} cannot be added: {'; '.join(faults)}")
    sums = {name: digest(run / name) for name in KEPT}
    for found in entries(ledger):
        if found.entry is not None and found.entry.sha256[METRICS_FILE] == sums[METRICS_FILE]:
            raise UserError(f"{run} is in the ledger already: {found.folder}")
    now = repeat(run)
    if faults := differs(run, now):
        raise UserError(f"{run} cannot be added: {'; '.join(faults)}")
    config, earlier = read_plan(run)
    rows = _rows(run)
    finished = len(rows) == len(evaluation_points(config, earlier))
    name = f"seed_{config.seed}_{hashlib.sha256(''.join(sums.values()).encode()).hexdigest()[:8]}"
    folder = ledger / config.env / config.method / name
    folder.mkdir(parents=True, exist_ok=True)
    for kept in KEPT:
        shutil.copyfile(run / kept, folder / kept)
    command = f"dcp train --config {(folder / CONFIG_FILE).as_posix()}"
    added = (today or date.today()).isoformat()
    entry = Entry(by, command, added, finished, int(rows[-1]["env_steps"]), sums, now, commit, note)
    write_whole(folder / ENTRY_FILE, (json.dumps(asdict(entry), indent=1) + "\n").encode())
    return folder


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def entries(ledger: Path) -> list[Found]:
    """Read every entry of a ledger, sorted by path; return none if there is no ledger yet."""
    return [_read(path.parent) for path in sorted(ledger.glob(f"*/*/*/{ENTRY_FILE}"))]


def _read(folder: Path) -> Found:
    try:
        entry = validation.checked(validation.read_json(folder / ENTRY_FILE), Entry)
        whole = set(entry.sha256) == set(KEPT) and set(SCORES) <= entry.repeated.scores.keys()
        if not whole or entry.schema_version != ENTRY_SCHEMA_VERSION:
            raise ValueError("not what `dcp results add` writes")
    except (OSError, ValueError) as error:
        return Found(folder, None, [f"{ENTRY_FILE} cannot be read ({error}): restore it, or add the run again"])
    return Found(folder, entry)


def checked(found: Found, evaluate: bool = False) -> Found:
    """Return the entry with all its faults; `evaluate` also evaluates its policy again."""
    if found.entry is None:
        return found
    folder, entry = found.folder, found.entry
    faults = []
    for name, then in entry.sha256.items():
        if not (folder / name).is_file():
            faults.append(f"{name} is missing: restore it")
        elif digest(folder / name) != then:
            faults.append(f"{name} is not the file that was added (its SHA-256 differs): restore it from git")
    faults += folder_faults(folder)
    if not faults:
        config = read_plan(folder)[0]
        place = (config.env, config.method, f"seed_{config.seed}")
        if (*folder.parts[-3:-1], folder.name.rpartition("_")[0]) != place:
            faults.append(f"its folder says {'/'.join(folder.parts[-3:])}, its {CONFIG_FILE} {'/'.join(place)}")
        faults += differs(folder, entry.repeated)
        if evaluate and not faults:
            faults += differs(folder, repeat(folder))
    return Found(folder, entry, faults)


# Tables, made only from the entries.


def tables(ledger: Path) -> str:
    """Return README.md's tables: each method on each environment over its seeds, next to the paper's values."""
    if not entries(ledger):
        return "No run has been added yet."
    collection = collect([ledger])
    return "\n\n".join(f"### {env}\n\n{_table(collection, env)}" for env in collection.environments)


def _table(collection: Collection, env: str) -> str:
    head = ("method", "seeds", "steps", *(metric.label for metric in METRICS.values()), "the paper there")
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    groups = {method: collection.of(env, method) for method in collection.methods if collection.of(env, method)}
    for method, runs in groups.items():
        end = common_end(runs)
        cells = [_shown(interval_at(runs, metric, end)) for metric in METRICS]
        seeds = ", ".join(str(run.seed) for run in runs)
        lines.append("| " + " | ".join([method, seeds, f"{end:,.0f}", *cells, _paper(env, method, end)]) + " |")
    return "\n".join([*lines, *_gain(groups)])


def _shown(interval: Any) -> str:
    if interval is None or not math.isfinite(interval.half_width):
        return "-" if interval is None else f"{interval.mean:.1f}"
    return f"{interval.mean:.1f} ± {interval.half_width:.1f}"


def _paper(env: str, method: str, steps: float) -> str:
    near = next((at for at in CHECKPOINTS if abs(at - steps) <= 0.02 * at), None)
    values = [checkpoint(metric, env, method, near) for metric in METRICS] if near else []
    return "; ".join(f"{value.mean} ± {value.spread}" for value in values if value) or "-"


def _gain(groups: Mapping[str, Sequence[Run]]) -> list[str]:
    """Return DCP minus CRL over the seeds that both have, if there are at least two."""
    if not {"dcp", "crl"} <= groups.keys():
        return []
    end = min(common_end(groups["dcp"]), common_end(groups["crl"]))
    told = []
    for name, metric in METRICS.items():
        test = paired_test(values_at(groups["dcp"], name, end), values_at(groups["crl"], name, end))
        if test is not None and math.isfinite(test.difference.half_width):
            gap = test.difference
            p = "" if math.isnan(test.p_value) else f", p = {test.p_value:.3f}"
            told.append(f"{metric.name} {gap.mean:+.1f} ± {gap.half_width:.1f}{p}")
    return ["", f"dcp less crl, paired by seed, at {end:,.0f} steps: {'; '.join(told)}."] if told else []


def with_tables(page: str, fresh: str) -> str:
    """Return the page of README.md with its tables replaced by the fresh ones."""
    before, _, rest = page.partition(_TABLES[0])
    if not rest:
        before, rest = page.rstrip() + "\n\n", _TABLES[1] + "\n"
    return f"{before}{_TABLES[0]}\n\n{fresh}\n\n{_TABLES[1]}{rest.partition(_TABLES[1])[2]}"


def table_faults(ledger: Path) -> list[str]:
    """Return a sentence if README.md's tables do not match the entries."""
    path = ledger / TABLES_FILE
    page = path.read_text(encoding="utf-8") if path.is_file() else ""
    if page == with_tables(page, tables(ledger)):
        return []
    return [f"{path} has other tables than the entries give: run `dcp results check --write`, and look at the change"]


# Running an entry again.


class _EnoughError(Exception):
    pass


def rerun(folder: Path, evaluations: int, say: Callable[[str], object] = print) -> list[str]:
    """Train an entry's config again up to this many evaluations. -> a sentence for each number that differs"""
    from dcp.runs.training import train

    config, _ = read_plan(folder)
    logged, told = _rows(folder), []
    if not 1 <= evaluations <= len(logged):
        raise UserError(f"--evaluations is {evaluations}: use 1 to {len(logged)}, as many as the entry has")

    def compare(evaluation: Any) -> None:
        row, number = evaluation.row, int(evaluation.row["evaluation"])
        for name in ("env_steps", *SCORES):
            then, now = logged[number - 1][name], float(row[name])
            told.extend([] if now == then else [f"evaluation {number}: {name} was {then}, here it is {now}"])
            say(f"evaluation {number}: {name} {now!r}, logged {then!r}: {'equal' if now == then else 'other'}")
        if number == evaluations:
            raise _EnoughError

    with suppress(_EnoughError):
        train(config, compare, runs_dir=None, display="none")
    return told


def index(ledger: Path) -> list[dict[str, Any]]:
    """Return what the ledger's page shows of each entry."""
    shown = []
    for found in entries(ledger):
        if found.entry is None:
            continue
        record, rows = load_run(found.folder), _rows(found.folder)
        stored = read_config_file(found.folder / CONFIG_FILE)
        shown.append(
            {
                **{name: record.config[name] for name in ("env", "method", "seed")},
                "steps": found.entry.env_steps,
                "finished": found.entry.finished,
                **{name: rows[-1][name] for name in SCORES},
                "by": found.entry.by,
                "added": found.entry.added,
                "processor": stored.get("machine", {}).get("processor", ""),
                "hours": rows[-1]["wall_seconds"] / 3600,
                "folder": found.folder.relative_to(ledger).as_posix(),
                "curve": [[row["env_steps"], row["success_once"]] for row in rows],
            }
        )
    return shown
