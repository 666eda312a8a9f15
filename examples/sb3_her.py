"""Stable-Baselines3's SAC with hindsight goals on our environments, then evaluated by the code that evaluates ours.

pip install '.[interop]'    # in a clone of dcp
python examples/sb3_her.py --env point_u_maze --steps 20000
"""

import argparse

import gymnasium
import jax
import numpy as np
import torch
from stable_baselines3 import SAC, HerReplayBuffer

import dcp
from dcp.evaluation import measure, rollout
from dcp.gym import gymnasium_id
from dcp.interop.goal_env import policy_of
from dcp.policies.wrappers import HostPolicy


def train(env_name: str, steps: int, seed: int = 0) -> SAC:
    torch.set_num_threads(1)  # networks this small only lose by more
    env = gymnasium.make(gymnasium_id(env_name), reward="minus_one")  # -1 a step until the goal is near: HER's habit
    model = SAC(
        "MultiInputPolicy",
        env,
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs={"n_sampled_goal": 4, "goal_selection_strategy": "future"},
        buffer_size=100_000,
        learning_starts=1000,  # at least one whole episode: hindsight goals come from finished ones
        gamma=0.98,
        policy_kwargs={"net_arch": [64, 64]},
        seed=seed,
        device="cpu",
    )
    return model.learn(steps)


def success(model: SAC, env_name: str, episodes: int = 64) -> float:
    """Success at least once, by dcp's own evaluation, deterministic."""
    env = dcp.make_env(env_name)
    policy = HostPolicy(policy_of(model, env.spec))
    record = rollout(env, policy, jax.random.key(0), episodes, env.spec.episode_length)
    return float(np.mean(measure(record).success))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="point_u_maze")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    model = train(arguments.env, arguments.steps, arguments.seed)
    print(f"{arguments.env}: {success(model, arguments.env):.0%} of 64 fresh goals reached at least once")


if __name__ == "__main__":
    main()
