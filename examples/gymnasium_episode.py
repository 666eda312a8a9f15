"""An episode of any of our environments through Gymnasium, by random actions.

python examples/gymnasium_episode.py                    a point in a maze, at once
python examples/gymnasium_episode.py dcp/AntUMaze-v0    an ant: the first step compiles for half a minute
"""

import sys

import gymnasium

import dcp.gym

gymnasium.register_envs(dcp.gym)  # importing dcp.gym has registered the ids; this only says what the import is for


def main(env_id: str = "dcp/PointUMaze-v0") -> None:
    env = gymnasium.make(env_id)
    env.action_space.seed(0)
    observation, info = env.reset(seed=0)
    for name, part in observation.items():
        print(f"{name}: {part.shape[0]} numbers")
    steps, near = 0, 0
    terminated = truncated = False
    while not (terminated or truncated):
        observation, _, terminated, truncated, info = env.step(env.action_space.sample())
        steps, near = steps + 1, near + info["near_goal"]
    end = "fell" if info["done"] else "diverged" if info["diverged"] else "ran out of time"
    print(f"{steps} steps, {near} of them near the goal; the episode {end}")
    env.close()


if __name__ == "__main__":
    main(*sys.argv[1:2])
