"""`dcp eval`: evaluate policies on the same fresh episodes; print a table, write JSON and CSV to each run's folder."""

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np

from dcp.cli.flags import POSITIONAL, Burst, parse
from dcp.cli.main import COMMANDS
from dcp.cli.working import print_json, print_table, working
from dcp.config import Physics
from dcp.errors import UserError
from dcp.files import require_no_links_out
from dcp.files.run_folder import zoo_names
from dcp.lab.result_tables import Cell, Row, Table, between, number, require_writable
from dcp.lab.run_collection import EVALS_DIR
from dcp.lab.statistics import Interval
from dcp.lab.targets import Target, open_target, require_psi
from dcp.lab.trial import (
    Arena,
    Bin,
    Trial,
    arena_for,
    as_json,
    estimates,
    paired,
    variant,
    write_results,
)
from dcp.machine import compiling
from dcp.policies.exports import is_exported
from dcp.policies.policy import Policy

if TYPE_CHECKING:
    from dcp.cli.share import RecordOptions

LONGEST_NAME = 200  # bytes, of a file name without its suffix
REACH_AT = (0.1, 0.25, 0.5, 0.75, 1.0)  # shares of an episode's length
COLUMNS = ("policy", "success once (%)", "time near goal", "first reach", "final distance", "saturation (%)")
COLUMNS += ("sign flips (%)", "diverged")


@dataclass(frozen=True)
class EvalOptions:
    runs: Annotated[tuple[str, ...], POSITIONAL] = ()
    """Run folders, policy files, exported policies, or zoo/<env>/<method>."""
    episodes: int | None = None
    """Episodes of each seed. Default: as in the run's own evaluations."""
    seeds: tuple[int, ...] = (0,)
    """Each names a frozen set of starts and goals, the same for every policy."""
    env: str | None = None
    """Evaluate on this environment; ant_u_maze_eval and its like keep only far goals. Default: the run's own."""
    physics: Physics | None = None
    """What steps simulated bodies. Default: what the run was trained with."""
    randomize: str | None = None
    """What changes between episodes of a so101 task: all, none, or names like gains,delay. Default: as in training."""
    burst: Burst = None
    """P L: random actions in the last L of every P steps, next to none on the same episodes. Without values: 100 10."""
    burst_first: bool = False
    """Random actions in the first L of every P steps instead of the last: the other reading of the paper's burst."""
    intervention: tuple[Literal["stalled_burst", "untried", "reaim"], ...] = ()
    """Intervene when progress in psi has stalled, next to no intervention on the same episodes."""
    stall: tuple[int, int] | None = None
    """W L: after W steps without progress intervene for L steps. Default: 90 10, and 90 100 for reaim."""
    pool_seed: str | None = None
    """A file of visited states for reaim, as `dcp train` takes. Default: the pool of the run's checkpoint."""
    stochastic: bool = False
    """Explore as in training: draw actions instead of using the actor's mean."""
    out: Path | None = None
    """Write here instead of the run's folder."""
    json: bool = False
    """Print the results as JSON instead of the table."""


def main(argv: list[str]) -> int:
    options = parse(EvalOptions(), argv, "dcp eval", COMMANDS["eval"])
    _require_sense(options)
    compiling.enable_cache()
    targets = [open_target(run) for run in options.runs]
    arenas = []
    for target in targets:  # report every mistake before the slow work starts
        variant(target.policy, options.burst, options.stochastic)
        _interventions(target, options)
        arenas.append(arena_of(target, options, options.randomize))
    require_writable_results(targets, options.out)
    return evaluate(targets, arenas, options)


def arena_of(target: Target, options: "EvalOptions | RecordOptions", randomize: str | None = None) -> Arena:
    """Return where to evaluate a target, as the flags say; by default, where its run was evaluated."""
    return arena_for(
        target,
        options.env,
        episodes=options.episodes,
        seeds=options.seeds,
        physics=options.physics,
        randomize=randomize,
    )


def _require_sense(options: EvalOptions) -> None:
    if not options.runs:
        such = f", such as {zoo_names()[0]}" if zoo_names() else ""
        raise UserError(f"nothing to evaluate: name a run's folder, a policy file or one of the zoo{such}")
    if options.burst_first and not options.burst:
        raise UserError("--burst-first says where in each period a burst is: add --burst")
    if (options.stall or options.pool_seed) and not options.intervention:
        raise UserError("--stall and --pool-seed belong to an intervention: add --intervention, such as stalled_burst")


def evaluate(targets: list[Target], arenas: list[Arena], options: EvalOptions) -> int:
    results, written = [], []
    trials: list[tuple[str, Trial]] = []
    rows: list[Row] = []
    for target, arena, mark in zip(targets, arenas, _marks(targets, options.out), strict=True):
        folder, about = options.out or target.home, _about(target, arena, options)
        plain = _trial(target, arena, variant(target.policy, None, options.stochastic), "")
        rows.append(_trial_row(target.label, plain))
        trials.append((target.label, plain))
        without, name = as_json(plain, {**about, "burst": None}), file_name(target, arena, options, None, mark)
        contents, paths = [], write_results(folder, name, without, plain)
        for tried in _tried(target, options):
            after = _trial(target, arena, tried.policy, f" with {tried.words}")
            gain = paired(plain.all, after.all)
            gains = _share(gain.success_once, sign=True), _steps(gain.time_near_goal, sign=True)
            rest = [Cell("")] * (len(COLUMNS) - 3)
            rows.append(_trial_row(f"  with {tried.words}", after))
            rows.append(Row((Cell(f"  gain ({gain.wins} won, {gain.losses} lost)"), *gains, *rest)))
            both = {tried.key: without, "paired": gain.as_json()}
            content = as_json(after, {**about, "burst": None, **tried.about}) | both
            name = file_name(target, arena, options, tried.words, mark)
            paths = [*write_results(folder, name, content, after), *paths]
            contents.append(content)
        results += contents or [without]
        written += paths
    if options.json:
        print_json(results)
        return 0
    print_table(Table("eval", "", COLUMNS, tuple(rows)))
    _explain(trials)
    compare(trials)
    print("Intervals: 95%, over episodes. Results:")
    for path in written:
        print(f"  {path}")
    return 0


class Tried(NamedTuple):
    """Hold a change of the policy that is compared with none."""

    words: str  # also in the files' names
    policy: Policy
    about: dict[str, Any]
    key: str  # of the results without it


def _tried(target: Target, options: EvalOptions) -> list[Tried]:
    """Return what the flags ask to compare with the policy alone."""
    bursts = []
    if burst := options.burst:
        acting = variant(target.policy, burst, options.stochastic, options.burst_first)
        words = f"burst {burst[0]} {burst[1]}{' first' * options.burst_first}"
        about = {"burst": list(burst), "burst_first": options.burst_first}
        bursts = [Tried(words, acting, about, "without_burst")]
    return bursts + _interventions(target, options)


def _interventions(target: Target, options: EvalOptions) -> list[Tried]:
    if not options.intervention:
        return []
    from dcp.policies.interventions import with_intervention

    tried = []
    for name in dict.fromkeys(options.intervention):
        pool = _pool(target, options.pool_seed) if name == "reaim" else None
        stall = options.stall or (None, None)
        acting: Any = with_intervention(variant(target.policy, None, options.stochastic), name, *stall, pool)
        about = {"name": name, "patience": acting.patience, "length": acting.length}
        words = f"{name} {acting.patience} {acting.length}"
        tried.append(Tried(words, acting, {"intervention": about}, "without_intervention"))
    return tried


def _pool(target: Target, file: str | None) -> np.ndarray:
    """Return visited states [P, G] to aim at: the file's, else those of the run's newest checkpoint."""
    if file is not None:
        from dcp.methods.pool_seed import read_pool_seed

        return read_pool_seed(file, require_psi(target).spec).goals
    from dcp.runs.run_status import read_pool

    pool = None if target.folder is None else read_pool(target.folder)
    if pool is None:
        raise UserError(
            f"{target.label} has no stored pool to aim at: give --pool-seed FILE, or a run whose method has a pool"
        )
    return pool


def _trial(target: Target, arena: Arena, policy: Policy, words: str) -> Trial:
    what = f"{target.label}{words} on {arena.env.spec.name}, {arena.episodes} episodes"
    with working() as say:
        say(what)
        return arena.trial(policy, tell=lambda doing: say(f"{what}: {doing}"))


def _about(target: Target, arena: Arena, options: EvalOptions) -> dict[str, Any]:
    return {
        "policy": target.label,
        "about": target.about,
        "fidelity": target.fidelity,
        "physics": arena.env.spec.stepped_by,
        "randomize": list(getattr(arena.env, "randomize", ())),
        "stochastic": options.stochastic,
        "devices": arena.count,
    }


def file_name(target: Target, arena: Arena, options: EvalOptions, change: str | None, mark: str) -> str:
    """Return the files' name. Repeating an evaluation replaces its files; another one, or another `change`, such as
    "burst 100 10", gets another name."""
    seeds = "-".join(map(str, arena.seeds))
    parts = [arena.env.spec.name, f"{arena.episodes}_episodes", f"seeds_{seeds}"]
    parts += [f"physics_{arena.env.spec.stepped_by}"] if arena.env.spec.stepped_by != target.physics else []
    parts += ["randomize_" + "-".join(kinds)] if (kinds := getattr(arena.env, "randomize", ())) else []
    parts += ["stochastic"] if options.stochastic else []
    name = "_".join([*parts, *([change.replace(" ", "_")] if change else [])]) + mark
    if len(name.encode()) <= LONGEST_NAME:
        return name
    whole = hashlib.sha256(name.encode()).hexdigest()[:16]  # a file name's length is limited, the seeds' is not
    return f"{name.encode()[: LONGEST_NAME - 17].decode(errors='ignore')}_{whole}"


def _marks(targets: list[Target], out: Path | None) -> list[str]:
    """Return a suffix per policy, so that files in one folder differ: an export from its run, and all under --out."""
    folders = [out or target.home for target in targets]
    names = [f"_{Path(target.label).name}" if is_exported(target.label) else "" for target in targets]
    places = list(zip(folders, names, strict=True))
    return [
        name if places.count((folder, name)) == 1 else "_" + re.sub(r"[^\w.-]+", "_", target.label).strip("_")
        for target, folder, name in zip(targets, folders, names, strict=True)
    ]


def require_writable_results(targets: list[Target], out: Path | None) -> None:
    for target in targets:
        if out is not None:
            require_no_links_out(out / EVALS_DIR, of=out)
        require_writable(target.results_dir(EVALS_DIR) if out is None else out / EVALS_DIR)


def _trial_row(label: str, trial: Trial) -> Row:
    e = estimates(trial.all)
    cells = (
        Cell(label),
        _share(e["success_once"]),
        _steps(e["time_near_goal"]),
        _steps(e["first_reach"], 0),
        _steps(e["final_distance"], 2),
        _share(e["saturation"]),
        _share(e["action_flips"]),
        Cell(f"{int(trial.all.diverged.sum())} of {len(trial.all.success)}", int(trial.all.diverged.sum())),
    )
    return Row(cells)


def by_distance_text(bins: Sequence[Bin]) -> list[str]:
    """Return successes per bin, with the digits that tell the bins' ends apart: an arm's are centimetres."""
    width = bins[0].high - bins[0].low
    digits = max(1, math.ceil(-math.log10(max(width, 1e-3))))
    return [f"{b.low:.{digits}f}-{b.high:.{digits}f}: {b.successes} of {b.episodes}" for b in bins if b.episodes]


def _explain(trials: list[tuple[str, Trial]]) -> None:
    for label, trial in trials:
        kind = "path from start to goal" if trial.distances[0] == "path" else "distance from start to goal"
        parts = by_distance_text(trial.by_distance())
        reach = trial.all.cumulative_reach
        at = [max(1, round(share * len(reach))) for share in REACH_AT]
        by = f", stepped by {trial.spec.stepped_by}" if trial.spec.stepped_by != "brax" else ""
        print(f"{label}, on {trial.spec.name}{by}")
        print(f"  reached by step   {', '.join(f'{t}: {reach[t - 1]:.1%}' for t in at)}")
        print(f"  by {kind}   {', '.join(parts)}")


def compare(trials: list[tuple[str, Trial]]) -> None:
    """Print how each policy compares with the first, if both had the same episodes."""
    (first, one), *others = trials
    for label, other in others:
        engines = one.spec.stepped_by, other.spec.stepped_by
        if engines[0] != engines[1]:
            print(f"{label} was stepped by {engines[1]} and {first} by {engines[0]}: they are not paired.")
            continue
        if one.episode_length != other.episode_length:
            lengths = f"{other.episode_length} steps and {first} of {one.episode_length}"
            print(f"{label} had episodes of {lengths}: they are not paired.")
            continue
        if one.goal_sets() != other.goal_sets():
            print(f"{label} had other episodes than {first}: to pair them, give --episodes and --env.")
            continue
        gain = paired(one.all, other.all)
        success, time = _share(gain.success_once, sign=True).text, _steps(gain.time_near_goal, sign=True).text
        print(
            f"{label} minus {first}, on the same episodes: success {success} points, time near goal {time}; "
            f"{gain.wins} won, {gain.ties} tied, {gain.losses} lost"
        )


def _share(e: Interval, sign: bool = False) -> Cell:
    """Return a share or a difference of two, in percent."""
    return between(*(100.0 * value for value in e[:3]), sign=sign)


def _steps(e: Interval, digits: int = 1, sign: bool = False) -> Cell:
    return number(e.mean, e.high - e.mean, digits=digits, sign=sign)
