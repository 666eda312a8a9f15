"""Gymnasium's own judgement of an environment."""

import warnings

import gymnasium
from gymnasium.utils.env_checker import check_env

from dcp.gym import gymnasium_id


def checked(name: str) -> gymnasium.Env:
    """Made, checked with every warning an error, and closed."""
    env = gymnasium.make(gymnasium_id(name), render_mode="rgb_array")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
    env.close()
    return env
