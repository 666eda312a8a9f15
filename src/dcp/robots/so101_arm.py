"""Adapt LeRobot's SO-101 to the controller's three calls, for policies of the so101 tasks.

    arm = So101Arm(robot, state_size=13, action_size=5)         # so101_reach
    Controller(policy, arm.read_state, goal.read, arm.send_action, safe_action=np.zeros(5), rate_hz=30, ...)

The policy reads radians, speeds and the tool point, and sends changes of the current pose; the robot uses named
joints in degrees, or in percent of the calibrated range. A zero action holds the pose that was read last, jaws too.
With control="tool" an action displaces the tool point (`so101.change_by_tool`): so101_push has 18 and 2, so101_lift 21
and 4 numbers of state and action.
LeRobot is not imported: any object with its methods works.
"""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from dcp.errors import UserError
from dcp.robots import so101
from dcp.robots.safety import Reading, in_one_line

Units = Literal["degrees", "percent"]
FEATURES = tuple(f"{joint}.pos" for joint in so101.JOINTS)
CUBE = ("cube.x", "cube.y", "cube.z")  # metres from the base, by a camera; for so101_push and so101_lift
CLOSED = 0.0  # radians: where the jaws go in tasks that do not move them, as in training
LIMIT_SLACK = 0.06  # radians that a reading may exceed a joint's range by, because calibration is not exact
LOWEST_TOOL = -0.01  # metres: below this the arm is inside the table or wrongly calibrated
CLOCK_SLACK = 0.1  # seconds by which a goal file may be newer than this computer's clock, as on a network drive
FARTHEST_GOAL = 0.5  # metres from the base in any direction: no part of the arm gets there
LONGEST_GOAL = 4096  # bytes of a goal file
PATIENCE = 0.1  # seconds that a send waits for a read on the same bus
LOST_IN_A_ROW = 5  # a speed can be computed over at most this many lost packets


def to_radians(units: Units, joint: int, value: float) -> float:
    """Convert the robot's number to an angle. The gripper is 0 (closed) to 100 in either unit."""
    if joint == 5:
        return so101.LOW[5] + value / 100.0 * (so101.HIGH[5] - so101.LOW[5])
    if units == "degrees":
        return math.radians(value)
    return so101.LOW[joint] + (value + 100.0) / 200.0 * (so101.HIGH[joint] - so101.LOW[joint])


def from_radians(units: Units, joint: int, angle: float) -> float:
    """Convert an angle to the robot's number."""
    share = (angle - so101.LOW[joint]) / (so101.HIGH[joint] - so101.LOW[joint])
    if joint == 5:
        return 100.0 * share
    return math.degrees(angle) if units == "degrees" else 200.0 * share - 100.0


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
            with self._turn():
                observation = self._robot.get_observation()
        except ConnectionError:
            if self._reading is None:
                raise
            return self._reading
        self._reading = reading_of(observation)
        return self._reading

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


class So101Arm:
    """Read states and send actions of the so101 tasks. A pose outside the joints' limits is refused."""

    def __init__(
        self,
        robot: Robot,
        state_size: int,
        action_size: int,
        *,
        goal_size: int = 3,
        units: Units = "degrees",
        control: str = "joints",  # what the policy was trained to move: joints, or tool
        accumulate: Callable[[], bool] = lambda: False,  # whether a target continues from the last target
        speed: float = 1.0,  # the share of MAX_CHANGE per step where the action has no bound: see send_action
        clock: Callable[[], float] = time.monotonic,
    ):
        self.robot = robot
        self.units: Units = units
        extra = _numbers_of_task(state_size, action_size, control)
        if extra is None:
            other = "joints" if control == "tool" else "tool"
            if _numbers_of_task(state_size, action_size, other) is not None:
                raise UserError(
                    f"a policy with {state_size} numbers of state and {action_size} of action was trained with control "
                    f"{other}, but this arm is steered with control {control}: make the arm with control={other!r}"
                )
            raise UserError(
                f"a policy with {state_size} numbers of state and {action_size} of action fits no so101 task: "
                "use one that was trained on so101_reach, so101_reach_pose, so101_push or so101_lift"
            )
        self.by_tool, self.goal_size = control == "tool", goal_size
        self.moved = so101.TOOL_SIZES[action_size] if self.by_tool else action_size
        self.relative = extra - 3 if self.by_tool else 0  # dimensions of the cube's place that the tool's is taken from
        self.accumulate, self.speed = accumulate, speed
        self.has_tilt, self.has_cube = extra == 1, extra >= 3
        self.near = 0.03 if extra else 0.02  # metres: the tasks' thresholds
        features = FEATURES + (CUBE if self.has_cube else ())
        if missing := [name for name in features if name not in robot.observation_features]:
            raise UserError(f"the robot has no {', '.join(missing)}: an SO-101 has {', '.join(features)}")
        self._bus, self._clock = Bus(robot), clock
        self._pose: np.ndarray | None = None  # [6]: radians, the last reading that was finite
        self._time = 0.0
        self.sent: np.ndarray | None = None  # [6]: radians, the last target

    def read_state(self) -> Reading:
        """Read the state [S]."""
        return self._bus.read(self._reading_of)

    def _reading_of(self, observation: Mapping[str, Any]) -> Reading:
        now = self._clock()
        pose = np.array([to_radians(self.units, i, float(observation[name])) for i, name in enumerate(FEATURES)])
        self._require_inside(pose)
        before = pose if self._pose is None else self._pose
        # Per control step, as in training. After lost packets the change spans several steps.
        steps = 1 if self._pose is None else min(max(1, round((now - self._time) * so101.RATE_HZ)), LOST_IN_A_ROW)
        speeds = (pose - before)[: self.moved] * so101.RATE_HZ / steps
        place, turn = so101.tool_pose(pose[:5])
        if place[2] < LOWEST_TOOL:
            raise UserError(
                f"the tool point is {place[2] * 100:.1f} cm high, in the table: lift the arm, check its calibration"
            )
        extra = [so101.tilt_of(turn)] if self.has_tilt else []
        if self.has_cube:
            cube = np.array([float(observation[name]) for name in CUBE])
            extra = np.append(cube, (cube - place)[: self.relative])
        if np.isfinite(pose).all():  # else the pose to hold stays the last one that was known
            self._pose, self._time = pose, now
        return Reading(np.concatenate([pose[: self.moved], speeds, place, extra]), now)

    def send_action(self, action: np.ndarray) -> None:
        """Send targets that change the last pose as the action [A] in [-1, 1] asks; the last target, where they
        `accumulate`.

        If readings are late by k steps, targets that follow them repeat the poses of k steps ago for ever, however
        small the action. Targets that accumulate do not; but far from the goal an arm can stand still with them where
        the policy's actions cancel out. Either is at most MAX_CHANGE from the last reading, and a zero action holds
        that reading. If the policy does not move the jaws, any other action closes them further, by at
        most `speed`, which also bounds how fast an action of the tool turns it to point down.
        """
        if self._pose is None:
            raise UserError("the arm's pose is not known yet: read it before anything is sent")
        change = np.zeros(6)
        if self.by_tool:
            change[: self.moved] = so101.change_by_tool(self._pose, np.asarray(action, float), speed=self.speed)
        else:
            change[: self.moved] = so101.MAX_CHANGE * np.clip(action, -1.0, 1.0)
        if self.moved == 5:
            most = so101.MAX_CHANGE * self.speed if np.any(action) else 0.0  # they stay as they are in a hold
            change[5] = np.clip(CLOSED - self._pose[5], -most, most)
        base = self._pose
        if self.sent is not None and np.any(action) and self.accumulate():
            base = np.append(self.sent[: self.moved], self._pose[self.moved :])
        nearest, farthest = self._pose - so101.MAX_CHANGE, self._pose + so101.MAX_CHANGE
        target = np.clip(np.clip(base + change, nearest, farthest), so101.LOW, so101.HIGH)
        if not np.isfinite(target).all():
            raise UserError("the action is not finite, so nothing was sent: find out where it comes from")
        numbers = {name: float(from_radians(self.units, i, target[i])) for i, name in enumerate(FEATURES)}
        self._bus.send(numbers)
        self.sent = target

    def _require_inside(self, pose: np.ndarray) -> None:
        outside = np.maximum(so101.LOW - pose, pose - so101.HIGH)
        if not np.isfinite(pose).all():
            return  # the controller reports values that are not finite
        if outside.max() > LIMIT_SLACK:
            i = int(outside.argmax())
            raise UserError(
                f"limit hit: {so101.JOINTS[i]} is at {math.degrees(pose[i]):.1f} degrees, outside its range of "
                f"{math.degrees(so101.LOW[i]):.1f} to {math.degrees(so101.HIGH[i]):.1f}: move it back by hand, or "
                "calibrate again"
            )


def _numbers_of_task(state_size: int, action_size: int, control: str) -> int | None:
    """Return how many numbers a state has besides angles, speeds and the tool point: 0, 1 for a tilt, 3 for a cube, and
    the cube's place relative to the tool. None: no task has these sizes."""
    moved = so101.TOOL_SIZES.get(action_size) if control == "tool" else action_size
    if moved not in (5, 6):
        return None
    extra, relative = state_size - (2 * moved + 3), {2: 2, 4: 3}.get(action_size, 0)
    return extra if extra in ((3 + relative,) if control == "tool" else (0, 1, 3)) else None


def require_goal(goal: Any, reaching: bool) -> np.ndarray:
    """Return the goal [G], or refuse one that the arm cannot reach or, if `reaching`, that no policy was trained on."""
    goal = np.asarray(goal, float)
    shown = " ".join(f"{x:g}" for x in goal)
    if reaching and not so101.in_reach(goal[:3]):
        raise UserError(
            f"the goal {shown} is outside what the policy was trained on: choose one 13 to 38 cm from the shoulder, in "
            "front of the arm, 2 to 40 cm high"
        )
    if not np.abs(goal).max() <= FARTHEST_GOAL:  # true of a number that is not finite, too
        raise UserError(
            f"the goal {shown} is farther than the arm can reach: give metres from the middle of its base, each at "
            f"most {FARTHEST_GOAL:g}"
        )
    return goal


class GoalFile:
    """Read the goal from a text file that another program, such as a tracker, keeps writing. An old file is refused,
    and so is a goal that `require_goal` refuses."""

    def __init__(
        self, path: str | Path, size: int, timeout: float, reaching: bool = False, now: Callable[[], float] = time.time
    ):
        self.path, self.size, self.timeout, self.reaching, self._now = Path(path), size, timeout, reaching, now

    def read(self) -> np.ndarray:
        from dcp.files.validation import open_regular  # needs more than NumPy

        try:
            with open_regular(self.path, most=LONGEST_GOAL) as file:
                age = self._now() - os.fstat(file.fileno()).st_mtime  # of the very file that is read
                numbers = [float(word) for word in file.read(LONGEST_GOAL).decode().replace(",", " ").split()]
        except (OSError, ValueError) as error:
            raise UserError(
                f"cannot read a goal from {self.path} ({in_one_line(error)}): write {self.size} numbers there"
            ) from error
        if age > self.timeout:
            raise UserError(
                f"the goal is stale: {self.path} was written {age:.2g} s ago (the limit is {self.timeout:g} s): "
                "check that what writes it still runs"
            )
        if age < -CLOCK_SLACK:  # it would never be too old
            raise UserError(
                f"{self.path} was written {-age:.2g} s in the future, so its age is unknown: set the clocks of this "
                "computer and of the one that writes it"
            )
        if len(numbers) != self.size:
            raise UserError(f"{self.path} has {len(numbers)} numbers, not {self.size}: write the whole goal at once")
        return require_goal(numbers, self.reaching)
