"""How `dcp eval` shows what it found: rows, gains and sentences."""

from pathlib import Path

import numpy as np
from rich.table import Table

from dcp.analysis.evaluation_results import Paired, estimates, paired
from dcp.cli.tables import show
from dcp.evaluation.sweep import Sweep
from dcp.evaluation.trial import Trial
from dcp.policies.policy import is_random
from dcp.statistics import Interval

REACH_AT = (0.1, 0.25, 0.5, 0.75, 1.0)  # of an episode's length
COLUMNS = ("success once", "time near goal", "first reach", "final distance", "saturation", "diverged")


def show_sweep(title: str, found: Sweep, gains: dict[tuple[int, int], Paired], confirmed: Paired) -> None:
    best = f"P {found.best[0]}, L {found.best[1]}"
    table = make_table("burst", "random share", "success once", "gain", "time near goal", "gain")
    _add_burst(table, "none", "", found.without, None)
    for burst, trial in found.tried.items():
        mark = " *" if burst == found.best else ""
        share = f"{random_share(burst, trial.episode_length):.1%}"
        _add_burst(table, f"P {burst[0]}, L {burst[1]}{mark}", share, trial, gains[burst])
    table.add_section()
    _add_burst(table, "confirmed: none", "", found.confirmed_without, None)
    _add_burst(table, f"confirmed: {best}", "", found.confirmed, confirmed)
    print(title)
    show(table)
    print(
        f"Best: {best}. On {len(found.confirmed.all.success)} other episodes it changes success by "
        f"{_points(confirmed.success_once)} (95%)."
    )
    if found.tried[found.best].all.success.mean() <= found.without.all.success.mean():
        print("No burst of these reached more goals than none.")


def random_share(burst: tuple[int, int], episode_length: int) -> float:
    """Of an episode's steps: L / P over whole periods; the last period may be cut short before its burst."""
    return float(np.mean(is_random(np.arange(episode_length), *burst)))


def make_table(first: str, *columns: str) -> Table:
    """On a narrow terminal words and numbers go on in the next line: half an interval is of no use."""
    table = Table()
    table.add_column(first, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", overflow="fold")
    return table


def add_trial(table: Table, label: str, trial: Trial) -> None:
    e = estimates(trial.all)
    table.add_row(
        label,
        _percent(e["success_once"]),
        _number(e["time_near_goal"], 1),
        _number(e["first_reach"], 0),
        _number(e["final_distance"], 2),
        _percent(e["saturation"]),
        f"{int(trial.all.diverged.sum())} of {len(trial.all.success)}",
    )


def add_gain(table: Table, gain: Paired) -> None:
    table.add_row(
        f"  gain ({gain.wins} won, {gain.losses} lost)", _points(gain.success_once), _signed(gain.time_near_goal)
    )


def _add_burst(table: Table, label: str, share: str, trial: Trial, gain: Paired | None) -> None:
    e = estimates(trial.all)
    gains = ("", "") if gain is None else (_points(gain.success_once), _signed(gain.time_near_goal))
    table.add_row(label, share, _percent(e["success_once"]), gains[0], _number(e["time_near_goal"], 1), gains[1])


def explain(trials: list[tuple[str, Trial]]) -> None:
    for label, trial in trials:
        kind = "path from start to goal" if trial.distances[0] == "path" else "distance from start to goal"
        parts = [f"{b.low:.1f}-{b.high:.1f}: {b.successes} of {b.episodes}" for b in trial.by_distance() if b.episodes]
        reach = trial.all.cumulative_reach
        at = [max(1, round(share * len(reach))) for share in REACH_AT]
        by = f", stepped by {trial.spec.stepped_by}" if trial.spec.stepped_by != "brax" else ""
        print(f"{label}, on {trial.spec.name}{by}")
        print(f"  reached by step   {', '.join(f'{t}: {reach[t - 1]:.1%}' for t in at)}")
        print(f"  by {kind}   {', '.join(parts)}")


def compare(trials: list[tuple[str, Trial]]) -> None:
    """Each against the first, where they met the same episodes."""
    (first, one), *others = trials
    for label, other in others:
        engines = one.spec.stepped_by, other.spec.stepped_by
        if engines[0] != engines[1]:
            print(f"{label} was stepped by {engines[1]} and {first} by {engines[0]}: they are not paired.")
            continue
        if one.goal_sets() != other.goal_sets():
            print(f"{label} met other episodes than {first}: they are not paired.")
            continue
        gain = paired(one.all, other.all)
        print(
            f"{label} minus {first}, on the same episodes: success {_points(gain.success_once)}, "
            f"time near goal {_signed(gain.time_near_goal)}; {gain.wins} won, {gain.ties} tied, {gain.losses} lost"
        )


def say_where(written: list[Path]) -> None:
    print("Intervals: 95%, over episodes. Results:")
    for path in written:
        print(f"  {path}")


def _percent(e: Interval) -> str:
    return f"{e.mean:.1%}" if not np.isfinite(e.low) else f"{e.mean:.1%} ({100 * e.low:.1f} to {100 * e.high:.1f})"


def _number(e: Interval, digits: int) -> str:
    if not np.isfinite(e.mean):
        return "-"
    return f"{e.mean:.{digits}f}" + (f" ± {e.high - e.mean:.{digits}f}" if np.isfinite(e.high) else "")


def _points(e: Interval) -> str:
    return f"{100 * e.mean:+.1f} ({100 * e.low:+.1f} to {100 * e.high:+.1f}) points"


def _signed(e: Interval) -> str:
    return f"{e.mean:+.1f}" + (f" ± {e.high - e.mean:.1f}" if np.isfinite(e.high) else "")
