"""Environment steps/s with the policy in the loop: MuJoCo's own engine against Brax, for each of the nine.

The SO-101 arm's tasks have only MuJoCo's engine.

    python benchmarks/engines.py [NAME ...]

MuJoCo's and our engine of the paper's physics run `dcp train`'s own unroll at the paper's settings: DCP's command and
actor, the step, automatic reset, and the insertion into the replay. Plain Brax is its own pipeline on the same task, as
in benchmarks/environments.py: random actions, nothing else, so that `ratios`, which are to it, favour it. (MJX's
Cholesky factors, several at once in one program with a policy, can wait for each other forever on a CPU of few cores.)
`ratios_to_ours` are to ours, over the cores as `dcp train` splits it. All three are measured in turns.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

sys.path.insert(0, str(Path(__file__).parent))
from environments import plain_env, stepper
from timing import in_turns, report

from dcp.algorithm import Algorithm, make_algorithm
from dcp.config import cores
from dcp.envs.registry import make_env
from dcp.lab.paper_values import ENVIRONMENTS
from dcp.machine import compiling
from dcp.machine.devices import prepare
from dcp.machine.programs import Programs
from dcp.presets import preset_config

LENGTH = 62  # an unroll of the paper's
PLAIN_LENGTH = {"humanoid_u_maze": 4, "ant_big_maze": 3, "ant_hardest_maze": 2}  # a second or so of the slowest side
ARM = ("so101_reach", "so101_push")
# Only the unroll is measured, so the replay need not be the paper's 10,000 rows.
SMALL = {"replay_rows": 1_000, "min_replay_rows": 1_000}


def unroller(trainer: Algorithm) -> Callable[[], Any]:
    """Each call goes on from where the last one stopped."""
    stages = Programs(trainer)
    held = {"run": stages.init(), "calls": 0}

    def work() -> Any:
        held["calls"] += 1
        held["run"] = stages.prefill(held["run"])
        return held["run"].acting.episodes.env.obs

    return work


def measure_arm(name: str) -> float:
    settings = preset_config("laptop", env=name, method="dcp", unroll_length=LENGTH, **SMALL)
    times = in_turns({"mujoco": unroller(make_algorithm(settings))}, rounds=3)
    rate = settings.num_envs * LENGTH / times["mujoco"]
    print(f"{name}: MuJoCo {rate:,.0f} steps/s", flush=True)
    return rate


def measure(name: str) -> dict[str, float]:
    settings = preset_config("paper", env=name, method="dcp", unroll_length=LENGTH, **SMALL)
    length = PLAIN_LENGTH.get(name, 6)
    forms = {
        "mujoco": unroller(make_algorithm(replace(settings, physics="mujoco"))),
        "ours": unroller(make_algorithm(settings)),
        "plain": stepper(plain_env(name), jax.vmap, settings.num_envs, length),
    }
    times = in_turns(forms, rounds=3)
    steps = {side: settings.num_envs * (length if side == "plain" else LENGTH) for side in forms}
    rates = {side: steps[side] / seconds for side, seconds in times.items()}
    words = f"{rates['mujoco']:,.0f} steps/s, our Brax {rates['ours']:,.0f}, plain Brax {rates['plain']:,.0f}"
    print(f"{name}: MuJoCo {words}", flush=True)
    return rates


def main(names: list[str]) -> None:
    compiling.enable_cache()
    prepare(None, make_env("ant_u_maze").spec)
    names = names or [*ENVIRONMENTS, *ARM]
    rates = {name: measure(name) for name in names if not name.startswith("so101")}
    arm = {name: round(measure_arm(name)) for name in names if name.startswith("so101")}

    def figures(value: Callable[[dict[str, float]], float], digits: int | None) -> dict[str, float]:
        return {name: round(value(rate), digits) for name, rate in rates.items()}

    report(
        env_steps_per_second=figures(lambda r: r["mujoco"], None) | arm,
        ratios=figures(lambda r: r["mujoco"] / r["plain"], 2),
        ratios_to_ours=figures(lambda r: r["mujoco"] / r["ours"], 2),
        brax_steps_per_second=figures(lambda r: r["plain"], None),
        our_brax_steps_per_second=figures(lambda r: r["ours"], None),
        threads=cores(),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
