"""Measure steps per second of a goal environment of Gymnasium under `gym:ID` and under Stable-Baselines3's two classes.

    python benchmarks/gym_steps.py dcp MODULE ID          in dcp's environment
    python benchmarks/gym_steps.py dummy MODULE ID        in one with Stable-Baselines3; also subproc

MODULE registers the id and lies on PYTHONPATH. Actions are constant. CPU seconds are those of all processes.
"""

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def by_dcp(id_: str, number: int, steps: int) -> tuple[Callable[[], Any], Callable[[], None]]:
    import jax
    import jax.numpy as jnp

    from dcp.envs.gym_task import GymTask

    env = GymTask(f"gym:{id_}")
    state = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), number))

    def one(state: Any, _: None) -> tuple[Any, None]:
        return jax.vmap(env.step)(state, jnp.full((number, env.spec.action_size), 0.1)), None

    run = jax.jit(lambda state: jax.lax.scan(one, state, None, steps)[0]).lower(state).compile()

    def again() -> None:
        nonlocal state
        state = jax.block_until_ready(run(state))

    return again, env.close


def by_sb3(kind: str, id_: str, number: int, steps: int) -> tuple[Callable[[], Any], Callable[[], None]]:
    import gymnasium
    import numpy as np
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv  # pyright: ignore[reportMissingImports]

    classes = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}
    spec = gymnasium.spec(id_)
    env = classes[kind]([lambda: gymnasium.make(spec, disable_env_checker=True)] * number)
    env.reset()
    actions = np.full((number, *env.action_space.shape), 0.01, env.action_space.dtype)

    def run() -> None:
        for _ in range(steps):
            env.step(actions)

    return run, env.close


def cpu_seconds() -> float:
    """Return what this process and its workers have used (Linux)."""
    ticks = 0
    for pid in [os.getpid(), *(child.pid for child in multiprocessing.active_children())]:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("dcp", "dummy", "subproc"))
    parser.add_argument("module")
    parser.add_argument("id")
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--steps", type=int, default=2_000)
    given = parser.parse_args()
    import_module(given.module)
    sizes = (given.id, given.envs, given.steps)
    run, close = by_dcp(*sizes) if given.kind == "dcp" else by_sb3(given.kind, *sizes)
    run()
    since, used = time.perf_counter(), cpu_seconds()
    run()
    wall, used = time.perf_counter() - since, cpu_seconds() - used
    close()
    total = given.envs * given.steps
    print(f"{given.kind}: {total / wall:,.0f} steps per second, {1e6 * used / total:.0f} us of CPU per step")


if __name__ == "__main__":
    main()
