"""A stand-in with the shape of LeRobot's Robot behind the controller's calls. LeRobot itself is not installed here."""

import threading
from functools import cached_property

import numpy as np
import pytest

from dcp.errors import UserError
from dcp.robots import Controller, LeRobotArm, Stopped
from tests.support.fake_robot import FakeClock

JOINTS = [
    f"{name}.pos" for name in ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
]
LOW = {**dict.fromkeys(JOINTS, -100.0), "gripper.pos": 0.0}
HIGH = dict.fromkeys(JOINTS, 100.0)


class SO101:
    """Six joints in LeRobot's names and units, a camera, and targets that are reached at once."""

    def __init__(self):
        self.positions = {**dict.fromkeys(JOINTS, 0.0), "gripper.pos": 50.0}
        self.actions: list[dict[str, float]] = []
        self.lost = 0  # so many reads fail
        self.max_relative_target: float | None = None

    @cached_property
    def observation_features(self):
        return {**dict.fromkeys(JOINTS, float), "front": (480, 640, 3)}

    @cached_property
    def action_features(self):
        return dict.fromkeys(JOINTS, float)

    def get_observation(self):
        if self.lost > 0:
            self.lost -= 1
            raise ConnectionError("Failed to sync read 'Present_Position'")
        return {**self.positions, "front": np.zeros((480, 640, 3), np.uint8)}

    def send_action(self, action):
        assert set(action) == set(JOINTS) and all(type(value) is float for value in action.values())
        self.actions.append(action)
        self.positions.update(action)
        return action


def controller(arm: LeRobotArm, policy, **settings) -> Controller:
    defaults = {"rate_hz": 30, "safe_action": "hold", "start_action": arm.start_action, "action_size": 6}
    return Controller(policy, arm.read_state, arm.read_goal, arm.send_action, **{**defaults, **settings})


def test_joints_are_read_in_order_and_scaled_both_ways():
    robot = SO101()
    arm = LeRobotArm(robot, LOW, HIGH)
    robot.positions |= {"shoulder_pan.pos": -50.0, "gripper.pos": 25.0}
    np.testing.assert_allclose(arm.read_state().value, [-0.5, 0, 0, 0, 0, -0.5])
    np.testing.assert_allclose(arm.start_action(), [-0.5, 0, 0, 0, 0, -0.5])
    arm.send_action(np.array([1.0, -1.0, 0.0, 0.5, 0.0, -1.0]))
    assert list(robot.actions[0].values()) == [100.0, -100.0, 0.0, 50.0, 0.0, 0.0]
    assert arm.last_sent == robot.actions[0]
    arm.goal = {**robot.positions, "wrist_roll.pos": 20.0}
    assert arm.read_goal()[4] == pytest.approx(0.2)


def test_a_policy_may_have_its_own_order_and_goal():
    arm = LeRobotArm(SO101(), LOW, HIGH, state=["gripper.pos", *JOINTS[:5]], goal=["gripper.pos"])
    arm.goal = {"gripper.pos": 100.0}
    np.testing.assert_allclose(arm.read_goal(), [1.0])
    assert len(arm.read_state().value) == 6


def test_an_arm_is_driven_to_its_goal_in_small_steps_and_holds_there():
    robot = SO101()
    arm = LeRobotArm(robot, LOW, HIGH)
    arm.goal = {**robot.positions, "elbow_flex.pos": 30.0}
    report = controller(arm, lambda state, goal: goal, max_change=0.1, clock=FakeClock()).run(steps=5)
    np.testing.assert_allclose([a["elbow_flex.pos"] for a in robot.actions], [10, 20, 30, 30, 30, 30])
    assert (report.rate_limited, report.safe_action) == (2, "the safe action was sent")


def test_a_lost_packet_is_borne_and_a_lost_robot_is_stale():
    robot = SO101()
    arm, clock = LeRobotArm(robot, LOW, HIGH), FakeClock()
    arm.goal = robot.positions
    lose = lambda state, goal: (setattr(robot, "lost", len(robot.actions) % 2), goal)[1]  # noqa: E731
    assert controller(arm, lose, clock=clock).run(steps=10).steps == 10
    robot.lost = 0
    lose = lambda state, goal: (setattr(robot, "lost", 10**9), goal)[1]  # noqa: E731
    with pytest.raises(Stopped, match=r"the state is stale.*; the safe action was sent"):
        controller(arm, lose, clock=clock, warm_up=0).run(steps=100)


def test_a_robot_that_never_answers_is_a_fault_at_once():
    robot = SO101()
    arm = LeRobotArm(robot, LOW, HIGH)
    robot.lost = 10**9
    with pytest.raises(ConnectionError):
        arm.read_state()
    with pytest.raises(Stopped, match=r"start_action failed \(ConnectionError"):
        controller(arm, lambda state, goal: goal).run(steps=1)


def test_an_arm_without_a_goal_is_stopped_with_a_sentence():
    with pytest.raises(Stopped, match=r"read_goal failed .*set arm.goal"):
        controller(LeRobotArm(SO101(), LOW, HIGH), lambda state, goal: goal).run(steps=1)


def test_a_pose_slightly_outside_the_range_starts_at_its_edge_and_one_far_outside_is_refused():
    robot = SO101()
    arm = LeRobotArm(robot, LOW, HIGH)
    arm.goal = robot.positions = {**robot.positions, "elbow_flex.pos": 104.0}
    assert arm.start_action()[2] == 1.0
    robot.positions["elbow_flex.pos"] = 140.0  # degrees where a percentage was meant
    with pytest.raises(Stopped, match=r"start_action .*1\.4.* is outside the limits"):
        controller(arm, lambda state, goal: goal).run(steps=1)


def test_reads_and_sends_take_turns_on_the_bus_but_a_hung_read_does_not_keep_the_safe_action():
    robot = SO101()
    arm, inside, release = LeRobotArm(robot, LOW, HIGH), threading.Event(), threading.Event()
    read = robot.get_observation

    def hang():
        inside.set()
        release.wait(30.0)
        return read()

    robot.get_observation = hang
    reader = threading.Thread(target=arm.read_state)
    reader.start()
    inside.wait(30.0)
    assert not arm._bus.lock.acquire(blocking=False)
    arm.send_action(np.zeros(6))  # after a moment of patience
    assert len(robot.actions) == 1 and not release.is_set()
    release.set()
    reader.join()
    assert arm._bus.lock.acquire(blocking=False)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"state": ["front"]}, "'front' is not a single number: name joints, not cameras"),
        ({"joints": ["nose.pos"]}, "no action 'nose.pos': it has shoulder_pan.pos"),
        ({"joints": JOINTS[:5]}, "does not move gripper.pos: name every joint"),
        ({"low": {}}, "needs a low below its high"),
        ({"low": HIGH, "high": LOW}, "needs a low below its high"),
        ({"goal": ["object.x"]}, "object.x needs a low below its high"),
    ],
)
def test_an_arm_that_does_not_fit_is_refused(arguments: dict, sentence: str):
    with pytest.raises(UserError, match=sentence):
        LeRobotArm(SO101(), **{"low": LOW, "high": HIGH, **arguments})
