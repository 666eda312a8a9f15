"""Write scripted kicks on point_soccer, as data for `--data`: the point walks to the ball and carries it to a place.

    python -m tools.docs.soccer_kicks kicks.npz [--episodes 128] [--seed 0]
    dcp train --env point_soccer --data kicks.npz --data-share 0.5

The places are drawn as the environment draws its goals. Actions are noisy, and no run or policy of ours has a part.
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dcp.envs.base import EnvState
from dcp.envs.point_tasks import POINT_RADIUS, PointSoccer
from dcp.envs.registry import make_env
from dcp.types import Array

NOISE = 0.3  # of each action's components
CLOSE = 0.02  # between point and ball: it sticks


def kick(state: Array) -> Array:
    """Return the scripted action for an observation: towards the ball, or where the ball has to go."""
    ball, goal, way = state[2:4], state[6:8], state[4:6]  # `way`: from the point to the ball
    held = jnp.linalg.norm(way) < POINT_RADIUS + PointSoccer.size + CLOSE
    aim = jnp.where(held, goal - ball, way)
    return aim / jnp.maximum(jnp.linalg.norm(aim), 0.2)  # slower near its end


def kicks(episodes: int, seed: int) -> dict[str, np.ndarray]:
    """Return OGBench's arrays of episodes that end by the time limit."""
    env = make_env("point_soccer")
    key_reset, key_noise = jax.random.split(jax.random.key(seed))

    def step(state: EnvState, key: Array) -> tuple[EnvState, Any]:
        noise = NOISE * jax.random.normal(key, (episodes, env.spec.action_size))
        action = jnp.clip(jax.vmap(kick)(state.obs) + noise, -1.0, 1.0)
        return jax.vmap(env.step)(state, action), (env.spec.split(state.obs)[0], action, state.near_goal)

    start = jax.vmap(env.reset)(jax.random.split(key_reset, episodes))
    keys = jax.random.split(key_noise, env.spec.episode_length)
    states, actions, near = jax.device_get(jax.jit(lambda: jax.lax.scan(step, start, keys)[1])())  # [T, N, ...]
    print(f"{np.mean(near.any(axis=0)):.0%} of {episodes} episodes bring the ball to its place")
    ends = np.zeros(states.shape[:2], bool)
    ends[-1] = True
    arrays = {"observations": states, "actions": actions, "terminals": ends}
    return {name: np.swapaxes(part, 0, 1).reshape(-1, *part.shape[2:]) for name, part in arrays.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--episodes", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    np.savez(options.file, **kicks(options.episodes, options.seed))  # pyright: ignore[reportArgumentType]


if __name__ == "__main__":
    main()
