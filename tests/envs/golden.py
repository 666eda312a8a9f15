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
