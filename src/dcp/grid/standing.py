"""How a run stands, by its folder alone: so a restarted grid, or another machine's, knows as much as the first one."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from dcp.config import Config, Settings
from dcp.errors import UserError
from dcp.run_folder import CHECKPOINTS_DIR, METRICS_FILE, POLICY_FILE, load_run
from dcp.runs import checkpoint
from dcp.runs.checkpoint import DamagedError
from dcp.runs.run_status import differing, holds_run, how_far, read_plan

# new: nothing there. interrupted: it goes on. other: another run is there. broken: nobody can read it.
Kind = Literal["new", "interrupted", "finished", "other", "broken"]
Row = dict[str, float]


@dataclass(frozen=True)
class Standing:
    kind: Kind
    done: int = 0  # environment steps after which it can go on
    total: int = 0
    why: str = ""  # of other and broken: one sentence


def standing(folder: Path, asked: Settings) -> Standing:
    """`asked`: resolved. A run that was planned with fewer steps is one that goes on."""
    total = asked.num_unrolls * asked.env_steps_per_unroll
    if not holds_run(folder):
        return Standing("new", 0, total)
    try:
        stored, earlier = read_plan(folder)
        if names := differing(stored, earlier, asked):
            return Standing("other", why=other_run(folder, names, stored, asked))
        if _has_all_results(folder, stored) and asked.num_unrolls <= stored.num_unrolls:
            return Standing("finished", total, total)
        return Standing("interrupted", how_far(folder)[0], total)
    except UserError as error:
        return Standing("broken", 0, total, " ".join(str(error).split()))


def agreed_steps(folder: Path, asked: Settings) -> int:
    """The budget to go on with: a grid may ask for more steps than its run had, not for another run."""
    stored, earlier = read_plan(folder)
    if names := differing(stored, earlier, asked):
        raise UserError(other_run(folder, names, stored, asked))
    return max(asked.steps, stored.steps)


def other_run(folder: Path, names: list[str], stored: Settings, asked: Settings) -> str:
    theirs, ours = asdict(stored), asdict(asked)
    told = ", ".join(f"{name} {theirs[name]} where the grid has {ours[name]}" for name in names[:3])
    return f"{folder} holds another run ({told}): choose another --runs-dir, or move that run away"


def last_row(folder: Path) -> Row | None:
    """The last evaluation; None before there is one."""
    try:
        metrics = load_run(folder).metrics
        return {name: float(values[-1]) for name, values in metrics.items()}
    except (UserError, LookupError):
        return None


def _has_all_results(folder: Path, config: Config) -> bool:
    """Without reading gigabytes: checksums of the last checkpoint are for whoever trains on from it."""
    try:
        evaluations = len(load_run(folder).metrics["env_steps"])
    except (UserError, LookupError):
        return False
    if evaluations != config.num_evals or not (folder / POLICY_FILE).is_file():
        return False
    found = checkpoint.checkpoints(folder / CHECKPOINTS_DIR)
    try:
        return not found or len(checkpoint.read_record(found[0])["rows"]) == config.num_evals
    except (DamagedError, LookupError, TypeError):
        return False


def changed_at(folder: Path) -> float:
    """When its metrics.csv was last written: what was read before then is old."""
    try:
        return (folder / METRICS_FILE).stat().st_mtime
    except OSError:
        return 0.0
