"""Does a pusher's policy touch its object at all? Lines for docs/results_physics.md, beside random actions.

python docs/results/touching.py RUN...      # run folders of a pusher, under the physics that they were trained with
"""

import sys

import jax
import numpy as np

from dcp.envs.base import Environment
from dcp.envs.pusher import ARM
from dcp.evaluation.targets import environment_of, open_target
from dcp.policies.policy import Policy
from dcp.types import Array

EPISODES, STARTS, MOVED = 128, 100_000, 0.02  # metres
TIP, OBJECT = slice(ARM, ARM + 3), slice(ARM + 3, ARM + 6)  # in the state


def play(env: Environment, policy: Policy | None, key: Array) -> tuple[np.ndarray, np.ndarray]:
    """The first states [N, S], then all [T, N, S]; random actions without a policy."""

    def run() -> tuple[Array, Array]:
        first = jax.vmap(env.reset)(jax.random.split(key, EPISODES))

        def step(carry, key):
            state, inner = carry
            if policy is None:
                action = jax.random.uniform(key, (EPISODES, env.spec.action_size), minval=-1.0, maxval=1.0)
            else:
                inner, action = policy.act(inner, *env.spec.split(state.obs))
            state = jax.vmap(env.step)(state, action)
            return (state, inner), env.spec.split(state.obs)[0]

        keys = jax.random.split(key, env.spec.episode_length)
        start = (first, policy.init(key) if policy else ())
        return env.spec.split(first.obs)[0], jax.lax.scan(step, start, keys)[1]

    first, states = jax.jit(run)()
    return np.asarray(first), np.asarray(states)


def main(runs: list[str]) -> None:
    targets = [open_target(run) for run in runs]
    env = environment_of(targets[0])
    near = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), STARTS)).near_goal
    print(f"{float(near.mean()):.1%} of {STARTS:,} first states are near their goal already")
    for name, policy in [*((target.label, target.policy) for target in targets), ("random actions", None)]:
        first, states = play(env, policy, jax.random.key(0))
        moved = np.linalg.norm(states[-1, :, OBJECT] - first[:, OBJECT], axis=-1)
        nearest = np.linalg.norm(states[..., TIP] - states[..., OBJECT], axis=-1).min(axis=0)
        print(
            f"{name}: the object is moved by more than {MOVED} m in {np.mean(moved > MOVED):.1%} of {EPISODES} "
            f"episodes; the hand comes to within {np.median(nearest):.2f} m of it (median)"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
