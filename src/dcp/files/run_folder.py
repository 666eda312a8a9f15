"""The reading side of a run folder, for everyone who looks at a run and does not train it."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct

from dcp.config import SCHEMA_VERSION, Config
from dcp.errors import UserError, did_you_mean, one_line, shown
from dcp.files import CONFIG_FILE, METRICS_FILE, PLOTS_DIR, POLICIES_DIR, POLICY_FILE
from dcp.files.validation import MEGABYTE, FormatError, checked, read_json, read_text

ZOO = "zoo"  # trained policies inside the package: zoo/<env>/<method> stands for a run folder
ZOO_FOLDER = Path(__file__).parents[1] / ZOO


@dataclass(frozen=True)
class RunRecord:
    """Hold what a run left behind."""

    folder: Path
    config: dict[str, Any]  # resolved; every field of `Config`
    versions: dict[str, str]  # package -> version that trained it
    metrics: dict[str, np.ndarray]  # column -> one number per evaluation

    @property
    def policy_path(self) -> Path:
        return self.folder / POLICY_FILE

    @property
    def plots(self) -> Path:
        return self.folder / PLOTS_DIR


def located(path: str | Path) -> Path:
    """Return the path, or the zoo's folder if it names one of its runs. A file of that name here goes first."""
    path = Path(path)
    if path.exists() or not is_zoo(path):
        return path
    inside = ZOO_FOLDER.joinpath(*path.parts[1:])
    if not inside.exists() or (inside.is_dir() and not (inside / CONFIG_FILE).is_file()):
        name, names = path.as_posix(), zoo_names()
        of_env = {Path(run).name: run for run in names if Path(run).parent == path.parent}
        otherwise = f"of this environment it has {', '.join(of_env.values())}"
        form = f"{path.parent.as_posix()}/{{}}"
        hint = did_you_mean(path.name, of_env, otherwise, form) if of_env else did_you_mean(name, names)
        raise UserError(f"the zoo has no {name.removeprefix(f'{ZOO}/')}: {hint}")
    return inside


def is_zoo(path: str | Path) -> bool:
    return Path(path).parts[:1] == (ZOO,)


def zoo_names() -> list[str]:
    """List zoo/<env>/<method> of every policy that comes with the package."""
    folders = (file.parent for file in ZOO_FOLDER.glob("*/*/config.json"))
    return sorted(f"{ZOO}/{folder.relative_to(ZOO_FOLDER).as_posix()}" for folder in folders)


def load_run(folder: str | Path) -> RunRecord:
    """Read what a run left behind: a folder, or zoo/<env>/<method>."""
    folder = located(folder)
    if not (folder / CONFIG_FILE).is_file():
        raise UserError(f"{folder} is not a run folder (no {CONFIG_FILE}): name the folder that `dcp train` printed")
    stored = read_config_file(folder / CONFIG_FILE)
    try:
        metrics, torn = read_metrics(folder / METRICS_FILE)
    except UserError as error:
        raise UserError(f"{folder}: {error}") from error
    if not metrics:
        raise UserError(f"{folder / METRICS_FILE} is empty: the run ended before its first evaluation; train again")
    if torn:
        raise UserError(f"{folder / METRICS_FILE} is damaged (its last line is incomplete): train again, or restore it")
    return RunRecord(folder, stored["config"], stored["versions"], metrics)


def kept_policies(folder: str | Path) -> list[Path]:
    """List the policies that `--keep-policies` kept at evaluations, the earliest first."""
    return sorted((Path(folder) / POLICIES_DIR).glob("*.safetensors"))


class _Budget(Struct):
    steps: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    num_evals: Annotated[int, Meta(ge=1, le=1_000_000)]


class _ConfigFile(Struct):
    """config.json, but for the config itself: `Config` checks that. Older files lack all of these."""

    earlier_budgets: list[_Budget] = []
    versions: dict[str, str] = {}
    machine: dict[str, str] = {}


def read_config_file(path: str | Path) -> dict[str, Any]:
    """Read a config.json, checked and of the present schema: config (valid for `Config`), earlier_budgets, versions."""
    path = Path(path)
    try:
        stored = read_json(path, most=16 * MEGABYTE)
    except (OSError, ValueError) as error:
        if not isinstance(error, FormatError):
            reason = getattr(error, "strerror", None) or "no name of a file"
            raise UserError(f"cannot read {path} ({reason}): name the config.json of a run") from error
        raise UserError(f"{path} is not JSON ({error}): train again, or restore the file") from error
    if not isinstance(stored, dict) or not isinstance(stored.get("config"), dict):
        raise UserError(f"{path} is not the config of a run: it needs an object with the key 'config'")
    version = stored.get("schema_version")
    if type(version) is not int or version < 1:
        raise UserError(f"{path} has schema_version {shown(version)}: restore the number that `dcp train` wrote")
    if version > SCHEMA_VERSION:
        newer = f"schema_version {shown(version)}, newer than {SCHEMA_VERSION}"
        raise UserError(f"{path} has {newer}: upgrade dcp to read it")
    try:
        checked(stored, _ConfigFile)
    except FormatError as error:
        raise UserError(f"{path} is damaged ({error}): train again, or restore the file") from error
    try:
        Config.from_dict(stored["config"])
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    # Version 1 had no earlier budgets: each run had the one of its config.
    return {"versions": {}, "machine": {}, "earlier_budgets": [], **stored, "schema_version": SCHEMA_VERSION}


def read_metrics(path: Path) -> tuple[dict[str, np.ndarray], bool]:
    """Return columns of a metrics.csv, a number per evaluation, and whether a half-written last line was left out."""
    try:
        header, *rows = [line for line in csv.reader(io.StringIO(read_text(path), newline="")) if line] or [[]]
        torn = bool(rows) and not _is_whole(rows[-1], len(header))
        rows = rows[:-1] if torn else rows
        values = np.asarray([[float(value) for value in row] for row in rows], float).reshape(len(rows), len(header))
    except OSError as error:
        raise UserError(f"cannot read {path.name} ({error.strerror}): the run has no evaluation yet") from error
    except (ValueError, csv.Error) as error:
        raise UserError(f"{path.name} has a line that is not a row of numbers ({one_line(error)})") from error
    if double := next((name for name in header if header.count(name) > 1), None):
        raise UserError(f"{path.name} has two columns {double}")
    return dict(zip(header, values.T, strict=True)), torn


def _is_whole(row: list[str], length: int) -> bool:
    try:
        return len([float(value) for value in row]) == length
    except ValueError:
        return False
