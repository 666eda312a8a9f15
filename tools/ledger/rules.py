"""What the files of a run must satisfy to be added to the ledger, and those of an entry to stay in it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from dcp.components import describe, shown
from dcp.config import Config, Settings
from dcp.envs.registry import OURS
from dcp.errors import UserError
from dcp.files import CHECKPOINTS_DIR, CONFIG_FILE, FAULT_FILE, METRICS_FILE, POLICY_FILE
from dcp.files.run_folder import load_run, read_config_file
from dcp.lab.run_collection import METRICS
from dcp.lab.statistics import success_difference_error
from dcp.lab.targets import IDENTITY
from dcp.loop import evaluation_points
from dcp.methods.table import OUR_METHODS, make_agent
from dcp.policies.policy import DeployedPolicy
from dcp.policies.policy_file import KINDS, load_policy_and_about
from dcp.runs.checkpoint import DamagedError, checkpoints
from dcp.runs.run_status import read_plan, read_record

KEPT = {CONFIG_FILE: 1_000_000, METRICS_FILE: 8_000_000, POLICY_FILE: 8_000_000}  # the most bytes: it is in git
SCORES = tuple(METRICS)  # success_once, time_near_goal
COLUMNS = ("evaluation", "env_steps", "updates", "wall_seconds", *SCORES)

Row = dict[str, float]


def rows_of(folder: Path) -> list[Row]:
    """Return the rows of metrics.csv."""
    metrics = load_run(folder).metrics
    if missing := [name for name in COLUMNS if name not in metrics]:
        raise UserError(f"{METRICS_FILE} lacks {', '.join(missing)}: add a run folder of `dcp train`")
    return [{name: float(column[i]) for name, column in metrics.items()} for i in range(len(metrics["env_steps"]))]


def is_finished(folder: Path) -> bool:
    """Tell whether the run has all its evaluations."""
    return len(rows_of(folder)) == len(evaluation_points(*read_plan(folder)))


def run_faults(folder: Path) -> list[str]:
    """Return the reasons why a run cannot be added, before anything is computed."""
    if (folder / FAULT_FILE).exists():
        return [f"the run ended by a fault (see {folder / FAULT_FILE}): resume it, or start it again"]
    return folder_faults(folder) or _lacking(folder) or _edited(folder)


def folder_faults(folder: Path) -> list[str]:
    """Return a sentence for each fault that the files of a run folder or an entry show."""
    try:
        _require_plain_files(folder)
        config, earlier = read_plan(folder)
        _require_ours(config)
        faults = row_faults(config, evaluation_points(config, earlier), rows_of(folder))
        return faults or _policy_faults(folder, config)
    except UserError as error:
        return [" ".join(str(error).split())]


def _require_plain_files(folder: Path) -> None:
    """Refuse links and large files before anything is read."""
    for name, most in KEPT.items():
        path = folder / name
        if path.is_symlink():
            raise UserError(f"{name} is a link to somewhere else: put the file itself there")
        if path.is_file() and path.stat().st_size > most:
            raise UserError(f"{name} has more than {most // 10**6} MB, too much for a ledger")


def _lacking(folder: Path) -> list[str]:
    """Return a sentence for settings that a run's config lacks. An entry may lack settings that are newer than it."""
    stored = read_config_file(folder / CONFIG_FILE)["config"]
    missing = sorted({each.name for each in fields(Settings)} - stored.keys())
    sentence = f"{CONFIG_FILE} lacks {', '.join(missing)}: it was written by an older dcp; run it again"
    return [sentence] if missing else []


def _require_ours(config: Config) -> None:
    """Refuse a config that names what nobody else has."""
    if config.eval_episodes < 2:
        raise UserError("the run evaluates on a single episode, which has no standard error: use more eval_episodes")
    if code := config.code:
        names = ", ".join(map(shown, code.values()))
        raise UserError(f"the run names code of its own ({names}), which nobody else has")
    envs = {config.env, config.eval_env or config.env}
    unknown = [("environment", name) for name in sorted(envs - OURS.keys())]
    unknown += [] if config.method in OUR_METHODS else [("method", config.method)]
    for kind, name in unknown:
        raise UserError(f"the run is of the {kind} {shown(name)}, which is not part of dcp: nobody else has it")


def row_faults(config: Config, points: Sequence[int], rows: Sequence[Mapping[str, float]]) -> list[str]:
    """Return a sentence for each row that no run of this config can log. `points`: iterations at each evaluation."""
    faults = []
    for number, row in enumerate(rows, 1):
        where = f"row {number} of {METRICS_FILE}"
        if not all(map(math.isfinite, row.values())):
            faults.append(f"{where} holds a number that is not finite: a run that diverged cannot be added")
            continue
        if number > len(points) or row["env_steps"] != _steps_at(config, points[number - 1]):
            faults.append(f"{where} is at {row['env_steps']:,.0f} steps, where its config evaluates at no such point")
        elif row["updates"] != points[number - 1] * config.num_updates:
            wanted = points[number - 1] * config.num_updates
            faults.append(f"{where} is after {row['updates']:,.0f} updates, where its config has made {wanted:,}")
        if row["evaluation"] != number:
            faults.append(f"{where} calls itself evaluation {row['evaluation']:g}")
        faults += _impossible(config, where, row)
        if number > 1 and row["wall_seconds"] <= rows[number - 2]["wall_seconds"]:
            faults.append(f"{where} has a clock that does not advance")
    return faults or ([] if rows else [f"{METRICS_FILE} has no evaluation yet: add the run later"])


def _impossible(config: Config, where: str, row: Mapping[str, float]) -> list[str]:
    """Return a row's impossible scores. Means times episodes are whole numbers, and a success needs a step near."""
    episodes, length = config.eval_episodes, config.episode_length or math.inf
    success, near = row["success_once"], row["time_near_goal"]
    faults = []
    for name, value in (("successes", success), ("steps near the goal", near)):
        total = value * episodes
        if not math.isfinite(total) or abs(total - round(total)) > 1e-3 * max(1.0, value):
            faults.append(f"{where} has {total:.9g} {name} in {episodes} episodes: not a whole number")
    if not (0 <= success <= 1 and success - 1e-6 <= near <= success * length + 1e-6):
        faults.append(f"{where} has success {success:g} with {near:g} steps near the goal, which cannot both be")
    return faults


def _steps_at(config: Config, iterations: int) -> int:
    return (config.num_prefill_unrolls + iterations) * config.env_steps_per_unroll


def _policy_faults(folder: Path, config: Config) -> list[str]:
    """Return what the policy file says of its run, or is made of, other than the config."""
    policy, about = load_policy_and_about(folder)
    wanted = {name: getattr(config, name) for name in IDENTITY} | {"env_steps": rows_of(folder)[-1]["env_steps"]}
    faults = [
        f"{POLICY_FILE} is of {name} {about.get(name)}, but the run is of {name} {value}: "
        "the policy is another one's, or the config or a row was edited"
        for name, value in wanted.items()
        if about.get(name) != value
    ]
    return faults or _other_parts(config, policy)


def _other_parts(config: Config, policy: DeployedPolicy) -> list[str]:
    agent = make_agent(config, policy.spec)
    for kind in (*KINDS, "command"):
        if (part := type(getattr(agent, kind))).__module__.split(".")[0] != "dcp":
            raise UserError(f"the run has a {kind} of its own ({part.__qualname__}), which nobody else has")
    others = [] if policy.action_chunk == config.action_chunk else ["action_chunk"]
    others += [kind for kind in KINDS if describe(kind, getattr(agent, kind)) != describe(kind, getattr(policy, kind))]
    return [f"{POLICY_FILE} has another {kind} than {CONFIG_FILE} says: one of them was edited" for kind in others]


def _edited(folder: Path) -> list[str]:
    """Return faults where metrics.csv differs from the rows in the run's newest checkpoint."""
    for path in checkpoints(folder / CHECKPOINTS_DIR):
        try:
            kept = read_record(path)["rows"]
        except (DamagedError, LookupError, TypeError):
            continue
        for number, (then, now) in enumerate(zip(kept, rows_of(folder), strict=False), 1):
            if other := [name for name, value in then.items() if now.get(name) != value and value == value]:  # or nan
                return [
                    f"row {number} of {METRICS_FILE} has {other[0]} {now.get(other[0])}, "
                    f"but the checkpoint has {then[other[0]]}: the file was edited"
                ]
        return []
    return []


# Evaluating a policy again.


@dataclass(frozen=True)
class Repeated:
    """Hold a repeat of the evaluation that wrote the policy: the same policy on the same episodes."""

    evaluation: int  # from 1
    scores: dict[str, float]
    standard_errors: dict[str, float]  # over episodes, as measured now


def repeat(folder: Path) -> Repeated:
    """Repeat the evaluation that wrote the policy, on the same episodes, and return its scores."""
    from dcp.evaluation import evaluation_key, training_scores
    from dcp.lab.targets import open_target
    from dcp.lab.trial import arena_for

    target = open_target(folder)
    if target.config is None:
        raise UserError(f"{folder} has a policy that does not belong to its {CONFIG_FILE}")
    number = len(rows_of(folder))
    measures = arena_for(target).trial(target.policy, [evaluation_key(target.config.seed, number - 1)]).all
    scores = training_scores(measures)
    per_episode = {"success_once": measures.success, "time_near_goal": measures.time_near_goal}
    errors = {name: float(np.std(values, ddof=1) / math.sqrt(len(values))) for name, values in per_episode.items()}
    return Repeated(number, {name: scores[name] for name in SCORES}, errors)


STANDARD_ERRORS = 3.0  # of the difference: one honest entry of two hundred lies beyond them


def differs(folder: Path, now: Repeated) -> list[str]:
    """Return a sentence for each score that differs from the log by more than three standard errors of the difference.

    On the machine that trained the policy, with as many cores, every number is equal. Elsewhere the physics rounds
    differently, and after some steps the episodes are others: both numbers have the standard error over episodes.
    """
    config, last = read_plan(folder)[0], rows_of(folder)[-1]
    episodes = config.eval_episodes
    success = success_difference_error(now.scores["success_once"], last["success_once"], episodes, episodes) / 1.96
    half_an_episode = 0.5 * (config.episode_length or 1000) / episodes  # where all episodes were alike
    near = math.sqrt(2.0) * max(now.standard_errors["time_near_goal"], half_an_episode)
    return [
        f"{METRICS_FILE} says {name} {last[name]:.4g}, but the policy scores {now.scores[name]:.4g} on the same "
        f"episodes (standard error of the difference: {error:.2g}): the log or the policy is not this run's"
        for name, error in (("success_once", success), ("time_near_goal", near))
        if not abs(now.scores[name] - last[name]) <= STANDARD_ERRORS * error
    ]


def repeat_faults(folder: Path, then: Repeated) -> list[str]:
    """Return what an evaluation that was repeated cannot have given, or what the log says differently."""
    config = read_plan(folder)[0]
    episodes = config.eval_episodes
    success, near = (then.scores[name] for name in SCORES)
    of_success, of_near = (then.standard_errors[name] for name in SCORES)
    most = math.sqrt(max(near * ((config.episode_length or math.inf) - near), 0.0) / (episodes - 1))
    right = math.sqrt(max(success * (1.0 - success), 0.0) / (episodes - 1))
    possible = 0.0 <= success <= 1.0 and then.evaluation == len(rows_of(folder)) and abs(of_success - right) < 1e-6
    if not (possible and 0.0 <= of_near <= 1.000001 * most):
        return ["the repeated evaluation of entry.json has numbers that no evaluation gives: it was edited"]
    return differs(folder, then)
