"""`dcp run`: run a policy on an SO-101 arm, real or simulated, with the controller at LeRobot's 30 Hz."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

from dcp.cli.flags import POSITIONAL, parse
from dcp.cli.main import COMMANDS
from dcp.errors import RunError, UserError

if TYPE_CHECKING:
    import numpy as np

    from dcp.policies.numpy_policy import ExportedPolicy
    from dcp.robots.timing import Step

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
    settle: float = 0.2
    """Commands shrink in proportion within this many metres of the goal, in the reaching tasks. 0: as in training."""
    smooth: float = 0.0
    """Low-pass filter: the share of the last command in the next one. 0.5 lags by one step (33 ms). 0: no filter."""
    randomize: str | None = None
    """Give the simulated arm a real one's errors: all, or names like gains,delay (as `dcp eval`), drawn from --seed."""
    seed: int = 0
    """Decides what --randomize draws."""
    units: Literal["degrees", "percent"] = "degrees"
    """The arm's units: degrees (LeRobot's use_degrees), or percent of the calibrated range."""
    log: Path | None = None
    """Write every step, and why the run ended, to this new file. Default: run.csv, or run_2.csv if that exists."""


def main(argv: list[str]) -> int:
    options = parse(RunOptions(), argv, "dcp run", COMMANDS["run"])
    if not options.policy:
        raise UserError("no policy to run: name a run's folder, a policy file or an exported NumPy file")
    if not 0.0 < options.speed <= 1.0:
        raise UserError(f"--speed is {options.speed:g}, a share of the trained speed: use a number above 0, at most 1")
    for flag, seconds in (("--seconds", options.seconds), ("--goal-timeout", options.goal_timeout)):
        if not seconds > 0.0:
            raise UserError(f"{flag} is {seconds:g}: use a number of seconds above 0")
    if options.port is not None and options.robot == "simulated":
        raise UserError("--port is for a real arm: add --robot so101_follower, or leave it out for the simulated arm")
    return _run(numpy_policy(options.policy), options)


def numpy_policy(path: str) -> "ExportedPolicy":
    """Load any policy in its NumPy form, so that the loop neither compiles nor collects garbage."""
    from dcp.files.run_folder import located
    from dcp.policies.exports import export_policy, is_exported, load_exported

    place = located(path)
    if is_exported(place):
        return load_exported(place)
    with TemporaryDirectory() as folder:
        return load_exported(export_policy(path, "numpy", Path(folder) / "policy.npz"))


def _run(policy: "ExportedPolicy", options: RunOptions) -> int:
    import numpy as np

    from dcp.robots.controller import Controller
    from dcp.robots.safety import SignalGuard
    from dcp.robots.so101_arm import So101Arm

    by_tool = policy.about.get("control") == "tool"
    cube = by_tool or policy.state_size - 2 * policy.action_size - 3 == 3
    robot = make_robot(options, cube)
    settle = 0.0 if cube else options.settle  # a cube's distance says nothing about how fast to move
    arm = So101Arm(
        robot,
        policy.state_size,
        policy.action_size,
        goal_size=policy.goal_size,
        units=options.units,
        control="tool" if by_tool else "joints",
        accumulate=lambda: controller.settling,
        speed=options.speed,
    )
    read_goal = _goal(policy, options)
    with _new_log(options.log) as log, SignalGuard(program_ends=True) as guard:
        controller = Controller(
            policy,
            arm.read_state,
            read_goal,
            arm.send_action,
            rate_hz=30,
            safe_action=np.zeros(policy.action_size),  # no change: the arm holds the pose that was read last
            action_low=-options.speed,
            action_high=options.speed,
            settle=settle,
            smooth=options.smooth,
            start_action=np.zeros(policy.action_size),
            stale_after=STALE_AFTER,
            black_box=log,
            black_box_steps=LOG_STEPS,
            guard=guard,
        )
        what = "the simulated SO-101" if options.robot == "simulated" else f"{options.robot} on {options.port}"
        print(f"Driving {what} with {options.policy}; every step goes to {log.name}", flush=True)
        with _connected(robot):
            try:
                controller.run(seconds=options.seconds)
            finally:
                print(controller.report())
                print(_result(controller.last_steps, policy, arm.near))
        if (note := controller.report().black_box).startswith("the black box could not"):
            raise RunError(note)
    return 0


@contextmanager
def _new_log(path: Path | None) -> Iterator[IO[str]]:
    """Create the log before anything moves, and never over another one. A log that stayed empty is removed."""
    names = (Path("run.csv" if i == 1 else f"run_{i}.csv") for i in count(1)) if path is None else iter([path])
    for name in names:
        try:
            name.parent.mkdir(parents=True, exist_ok=True)
            file = name.open("x", newline="", encoding="utf-8")
        except FileExistsError as error:
            if path is None:
                continue
            raise UserError(f"--log {path} exists, and a log is never overwritten: give another name") from error
        except OSError as error:
            raise UserError(f"cannot write the log {name} ({error.strerror}): choose another --log") from error
        try:
            with file:
                yield file
        finally:
            if not name.stat().st_size:
                name.unlink()
        return


@contextmanager
def _connected(robot: Any) -> Iterator[None]:
    """Connect the robot, and disconnect it however the block ends. A robot that cannot be released never hides why the
    block ended."""
    from dcp.robots.safety import in_one_line

    try:
        robot.connect()
    except BaseException as error:
        _release(robot)  # it may be partly connected
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


def _result(steps: "list[Step]", policy: "ExportedPolicy", near: float) -> str:
    """Say when the goal was first reached, for how long the arm stayed near it, and how far away it ended."""
    import numpy as np

    dims = list(policy.goal_dims)
    pairs = [(step.state[dims], step.goal) for step in steps if step.state is not None and step.goal is not None]
    if not pairs:
        return "no step was taken"
    away = np.array([np.linalg.norm(achieved - goal) for achieved, goal in pairs])
    last = f"{away[-1] * 100:.1f} cm from the goal at the end"
    if not (away < near).any():
        return f"never within {near * 100:g} cm of the goal (nearest {away.min() * 100:.1f} cm); {last}"
    first = int(np.argmax(away < near))
    share = np.mean(away[first:] < near)
    return f"first within {near * 100:g} cm of the goal at step {first}, then in {share:.1%} of the steps; {last}"


def _goal(policy: "ExportedPolicy", options: RunOptions) -> "Callable[[], np.ndarray]":
    """Return what reads the goal. Every goal is checked: a fixed one here, those of a file at each reading."""
    from dcp.robots.so101_arm import GoalFile, require_goal

    size = policy.goal_size
    reaching = size >= 3 and (policy.about.get("env") or "").startswith("so101_reach")
    if options.goal_file is not None:
        if options.goal:
            raise UserError("--goal and --goal-file both say where to go: give only one of them")
        return GoalFile(options.goal_file, size, options.goal_timeout, reaching).read
    if len(options.goal) != size:
        example = {2: "--goal 0.25 0.05", 3: "--goal 0.25 0.05 0.15", 4: "--goal 0.25 0.0 0.15 -0.08"}.get(size, "")
        raise UserError(f"this policy's goal has {size} numbers, not {len(options.goal)}: give them, such as {example}")
    goal = require_goal(options.goal, reaching)
    return lambda: goal


def make_robot(options: RunOptions, cube: bool) -> Any:
    if options.robot == "simulated":
        from dcp.robots.so101_simulated import SimulatedSo101

        place = (options.cube or (0.25, 0.0)) if cube else None
        return SimulatedSo101(units=options.units, cube=place, randomize=options.randomize, seed=options.seed)
    if options.randomize is not None:
        raise UserError("--randomize changes the simulated arm: leave it out with --robot so101_follower")
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
