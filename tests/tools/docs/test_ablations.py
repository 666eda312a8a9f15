"""A direction that stays, and the tables of the ablations."""

import jax
import numpy as np
import pytest

from dcp.files.run_folder import ZOO_FOLDER
from dcp.grid.grid_file import expand, read_grid
from dcp.policies.policy_file import load_policy
from tools.docs import ablations
from tools.docs.pages import RESULTS


@pytest.fixture(scope="module")
def policy():
    return load_policy(ZOO_FOLDER / "point_u_maze/dcp")


def actions(policy, steps: int, moments: int = 9) -> list[np.ndarray]:
    """Actions at places along a line, for one goal; the same policy state throughout."""
    stale = ablations.StaleDirection(policy, steps)
    state, goal = stale.init(jax.random.key(0)), np.array([[3.0, 1.0]], np.float32)
    out = []
    for t in range(moments):
        place = np.zeros((1, policy.spec.state_size), np.float32)
        place[:, :2] = [1.0 + 0.2 * t, 1.0]
        state, action = stale.act(state, place, goal)
        out.append((np.asarray(state.direction), np.asarray(action), policy(place, goal)))
    return out


def test_a_direction_that_stays_for_one_step_is_the_policy_itself(policy):
    for _, action, own in actions(policy, 1):
        np.testing.assert_allclose(action, own, atol=1e-6)


def test_a_direction_is_shown_anew_at_the_start_and_in_the_middle_of_each_period(policy):
    """k = 4: at 0, then at 2 and 6. k = 1000: never within nine steps."""
    seen = [direction for direction, _, _ in actions(policy, 4)]
    changes = [t for t in range(1, 9) if not np.array_equal(seen[t], seen[t - 1])]
    assert changes == [2, 6]
    kept = [direction for direction, _, _ in actions(policy, 1000)]
    assert all(np.array_equal(kept[0], one) for one in kept) and np.linalg.norm(kept[0]) == pytest.approx(1.0, abs=1e-5)


def test_the_gain_by_bursts_is_paired_by_seed():
    """By hand: seeds gain 10 and 20 points by last bursts, so 15 ± 12.706 x 7.071 / sqrt(2) = 63.5."""
    values = {("none", "0"): 0.5, ("none", "1"): 0.6, ("last", "0"): 0.6, ("last", "1"): 0.8}
    rows = [
        {"env": "point_u_maze", "seed": seed, "burst": burst, "stays": "1", "success": str(x)}
        for (burst, seed), x in values.items()
    ]
    line = ablations.deployed_table(rows).splitlines()[2]
    assert "| 55.0 ± 63.5 | 15.0 ± 63.5 |" in line


def test_the_grid_has_every_arm_once_for_each_maze_and_seed():
    runs = [run.settings for run in expand(read_grid(RESULTS / "ablations.toml"))]
    cells = [(run.env, run.seed, *(str(getattr(run, key)) for key in ablations.KEYS)) for run in runs]
    assert len(set(cells)) == len(cells) == 2 * 5 * len(ablations.ARMS)
    assert {cell[2:] for cell in cells} == set(ablations.ARMS)
