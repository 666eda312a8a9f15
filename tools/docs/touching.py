"""Measure whether a pushing policy touches its object, beside random actions, for docs/results_paper.md and so101.md.

python -m tools.docs.touching RUN...      # runs of a pusher or of so101_push, under the physics of their training
"""

import sys

import jax
import numpy as np

from dcp.envs.base import Environment
from dcp.lab.targets import environment_of, open_target
from dcp.policies.policy import Policy
from dcp.types import Array

EPISODES, STARTS, MOVED = 128, 100_000, 0.02  # metres


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
    start = env.spec.goal_dims[0]  # the goal is the object's place, and the hand's comes before it in the state
    tip, thing = slice(start - 3, start), slice(start, start + 3)
    near = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), STARTS)).near_goal
    print(f"{float(near.mean()):.1%} of {STARTS:,} first states are near their goal already")
    for name, policy in [*((target.label, target.policy) for target in targets), ("random actions", None)]:
        first, states = play(env, policy, jax.random.key(0))
        moved = np.linalg.norm(states[-1, :, thing] - first[:, thing], axis=-1)
        nearest = np.linalg.norm(states[..., tip] - states[..., thing], axis=-1).min(axis=0)
        print(
            f"{name}: the object is moved by more than {MOVED} m in {np.mean(moved > MOVED):.1%} of {EPISODES} "
            f"episodes; the hand comes to within {np.median(nearest):.2f} m of it (median)"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
