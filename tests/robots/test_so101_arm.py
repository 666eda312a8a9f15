"""The SO-101 behind the controller, against a simulated arm with LeRobot's interface: it arrives, and whatever goes
wrong it stops and the log says why."""

import csv
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import jax
import numpy as np
import pytest

from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.gym import gymnasium_id
from dcp.robots import Controller, Reading, So101Arm, Stopped, so101
from dcp.robots.so101_arm import CUBE, FEATURES, Bus, GoalFile, from_radians, to_radians
from dcp.robots.so101_simulated import Errors, SimulatedSo101
from dcp.robots.so101_tasks import TASKS
from dcp.robots.timing import Clock
from tests.support.fake_robot import FakeClock

GOAL = np.array([0.25, 0.1, 0.2])


def toward(state: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """A policy for so101_reach: small steps down the distance, by the tool point's derivative."""
    q = state[:5]
    gap = goal - so101.tool_pose(q)[0]
    jacobian = np.stack([(so101.tool_pose(q + step)[0] - so101.tool_pose(q)[0]) / 1e-6 for step in 1e-6 * np.eye(5)], 1)
    change = jacobian.T @ np.linalg.solve(jacobian @ jacobian.T + 1e-4 * np.eye(3), gap)
    return np.clip(5.0 * change, -1.0, 1.0)


class Setting:
    """A simulated arm, its adapter, and a controller that logs."""

    def __init__(self, folder: Path, clock: Clock | None = None, **robot):
        self.clock = clock or FakeClock()
        self.robot = SimulatedSo101(clock=self.clock, **robot)
        self.robot.connect()
        self.arm = So101Arm(self.robot, 13, 5, clock=self.clock.now, units=robot.get("units", "degrees"))
        self.log = folder / "log.csv"

    def controller(self, policy=toward, goal=None, at: dict | None = None, **settings) -> Controller:
        reads = iter(range(-2, 10_000))  # two are the warm-up's

        def read_state():
            if (what := (at or {}).get(next(reads))) is not None:
                what()
            return self.arm.read_state()

        read_goal = goal.read if goal else lambda: GOAL
        defaults = {"rate_hz": 30, "safe_action": np.zeros(5), "black_box": self.log, "clock": self.clock}
        return Controller(policy, read_state, read_goal, self.arm.send_action, **{**defaults, **settings})

    def why(self) -> str:
        with self.log.open() as file:
            return list(csv.DictReader(file))[-1]["ended"]

    def stands_still(self) -> bool:
        """Tell whether the last target is the pose that was read last, and the arm comes to rest there."""
        held = self.arm.read_state().value[:5]
        self.clock.sleep(0.5)
        now = self.arm.read_state().value[:5]
        return float(np.abs(self.robot.bus.data.qvel[:6]).max()) < 0.05 and float(np.abs(now - held).max()) < 0.1


@pytest.mark.parametrize("units", ["degrees", "percent"])
def test_units_go_both_ways(units):
    for joint in range(6):
        for angle in (so101.LOW[joint], 0.3, so101.HIGH[joint]):
            assert to_radians(units, joint, from_radians(units, joint, angle)) == pytest.approx(angle, abs=1e-12)
    assert from_radians(units, 5, so101.LOW[5]) == 0.0 and from_radians(units, 5, so101.HIGH[5]) == 100.0
    assert from_radians("degrees", 0, np.pi / 2) == 90.0
    assert from_radians("percent", 0, so101.HIGH[0]) == 100.0


@pytest.mark.parametrize("units", ["degrees", "percent"])
def test_the_arm_arrives(tmp_path: Path, units):
    setting = Setting(tmp_path, units=units)
    report = setting.controller().run(seconds=4)
    assert report.steps == 120
    assert float(np.linalg.norm(setting.arm.read_state().value[10:13] - GOAL)) < 0.01
    assert setting.why() == "completed its 120 steps"


def test_reads_and_sends_take_turns_on_the_bus_but_a_hung_read_does_not_keep_the_safe_action():
    inside, release, sent = threading.Event(), threading.Event(), []

    def hang():
        inside.set()
        release.wait(30.0)
        return {}

    bus = Bus(SimpleNamespace(get_observation=hang, send_action=sent.append))
    reader = threading.Thread(target=lambda: bus.read(lambda seen: Reading([], 0.0)))
    reader.start()
    inside.wait(30.0)
    assert not bus.lock.acquire(blocking=False)
    bus.send({"a.pos": 1.0})  # after a moment of patience
    assert len(sent) == 1 and not release.is_set()
    release.set()
    reader.join()
    assert bus.lock.acquire(blocking=False)


def test_the_state_is_the_simulations(tmp_path: Path):
    """What the task of the same name would show, to the encoders' tick."""
    setting = Setting(tmp_path)
    before = setting.arm.read_state().value
    setting.arm.send_action(np.array([1.0, 0.0, 0.0, 0.0, 0.0]))
    setting.clock.sleep(1 / 30)
    after = setting.arm.read_state().value
    q = setting.robot.bus.data.qpos[:5]
    np.testing.assert_allclose(after[:5], q, atol=1e-3)
    np.testing.assert_allclose(after[5:10], (after - before)[:5] * 30, atol=1e-9)
    np.testing.assert_allclose(after[10:13], so101.tool_pose(q)[0], atol=1e-3)


def test_a_target_is_the_present_pose_plus_at_most_a_tenth_of_a_radian_within_the_limits(tmp_path: Path):
    setting = Setting(tmp_path, start=(so101.HIGH[0] - 0.03, -0.5, 0.6, 0.9, 0.0, 0.0))
    pose = setting.arm.read_state().value[:5]
    setting.arm.send_action(np.array([1.0, -1.0, 0.5, 0.0, 7.0]))
    wanted = np.minimum(pose + np.array([0.1, -0.1, 0.05, 0.0, 0.1]), so101.HIGH[:5])
    np.testing.assert_allclose(setting.arm.sent[:5], wanted, atol=1e-9)
    sent = [to_radians("degrees", i, setting.robot.sent[-1][name]) for i, name in enumerate(FEATURES)]
    np.testing.assert_allclose(sent[:5], wanted, atol=1e-9)


def test_a_target_that_accumulates_continues_from_the_last_one_and_stays_near_the_last_reading(tmp_path: Path):
    setting = Setting(tmp_path)
    setting.arm.accumulate = lambda: True
    pose = setting.arm.read_state().value[:5]
    setting.arm.send_action(np.array([0.4, -0.7, 0.1, 0.0, 0.0]))  # from the reading, because there is no target yet
    setting.arm.send_action(np.array([0.4, -0.7, 0.1, 0.0, 0.0]))  # the same reading, as if it were late
    np.testing.assert_allclose(setting.arm.sent[:5] - pose, [0.08, -0.1, 0.02, 0.0, 0.0], atol=1e-9)
    setting.arm.send_action(np.zeros(5))  # the hold
    np.testing.assert_allclose(setting.arm.sent[:5], pose, atol=1e-9)


def test_open_jaws_close_by_at_most_a_tenth_of_a_radian_in_a_step_and_not_in_a_hold(tmp_path: Path):
    setting = Setting(tmp_path, start=(0.0, -0.5, 0.6, 0.9, 0.0, 1.5))
    setting.arm.read_state()
    pose = setting.arm._pose
    setting.arm.send_action(np.array([1.0, 0.0, 0.0, -0.2, 0.0]))
    np.testing.assert_allclose(setting.arm.sent - pose, [0.1, 0.0, 0.0, -0.02, 0.0, -0.1], atol=1e-9)
    setting.arm.speed = 0.2
    setting.arm.send_action(np.array([0.0, 0.2, 0.0, 0.0, 0.0]))
    np.testing.assert_allclose(setting.arm.sent - pose, [0.0, 0.02, 0.0, 0.0, 0.0, -0.02], atol=1e-9)
    setting.arm.send_action(np.zeros(5))  # the hold
    np.testing.assert_allclose(setting.arm.sent, pose, atol=1e-9)
    setting.arm.speed = 1.0
    setting.controller().run(seconds=4)
    assert abs(setting.robot.bus.data.qpos[5]) < 0.05


def test_lerobots_max_relative_target_bounds_what_reaches_the_servos(tmp_path: Path):
    setting = Setting(tmp_path, max_relative_target=1.0)
    pose = setting.arm.read_state().value[:5]
    setting.arm.send_action(np.ones(5))
    sent = np.radians([setting.robot.sent[-1][name] for name in FEATURES[:5]])
    np.testing.assert_allclose(sent - pose, np.radians(1.0), atol=1e-6)


# Faults


def test_a_few_lost_packets_are_borne(tmp_path: Path):
    setting = Setting(tmp_path)
    report = setting.controller(at={20: lambda: setattr(setting.robot.bus, "lost", 1)}).run(seconds=4)
    assert report.steps == 120 and float(np.linalg.norm(setting.arm.read_state().value[10:13] - GOAL)) < 0.01


def test_too_many_lost_packets_stop_it(tmp_path: Path):
    setting = Setting(tmp_path)

    def lose_from_now_on():
        setting.robot.get_observation = lambda: (_ for _ in ()).throw(ConnectionError("no status packet"))

    with pytest.raises(Stopped, match="the state is stale"):
        setting.controller(at={20: lose_from_now_on}, stale_after=0.3).run(seconds=4)
    del setting.robot.get_observation
    assert "the state is stale" in setting.why() and setting.stands_still()


def test_a_reading_that_is_not_finite_stops_it_at_the_last_pose_that_was_known(tmp_path: Path):
    setting = Setting(tmp_path)
    observe, known = setting.robot.get_observation, []

    def break_an_encoder():
        known.append(setting.arm._pose)
        setting.robot.get_observation = lambda: {**observe(), "elbow_flex.pos": np.nan}

    with pytest.raises(Stopped, match="read_state gave a value that is not finite"):
        setting.controller(at={20: break_an_encoder}).run(seconds=4)
    assert "not finite" in setting.why()
    sent = [to_radians("degrees", i, setting.robot.sent[-1][name]) for i, name in enumerate(FEATURES)]
    np.testing.assert_allclose(sent, known[0], atol=1e-9)
    del setting.robot.get_observation
    assert setting.stands_still()


def test_an_action_that_is_not_finite_is_not_sent(tmp_path: Path):
    setting = Setting(tmp_path)
    setting.arm.read_state()
    with pytest.raises(UserError, match="the action is not finite, so nothing was sent"):
        setting.arm.send_action(np.array([0.0, np.nan, 0.0, 0.0, 0.0]))
    assert setting.robot.sent == []


def test_a_hung_bus_stops_it(tmp_path: Path):
    """In real time: the watchdog holds the arm while the read still hangs."""
    setting = Setting(tmp_path, Clock())
    controller = setting.controller(at={10: lambda: setattr(setting.robot.bus, "hang", 1.0)}, stale_after=0.3)
    with pytest.raises(Stopped, match="the loop is in read_state: check the sensor"):
        controller.run(seconds=4)
    assert "no step has begun" in setting.why() and setting.stands_still()
    assert len(setting.robot.sent) == 11  # ten steps, then the hold


def test_a_stale_goal_stops_it(tmp_path: Path):
    setting, file = Setting(tmp_path), tmp_path / "goal.txt"
    file.write_text("0.25, 0.1, 0.2")
    written = file.stat().st_mtime
    began = setting.clock.now()
    goal = GoalFile(file, 3, timeout=1.0, now=lambda: written + setting.clock.now() - began)
    with pytest.raises(Stopped, match="the goal is stale"):
        setting.controller(goal=goal).run(seconds=4)
    assert "the goal is stale" in setting.why() and setting.stands_still()
    assert 29 <= len(setting.robot.sent) <= 33


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("0.25 0.1", "has 2 numbers, not 3"), ("here", "write 3 numbers there"), (None, "cannot read")],
)
def test_a_goal_file_that_is_no_goal_gets_one_sentence(tmp_path: Path, text: str | None, sentence: str):
    if text is not None:
        (tmp_path / "goal.txt").write_text(text)
    with pytest.raises(UserError, match=sentence):
        GoalFile(tmp_path / "goal.txt", 3, timeout=1.0).read()


@pytest.mark.parametrize(
    ("text", "reaching", "sentence"),
    [
        ("5 5 5", True, "outside what the policy was trained on"),
        ("0.2 0 -0.4", True, "outside what the policy was trained on"),  # 40 cm below the table
        ("1e38 0 0", True, "outside what the policy was trained on"),
        ("0.25 0.6 0.0", False, "farther than the arm can reach"),
        ("0.25 nan 0.0", False, "farther than the arm can reach"),
    ],
)
def test_a_goal_in_a_file_is_checked_at_each_reading_and_the_arm_holds(
    tmp_path: Path, text: str, reaching: bool, sentence: str
):
    setting, file = Setting(tmp_path), tmp_path / "goal.txt"
    file.write_text("0.25 0.1 0.2")
    goal = GoalFile(file, 3, timeout=60.0, reaching=reaching)
    with pytest.raises(Stopped, match=f"read_goal failed.*{sentence}.*the safe action was sent"):
        setting.controller(goal=goal, at={20: lambda: file.write_text(text)}).run(seconds=4)
    assert sentence in setting.why() and setting.stands_still()
    assert len(setting.robot.sent) == 21  # twenty steps, then the hold


@pytest.mark.parametrize("kind", ["pipe", "device", "large"])
def test_a_goal_file_that_is_no_regular_file_or_large_is_refused_at_once(tmp_path: Path, kind: str):
    file = tmp_path / "goal.txt"
    if kind == "pipe":
        os.mkfifo(file)  # an ordinary open would wait for a writer for ever
    elif kind == "device":
        file.symlink_to("/dev/zero")  # it would be read for ever
    else:
        file.write_text("0.25 0.1 0.2" + " " * 10_000)
    with pytest.raises(UserError, match=r"not a regular file|10,012 bytes"):
        GoalFile(file, 3, timeout=60.0).read()


def test_the_age_of_a_goal_is_that_of_the_file_that_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A writer that puts a new file in the place of the old one between two looks at the path."""
    file, newer = tmp_path / "goal.txt", tmp_path / "newer.txt"
    file.write_text("0.25 0.1 0.2")
    newer.write_text("0.25 0.0 0.2")
    os.utime(file, (1_000.0, 1_000.0))
    opened = os.open

    def open_then_replace(path, *flags, **more):
        descriptor = opened(path, *flags, **more)
        if str(path) == str(file) and newer.exists():
            newer.rename(file)
        return descriptor

    monkeypatch.setattr(os, "open", open_then_replace)
    with pytest.raises(UserError, match="the goal is stale"):
        GoalFile(file, 3, timeout=60.0).read()


def test_a_goal_file_from_the_future_is_refused_because_it_would_never_be_stale(tmp_path: Path):
    file = tmp_path / "goal.txt"
    file.write_text("0.25, 0.1, 0.2")
    written = file.stat().st_mtime
    with pytest.raises(UserError, match=r"was written 60 s in the future.*: set the clocks"):
        GoalFile(file, 3, timeout=1.0, now=lambda: written - 60.0).read()
    assert GoalFile(file, 3, timeout=1.0, now=lambda: written - 0.05).read().tolist() == [0.25, 0.1, 0.2]


def test_a_joint_beyond_its_limit_stops_it(tmp_path: Path):
    setting = Setting(tmp_path)

    def push():
        setting.robot.bus.data.qpos[0] = so101.HIGH[0] + 0.2

    with pytest.raises(Stopped, match="limit hit: shoulder_pan is at 11"):
        setting.controller(at={20: push}).run(seconds=4)
    assert "limit hit: shoulder_pan" in setting.why()
    np.testing.assert_allclose(setting.arm.sent[:5], setting.arm._pose[:5], atol=1e-9)  # holds where it was last


def test_a_tool_point_in_the_table_stops_it(tmp_path: Path):
    setting = Setting(tmp_path)

    def sink():
        setting.robot.bus.data.qpos[:5] = [0.0, 0.9, 0.6, 0.9, 0.0]

    with pytest.raises(Stopped, match="in the table: lift the arm"):
        setting.controller(at={20: sink}).run(seconds=4)
    assert "in the table" in setting.why()


def test_ctrl_c_stops_it(tmp_path: Path):
    setting = Setting(tmp_path)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a test's process may ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            setting.controller(at={20: lambda: os.kill(os.getpid(), signal.SIGINT)}).run(seconds=4)
    finally:
        signal.signal(signal.SIGINT, before)
    assert setting.why() == "Ctrl-C" and setting.stands_still()


def test_a_policy_of_another_task_is_refused():
    with pytest.raises(UserError, match="29 numbers of state and 8 of action fits no so101 task"):
        So101Arm(SimulatedSo101(), 29, 8)


def test_a_cubes_policy_needs_a_robot_that_sees_the_cube():
    with pytest.raises(UserError, match=r"the robot has no cube\.x"):
        So101Arm(SimulatedSo101(), 16, 5)
    robot = SimulatedSo101(cube=(0.25, 0.05))
    robot.connect()
    np.testing.assert_allclose(So101Arm(robot, 16, 5).read_state().value[13:], [0.25, 0.05, 0.015], atol=1e-3)


class PosedArm:
    """A robot that is wherever it is put, and has no ticks: for numbers that agree."""

    observation_features = action_features = dict.fromkeys(FEATURES + CUBE, float)
    q = np.zeros(9)  # the joints' angles, and the cube's place

    def get_observation(self) -> dict[str, float]:
        angles = {name: from_radians("degrees", i, self.q[i]) for i, name in enumerate(FEATURES)}
        return angles | dict(zip(CUBE, self.q[6:], strict=True))

    def send_action(self, action: dict[str, float]) -> None:
        self.sent = [to_radians("degrees", i, action[name]) for i, name in enumerate(FEATURES)]


@pytest.mark.parametrize("name", ["so101_push", "so101_lift"])
def test_simulation_gymnasium_and_arm_send_the_same_targets_for_an_action_of_the_tool(name: str):
    task, clock = make_env(name, control="tool"), FakeClock()
    sizes, step = (task.spec.state_size, task.spec.action_size), jax.jit(task.step)
    env = gymnasium.make(gymnasium_id(name), control="tool").unwrapped
    arm = So101Arm(PosedArm(), *sizes, control="tool", clock=clock.now)
    observation, _ = env.reset(seed=0)
    for action in np.random.default_rng(0).uniform(-1.0, 1.0, (20, sizes[1])).astype(np.float32):
        before = env._state
        arm.robot.q = np.asarray(before.physics.q[:9], float)
        state = arm.read_state().value
        off = np.abs(state - observation["observation"])
        joints = arm.moved
        assert off[joints : 2 * joints].max() < 2e-4 and np.delete(off, np.s_[joints : 2 * joints]).max() < 1e-6
        arm.send_action(action)
        observation, *_ = env.step(action)
        clock.sleep(1 / 30)
        for simulated in (step(before, action), env._state):
            np.testing.assert_allclose(simulated.physics.commands[0], arm.robot.sent, rtol=0.0, atol=1e-6)
        assert 0.0 < np.abs(arm.sent - arm.robot.q[:6]).max() <= 0.1 + 1e-9


def test_an_action_of_zeros_holds_the_pose_also_where_a_tool_would_be_turned_down():
    robot = SimulatedSo101(cube=(0.25, 0.05), start=(0.0, -0.5, 0.6, 0.5, 0.0, 0.3))
    robot.connect()
    arm = So101Arm(robot, 18, 2, control="tool", speed=0.2)
    pose = arm.read_state().value[:5]
    arm.send_action(np.zeros(2))
    np.testing.assert_allclose(arm.sent, np.append(pose, robot.bus.data.qpos[5]), atol=2e-3)
    arm.send_action(np.array([0.2, 0.0]))
    assert 0.01 < np.abs(arm.sent[:5] - pose).max() <= 0.02 + 1e-9


@pytest.mark.parametrize(
    ("sizes", "trained", "steered"),
    [
        ((18, 2), "tool", "joints"),
        ((21, 4), "tool", "joints"),
        ((16, 5), "joints", "tool"),
        ((18, 6), "joints", "tool"),
    ],
)
def test_a_policy_that_was_trained_with_the_other_control_is_refused(sizes, trained: str, steered: str):
    sentence = f"was trained with control {trained}, but this arm is steered with control {steered}"
    with pytest.raises(UserError, match=sentence):
        So101Arm(SimulatedSo101(cube=(0.25, 0.0)), *sizes, control=steered)


def test_randomizing_changes_the_simulated_arm_by_its_seed():
    """Factors of the model within their ranges; readings that are off by the calibration; commands that come late."""
    plain, one, other = (
        SimulatedSo101(clock=FakeClock(), randomize=kinds, seed=seed)
        for kinds, seed in ((None, 0), ("all", 3), ("all", 4))
    )
    again = SimulatedSo101(clock=FakeClock(), randomize="all", seed=3)
    for robot in (plain, one, other, again):
        robot.connect()
    masses = one.bus.model.body_mass[2:6] / plain.bus.model.body_mass[2:6]
    assert 0.8 <= masses[0] <= 1.2 and masses[0] != 1.0 and np.allclose(masses, masses[0])
    read = [robot.get_observation() for robot in (plain, one, other, again)]
    off = np.radians([read[1][name] - read[0][name] for name in FEATURES[:5]])
    assert np.abs(off).max() <= 0.02 + 2 * np.pi / so101.TICKS_PER_TURN and np.ptp(off) > 0.002
    assert read[1] == read[3] != read[2]


def test_a_delay_makes_commands_come_late_and_readings_later():
    seed = next(seed for seed in range(99) if late_by(seed) == (2 / 30, 1 / 30))
    late = SimulatedSo101(clock=FakeClock(), randomize="delay", seed=seed)
    late.connect()
    before = late.get_observation()["shoulder_pan.pos"]
    late.send_action({**late.get_observation(), "shoulder_pan.pos": 20.0})
    places = []
    for _ in range(6):
        late.bus.clock.sleep(1 / 30)
        seen = late.get_observation()["shoulder_pan.pos"]
        places.append((late.bus.data.qpos[0], seen))
    assert [next(i for i, row in enumerate(places, 1) if abs(row[k] - before) > 0.01) for k in (0, 1)] == [
        2,
        4,
    ]  # the command arrives after one step, and shows two steps later


def late_by(seed: int) -> tuple[float, float]:
    errors = Errors(("delay",), seed, 0.0)
    return errors.of_readings, errors.of_commands


def test_what_is_near_is_the_tasks_threshold():
    sizes = {"so101_reach": (13, 5), "so101_reach_pose": (14, 5), "so101_push": (16, 5), "so101_lift": (18, 6)}
    for name, task in TASKS.items():
        robot = SimulatedSo101(cube=(0.25, 0.0))
        assert So101Arm(robot, *sizes[name]).near == task().spec.threshold


def test_without_power_the_arm_sinks(tmp_path: Path):
    """Disconnecting releases the servos, as LeRobot's arm does: a reason to hold it."""
    setting = Setting(tmp_path, start=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
    before = setting.robot.bus.data.qpos[1].copy()
    setting.robot.disconnect()
    setting.clock.sleep(0.5)
    setting.robot.bus.advance()
    assert abs(setting.robot.bus.data.qpos[1] - before) > 0.1
