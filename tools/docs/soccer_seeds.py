"""Write seeds for the pool: states with the ball where goals are, the agent beside it. States only, no actions.

    python -m tools.docs.soccer_seeds point_soccer seed.npz [--states 128] [--seed 0]
    dcp train --env point_soccer --pool-seed seed.npz --pool-seed-fraction 0.25

The ball's places are drawn as the environment draws its goals, and not one of them comes from a run or a policy.
"""

import argparse
from pathlib import Path

import jax
import numpy as np

from dcp.envs.registry import make_env

BESIDE = {"point_soccer": 0.1, "ant_soccer": 1.0}  # free space between agent and ball, in the environment's units
REACH = {"point_soccer": 0.4, "ant_soccer": 1.45}  # from the agent's centre to a ball that it touches


def displaced(name: str, count: int, seed: int) -> np.ndarray:
    """[K, S]: first states whose ball has been moved to a goal, and whose agent has been moved beside the ball"""
    env = make_env(name)
    key_reset, key_side = jax.random.split(jax.random.key(seed))
    obs = np.asarray(jax.jit(jax.vmap(env.reset))(jax.random.split(key_reset, count)).obs)
    state, goal = (np.array(part) for part in env.spec.split(obs))  # [K, S], [K, 2]
    angle = np.asarray(jax.random.uniform(key_side, (count, 1), maxval=2 * np.pi))
    side = np.concatenate([np.cos(angle), np.sin(angle)], axis=-1)
    distance = REACH[name] + BESIDE[name]
    inward = -goal + (np.asarray(env.spec.maze.walls.shape) - 1) / 2 if env.spec.maze is not None else side
    side = np.where(np.sum(side * inward, axis=-1, keepdims=True) < 0.0, -side, side)  # never between ball and wall
    state[:, :2] = goal + distance * side
    state[:, list(env.spec.goal_dims)] = goal
    if name == "point_soccer":
        state[:, 4:6] = goal - state[:, :2]  # the way from the point to the ball
    return state.astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env", choices=sorted(BESIDE))
    parser.add_argument("file", type=Path)
    parser.add_argument("--states", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    np.savez(options.file, states=displaced(options.env, options.states, options.seed))
    print(f"{options.file}: {options.states} states of {options.env}")


if __name__ == "__main__":
    main()
