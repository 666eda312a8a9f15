"""Measure how much the two engines differ: the same starts and the same random actions under both.

    python -m tools.docs.engine_differences [NAME ...]
    python -m tools.docs.engine_differences time_step    # the ant at the time step that Brax 0.10.3 would use

For each environment, over 256 episodes of 200 steps (an action is held for 10): the share that ends early, how far that
which the goal is about has moved when they stop, and how much faster or slower all joints move. And what the zoo's ant,
trained under the paper's physics, does under MuJoCo's. Prints Markdown for docs/physics.md.
"""

import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dcp
from dcp.envs.ant_tasks import FRAMES, TIMESTEP
from dcp.envs.base import EnvState, choose, step_and_check
from dcp.machine import compiling
from dcp.physics.spring_engine import spring_engine

N, STEPS, HELD = 256, 200, 10
MODELS_TIMESTEP = 0.01  # the ant's file has it, and Brax 0.10.3 steps by it, whatever JaxGCRL asks for
NAMES = ("ant_u_maze", "ant_soccer", "humanoid_u_maze", "pusher_easy")


def episodes(env: Any) -> tuple[Any, Any, Any]:
    """ended early [N], moved [N], root mean square of qd [N] while alive"""
    first = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), N))
    actions = jax.random.uniform(jax.random.key(1), (STEPS // HELD, N, env.spec.action_size), minval=-1.0)

    def step(carry: tuple[EnvState, Any], action: Any) -> tuple[tuple[EnvState, Any], Any]:
        state, alive = carry
        after, sound = jax.vmap(lambda s, a: step_and_check(env, s, a))(state, action)
        counts = alive & sound
        state = choose(counts, after, state)
        return (state, counts & ~state.done), (jnp.sqrt(jnp.mean(state.physics.qd**2, axis=1)), counts)

    start = (first, jnp.ones(N, bool))
    (last, alive), (speed, counts) = jax.lax.scan(step, start, jnp.repeat(actions, HELD, axis=0))
    at = [env.spec.achieved(env.spec.split(state.obs)[0]) for state in (first, last)]
    mean_speed = jnp.sum(speed * counts, axis=0) / jnp.maximum(jnp.sum(counts, axis=0), 1)
    return ~alive, jnp.linalg.norm(at[1] - at[0], axis=-1), mean_speed


def row(name: str) -> str:
    cells = []
    for physics in ("brax", "mujoco"):
        env = dcp.make_env(name, physics=physics)
        ended, moved, speed = map(np.asarray, jax.jit(partial(episodes, env))())
        cells.append((f"{ended.mean():.0%}", f"{moved.mean():.3f}", f"{speed.mean():.2f}"))
    return f"| `{name}` | " + " | ".join(f"{a} / {b}" for a, b in zip(*cells, strict=True)) + " |"


def unsound(timestep: float, ants: int = 64, steps: int = 30) -> float:
    """Return the share of ants in the U maze whose simulation breaks within these random steps at a time step."""
    env: Any = dcp.make_env("ant_u_maze")
    vars(env)["engine"] = spring_engine(env.model(), timestep, FRAMES, env.spec.maze)  # in the place of its own
    actions = jax.random.uniform(jax.random.key(1), (steps, ants, env.spec.action_size), minval=-1.0)

    def step(state: EnvState, action: Any) -> tuple[EnvState, Any]:
        return jax.vmap(lambda s, a: step_and_check(env, s, a))(state, action)

    first = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), ants))
    _, sound = jax.jit(lambda: jax.lax.scan(step, first, actions))()
    return float(np.mean(~np.asarray(sound).all(axis=0)))


def main(names: list[str]) -> None:
    compiling.enable_cache()
    if names == ["time_step"]:
        for timestep in (TIMESTEP, MODELS_TIMESTEP):
            print(f"{timestep} s: {unsound(timestep):.0%} of the ants are unsound within 30 random steps", flush=True)
        return
    print("| environment | ended early | moved | joint speed |\n|---|---|---|---|")
    for name in names or NAMES:
        print(row(name), flush=True)
    for physics in ("brax", "mujoco"):
        trial = dcp.evaluate("zoo/ant_u_maze/dcp", episodes=256, physics=physics)
        print(f"zoo/ant_u_maze/dcp by {physics}: success {trial.all.success.mean():.1%}, "
              f"time near goal {trial.all.time_near_goal.mean():.1f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
