"""Make the tables of docs/results_paper.md, "Ablations", from the runs of ablations.toml.

    python -m tools.docs.ablations collect RUNS_DIR     # learning -> docs/results/ablations.csv
    python -m tools.docs.ablations deploy RUNS_DIR      # bursts and directions that stay -> ablations_deploy.csv
    python -m tools.docs.ablations                      # the tables, from both

The paper supposes that bursts help because the direction is fresh after one. `StaleDirection` shows the policy a
direction that stays for k steps; if the paper is right, bursts should gain less as k grows.
"""

import csv
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dcp.actor import actor_heads
from dcp.lab.statistics import t_interval
from dcp.lab.targets import open_target
from dcp.lab.trial import arena_for
from dcp.machine import compiling
from dcp.networks import scaled_goal, scaled_state
from dcp.policies.policy import DeployedPolicy, Policy
from dcp.policies.wrappers import LENGTH, PERIOD, with_burst
from dcp.types import Array
from tools.docs.cells import Curve, Runs, collect, differences, differences_table, markdown, read
from tools.docs.pages import RESULTS, put

DATA, DEPLOYED = RESULTS / "ablations.csv", RESULTS / "ablations_deploy.csv"
MAZES = ("point_u_maze", "point_big_maze")
KEYS = ("logsumexp_penalty", "pool_refresh_steps")
COLUMNS = ("env_steps", "success_once", "time_near_goal")
PAPERS = ("0.1", "250")
ARMS = {
    PAPERS: "the paper's",
    ("0.0", "250"): "no log-sum-exp penalty",
    ("0.1", "62"): "pool refreshed four times an episode",
    ("0.1", "1000"): "pool refreshed every four episodes",
}
STAYS = (1, 10, 50, 1000)  # steps that a direction stays; 1 is the policy itself, 1,000 longer than an episode
EPISODES = 256


class Stale(NamedTuple):
    inner: Any  # the policy's own state
    direction: Array  # [..., D], what the policy was shown last
    step: Array  # []: steps so far


@partial(jax.tree_util.register_dataclass, data_fields=["policy", "steps"], meta_fields=[])
@dataclass(frozen=True)
class StaleDirection:
    """Show the policy a direction that is computed every `steps` steps, and the distance of each moment.

    It is computed at the first step and then in the middle of each `steps`, so that none is due just after a burst.
    """

    policy: DeployedPolicy
    steps: int | Array

    def init(self, key: Array) -> Stale:
        return Stale(self.policy.init(key), jnp.zeros(()), jnp.zeros((), jnp.int32))

    def act(self, policy_state: Stale, state: Array, goal: Array) -> tuple[Stale, Array]:
        policy, (inner, last, step) = self.policy, policy_state
        state, goal = scaled_state(policy.scale, state), scaled_goal(policy.scale, policy.spec, goal)
        seen = policy.condition(policy._scaled_representation(), policy.spec.achieved(state), goal)  # [..., D + 1]
        is_due = (step == 0) | ((step - self.steps // 2) % self.steps == 0)
        direction = jnp.where(is_due, seen[..., :-1], last)
        shown = jnp.concatenate([direction, seen[..., -1:]], axis=-1)
        mean, _ = actor_heads(policy.network, policy.actor, state, shown)
        return Stale(inner, direction, step + 1), jnp.tanh(mean)


def acting(policy: DeployedPolicy) -> dict[tuple[str, str], Policy]:
    """Return each way to deploy a policy, by its burst and how long directions stay."""
    ways: dict[tuple[str, str], Policy] = {}
    for steps in STAYS:
        stale = StaleDirection(policy, steps)
        ways["none", str(steps)] = stale
        ways["last", str(steps)] = with_burst(stale, PERIOD, LENGTH)
    ways["first", "1"] = with_burst(policy, PERIOD, LENGTH, first=True)
    return ways


def deploy(folder: Path) -> None:
    """Evaluate the paper's arm of each maze and seed in every way, on the same episodes."""
    compiling.enable_cache()
    rows = []
    for path in sorted(folder.glob(f"**/penalty_{PAPERS[0]}-refresh_{PAPERS[1]}/**/policy.safetensors")):
        target = open_target(path.parent)
        config, policy = target.config, target.policy
        assert config is not None and isinstance(policy, DeployedPolicy)
        arena = arena_for(target, episodes=EPISODES, seeds=(0,))
        for (burst, stays), way in acting(policy).items():
            success = float(arena.trial(way).all.success.mean())
            about = {"env": config.env, "seed": str(config.seed), "burst": burst, "stays": stays}
            rows.append(about | {"success": f"{success:.6g}"})
        print(path.parent, flush=True)
    with DEPLOYED.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def late_success(curve: Curve) -> float:
    """Return the mean success of a run's last half, in percent."""
    return 100 * float(curve["success_once"][len(curve["success_once"]) // 2 :].mean())


def training_table(all_runs: Mapping[str, Runs]) -> str:
    """Return success over the last half of training per arm, and the paper's arm minus each other, paired by seed."""
    named = {
        env: {("dcp", ARMS[cell]): seeds for cell, seeds in runs.items() if cell in ARMS}
        for env, runs in all_runs.items()
    }
    rows = []
    for name in ARMS.values():
        intervals = [t_interval([late_success(c) for c in named[env]["dcp", name].values()]) for env in named]
        rows.append([name, *map(str, intervals)])
    others = {f"the paper's - {name}": (ARMS[PAPERS], name) for name in list(ARMS.values())[1:]}
    tests = differences(named, others, late_success)
    return f"{markdown(['', *named], rows)}\n\n{differences_table('method', tests)}"


def deployed_table(rows: list[dict[str, str]]) -> str:
    """Return success without and with bursts for each time that a direction stays, and the gain, paired by seed."""
    by_way: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    for row in rows:
        by_way[row["env"], row["burst"], row["stays"]][row["seed"]] = 100 * float(row["success"])
    lines = []
    for env in MAZES:
        for stays in map(str, STAYS):
            if not (alone := by_way[env, "none", stays]):
                continue
            cells = [str(t_interval(list(alone.values())))]
            for burst in ("last", "first"):
                gains = [success - alone[seed] for seed, success in by_way.get((env, burst, stays), {}).items()]
                cells.append(str(t_interval(gains)) if gains else "")
            lines.append([env, "an episode" if int(stays) >= 1000 else stays, *cells])
    return markdown(["", "a direction stays", "alone", "gain by bursts", "by bursts that come first"], lines)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["collect"]:
        return collect(Path(arguments[1]), DATA, KEYS, COLUMNS, MAZES)
    if arguments[:1] == ["deploy"]:
        return deploy(Path(arguments[1]))
    put("ablations", training_table(read(DATA, KEYS, COLUMNS)))
    with DEPLOYED.open(newline="") as file:
        put("ablations_deploy", deployed_table(list(csv.DictReader(file))))
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
