"""The three things that `dcp eval` does with its policies, and how it shows them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from dcp.analysis.evaluation_results import Paired, as_csv, as_json, finite, paired, write
from dcp.cli.eval_files import file_name, folder_of, marks
from dcp.cli.eval_tables import COLUMNS, add_gain, add_trial, compare, explain, make_table, say_where, show_sweep
from dcp.cli.tables import show
from dcp.errors import UserError
from dcp.evaluation.measures import training_scores
from dcp.evaluation.program import evaluation_key
from dcp.evaluation.sweep import Sweep, sweep
from dcp.evaluation.targets import Target
from dcp.evaluation.trial import Arena, Trial, arena_for, variant
from dcp.run_folder import CONFIG_FILE, load_run, read_config_file
from dcp.statistics import Interval

if TYPE_CHECKING:
    from dcp.cli.eval import EvalOptions

EXIT_DIFFERS = 1


def evaluate(targets: list[Target], arenas: list[Arena], options: "EvalOptions", progress: Console) -> int:
    results, written = [], []
    table = make_table("policy", *COLUMNS)
    trials: list[tuple[str, Trial]] = []
    for target, arena, mark in zip(targets, arenas, marks(targets, options.out), strict=True):
        plain = _trial(target, arena, None, options, progress)
        inside = f" (burst {target.burst[0]} {target.burst[1]} inside)" if target.burst else ""
        add_trial(table, target.label + inside, plain)
        trials.append((target.label, plain))
        content = as_json(plain, {**_about(target, arena, options), "burst": None})
        found, name = plain, file_name(target, arena, options, None, mark)
        if options.burst:
            found = _trial(target, arena, options.burst, options, progress)
            name = file_name(target, arena, options, options.burst, mark)
            add_trial(table, f"  with burst {options.burst[0]} {options.burst[1]}", found)
            gain = paired(plain.all, found.all)
            content = as_json(found, {**_about(target, arena, options), "burst": list(options.burst)}) | {
                "without_burst": content,
                "paired": _paired_json(gain),
            }
            add_gain(table, gain)
        results.append(content)
        written += write(folder_of(target, options.out), name, content, as_csv(found))
        if found is not plain:  # the other half of the pairs
            alone = file_name(target, arena, options, None, mark)
            written += write(folder_of(target, options.out), alone, content["without_burst"], as_csv(plain))
    if options.json:
        _print_json(results)
        return 0
    show(table)
    explain(trials)
    if len(trials) > 1:
        compare(trials)
    say_where(written)
    return 0


def sweep_bursts(
    targets: list[Target],
    arenas: list[Arena],
    bursts: list[tuple[int, int]],
    options: "EvalOptions",
    progress: Console,
) -> int:
    written, results = [], []
    for target, arena, mark in zip(targets, arenas, marks(targets, options.out), strict=True):
        found = _sweep(target, arena, bursts, options, progress)
        gains = {burst: paired(found.without.all, trial.all) for burst, trial in found.tried.items()}
        confirmed = paired(found.confirmed_without.all, found.confirmed.all)
        content = as_json(found.confirmed, {**_about(target, arena, options), "burst": list(found.best)}) | {
            "paired": _paired_json(confirmed),
            "tried": [
                {"burst": list(b), "success_once": t.all.summary()["success_once"], "paired": _paired_json(gains[b])}
                for b, t in found.tried.items()
            ],
            "without_burst": as_json(found.confirmed_without, {"burst": None}),
        }
        results.append(content)
        name = file_name(target, arena, options, None, f"_sweep{mark}")
        written += write(folder_of(target, options.out), name, content, as_csv(found.confirmed))
        if not options.json:
            show_sweep(f"{target.label} on {arena.env.spec.name}", found, gains, confirmed)
    if options.json:
        _print_json(results)
    else:
        say_where(written)
    return 0


def _sweep(
    target: Target, arena: Arena, bursts: list[tuple[int, int]], options: "EvalOptions", progress: Console
) -> Sweep:
    policy = variant(target.policy, None, options.stochastic)
    with _working(progress, f"{target.label} on {arena.env.spec.name}: {len(bursts)} bursts") as say:
        return sweep(arena, policy, bursts, lambda what: say(f"{target.label}: {what} done"))


def repeat(targets: list[Target], progress: Console) -> int:
    """The last evaluation of each run once more. -> exit code 1 where a number differs"""
    same = True
    for target in targets:
        if target.config is None:
            raise UserError(f"{target.label} has no config beside it: --as-logged needs a run's folder")
        index, then = logged(target)
        with _working(progress, f"{target.label}: evaluation {index + 1} once more"):
            trial = arena_for(target).trial(target.policy, [evaluation_key(target.config.seed, index)])
        now = training_scores(trial.all)
        table = make_table(f"{target.label}, evaluation {index + 1}", "logged", "now", "")
        for name, value in now.items():
            table.add_row(name, repr(then[name]), repr(float(value)), "equal" if value == then[name] else "other")
            same &= value == then[name]
        show(table)
    if same:
        print("Every number is the logged one, bit for bit.")
        return 0
    print("Numbers differ: bits are promised for the same machine, cores, versions and number of devices.")
    for target in targets:
        for name, (then, now) in _changed(target).items():
            print(f"  {target.label}: {name} was {then}, here it is {now}")
    return EXIT_DIFFERS


def _changed(target: Target) -> dict[str, tuple[str, str]]:
    """What besides the config decides how numbers are rounded, where it is known and not the same."""
    from dcp.runs.checkpoint import machine, versions

    if target.folder is None:
        return {}
    stored, here = read_config_file(target.folder / CONFIG_FILE), {**versions(), **machine()}
    then = {**stored["versions"], **stored["machine"]}
    return {name: (then[name], now) for name, now in here.items() if then.get(name, now) != now}


def logged(target: Target) -> tuple[int, dict[str, float]]:
    """Which evaluation, from 0, wrote the policy that is there, and what metrics.csv says of it."""
    metrics, steps = load_run(target.folder or target.label).metrics, target.about.get("env_steps")
    rows = np.flatnonzero(metrics["env_steps"] == steps)
    if len(rows) != 1:
        raise UserError(f"{target.label}: metrics.csv has no row for a policy of {steps} steps; try once more")
    return int(metrics["evaluation"][rows[0]]) - 1, {name: float(column[rows[0]]) for name, column in metrics.items()}


def _trial(
    target: Target, arena: Arena, burst: tuple[int, int] | None, options: "EvalOptions", progress: Console
) -> Trial:
    words = f" with burst {burst[0]} {burst[1]}" if burst else ""
    what = f"{target.label}{words} on {arena.env.spec.name}, {arena.episodes} episodes"
    done = 0
    with _working(progress, what) as say:

        def count() -> None:
            nonlocal done
            done += 1
            say(f"{what}, seed {done} of {len(arena.seeds)} done")

        return arena.trial(variant(target.policy, burst, options.stochastic), on_seed=count)


@contextmanager
def _working(progress: Console, what: str) -> Iterator[Any]:
    """A line that lives while the work goes on; on no terminal, one line when it begins."""
    if not progress.is_terminal:
        progress.print(what, highlight=False, soft_wrap=True)
        yield lambda words: None
        return
    with progress.status(what) as status:
        yield status.update


def _about(target: Target, arena: Arena, options: "EvalOptions") -> dict[str, Any]:
    return {
        "policy": target.label,
        "about": target.about,
        "fidelity": target.fidelity,
        "physics": arena.env.spec.stepped_by,
        "stochastic": options.stochastic,
        "devices": arena.count,
        "burst_inside": target.burst,
    }


def _print_json(results: list[dict[str, Any]]) -> None:
    print(json.dumps(finite(results), indent=1, allow_nan=False))


def _paired_json(gain: Paired) -> dict[str, Any]:
    return {name: value.as_json() if isinstance(value, Interval) else value for name, value in gain._asdict().items()}
