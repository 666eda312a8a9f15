"""Measure interventions at deployment on the zoo's policies, for the tables in docs/results_others.md.

    python -m tools.docs.interventions run point                 # the 12 policies on the point mazes -> CSV
    python -m tools.docs.interventions run ant --episodes 128     # DCP on ant_u_maze
    python -m tools.docs.interventions map                       # the burst's P and L on point_big_maze
    python -m tools.docs.interventions pool POLICY FILE          # what `reaim` aimed at, for dcp eval --pool-seed
    python -m tools.docs.interventions                           # the tables, from the CSVs

The zoo has no checkpoints, so `reaim` aims at states that the policy itself visited in 16 other episodes while it
explored. Every change is paired with the policy alone on the same frozen episodes.
"""

import argparse
import csv
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dcp.lab.episodes import play
from dcp.lab.statistics import paired_success_interval
from dcp.lab.targets import open_target, require_psi
from dcp.lab.trial import Arena, arena_for, paired
from dcp.machine import compiling
from dcp.policies.interventions import with_intervention
from dcp.policies.policy import Policy
from dcp.policies.wrappers import PeriodicBurst, SampledPolicy
from tools.docs.pages import RESULTS, put

MEASURED, MAP = RESULTS / "interventions.csv", RESULTS / "burst_map.csv"
MAZES, METHODS = ("point_u_maze", "point_big_maze", "point_hardest_maze"), ("crl", "ssgc", "dcp", "dcp_no_pool")
POLICIES = {"point": [f"zoo/{env}/{method}" for env in MAZES for method in METHODS], "ant": ["zoo/ant_u_maze/dcp"]}
MAPPED = "zoo/point_big_maze/dcp"
SHOWN = [f"zoo/{env}/dcp" for env in MAZES[1:]] + POLICIES["ant"]
PERIODS, LENGTHS = (50, 100, 200), (5, 10, 20)
BURST = "burst 100 10"
POOL, POOL_EPISODES, POOL_SEED = 512, 16, 1


def changes(policy: Any, pool: np.ndarray) -> dict[str, Policy]:
    return {
        BURST: PeriodicBurst(policy, 100, 10),
        "burst 35 10": PeriodicBurst(policy, 35, 10),  # as often as `stalled_burst 25 10` at most
        "stalled_burst 90 10": with_intervention(policy, "stalled_burst", 90, 10),
        "stalled_burst 25 10": with_intervention(policy, "stalled_burst", 25, 10),
        "untried 90 10": with_intervention(policy, "untried", 90, 10),
        "untried 25 10": with_intervention(policy, "untried", 25, 10),
        "reaim 90 100": with_intervention(policy, "reaim", 90, 100, pool),
        "reaim 25 100": with_intervention(policy, "reaim", 25, 100, pool),
    }


def visited(arena: Arena, policy: Any) -> np.ndarray:
    """[P, G]: random states of episodes that no evaluation plays, in which the policy explores as in training."""
    episodes = play(arena.env, SampledPolicy(policy), jax.random.key(POOL_SEED), POOL_EPISODES, arena.length)
    states = np.concatenate([episode.achieved for episode in episodes])
    return states[np.resize(np.random.default_rng(POOL_SEED).permutation(len(states)), POOL)]


def run(which: str, episodes: int, seed: int, file: Path) -> None:
    """Measure what the file does not hold yet."""
    done = {(row["policy"], row["change"]) for row in _read(file)} if file.exists() else set()
    for name in POLICIES[which]:
        target = open_target(name)
        policy = require_psi(target)
        arena = arena_for(target, episodes=episodes, seeds=(seed,))
        plain = arena.trial(policy).all
        for change, acting in changes(policy, visited(arena, policy)).items():
            if (name, change) in done:
                continue
            start = time.perf_counter()
            _append(file, {"policy": name, "change": change, **_row(plain, arena.trial(acting).all, seed)})
            print(name, change, f"{time.perf_counter() - start:.0f} s", flush=True)


def burst_map(episodes: int, seed: int, file: Path) -> None:
    target = open_target(MAPPED)
    arena = arena_for(target, episodes=episodes, seeds=(seed,))
    plain = arena.trial(target.policy).all
    for period in PERIODS:
        for length in LENGTHS:
            row = _row(plain, arena.trial(PeriodicBurst(target.policy, period, length)).all, seed)
            _append(file, {"policy": MAPPED, "change": f"burst {period} {length}", **row})


def _row(before: Any, after: Any, seed: int) -> dict[str, Any]:
    gain = paired(before, after)
    near = gain.time_near_goal
    return {
        "seed": seed,
        "episodes": len(before.success),
        "alone": float(before.success.mean()),
        "success": float(after.success.mean()),
        "wins": gain.wins,
        "losses": gain.losses,
        "near_alone": float(before.time_near_goal.mean()),
        "near_gain": near.mean,
        "near_low": near.low,
        "near_high": near.high,
    }


def _append(file: Path, row: dict[str, Any]) -> None:
    """Add a row at once, so that a measurement that is stopped keeps what it has."""
    is_new = not file.exists()
    with file.open("a", newline="") as opened:
        writer = csv.DictWriter(opened, list(row), lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow({name: f"{x:.6g}" if isinstance(x, float) else x for name, x in row.items()})


def _gain(row: dict[str, str], is_short: bool = False) -> str:
    """Return a gain in points with its interval, bold if that excludes zero."""
    gain = paired_success_interval(int(row["wins"]), int(row["losses"]), int(row["episodes"]))
    text = f"{100 * gain.mean:+.1f}" + ("" if is_short else f"&nbsp;({100 * gain.low:.0f},{100 * gain.high:.0f})")
    return f"**{text}**" if gain.low > 0 or gain.high < 0 else text


def make() -> None:
    """Write both tables into the page."""
    by_name = {(row["policy"], row["change"]): row for row in _read(MEASURED)}
    titles = [policy.split("/")[1] for policy in SHOWN]
    alone = [f"{100 * float(by_name[policy, BURST]['alone']):.1f}" for policy in SHOWN]
    lines = [["", *titles], ["alone", *alone]]
    for name in sorted(
        {change for _, change in by_name}, key=lambda change: (change.split()[0], -int(change.split()[1]))
    ):
        lines.append([f"`{name}`", *(_gain(by_name[policy, name]) for policy in SHOWN)])
    put("interventions", _table(lines))
    gains = {row["change"]: _gain(row, is_short=True) for row in _read(MAP)}
    lines = [["", *(f"L={length}" for length in LENGTHS)]]
    for period in PERIODS:
        lines.append([f"P={period}", *(gains[f"burst {period} {length}"] for length in LENGTHS)])
    put("burst_map", _table(lines))


def _table(lines: list[list[str]]) -> str:
    first, *rest = (f"|{'|'.join(cells)}|" for cells in lines)
    return "\n".join([first, "|---" * len(lines[0]) + "|", *rest])


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def main() -> None:
    if len(sys.argv) == 1:
        return make()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=("run", "map", "pool"))
    parser.add_argument("which", nargs="*")
    parser.add_argument("--episodes", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--file", type=Path)
    options = parser.parse_args()
    compiling.enable_cache()
    if options.do == "run":
        run(options.which[0], options.episodes, options.seed, options.file or MEASURED)
    elif options.do == "map":
        burst_map(options.episodes, options.seed, options.file or MAP)
    else:
        target = open_target(options.which[0])
        np.savez(options.which[1], goals=visited(arena_for(target), require_psi(target)))
    return None


if __name__ == "__main__":
    main()
