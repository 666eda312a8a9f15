"""Adapt a LeRobot arm to the controller's three calls. LeRobot is not imported: any object with its methods works.

    arm = LeRobotArm(robot, low={"shoulder_pan.pos": -100.0, ...}, high={"shoulder_pan.pos": 100.0, ...})
    arm.goal = {"shoulder_pan.pos": 20.0, ...}
    Controller(policy, arm.read_state, arm.read_goal, arm.send_action,
               start_action=arm.start_action, safe_action="hold", rate_hz=30, max_change=0.05)

The policy uses joint values in [-1, 1] in a fixed order; the robot uses named joints in its own units (degrees, or
percent of the calibrated range). Actions are absolute position targets.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from dcp.errors import UserError
from dcp.robots.safety import Reading

PATIENCE = 0.1  # seconds that a send waits for a read on the same bus
SLACK = 0.05  # how far outside its range an arm may rest at the start, as a share of half the range


class Robot(Protocol):
    """Declare what we use of lerobot.robots.Robot."""

    @property
    def observation_features(self) -> Mapping[str, Any]: ...

    @property
    def action_features(self) -> Mapping[str, Any]: ...

    def get_observation(self) -> Mapping[str, Any]: ...

    def send_action(self, action: dict[str, Any]) -> Any: ...


class Bus:
    """Let one thread at a time talk to the robot: the watchdog and stop() may send while the loop's thread reads.

    Waiting ends after PATIENCE, so that a hanging read does not block the safe action.
    """

    def __init__(self, robot: Robot):
        self.lock = threading.Lock()
        self._robot = robot
        self._reading: Reading | None = None

    def read(self, reading_of: Callable[[Mapping[str, Any]], Reading]) -> Reading:
        """Turn an observation into a reading. A lost packet repeats the last reading with its old time, so that too
        many in a row count as stale."""
        try:
            observation = self.observe()
        except ConnectionError:
            if self._reading is None:
                raise
            return self._reading
        self._reading = reading_of(observation)
        return self._reading

    def observe(self) -> Mapping[str, Any]:
        with self._turn():
            return self._robot.get_observation()

    def send(self, action: dict[str, Any]) -> Any:
        with self._turn():
            return self._robot.send_action(action)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        mine = self.lock.acquire(timeout=PATIENCE)
        try:
            yield
        finally:
            if mine:
                self.lock.release()


class LeRobotArm:
    def __init__(
        self,
        robot: Robot,
        low: Mapping[str, float],  # feature -> the robot's value for the policy's -1
        high: Mapping[str, float],  # feature -> the robot's value for the policy's +1
        *,
        state: Sequence[str] | None = None,  # the policy's state, in its order; None: the action's features
        joints: Sequence[str] | None = None,  # the policy's action, in its order; None: the robot's own
        goal: Sequence[str] | None = None,  # the policy's goal, in its order; None: the state's features
    ):
        self.robot = robot
        self.joints = tuple(robot.action_features if joints is None else joints)
        self.state = self.joints if state is None else tuple(state)
        self.goal_names = self.state if goal is None else tuple(goal)
        _require_features("action", self.joints, robot.action_features)
        _require_features("observation", self.state + self.joints, robot.observation_features)
        if missing := set(robot.action_features) - set(self.joints):
            raise UserError(f"the policy does not move {', '.join(sorted(missing))}: name every joint of the robot")
        self._low, self._high = dict(low), dict(high)
        for name in {*self.joints, *self.state, *self.goal_names}:
            if not self._low.get(name, np.nan) < self._high.get(name, np.nan):
                raise UserError(f"{name} needs a low below its high, in the robot's units: give both")
        self.goal: Mapping[str, float] | None = None  # in the robot's units; you may replace it at any time
        self.last_sent: Any = None  # what the robot reports as sent: its own limits may have changed the action
        self._bus = Bus(robot)

    def read_state(self) -> Reading:
        """Read the state, each value in [-1, 1]."""
        return self._bus.read(lambda seen: Reading(self._to_policy(self.state, seen), time.monotonic()))

    def read_goal(self) -> np.ndarray:
        if self.goal is None:
            raise UserError("the arm has no goal: set arm.goal to the robot's own units by name")
        return self._to_policy(self.goal_names, self.goal)

    def send_action(self, action: np.ndarray) -> None:
        target = {name: self._to_robot(name, x) for name, x in zip(self.joints, action, strict=True)}
        self.last_sent = self._bus.send(target)

    def start_action(self) -> np.ndarray:
        """Return the current pose as a target: the pose to hold, from which max_change counts."""
        pose = self._to_policy(self.joints, self._bus.observe())
        inside = np.clip(pose, -1.0, 1.0)
        # A pose further out is left unchanged, so that the controller refuses it.
        return np.where(np.abs(pose - inside) <= SLACK, inside, pose)

    def _to_policy(self, names: Sequence[str], values: Mapping[str, Any]) -> np.ndarray:
        if missing := [name for name in names if name not in values]:
            raise UserError(f"{', '.join(missing)} is missing: the policy needs every one of {', '.join(names)}")
        return np.array([2.0 * (float(values[n]) - self._low[n]) / (self._high[n] - self._low[n]) - 1.0 for n in names])

    def _to_robot(self, name: str, value: float) -> float:
        return self._low[name] + (float(value) + 1.0) / 2.0 * (self._high[name] - self._low[name])


def _require_features(kind: str, names: Sequence[str], features: Mapping[str, Any]) -> None:
    for name in names:
        if name not in features:
            raise UserError(f"the robot has no {kind} {name!r}: it has {', '.join(features)}")
        if features[name] is not float:
            raise UserError(f"the robot's {kind} {name!r} is not a single number: name joints, not cameras")
