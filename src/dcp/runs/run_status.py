"""Read a run's status from its folder: what was planned, how far it got, and how to resume it.

A run whose budget was raised keeps its planned evaluations; further ones follow at the same interval.
"""

from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from dcp.config import Config, Settings
from dcp.errors import UserError
from dcp.files.run_folder import CHECKPOINTS_DIR, CONFIG_FILE, POLICY_FILE, load_run, read_config_file
from dcp.runs.checkpoint_files import CHECKPOINT_SCHEMA_VERSION, DamagedError, checkpoints, read_record, verify


@dataclass(frozen=True)
class Budget:
    """Hold a budget that a run had before it was raised."""

    steps: int
    num_evals: int


def evaluation_points(config: Config, earlier: tuple[Budget, ...] = ()) -> list[int]:
    """Return the iterations done at each evaluation: evenly spaced in each budget, the last one at its end."""
    points: list[int] = []
    start = 0
    for budget in (*earlier, Budget(config.steps, config.num_evals)):
        end = _iterations(config, budget.steps)
        count = budget.num_evals - len(points)
        points += [start + round((i + 1) * (end - start) / count) for i in range(count)]
        start = end
    return points


def raised(config: Config, earlier: tuple[Budget, ...], steps: int) -> tuple[Config, tuple[Budget, ...]]:
    """Plan the same run with more steps; further evaluations are as far apart as the last planned ones."""
    more = _iterations(config, steps) - config.num_iterations
    if more <= 0:  # the same number of whole unrolls
        return config, earlier
    before = earlier[-1] if earlier else None
    iterations = config.num_iterations - (_iterations(config, before.steps) if before else 0)
    evaluations = config.num_evals - (before.num_evals if before else 0)
    further = max(1, round(more * evaluations / iterations))
    now = Budget(config.steps, config.num_evals)
    return replace(config, steps=steps, num_evals=config.num_evals + further), (*earlier, now)


def _iterations(config: Config, steps: int) -> int:
    """Return the iterations of another budget. Not by a `Config`, which would check the present evaluations too."""
    return Settings(**{**vars(config), "steps": steps}).num_iterations


_RESOLVED = ("eval_env", "episode_length", "window", "pool_refresh_steps", "devices", "split_batches")
_RESOLVED += ("pool_seed_fraction", "pool_seed_sha256")


def holds_run(path: Path) -> bool:
    """Return whether this is a run folder; False for a name that no file can have."""
    try:
        return (path / CONFIG_FILE).exists()
    except (OSError, ValueError):
        return False


def read_plan(path: Path) -> tuple[Config, tuple[Budget, ...]]:
    """Read a run's config and its earlier budgets."""
    try:
        there = (path / CONFIG_FILE).is_file()
    except OSError as error:
        raise UserError(f"cannot look into {str(path)[:200]} ({error.strerror}): name a run's folder") from error
    if not there:
        raise UserError(f"{path} is not a run folder (no {CONFIG_FILE}): name the folder that `dcp train` printed")
    stored = read_config_file(path / CONFIG_FILE)
    config = Config.from_dict(stored["config"])
    earlier = tuple(Budget(budget["steps"], budget["num_evals"]) for budget in stored["earlier_budgets"])
    for before, after in pairwise((*earlier, Budget(config.steps, config.num_evals))):
        if before.steps >= after.steps or before.num_evals >= after.num_evals:
            raise UserError(f"{path / CONFIG_FILE} has earlier_budgets that do not increase: restore the file")
    return config, earlier


def how_far(path: Path) -> tuple[int, int]:
    """Return the environment steps from which this run can resume, and those of its budget."""
    config, _ = read_plan(path)
    for checkpoint in checkpoints(path / CHECKPOINTS_DIR):
        try:
            return _record(checkpoint)["env_steps"], _total(config)
        except (DamagedError, UserError, LookupError):
            continue  # fall back to the one before it
    return 0, _total(config)


def _record(checkpoint: Path) -> dict[str, Any]:
    record = read_record(checkpoint)
    if record.get("schema_version") != CHECKPOINT_SCHEMA_VERSION:
        raise DamagedError("it is of another version")  # resuming reports it
    return record


def is_finished(path: Path) -> bool:
    """Return whether the run is complete, its last evaluation included. A damaged run does not count as complete."""
    config, _ = read_plan(path)
    found = checkpoints(path / CHECKPOINTS_DIR)
    for checkpoint in found:
        try:
            verify(checkpoint)
            return len(_record(checkpoint)["rows"]) == config.num_evals
        except (DamagedError, UserError, LookupError):
            continue
    if found:
        return False
    try:  # the run kept no checkpoint
        return load_run(path).metrics["env_steps"][-1] >= _total(config)
    except (UserError, LookupError):
        return False


def has_all_results(folder: Path, config: Config) -> bool:
    """Return whether the run is complete, like `is_finished`, but fast: checksums are not verified."""
    try:
        evaluations = len(load_run(folder).metrics["env_steps"])
    except (UserError, LookupError):
        return False
    if evaluations != config.num_evals or not (folder / POLICY_FILE).is_file():
        return False
    found = checkpoints(folder / CHECKPOINTS_DIR)
    try:
        return not found or len(_record(found[0])["rows"]) == config.num_evals
    except (DamagedError, UserError, LookupError):
        return False


def resume_command(path: Path) -> str:
    """Return the command that resumes a run. It names the user's own parts and environments, which are code."""
    try:
        config, _ = read_plan(path)
    except UserError:
        return f"dcp train --resume {path}"
    flags = [f"--{flag} {name}" for flag, name in config.code.items()]
    return " ".join([f"dcp train --resume {path}", *flags])


def differing(stored: Config, earlier: tuple[Budget, ...], asked: Settings) -> list[str]:
    """List the fields in which `asked` is another run. None means the run's own value where the run decides it."""
    told = {name: value for name, value in asdict(asked).items() if value is not None or name not in _RESOLVED}
    names = [name for name, value in told.items() if value != getattr(stored, name)]
    begun = {"steps": [b.steps for b in earlier], "num_evals": [b.num_evals for b in earlier]}  # earlier budgets
    names = [name for name in names if told[name] not in begun.get(name, [])]
    return [name for name in names if name != "steps" or asked.steps < stored.steps]


def budget_to_resume_with(path: Path, asked: Settings) -> int | None:
    """Return the budget to resume with; None if the run has already reached it.

    Settings that agree with the run are accepted. Others are refused by name, because they would make another run.
    """
    stored, earlier = read_plan(path)
    for name in differing(stored, earlier, asked):
        flag = f"--{name.replace('_', '-')}"
        if name == "steps":
            raise UserError(f"--steps {asked.steps} is below the run's {stored.steps}: steps can only be raised")
        raise UserError(
            f"{flag} {getattr(asked, name)} is not the run's {getattr(stored, name)}: leave {flag} out, "
            "or start another run"
        )
    steps = max(asked.steps, stored.steps)
    longer = Settings(**{**asdict(stored), "steps": steps}).num_unrolls > stored.num_unrolls
    return None if is_finished(path) and not longer else steps


def taken(path: Path) -> str:
    """Return a sentence that the folder already holds a run, and what to do."""
    otherwise = "use --overwrite, another --seed or another --runs-dir"
    try:
        finished, (done, total) = is_finished(path), how_far(path)
    except UserError:
        return f"{path} already holds a run: {otherwise}"
    if finished:
        return f"{path} holds a finished run: train it longer with --resume and more --steps, or {otherwise}"
    return f"{path} holds a run at {done:,} of {total:,} steps: resume it with `{resume_command(path)}`, or {otherwise}"


def _total(config: Config) -> int:
    return config.num_unrolls * config.env_steps_per_unroll
