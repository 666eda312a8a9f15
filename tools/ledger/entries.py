"""Add an entry to the ledger, check one or all of them, and train one again."""

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from safetensors import safe_open

from dcp.components import one_line
from dcp.config import Config
from dcp.errors import UserError
from dcp.files import require_no_links_out, validation
from dcp.files.run_folder import CONFIG_FILE, POLICY_FILE, read_config_file
from dcp.named_code import require_allowed
from dcp.policies.policy_file import write_whole
from dcp.runs.run_status import read_plan
from tools.ledger.rules import (
    KEPT,
    SCORES,
    Repeated,
    differs,
    folder_faults,
    is_finished,
    repeat,
    repeat_faults,
    rows_of,
    run_faults,
)

LEDGER = "ledger"  # the ledger's folder, in the repository's root
ENTRY_FILE = "entry.json"
ENTRY_SCHEMA_VERSION = 1
_CLOCKS = ("evaluation", "wall_seconds", "steps_per_second")  # columns that say nothing of what was learned


@dataclass(frozen=True)
class EntryFile:
    """Hold the content of entry.json."""

    by: str
    command: str  # trains it again, on as many cores, and compares every number
    added: str  # a date
    finished: bool
    env_steps: int
    sha256: dict[str, str]  # file -> checksum
    repeated: Repeated
    commit: str = ""  # of dcp's source, if known
    note: str = ""
    schema_version: int = ENTRY_SCHEMA_VERSION


@dataclass(frozen=True)
class Entry:
    """Hold a folder of the ledger, the content of its entry.json, and one sentence for each fault."""

    folder: Path
    content: EntryFile | None  # None: it cannot be read
    faults: list[str] = field(default_factory=list)


def add(run: Path, ledger: Path, by: str, note: str = "", commit: str = "", today: date | None = None) -> Path:
    """Check a run, evaluate its policy again, and add it to the ledger. -> the entry's folder

    An entry of the same run, when it had come less far, is replaced.
    """
    if not by.strip():
        raise UserError("say who ran it: --by 'Your Name'")
    require_no_links_out(ledger)
    if faults := run_faults(run):
        raise UserError(f"{run} cannot be added: {'; '.join(faults)}")
    readable = [entry.folder for entry in entries(ledger) if entry.content is not None]
    earlier = [folder for folder in readable if _first_row(folder) == _first_row(run)]
    for folder in earlier:
        if len(rows_of(folder)) >= len(rows_of(run)):
            raise UserError(f"{run} is in the ledger already: {folder}")
    now = repeat(run)
    if faults := differs(run, now):
        raise UserError(f"{run} cannot be added: {'; '.join(faults)}")
    config, rows = read_plan(run)[0], rows_of(run)
    sums = {name: digest(run / name) for name in KEPT}
    commit = commit or read_config_file(run / CONFIG_FILE)["versions"].get("dcp", "").partition("+")[2]
    folder = ledger / config.env / config.method / _name(config.seed, sums)
    folder.mkdir(parents=True, exist_ok=True)
    for kept in KEPT:
        shutil.copyfile(run / kept, folder / kept)
    content = EntryFile(
        by=by,
        command=_command(config, folder.name, _comparable(folder)[1]),
        added=(today or date.today()).isoformat(),
        finished=is_finished(run),
        env_steps=int(rows[-1]["env_steps"]),
        sha256=sums,
        repeated=now,
        commit=commit,
        note=note,
    )
    write_whole(folder / ENTRY_FILE, (json.dumps(asdict(content), indent=1) + "\n").encode())
    for replaced in earlier:
        shutil.rmtree(replaced)
    return folder


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _name(seed: int, sums: dict[str, str]) -> str:
    return f"seed_{seed}_{hashlib.sha256(''.join(sums[name] for name in KEPT).encode()).hexdigest()[:8]}"


def _command(config: Config, name: str, evaluations: int) -> str:
    """Return the command that trains an entry again, from the repository's root."""
    return f"python -m tools.ledger rerun {LEDGER}/{config.env}/{config.method}/{name} --evaluations {evaluations}"


def _comparable(folder: Path) -> tuple[Config, int]:
    """-> the config to train again, and how many evaluations can be compared.

    Where the budget was raised later, the first one decides where the first evaluations are.
    """
    config, earlier = read_plan(folder)
    if earlier:
        config = replace(config, steps=earlier[0].steps, num_evals=earlier[0].num_evals)
    return config, min(len(rows_of(folder)), config.num_evals)


def entries(ledger: Path) -> list[Entry]:
    """Read every entry.json of a ledger, sorted by path, and check nothing else. There may be no ledger yet."""
    return [read_entry(path.parent) for path in sorted(ledger.glob(f"*/*/*/{ENTRY_FILE}"))]


def read_entry(folder: Path) -> Entry:
    """Read an entry.json, and check nothing else."""
    try:
        content = validation.checked(validation.read_json(folder / ENTRY_FILE), EntryFile)
        tables = (content.repeated.scores, content.repeated.standard_errors)
        whole = set(content.sha256) == set(KEPT) and all(set(table) == set(SCORES) for table in tables)
        if not whole or content.schema_version != ENTRY_SCHEMA_VERSION:
            raise ValueError("not what `python -m tools.ledger add` writes")
        if not all(math.isfinite(value) for table in tables for value in table.values()):
            raise ValueError("a score that is not finite")
    except (OSError, ValueError) as error:
        return Entry(folder, None, [f"{ENTRY_FILE} cannot be read ({error}): restore it, or add the run again"])
    return Entry(folder, content)


# Checking. Nothing here makes an environment or a part that an entry names before `folder_faults` has found it ours.


def check_all(ledger: Path, evaluate: bool = False) -> list[Entry]:
    """Return every entry with its faults, and every folder that holds a run's files without being an entry."""
    checked = [check_entry(entry.folder, evaluate) for entry in entries(ledger)]
    copies = _copies([entry.folder for entry in checked if not entry.faults])
    checked = [replace(entry, faults=[*entry.faults, *copies.get(entry.folder, [])]) for entry in checked]
    return checked + _strays(ledger, [entry.folder for entry in checked])


def check_entry(folder: Path, evaluate: bool = False) -> Entry:
    """Return an entry with all its faults; `evaluate` also evaluates its policy again."""
    entry = read_entry(folder)
    if entry.content is None:
        return entry
    try:
        return replace(entry, faults=_faults(folder, entry.content, evaluate))
    except Exception as error:  # a stranger's files: whatever they break, the other entries are checked too
        return replace(entry, faults=[f"it cannot be checked ({type(error).__name__}: {one_line(error)}): remove it"])


def _faults(folder: Path, content: EntryFile, evaluate: bool) -> list[str]:
    faults = _file_faults(folder, content) + folder_faults(folder)
    if not faults:
        faults = _entry_faults(folder, content) + repeat_faults(folder, content.repeated)
    if evaluate and not faults:
        try:
            faults = differs(folder, repeat(folder))
        except UserError as error:
            faults = [f"its policy cannot be evaluated again: {error}"]
    return faults


def _file_faults(folder: Path, content: EntryFile) -> list[str]:
    if any(path.is_symlink() for path in (folder, *folder.parents[:2])):
        return ["its folder is a link: put the folder itself there"]
    faults = []
    for name, then in content.sha256.items():
        path = folder / name
        if not path.is_file():
            faults.append(f"{name} is missing: restore it")
        elif path.stat().st_size <= KEPT[name] and digest(path) != then:
            faults.append(f"{name} is not the file that was added (its SHA-256 differs): restore it from git")
    return faults


def _entry_faults(folder: Path, content: EntryFile) -> list[str]:
    """Return what entry.json or the folder's name says other than the files."""
    config, rows = read_plan(folder)[0], rows_of(folder)
    place = (config.env, config.method, _name(config.seed, content.sha256))
    faults = []
    if folder.parts[-3:] != place:
        faults.append(f"its folder is {'/'.join(folder.parts[-3:])}, its files belong to {'/'.join(place)}")
    wanted = {
        "env_steps": int(rows[-1]["env_steps"]),
        "finished": is_finished(folder),
        "command": _command(config, place[-1], _comparable(folder)[1]),
    }
    for name, value in wanted.items():
        if getattr(content, name) != value:
            faults.append(f"{ENTRY_FILE} says {name} {getattr(content, name)}, but its files give {value}")
    return faults


def _copies(folders: Sequence[Path]) -> dict[Path, list[str]]:
    """Return a sentence for each entry that has the numbers or the weights of an earlier one."""
    copies: dict[Path, list[str]] = {}
    for what, key in (("numbers", _first_row), ("weights", _weights)):
        first: dict[Any, Path] = {}
        for folder in folders:
            other = first.setdefault(key(folder), folder)
            if other != folder and folder not in copies:
                copies[folder] = [f"it has the {what} of {other}: one run counts once, whatever its seed is called"]
    return copies


def _first_row(folder: Path) -> tuple[float, ...]:
    """Return the numbers of the first evaluation: no two seeds share all of them."""
    try:
        return tuple(value for name, value in rows_of(folder)[0].items() if name not in _CLOCKS)
    except (UserError, IndexError):
        return ()


def _weights(folder: Path) -> str:
    """Return a checksum of the policy's arrays, without what the file says of them."""
    sums = hashlib.sha256()
    with safe_open(folder / POLICY_FILE, framework="numpy") as file:
        for name in sorted(file.keys()):
            sums.update(file.get_tensor(name).tobytes())
    return sums.hexdigest()


def _strays(ledger: Path, known: Sequence[Path]) -> list[Entry]:
    """Return folders with files of a run where no entry is: no table counts them."""
    names = {ENTRY_FILE, *KEPT}
    folders = {path.parent for path in ledger.rglob("*") if path.name in names} - set(known)
    sentence = f"it holds files of a run, but is no entry: an entry is <env>/<method>/<name>/ with an {ENTRY_FILE}"
    return [Entry(folder, None, [sentence]) for folder in sorted(folders)]


# Training an entry again.


class _EnoughError(Exception):
    pass


def rerun(folder: Path, evaluations: int, say: Callable[[str], object] = print) -> list[str]:
    """Train an entry's config again up to this many evaluations. -> a sentence for each number that differs

    An entry with a fault is refused, and so is code that its config names, as by `dcp train --resume`.
    """
    from dcp.runs.training import train

    if faults := check_entry(folder).faults:
        raise UserError(f"{folder} is not trained again, since it has faults: {'; '.join(faults)}")
    config, most = _comparable(folder)
    require_allowed(config.code)
    if not 1 <= evaluations <= most:
        raise UserError(f"--evaluations is {evaluations}: use 1 to {most}, as many as can be compared")
    logged, differences = rows_of(folder), []

    def compare(evaluation: Any) -> None:
        row, number = evaluation.row, int(evaluation.row["evaluation"])
        for name in ("env_steps", *SCORES):
            then, now = logged[number - 1][name], float(row[name])
            if now != then:
                differences.append(f"evaluation {number}: {name} was {then}, here it is {now}")
            say(f"evaluation {number}: {name} {now!r}, logged {then!r}: {'equal' if now == then else 'other'}")
        if number == evaluations:
            raise _EnoughError

    with suppress(_EnoughError):
        train(config, compare, runs_dir=None, display="none")
    return differences
