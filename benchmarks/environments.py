"""Environment steps/s of ours and of plain Brax, for each of the nine: 512 environments (humanoid 128), random actions.

    python benchmarks/environments.py [NAME ...]

Plain Brax is its own pipeline on the same model, stepped by the same scan. Ours is split over the cores as `dcp train`
splits it; AntPush is stepped by MuJoCo's engine, on its own threads. Both sides start from the same states and are
measured in turns.
"""

import sys
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import jax

sys.path.insert(0, str(Path(__file__).parent))
from timing import in_turns, report

from dcp.envs.registry import make_env
from dcp.lab.paper_values import ENVIRONMENTS
from dcp.machine.compiling import compiler_options
from dcp.machine.devices import count_devices, make_split, prepare

# Steps in one measurement: a second or so of the slower side.
STEPS = {"ant_soccer": 10, "humanoid_u_maze": 4, "ant_hardest_maze": 2}


@dataclass(frozen=True)
class PlainEngine:
    """One of Brax's own pipelines, as it is."""

    pipeline: ModuleType  # brax.spring.pipeline, brax.generalized.pipeline or brax.mjx.pipeline
    sys: Any
    frames: int

    def init(self, q: Any, qd: Any) -> Any:
        return self.pipeline.init(self.sys, q, qd)

    def step(self, state: Any, control: Any) -> Any:
        def frame(state: Any, _: None) -> tuple[Any, None]:
            return self.pipeline.step(self.sys, state, control), None

        return jax.lax.scan(frame, state, None, self.frames)[0]


def plain_env(name: str) -> Any:
    """Return the same task on Brax's own pipeline."""
    from brax.generalized import pipeline as generalized
    from brax.io import mjcf
    from brax.mjx import pipeline as mjx
    from brax.spring import pipeline as spring

    ours: Any = make_env(name)
    pipeline = {"spring": spring, "generalized": generalized, "mjx": mjx}[ours.spec.physics]
    env = copy(ours)  # asking for the name gives the same object, whose engine must stay
    model = ours.model().compile() if ours.spec.physics == "mjx" else copy(ours.engine.sys.model)
    env.__dict__["engine"] = PlainEngine(pipeline, mjcf.load_model(model), ours.engine.frames)
    return env


def stepper(env: Any, batched: Callable, num_envs: int, length: int) -> Callable[[], Any]:
    """Each call goes on from where the last one stopped."""
    reset = jax.jit(batched(env.reset))
    state = reset(jax.random.split(jax.random.key(0), num_envs))

    def unroll(state: Any, key: Any) -> Any:
        def step(state: Any, key: Any) -> tuple[Any, None]:
            action = jax.random.uniform(key, (num_envs, env.spec.action_size), minval=-1.0)
            return batched(env.step)(state, action), None

        return jax.lax.scan(step, state, jax.random.split(key, length))[0]

    program = jax.jit(unroll, compiler_options=compiler_options())
    held = {"state": state, "calls": 0}

    def work() -> Any:
        held["calls"] += 1
        held["state"] = program(held["state"], jax.random.key(held["calls"]))
        return held["state"].obs

    return work


def measure(name: str) -> dict[str, float]:
    num_envs = 128 if name.startswith("humanoid") else 512
    env: Any = make_env(name)
    split = make_split(count_devices(None, num_envs, env.spec))
    length = STEPS.get(name, 5)
    ours = stepper(env, split, num_envs, 10 * length)
    plain = stepper(plain_env(name), jax.vmap, num_envs, length)
    times = in_turns({"ours": ours, "plain": plain}, rounds=3)
    rates = {"ours": 10 * length * num_envs / times["ours"], "plain": length * num_envs / times["plain"]}
    print(f"{name}: ours {rates['ours']:,.0f} steps/s, plain Brax {rates['plain']:,.0f}", flush=True)
    return rates


def main(names: list[str]) -> None:
    prepare(None, make_env("ant_u_maze").spec)
    rates = {name: measure(name) for name in names or ENVIRONMENTS}
    figures: dict[str, Any] = {
        "ratios": {name: round(r["ours"] / r["plain"], 2) for name, r in rates.items()},
        "steps_per_second": {name: round(r["ours"]) for name, r in rates.items()},
        "plain_steps_per_second": {name: round(r["plain"]) for name, r in rates.items()},
        "devices": jax.local_device_count(),
    }
    if {"ant_u_maze", "ant_hardest_maze"} <= set(rates):
        figures["u_over_hardest"] = rates["ant_u_maze"]["ours"] / rates["ant_hardest_maze"]["ours"]
    report(**figures)


if __name__ == "__main__":
    main(sys.argv[1:])
