"""Our environments against JaxGCRL's recorded trajectories."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

GOLDEN = Path(__file__).parents[1] / "golden"
CLEAR = 1e-3  # a distance or height this near to its limit decides nothing


def load(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / f"{name}.npz", allow_pickle=False) as file:
        return dict(file)


def replay(env: Any, q: Any, qd: Any, actions: Any) -> Any:
    """The first state, then one a step. To be jitted by the caller."""
    first = jax.vmap(env.reset_to)(q, qd)

    def step(state: Any, action: Any) -> tuple[Any, Any]:
        state = jax.vmap(env.step)(state, action)
        return state, (state.obs, state.reward, state.near_goal, state.done, state.physics.x.pos[:, 0, 2])

    return first.obs, jax.lax.scan(step, first, actions)[1]


COPIES = 32  # of each start, the first as recorded


def nudged(values: np.ndarray) -> np.ndarray:
    """values [N, ...] -> [COPIES * N, ...]: as recorded, and each number moved by its last digit or not at all."""
    draw = np.random.default_rng(0)
    copies = [values]
    for _ in range(COPIES - 1):
        towards = draw.choice([-np.inf, 0.0, np.inf], values.shape)
        copies.append(np.where(towards == 0, values, np.nextafter(values, towards.astype(values.dtype))))
    return np.concatenate(copies)


def closest(ours: Any, golden: dict[str, np.ndarray], steps: int) -> Any:
    """Of the trajectories from nudged starts, keep for each start the one that is closest to the recording.

    A leg that touches a wall's corner turns the last digit into the third one within ten steps, and processors round
    differently. What must hold on each of them: the recording is one of the paths that the last digit decides between.
    """
    first, then = jax.tree.map(np.asarray, ours)
    apart = np.abs(then[0][:steps].reshape(steps, COPIES, len(golden["obs0"]), -1) - golden["obs"][:steps, None])
    best = apart.max(axis=(0, 3)).argmin(axis=0)  # [N]
    rows = best * len(best) + np.arange(len(best))
    return first[rows], tuple(part[:, rows] for part in then)


def check(
    spec: Any,
    golden: dict[str, np.ndarray],
    ours: Any,
    steps: int,
    healthy: tuple[float, float],
    atol: float = 1e-3,
) -> None:
    first, (obs, reward, near_goal, done, height) = jax.tree.map(np.asarray, ours)
    np.testing.assert_allclose(first, golden["obs0"], atol=1e-4)
    np.testing.assert_allclose(obs[:steps], golden["obs"][:steps], atol=atol)
    state, goal = spec.split(golden["obs"][:steps])
    distance = np.linalg.norm(spec.achieved(state) - goal, axis=-1)
    clear = np.abs(distance - spec.threshold) > CLEAR
    np.testing.assert_array_equal(near_goal[:steps][clear], golden["success"][:steps][clear] > 0)
    np.testing.assert_allclose(reward[:steps][clear], golden["reward"][:steps][clear], atol=1e-3)
    upright = np.abs(height[:steps, :, None] - np.asarray(healthy)).min(-1) > CLEAR
    np.testing.assert_array_equal(done[:steps][upright], golden["done"][:steps][upright] > 0)
