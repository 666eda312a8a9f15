"""The robot loop: it keeps its deadlines and its limits, and every way out of it is through the safe action."""

import csv
import gc
import io
import json
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dcp.errors import RunError, UserError
from dcp.policies.wrappers import HostPolicy, with_burst
from dcp.robots import Controller, Reading, Stopped
from dcp.robots import controller as controller_module
from dcp.robots.safety import Limits
from tests.support.fake_robot import SAFE, FakeClock, FakeRobot

freeze_garbage = controller_module.freeze_garbage


@pytest.fixture(scope="module", autouse=True)
def no_collections():
    """The full collection before the first step takes a fifth of a second here, where JAX is loaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(controller_module, "freeze_garbage", lambda: False)
        yield


# ---- the rate


def test_steps_begin_on_absolute_deadlines_and_do_not_drift():
    robot = FakeRobot(clock := FakeClock())

    def slow(state, goal):
        clock.time += 0.003  # would add up to 0.15 s if a wait began where the step ended
        return goal

    report = robot.controller(slow).run(seconds=0.5)
    np.testing.assert_allclose(robot.read_times, 100.0 + 0.01 * np.arange(50), atol=2e-5)
    assert (report.steps, report.overruns, report.skipped_periods) == (50, 0, 0)
    assert report.period.p50 == pytest.approx(10.0, abs=0.02)
    assert report.compute.p50 == report.policy.p50 == pytest.approx(3.0)


def test_a_step_that_takes_too_long_skips_whole_periods_and_is_counted():
    robot = FakeRobot(clock := FakeClock())
    robot.at[2] = lambda: setattr(clock, "time", clock.time + 0.025)  # from 20 ms to 45 ms: 30 and 40 are gone
    report = robot.controller().run(steps=5)
    np.testing.assert_allclose(np.array(robot.read_times) - 100.0, [0, 0.01, 0.02, 0.05, 0.06], atol=2e-5)
    assert (report.steps, report.overruns, report.skipped_periods) == (5, 1, 2)
    assert report.period.max == pytest.approx(30.0, abs=0.05)


def test_too_many_missed_deadlines_in_a_row_stop_it_and_fewer_do_not():
    robot = FakeRobot(clock := FakeClock())
    late = lambda: setattr(clock, "time", clock.time + 0.012)  # noqa: E731
    robot.at = dict.fromkeys([1, 2, 4, 5, 7, 8, 9], late)
    with pytest.raises(
        Stopped, match=r"too slow: 3 deadlines missed.*most of it read.*10 ms.*lower rate_hz"
    ) as stopped:
        robot.controller(max_overruns=3).run(steps=50)
    assert stopped.value.report.steps == 10
    assert robot.ended_safely()
    robot.reads, robot.at = 0, dict.fromkeys(range(20), late)
    assert robot.controller(max_overruns=None).run(steps=20).overruns == 20


def test_the_real_clock_keeps_the_rate_roughly():
    robot, began = FakeRobot(), time.perf_counter()
    report = robot.controller(rate_hz=50, stale_after=20.0, max_overruns=None).run(seconds=0.4)
    assert 0.35 < time.perf_counter() - began < 20.0
    assert 1 <= report.steps <= 20
    assert report.steps + report.skipped_periods == 20
    assert report.period.p50 is None or report.period.p50 > 15.0
    assert robot.ended_safely()


def test_a_goal_may_change_between_two_steps():
    robot = FakeRobot(FakeClock())
    robot.at[1] = lambda: setattr(robot, "goal", np.array([-1.0, 0.5]))
    robot.controller(lambda state, goal: goal).run(steps=2)
    np.testing.assert_array_equal(robot.sent, [[1.0, 1.0], [-1.0, 0.5], SAFE])


def test_the_warm_up_sends_nothing_and_may_take_long_and_the_policy_is_reset():
    robot = FakeRobot(clock := FakeClock(), warm_up=2)

    class Compiled:
        calls = 0
        resets = 0

        def __call__(self, state, goal):
            self.calls += 1
            clock.time += 5.0 if self.calls == 1 else 0.0
            return goal

        def reset(self):
            self.resets += 1

    report = robot.controller(policy := Compiled(), warm_up=2).run(steps=3)
    assert (policy.calls, policy.resets, len(robot.sent), report.overruns) == (5, 1, 4, 0)


# ---- faults


def raising(state, goal):
    raise RuntimeError("the network\nis on fire")


FAULTS = {
    "NaN state": ({"state": lambda: [0.0, np.nan]}, {}, r"read_state gave .* not finite \(number 2 of 2 is nan\)"),
    "infinite state": ({"state": lambda: [np.inf, 0.0]}, {}, "read_state gave a value that is not finite"),
    "short state": ({"state": lambda: [0.0]}, {}, r"read_state gave shape \(1,\), not 2 numbers"),
    "batched state": ({"state": lambda: [[0.0, 0.0]]}, {}, r"read_state gave shape \(1, 2\)"),
    "no numbers": ({"state": lambda: {"a": 1}}, {}, "read_state gave a dict that is not a list of numbers"),
    "no state": ({"state": lambda: "gone"}, {}, "read_state gave a str that is not a list of numbers"),
    "broken sensor": ({"state": lambda: 1 / 0}, {}, r"read_state failed \(ZeroDivisionError: division by zero\)"),
    "NaN time": ({"state": lambda: Reading([0.0, 0.0], np.nan)}, {}, "a Reading whose time is nan"),
    "no time": ({"state": lambda: Reading([0.0, 0.0], None)}, {}, "a Reading whose time is not a number"),  # type: ignore
    "NaN goal": ({"goal": [np.nan, 1.0]}, {}, "read_goal gave a value that is not finite"),
    "long goal": ({"goal": [1.0, 1.0, 1.0]}, {}, r"read_goal gave shape \(3,\), not 2 numbers"),
    "NaN action": ({}, {"policy": lambda s, g: [0.0, np.nan]}, "the policy gave a value that is not finite"),
    "infinite action": ({}, {"policy": lambda s, g: [-np.inf, 0.0]}, "the policy gave a value that is not finite"),
    "short action": ({}, {"policy": lambda s, g: [0.0]}, r"the policy gave shape \(1,\), not 2 numbers"),
    "broken policy": ({}, {"policy": raising}, r"the policy failed \(RuntimeError: the network is on fire\)"),
    "broken bus": ({"send_fails": 1}, {}, r"send_action failed \(OSError: bus off\)"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_sends_the_safe_action_and_says_why_in_one_sentence(name: str):
    broken, settings, sentence = FAULTS[name]
    robot, clock = FakeRobot(clock := FakeClock()), clock
    good = lambda state, goal: 0.1 * (goal - state)  # noqa: E731
    bad = settings.get("policy", good)

    def break_it():
        robot.goal = broken.get("goal", robot.goal)
        robot.send_fails = broken.get("send_fails", 0)
        return broken["state"]() if "state" in broken else None

    robot.at[3] = break_it
    with pytest.raises(Stopped, match=sentence) as stopped:
        robot.controller(lambda s, g: (bad if robot.reads == 4 else good)(s, g)).run(steps=20)
    message = str(stopped.value)
    assert message.endswith("; the safe action was sent") and len(message.splitlines()) == 1
    assert isinstance(stopped.value, RunError)
    assert stopped.value.report.ended == stopped.value.reason
    assert len(robot.ordinary) == stopped.value.report.steps == 3  # nothing of the broken step was sent
    assert robot.ended_safely()


def test_a_fault_before_the_first_step_sends_the_safe_action_and_nothing_else():
    robot = FakeRobot(FakeClock())
    robot.state = [np.nan, 0.0]
    with pytest.raises(Stopped, match="not finite"):
        robot.controller(warm_up=1).run(steps=5)
    np.testing.assert_array_equal(robot.sent, [SAFE])


def test_sizes_are_the_policys_own_where_it_says_them(tiny_run):
    robot = FakeRobot(FakeClock())
    robot.state = np.zeros(3)
    with pytest.raises(Stopped, match=r"read_state gave shape \(3,\), not 2 numbers"):
        robot.controller(tiny_run.policy, warm_up=1).run(steps=1)
    robot = FakeRobot(FakeClock())
    assert robot.controller(tiny_run.policy, safe_action=0.0, warm_up=1).run(steps=3).steps == 3
    assert np.abs(robot.sent).max() <= 1.0


# ---- stale input


def test_a_state_whose_time_stands_still_is_stale_and_one_whose_time_moves_is_not():
    robot = FakeRobot(FakeClock())
    robot.at = {i: lambda i=i: Reading(np.zeros(2), min(i, 10)) for i in range(100)}
    with pytest.raises(Stopped, match=r"stale: its time has not changed for 0\.\d+ s .*0.2 s.*sensor still measures"):
        robot.controller(stale_after=0.2).run(steps=100)
    assert len(robot.ordinary) in (30, 31)  # ten fresh, then 0.2 s of the last
    assert robot.ended_safely()
    robot.reads, robot.at = 0, {i: lambda i=i: Reading(np.zeros(2), -i) for i in range(100)}  # a counter of any kind
    assert robot.controller(stale_after=0.2).run(steps=100).steps == 100


def test_a_goal_whose_time_stands_still_is_no_fault():
    robot = FakeRobot(FakeClock())
    robot.goal = Reading(np.ones(2), 0.0)
    assert robot.controller().run(seconds=1.0).steps == 100


@pytest.mark.parametrize("where", ["read_state", "read_goal", "the policy"])
def test_an_action_that_comes_too_late_is_not_sent(where: str):
    robot = FakeRobot(clock := FakeClock())

    def hang(name: str) -> None:
        clock.time += 0.3 if name == where and robot.reads == 3 else 0.0

    def policy(state, goal):
        hang("the policy")
        return goal

    controller = Controller(
        policy,
        lambda: (robot.read_state(), hang("read_state"))[0],
        lambda: (robot.read_goal(), hang("read_goal"))[0],
        robot.send_action,
        rate_hz=100,
        safe_action=SAFE,
        warm_up=0,
        clock=clock,
    )
    with pytest.raises(Stopped, match=rf"begun for 0\.3 s \(stale_after is 0\.2 s\), the loop is in {where}: "):
        controller.run(steps=10)
    assert len(robot.ordinary) == 2 and robot.ended_safely()


def test_a_read_that_blocks_is_caught_while_it_blocks():
    robot, safe_is_out = FakeRobot(), threading.Event()

    def block():
        assert safe_is_out.wait(30.0), "the watchdog did not send the safe action"

    def send(action):
        robot.send_action(action)
        if np.array_equal(action, SAFE):
            safe_is_out.set()

    robot.at[3] = block
    policy = lambda state, goal: goal  # noqa: E731
    calls = (robot.read_state, robot.read_goal, send)
    controller = Controller(policy, *calls, rate_hz=100, safe_action=SAFE, stale_after=0.5, max_overruns=None)
    robot.reads = -2
    with pytest.raises(Stopped, match="the loop is in read_state: check the sensor"):
        controller.run(steps=10)
    assert robot.senders[-1] == "dcp-watchdog" and len(robot.ordinary) == 3 and robot.ended_safely()


def test_a_send_that_blocks_is_reported_and_the_safe_action_follows_when_it_returns(caplog):
    robot, said = FakeRobot(), threading.Event()
    calls = []

    def send(action):
        calls.append(action)
        if len(calls) == 3:
            for _ in range(3000):
                if any("use the emergency stop" in record.message for record in caplog.records):
                    said.set()
                    break
                time.sleep(0.01)
        robot.send_action(action)

    policy = lambda state, goal: goal  # noqa: E731
    controller = Controller(
        policy, robot.read_state, robot.read_goal, send, rate_hz=100, safe_action=SAFE, max_overruns=None
    )
    with pytest.raises(Stopped, match="the loop is in send_action"):
        controller.run(steps=10)
    assert said.is_set() and len(robot.ordinary) == 3 and robot.ended_safely()


# ---- ways out


def test_stop_from_another_thread_is_out_when_it_returns_and_nothing_follows():
    robot = FakeRobot()
    robot.goal = np.full(2, 0.5)
    controller = robot.controller(rate_hz=2000, max_overruns=None, stale_after=20.0)
    after: list[int] = []

    def press():
        while len(robot.sent) < 20:
            time.sleep(0.001)
        controller.stop("the red button")
        after.append(len(robot.sent))

    buttons = [threading.Thread(target=press) for _ in range(4)]
    for button in buttons:
        button.start()
    with pytest.raises(Stopped, match="the red button; the safe action was sent"):
        controller.run()
    for button in buttons:
        button.join()
    assert set(after) == {len(robot.sent)}  # for each of the four
    assert robot.ended_safely()


def test_stop_may_be_called_by_any_of_the_three_calls():
    for place in ("read", "policy", "send"):
        robot = FakeRobot(FakeClock())
        stop = lambda name: controller.stop(name) if name == place and robot.reads == 3 else None  # noqa: B023, E731

        def send(action, robot=robot, stop=stop):
            robot.send_action(action)
            stop("send")

        controller = Controller(
            lambda state, goal, stop=stop: (stop("policy"), goal)[1],
            lambda robot=robot, stop=stop: (robot.read_state(), stop("read"))[0],
            robot.read_goal,
            send,
            rate_hz=100,
            safe_action=SAFE,
            warm_up=0,
            clock=robot.clock,
        )
        with pytest.raises(Stopped, match=place):
            controller.run(steps=10)
        assert len(robot.ordinary) == (3 if place == "send" else 2) and robot.ended_safely()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_fault_goes_through_but_only_after_the_safe_action(error: type[BaseException]):
    def interrupted(state, goal):
        raise error

    robot = FakeRobot(FakeClock())
    controller = robot.controller(interrupted)
    with pytest.raises(error):
        controller.run(steps=5)
    assert robot.ended_safely() and not robot.ordinary
    assert controller.report().safe_action == "the safe action was sent"


def test_the_end_of_a_run_sends_the_safe_action_and_the_controller_has_served():
    robot = FakeRobot(FakeClock())
    controller = robot.controller()
    assert controller.run(steps=2).ended == "completed its 2 steps"
    assert robot.ended_safely()
    for again in (controller.run, controller.step, controller.__enter__):
        with pytest.raises(UserError, match="make a new one"):
            again()
    assert len(robot.sent) == 3


def test_a_loop_of_ones_own_steps_inside_a_with_block():
    robot = FakeRobot(FakeClock())
    with pytest.raises(UserError, match="with controller"):
        robot.controller().step()
    with robot.controller(lambda state, goal: 2 * goal) as controller:
        sent = [controller.step() for _ in range(3)]
    np.testing.assert_array_equal(sent, np.ones((3, 2)))
    assert controller.report().clipped == 3 and controller.report().ended == "the with block ended"
    assert robot.ended_safely()
    robot.sent.clear()
    with pytest.raises(ZeroDivisionError), robot.controller() as controller:
        controller.step()
        1 / 0  # noqa: B018
    assert robot.ended_safely()


def test_a_loop_of_ones_own_that_pauses_too_long_is_stopped():
    robot = FakeRobot(clock := FakeClock())
    with pytest.raises(Stopped, match="in your code between two steps: call step"), robot.controller() as controller:
        controller.step()
        clock.time += 0.5
        controller.step()
    assert len(robot.ordinary) == 1 and robot.ended_safely()


@pytest.mark.parametrize("asked", [{"seconds": -1}, {"seconds": float("nan")}, {"steps": 0}])
def test_a_run_that_would_do_nothing_is_refused(asked: dict):
    robot = FakeRobot()
    with pytest.raises(UserError, match="must be positive"):
        robot.controller().run(**asked)
    assert not robot.sent


def test_run_inside_a_with_block_is_the_same_run():
    robot = FakeRobot(FakeClock())
    with robot.controller() as controller:
        assert controller.run(steps=4).steps == 4
    assert robot.ended_safely() and len(robot.ordinary) == 4


def test_run_inside_a_with_block_sends_the_safe_action_before_its_exception_can_be_caught():
    def interrupted(state, goal):
        raise KeyboardInterrupt

    robot = FakeRobot(FakeClock())
    with robot.controller(interrupted) as controller:
        with pytest.raises(KeyboardInterrupt):
            controller.run(steps=1)
        assert robot.ended_safely()
    assert robot.ended_safely()


# ---- the safe action


def test_a_safe_action_that_fails_is_tried_again_and_if_it_cannot_be_sent_that_is_reported():
    robot = FakeRobot(FakeClock())
    robot.at[1] = lambda: setattr(robot, "send_fails", 3)  # the action and two attempts
    with pytest.raises(Stopped, match="the safe action was sent"):
        robot.controller().run(steps=5)
    robot = FakeRobot(FakeClock())
    robot.at[1] = lambda: setattr(robot, "send_fails", 4)
    with pytest.raises(
        Stopped, match=r"send_action failed .*; the safe action could NOT be sent \(OSError: bus off\): use"
    ):
        robot.controller().run(steps=5)
    assert len(robot.sent) == 1


def test_the_safe_action_may_be_the_last_one_or_a_function_of_it_or_be_held():
    robot = FakeRobot(FakeClock())
    robot.controller(lambda s, g: [0.3, 0.6], safe_action="hold", start_action=[0, 0]).run(steps=2)
    np.testing.assert_array_equal(robot.sent, [[0.3, 0.6]] * 3)
    robot = FakeRobot(FakeClock())
    robot.controller(lambda s, g: [0.3, 0.6], safe_action=lambda last: 2 * last, start_action=[0, 0]).run(steps=1)
    np.testing.assert_array_equal(robot.sent, [[0.3, 0.6], [0.6, 1.0]])  # within the limits, this one too
    robot = FakeRobot(FakeClock())
    robot.controller(hold_seconds=0.055).run(steps=1)
    np.testing.assert_array_equal(robot.sent[1:], [SAFE] * 7)  # at 0, 10, ... 60 ms


def test_a_safe_function_that_gives_nonsense_is_found_before_anything_moves():
    robot = FakeRobot(FakeClock())
    with pytest.raises(Stopped, match=r"safe_action .*not finite.*; the safe action could NOT be sent"):
        robot.controller(safe_action=lambda last: last * np.nan, start_action=[0, 0]).run(steps=1)
    assert not robot.sent


# ---- limits


def test_max_change_counts_from_the_start_and_is_counted():
    robot = FakeRobot(FakeClock())
    controller = robot.controller(lambda s, g: [1.0, -1.0], max_change=[0.25, 2.0], start_action=lambda: [0.5, 0.0])
    report = controller.run(steps=4)
    np.testing.assert_allclose(robot.ordinary, [[0.75, -1], [1, -1], [1, -1], [1, -1]])
    assert (report.rate_limited, report.clipped) == (1, 0)


def test_a_low_pass_filter_sends_half_of_the_last_command_and_half_of_the_new_one():
    robot = FakeRobot(FakeClock())
    outputs = iter([[1.0, 0.4], [1.0, -0.4], [-1.0, 0.4], [-3.0, -0.4]])
    controller = robot.controller(
        lambda state, goal: next(outputs),
        smooth=0.5,
        start_action=[0.0, 0.0],
        action_low=-1.0,
        action_high=1.0,
        warm_up=0,
    )
    report = controller.run(steps=4)
    np.testing.assert_allclose(robot.sent[:4], [[0.5, 0.2], [0.75, -0.1], [-0.125, 0.15], [-0.5625, -0.125]])
    assert report.clipped == 1 and report.rate_limited == 0
    assert report.flips == 4 / 6  # one of the first joint, three of the second, in three pairs of steps


def test_commands_shrink_in_proportion_near_the_goal_if_they_are_to_settle():
    robot, policy = FakeRobot(FakeClock()), Constant()
    robot.goal, robot.at = [0.0, 0.0], {1: lambda: [0.3, 0.4], 2: lambda: [0.03, 0.04], 3: lambda: [0.0, 0.0]}
    robot.state = np.array([3.0, 4.0])
    settling: list[bool] = []
    send, robot.send_action = robot.send_action, lambda action: (settling.append(controller.settling), send(action))
    controller = robot.controller(policy, settle=1.0)
    controller.run(steps=4)
    assert settling[:4] == [False, True, True, True]
    np.testing.assert_allclose(robot.sent[:4], [[0.8, -0.8], [0.4, -0.4], [0.04, -0.04], [0.0, 0.0]], atol=1e-12)
    assert [step.action.tolist() for step in controller.last_steps] == [[0.8, -0.8]] * 4  # the log has the policy's
    with pytest.raises(UserError, match="settle needs a policy that says"):
        robot.controller(settle=1.0)


class Constant:
    goal_dims = (0, 1)

    def __call__(self, state: np.ndarray, goal: np.ndarray) -> list[float]:
        return [0.8, -0.8]


def test_flips_count_over_a_zero_and_are_in_each_row_of_the_black_box(tmp_path):
    robot, box = FakeRobot(FakeClock()), io.StringIO()
    outputs = iter([[0.1, 0.1], [0.0, 0.1], [-0.1, 0.1], [-0.1, -0.1]])
    report = robot.controller(lambda state, goal: next(outputs), black_box=box, warm_up=0).run(steps=4)
    assert [row["flips"] for row in csv.DictReader(io.StringIO(box.getvalue()))] == ["0", "0", "1", "1"]
    assert report.flips == 2 / 6 and "33.3% of the joints' commands change sign" in str(report)


def test_a_start_outside_the_limits_is_refused():
    robot = FakeRobot(FakeClock())
    with pytest.raises(Stopped, match=r"start_action \[0, 1.5\] is outside the limits .*bring it inside first"):
        robot.controller(start_action=lambda: [0.0, 1.5]).run(steps=1)
    assert not robot.ordinary


numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(
    bounds=arrays(float, (2, 3), elements=numbers),
    last=arrays(float, 3, elements=numbers),
    change=st.none() | arrays(float, 3, elements=st.floats(1e-9, 1e12)),
    action=arrays(float, 3, elements=numbers),
)
def test_whatever_is_sent_is_finite_and_within_the_limits(bounds, last, change, action):
    low, high = bounds.min(axis=0), bounds.max(axis=0)
    limits = Limits(low, high, change)
    anywhere, _, _ = limits.apply(action, last)  # even from where it should never have been
    assert (low <= anywhere).all() and (anywhere <= high).all()
    last = limits.clip(last)
    sent, clipped, rate_limited = limits.apply(action, last)
    assert np.isfinite(sent).all() and (low <= sent).all() and (sent <= high).all()
    assert clipped == bool(((action < low) | (action > high)).any())
    if change is not None:
        within = np.abs(sent / 2 - last / 2) <= change / 2 + 1e-12 * np.maximum(np.abs(last), change)
        assert within.all()
    if not clipped and not rate_limited:
        np.testing.assert_array_equal(sent, action)


@settings(max_examples=50, deadline=None)
@given(
    outputs=st.lists(arrays(float, 2, elements=st.floats()), min_size=1, max_size=8), change=st.none() | st.just(0.1)
)
def test_no_policy_gets_anything_else_past_the_controller(outputs, change):
    robot, queue = FakeRobot(FakeClock()), list(outputs)
    settings = {"action_low": [-0.5, -1.0], "action_high": [0.5, 0.0], "max_change": change, "start_action": [0, 0]}
    controller = robot.controller(lambda s, g: queue.pop(0), safe_action=[0.1, -0.1], **settings)
    unsound = [i for i, action in enumerate(outputs) if not np.isfinite(action).all()]
    try:
        controller.run(steps=len(outputs))
        assert not unsound
    except Stopped:
        assert unsound
    assert len(robot.sent) == (unsound[0] if unsound else len(outputs)) + 1
    assert np.isfinite(robot.sent).all()
    assert (np.abs(np.array(robot.sent) - [0.0, -0.5]) <= 0.5).all()
    np.testing.assert_array_equal(robot.sent[-1], [0.1, -0.1])


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"rate_hz": 0}, "rate_hz must be positive, not 0"),
        ({"rate_hz": "fast"}, "rate_hz must be a number"),
        ({"rate_hz": np.inf}, "rate_hz must be finite"),
        ({"stale_after": 0.015}, "raise it to 0.02"),
        ({"action_low": [-1, np.nan]}, "action_low must be finite"),
        ({"action_low": 2.0}, "exceeds action_high"),
        ({"action_high": [1, 1, 1]}, r"action_high has shape \(3,\): give one number, or 2"),
        ({"action_high": "high"}, "action_high is neither a number nor a list of numbers"),
        ({"safe_action": [0.0, 3.0]}, r"safe_action \[0, 3\] is outside the limits \[-1, -1\] to \[1, 1\]"),
        ({"safe_action": "relax", "action_size": 2}, "'relax'.*or 'hold'"),
        ({"safe_action": 0.0}, "give action_size, or safe_action as an array"),
        ({"safe_action": "hold", "action_size": 2}, "need start_action"),
        ({"safe_action": lambda last: last, "action_size": 2}, "need start_action"),
        ({"max_change": 0.1}, "need start_action"),
        ({"max_change": 0.0, "start_action": [0, 0]}, "max_change must be positive"),
        ({"smooth": 0.5}, "need start_action"),
        ({"smooth": 1.0}, "smooth is 1.0, the share of the last action"),
        ({"max_overruns": 0}, "max_overruns must be a whole number of at least 1"),
        ({"hold_seconds": -1}, "hold_seconds must be 0 or more"),
        ({"history": 2.5}, "history must be a whole number"),
        (
            {"policy": "policy.npz"},
            r"policy is a str, which cannot be called: it is used as policy\(observation, goal\)",
        ),
        ({"policy": with_burst(HostPolicy(lambda state, goal: goal))}, r"give dcp.policies.wrappers.Stepper\(policy\)"),
    ],
)
def test_settings_that_make_no_sense_are_refused_at_once(settings: dict, sentence: str):
    robot = FakeRobot()
    with pytest.raises(UserError, match=sentence) as error:
        robot.controller(**settings)
    assert len(str(error.value).splitlines()) == 1 and not robot.sent


# ---- what it says of itself


def test_a_report_is_a_table_and_json_and_its_memory_is_bounded():
    robot = FakeRobot(clock := FakeClock())

    def policy(state, goal):
        clock.time += 0.008 if robot.reads == 1 else 0.002
        return [2.0, 0.0]

    controller = robot.controller(policy, history=16)
    report = controller.run(steps=100)
    assert report.policy.p50 == report.policy.p99 == pytest.approx(2.0)  # of the last 16
    assert report.policy.max == pytest.approx(8.0)  # of all
    assert (report.steps, report.clipped, report.history) == (100, 100, 16)
    assert controller._record._ring.shape[0] == 16 and len(controller._record.rows) == 100
    stored = json.loads(report.to_json())
    assert stored["policy"]["max"] == report.policy.max and stored["rate_hz"] == 100
    lines = str(report).splitlines()
    assert lines[0].split() == ["milliseconds", "p50", "p99", "max"]
    assert lines[4].split() == ["policy", "2.000", "2.000", "8.000"]
    assert "100 steps in 0.99 s at 100 Hz" in lines and "100 actions clipped" in lines[7]


def test_a_report_of_nothing_has_no_numbers():
    report = FakeRobot(FakeClock()).controller().report()
    assert report.period.p50 is None and json.loads(report.to_json())["period"] == {
        "p50": None,
        "p99": None,
        "max": None,
    }
    assert report.ended == "not yet" and "-" in str(report)


def test_the_black_box_holds_the_last_steps_and_what_broke(tmp_path):
    robot = FakeRobot(FakeClock())
    robot.at[7] = lambda: [0.5, np.nan]
    path = tmp_path / "flight" / "box.csv"
    with pytest.raises(Stopped) as stopped:
        robot.controller(black_box=path, black_box_steps=3).run(steps=20)
    assert stopped.value.report.black_box == f"black box: {path}"
    header, *rows = [line.split(",") for line in path.read_text().splitlines()]
    rows = [dict(zip(header, row, strict=False)) for row in rows]
    assert [row["step"] for row in rows] == ["5", "6", "7"]
    assert (rows[1]["state_1"], rows[1]["goal_0"], rows[1]["action_0"], rows[1]["sent_1"]) == (
        "0.0",
        "1.0",
        "0.1",
        "0.1",
    )
    assert (rows[2]["state_0"], rows[2]["state_1"], rows[2]["sent_0"]) == ("0.5", "nan", "")
    assert rows[2]["ended"].startswith("read_state gave") and rows[1]["ended"] == ""


def test_the_black_box_is_written_after_the_safe_action_and_before_anybody_goes_on(tmp_path):
    robot, path = FakeRobot(FakeClock()), tmp_path / "box.csv"
    seen = []

    def send(action):
        robot.send_action(action)
        seen.append(path.exists())
        if len(seen) == 2:
            controller.stop("in the middle of a send")

    calls = (robot.read_state, robot.read_goal, send)
    controller = Controller(
        lambda state, goal: goal, *calls, rate_hz=100, safe_action=SAFE, warm_up=0, clock=robot.clock, black_box=path
    )
    with pytest.raises(Stopped) as stopped:
        controller.run(steps=9)
    assert seen == [False] * 3 and robot.ended_safely() and path.is_file()
    assert stopped.value.report.black_box == f"black box: {path}"


def test_a_black_box_that_cannot_be_written_hides_nothing(tmp_path):
    robot = FakeRobot(FakeClock())
    robot.at[1] = lambda: [np.nan, 0.0]
    (tmp_path / "file").write_text("")
    with pytest.raises(Stopped, match="not finite") as stopped:
        robot.controller(black_box=tmp_path / "file" / "box.csv").run(steps=5)
    assert "black box could not be written" in stopped.value.report.black_box
    assert robot.ended_safely()


def test_what_lives_before_the_loop_is_not_collected_during_it(monkeypatch):
    monkeypatch.setattr(controller_module, "freeze_garbage", freeze_garbage)
    robot, counts = FakeRobot(FakeClock()), [gc.get_freeze_count()]
    robot.controller(lambda state, goal: (counts.append(gc.get_freeze_count()), goal)[1]).run(steps=1)
    assert counts[1] > counts[0] == gc.get_freeze_count() == 0
