"""How the tool point moves with the joints, and which joints' changes move it as asked: one formula for NumPy and JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dcp.robots import so101
from dcp.robots.so101_tasks import CUBE_ANGLE, CUBE_HOME, CUBE_RADII, CUBE_SPREAD


def poses(number: int) -> np.ndarray:
    """Starts of the cube's tasks: [N, 6]"""
    return CUBE_HOME + CUBE_SPREAD * np.random.default_rng(0).uniform(-1.0, 1.0, (number, 6))


def pose_at(radius: float, angle: float, height: float) -> np.ndarray:
    """Return the pose [6] to which steps of the tool lead, over this place: straight down, if a joint's limit allows."""
    x, y = so101.PAN_AXIS
    place = np.array([x + radius * np.cos(angle), y + radius * np.sin(angle), height])
    pose = CUBE_HOME - angle * np.eye(6)[0]
    for _ in range(60):
        gap = np.clip(place - so101.tool_pose(pose)[0], -0.02, 0.02) / 0.02
        pose = np.clip(pose + so101.change_by_tool(pose, np.append(gap, 0.0)), so101.LOW, so101.HIGH)
    np.testing.assert_allclose(so101.tool_pose(pose)[0], place, atol=1e-3)
    return pose


def test_the_jacobian_is_that_of_finite_differences():
    for pose in np.random.default_rng(0).uniform(so101.LOW[:5], so101.HIGH[:5], (50, 5)):
        tool, axis, jacobian = so101.tool_jacobian(pose)

        def point(q: np.ndarray) -> np.ndarray:
            place, turn = so101.tool_pose(q)
            return np.concatenate([place, turn[:, 2]])

        steps = 1e-6 * np.eye(5)
        differences = np.stack([(point(pose + step) - point(pose - step)) / 2e-6 for step in steps], axis=1)
        np.testing.assert_allclose(jacobian, differences, atol=1e-8)
        np.testing.assert_allclose(np.concatenate([tool, axis]), point(pose), atol=1e-12)


def test_a_centimetre_to_the_side_by_hand():
    """The tool is 0.25 m ahead of the pan axis and 0.012 m beside the roll axis, and points down. Only these two move
    it sideways: least squares with damping 1e-4 gives the pan -0.01 * 0.25 / (0.25^2 + 0.012^2 + 0.0001)."""
    change = so101.change_by_tool(pose_at(0.25, 0.0, so101.PUSH_HEIGHT), np.array([0.0, 0.5]))
    assert change[0] == pytest.approx(-0.0398, abs=1e-4)
    np.testing.assert_allclose(change[1:], [0.0, 0.0, 0.0, 0.0019], atol=6e-4)


@pytest.mark.parametrize("height", [0.02, 0.05, 0.1, 0.15])
def test_the_tool_moves_as_asked_and_no_joint_by_more_than_its_most(height: float):
    """Over the whole ring in which the cube lies and as high as it is lifted, also where the wrist is at its limit.

    By 3 mm within 20%; by less than the most that can be asked, because a joint may turn by 0.1 rad in a step.
    """
    rng = np.random.default_rng(1)
    for radius in np.linspace(*CUBE_RADII, 7):
        pose = pose_at(radius, rng.uniform(-CUBE_ANGLE, CUBE_ANGLE), height)
        for way in rng.normal(size=(20, 3)):
            action = np.append(0.15 * way / np.linalg.norm(way), rng.uniform(-1.0, 1.0))
            change = so101.change_by_tool(pose, action)
            after = np.clip(pose + change, so101.LOW, so101.HIGH)
            moved = so101.tool_pose(after)[0] - so101.tool_pose(pose)[0]
            assert np.linalg.norm(moved - 0.02 * action[:3]) < 0.2 * 0.003
            assert change[5] == 0.1 * action[3]
            assert np.abs(so101.change_by_tool(pose, np.sign(action))).max() <= 0.1 + 1e-12


def test_a_tool_that_pushes_keeps_its_height_and_moves_straight_however_far_it_is_asked_to_go():
    rng = np.random.default_rng(1)
    for radius in np.linspace(*CUBE_RADII, 7):
        pose = pose_at(radius, rng.uniform(-CUBE_ANGLE, CUBE_ANGLE), so101.PUSH_HEIGHT)
        for angle in rng.uniform(-np.pi, np.pi, 20):
            way = np.array([np.cos(angle), np.sin(angle)])
            change = so101.change_by_tool(pose, way)
            after = np.clip(pose[:5] + change, so101.LOW[:5], so101.HIGH[:5])
            moved = so101.tool_pose(after)[0] - so101.tool_pose(pose)[0]
            assert 0.004 < moved[:2] @ way < 0.021 and abs(moved[0] * way[1] - moved[1] * way[0]) < 0.002
            assert abs(moved[2]) < 0.002 and np.abs(change).max() <= 0.1 + 1e-12


def test_a_slower_arm_uses_its_share_of_every_limit_and_zeros_hold_the_pose():
    """Also where the tool is tilted and too high, which any other action corrects."""
    for pose in poses(50):
        for action in (np.array([1e-3, 0.0]), np.array([1.0, -1.0]), np.array([1.0, 1.0, -1.0, 1.0])):
            assert 0.0 < np.abs(so101.change_by_tool(pose, action, speed=0.2)).max() <= 0.02 + 1e-12
            joints = {2: 5, 4: 6}[len(action)]
            np.testing.assert_array_equal(so101.change_by_tool(pose, 0.0 * action), np.zeros(joints))


@pytest.mark.parametrize("size", [2, 4])
def test_numpy_and_jax_agree(size: int):
    q = poses(500).astype(np.float32)
    actions = np.random.default_rng(2).uniform(-1.5, 1.5, (500, size)).astype(np.float32)
    by_jax = jax.jit(jax.vmap(lambda q, action: so101.change_by_tool(q, action, jnp)))(q, actions)
    by_numpy = [so101.change_by_tool(*row) for row in zip(q.astype(float), actions.astype(float), strict=True)]
    np.testing.assert_allclose(by_jax, by_numpy, rtol=0.0, atol=1e-6)
