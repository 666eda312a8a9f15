"""`dcp run`: run a policy on an SO-101 arm, real or simulated, with the controller at LeRobot's 30 Hz."""

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

from dcp.cli.flags import POSITIONAL, parse
from dcp.cli.main import COMMANDS
from dcp.errors import RunError, UserError

if TYPE_CHECKING:
    from dcp.policies.numpy_policy import ExportedPolicy
    from dcp.robots.controller import Controller

LOG_STEPS = 100_000  # an hour at 30 Hz
STALE_AFTER = 0.3  # seconds without a new reading


@dataclass(frozen=True)
class RunOptions:
    policy: Annotated[str, POSITIONAL] = ""
    """A run's folder, a policy file, zoo/<env>/<method>, or an exported NumPy policy."""
    robot: Literal["simulated", "so101_follower"] = "simulated"
    """simulated: an arm in MuJoCo with LeRobot's interface. so101_follower: LeRobot's, on a serial port."""
    port: str | None = None
    """The arm's serial port, such as /dev/ttyACM0."""
    id: str = "so101"
    """The name that the arm was calibrated under in LeRobot."""
    goal: tuple[float, ...] = ()
    """The goal in metres from the middle of the base: x ahead, y to the left, z up (and a tilt); of a cube, x and y."""
    goal_file: Path | None = None
    """Read the goal from this file at each step, instead of --goal. Another program keeps writing it."""
    goal_timeout: float = 1.0
    """Seconds after which a goal file is too old: the arm stops."""
    cube: tuple[float, float] | None = None
    """Where the simulated cube starts, for so101_push and so101_lift."""
    seconds: float = 10.0
    """Stop after this time."""
    speed: float = 1.0
    """Share of the speed that the policy was trained with. Begin with 0.2 on a real arm."""
    units: Literal["degrees", "percent"] = "degrees"
    """The arm's units: degrees (LeRobot's use_degrees), or percent of the calibrated range."""
    log: Path = Path("run.csv")
    """Write every step, and why the run ended, to this file."""
    replay: Path | None = None
    """Move nothing: recompute the actions of this log, and print how much they differ."""


def main(argv: list[str]) -> int:
    options = parse(RunOptions(), argv, "dcp run", COMMANDS["run"])
    if not options.policy:
        raise UserError("no policy to run: name a run's folder, a policy file or an exported NumPy file")
    if not 0.0 < options.speed <= 1.0:
        raise UserError(f"--speed is {options.speed:g}, a share of the trained speed: use a number above 0, at most 1")
    policy = numpy_policy(options.policy)
    if options.replay is not None:
        return _replay(policy, options.replay)
    return _run(policy, options)


def numpy_policy(path: str) -> "ExportedPolicy":
    """Load any policy in its NumPy form, so that the loop neither compiles nor collects garbage."""
    from dcp.files.run_folder import located
    from dcp.policies.exports import export_policy, is_exported, load_exported

    found = located(path)
    if is_exported(found):
        return load_exported(found)
    with TemporaryDirectory() as folder:
        return load_exported(export_policy(path, "numpy", Path(folder) / "policy.npz"))


def _replay(policy: "ExportedPolicy", log: Path) -> int:
    from dcp.robots.so101_arm import replay

    steps, largest = replay(policy, log)
    if math.isnan(largest):
        print(f"{steps} steps of {log}: an action of the log or of the policy is not finite")
        return 1
    print(f"{steps} steps of {log}: the policy's actions differ from the logged ones by at most {largest:.2g}")
    return 0 if largest < 1e-6 else 1


def _run(policy: "ExportedPolicy", options: RunOptions) -> int:
    import numpy as np

    from dcp.robots.controller import Controller
    from dcp.robots.so101_arm import FixedGoal, GoalFile, So101Arm

    goal: Any = _goal(policy, options, FixedGoal, GoalFile)
    robot = make_robot(options, cube=policy.state_size - 2 * policy.action_size - 3 == 3)
    arm = So101Arm(
        robot,
        policy.state_size,
        policy.action_size,
        goal_size=policy.goal_size,
        units=options.units,
        jaw_speed=options.speed,
    )
    controller = Controller(
        policy,
        arm.read_state,
        goal.read,
        arm.send_action,
        rate_hz=30,
        safe_action=np.zeros(policy.action_size),  # no change: the arm holds the pose that was read last
        action_low=-options.speed,
        action_high=options.speed,
        stale_after=STALE_AFTER,
        black_box=options.log,
        black_box_steps=LOG_STEPS,
    )
    with _connected(robot):
        _control(controller, options.seconds)
        _say_where(arm, policy, goal)
    return 0


@contextmanager
def _connected(robot: Any) -> Iterator[None]:
    """Connect the robot, and disconnect it however the block ends. A robot that cannot be released never hides why the
    block ended."""
    from dcp.robots.safety import in_one_line

    try:
        robot.connect()
    except BaseException as error:
        _release(robot)  # it may have come half of the way
        if not isinstance(error, Exception):
            raise
        raise UserError(
            f"cannot connect to the arm ({in_one_line(error)}): check --port (lerobot-find-port finds it), its cable "
            "and its power"
        ) from error
    try:
        yield
    except BaseException:
        if sentence := _release(robot):
            print(f"dcp: {sentence}", file=sys.stderr)
        raise
    if sentence := _release(robot):
        raise RunError(sentence)


def _release(robot: Any) -> str | None:
    """Disconnect the robot. -> a sentence if that fails"""
    from dcp.robots.safety import in_one_line

    try:
        robot.disconnect()
    except Exception as error:  # of LeRobot or of the serial port, which share no class
        return f"the arm could not be released ({in_one_line(error)}): hold it, pull its power plug, check the cable"
    return None


def _control(controller: "Controller", seconds: float) -> None:
    """Run the controller, and print its measurements however it ends."""
    try:
        controller.run(seconds=seconds)
    finally:
        print(controller.report())


def _say_where(arm: Any, policy: "ExportedPolicy", goal: Any) -> None:
    import numpy as np

    from dcp.robots.safety import in_one_line

    try:
        state = arm.read_state().value
    except Exception as error:
        raise RunError(f"the run is over, but where the arm is cannot be read: {in_one_line(error)}") from error
    away = float(np.linalg.norm(state[list(policy.goal_dims)] - goal.read()))
    print(f"{away * 100:.1f} cm from the goal")


def _goal(policy: "ExportedPolicy", options: RunOptions, fixed: Any, from_file: Any) -> Any:
    size = policy.goal_size
    if options.goal_file is not None:
        if options.goal:
            raise UserError("--goal and --goal-file both say where to go: give only one of them")
        return from_file(options.goal_file, size, options.goal_timeout)
    if len(options.goal) != size:
        such = {2: "--goal 0.25 0.05", 3: "--goal 0.25 0.05 0.15", 4: "--goal 0.25 0.0 0.15 -0.08"}.get(size, "")
        raise UserError(f"this policy's goal has {size} numbers, not {len(options.goal)}: give them, such as {such}")
    if size >= 3 and (policy.about.get("env") or "").startswith("so101_reach"):
        import numpy as np

        from dcp.robots import so101

        if not so101.in_reach(np.asarray(options.goal[:3])):
            raise UserError(
                f"the goal {' '.join(f'{x:g}' for x in options.goal[:3])} is outside what the policy was trained on "
                "(docs/so101.md): choose one 13 to 38 cm from the shoulder, in front of the arm, 2 to 40 cm high"
            )
    return fixed(options.goal)


def make_robot(options: RunOptions, cube: bool) -> Any:
    if options.robot == "simulated":
        from dcp.robots.simulated_robot import SimulatedSo101

        place = (options.cube or (0.25, 0.0)) if cube else None
        return SimulatedSo101(units=options.units, cube=place)
    if options.port is None:
        raise UserError("--robot so101_follower needs --port, such as --port /dev/ttyACM0 (lerobot-find-port finds it)")
    try:
        from lerobot.robots.so_follower import (  # pyright: ignore[reportMissingImports]
            SO101Follower,
            SO101FollowerConfig,
        )
    except ImportError as error:
        raise UserError(
            f"--robot so101_follower needs LeRobot 0.6 with its Feetech extra ({error}): install 'lerobot[feetech]' on "
            "Python 3.12 or newer, or use --robot simulated"
        ) from error
    return SO101Follower(SO101FollowerConfig(port=options.port, id=options.id, use_degrees=options.units == "degrees"))
