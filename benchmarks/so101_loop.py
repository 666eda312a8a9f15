"""Measure the loop of `dcp run` on simulated SO-101 arms with a real arm's errors, on a clock that nobody waits for.

    python benchmarks/so101_loop.py zoo/so101_reach/dcp --arms 64

Each arm has its own errors (`--randomize all`), its own goal, and five seconds. Near is within 2 cm of the goal, where
the tool point really is and by the arm's own readings; flips are joint commands that change sign between two steps.
"""

import argparse
import sys
from typing import Any, NamedTuple

import numpy as np

from dcp.cli.run import STALE_AFTER, RunOptions, numpy_policy
from dcp.robots import Controller, So101Arm, so101
from dcp.robots.so101_simulated import SimulatedSo101
from dcp.robots.timing import Clock


class Reached(NamedTuple):
    first: float  # the step that first came near the goal; nan if none did
    near: float  # share of the steps from then on
    near_by_reading: float
    flips: float  # share of the commands from then on


class VirtualClock(Clock):
    def __init__(self):
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += max(seconds, 1e-5)


def draw_goal(random: np.random.Generator) -> np.ndarray:
    while not so101.in_reach(goal := random.uniform([-0.1, -0.42, 0.02], [0.46, 0.42, 0.4])):
        pass
    return goal


def run(policy: Any, seed: int, randomize: str | None, settle: float, smooth: float) -> Reached:
    clock, goal = VirtualClock(), draw_goal(np.random.default_rng(seed))
    robot = SimulatedSo101(randomize=randomize, seed=seed, clock=clock)
    robot.connect()
    arm = So101Arm(
        robot, policy.state_size, policy.action_size, accumulate=lambda: controller.settling, clock=clock.now
    )
    places = []

    def send(action: np.ndarray) -> None:
        arm.send_action(action)
        places.append(so101.tool_pose(robot.bus.data.qpos[:5])[0])

    controller = Controller(
        policy, arm.read_state, lambda: goal, send, rate_hz=30, safe_action=np.zeros(5), start_action=np.zeros(5),
        settle=settle, smooth=smooth, stale_after=STALE_AFTER, clock=clock,
    )  # fmt: skip
    controller.run(seconds=5)
    steps = controller.last_steps
    near = np.linalg.norm(np.array(places[: len(steps)]) - goal, axis=1) < arm.near
    read = np.array([np.linalg.norm(step.state[10:13] - goal) < arm.near for step in steps if step.state is not None])
    if not near.any():
        return Reached(np.nan, 0.0, 0.0, float(np.mean([step.flips for step in steps])) / 5)
    first = int(near.argmax())
    flips = float(np.mean([step.flips for step in steps[first:]])) / 5
    return Reached(first, float(near[first:].mean()), float(read[first:].mean()), flips)


def main(argv: list[str]) -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("policy")
    flags.add_argument("--arms", type=int, default=64)
    flags.add_argument("--randomize", default="all", help="or none")
    flags.add_argument("--settle", type=float, default=RunOptions.settle)
    flags.add_argument("--smooth", type=float, default=RunOptions.smooth)
    o = flags.parse_args(argv)
    policy, kinds = numpy_policy(o.policy), None if o.randomize == "none" else o.randomize
    rows = np.array([run(policy, seed, kinds, o.settle, o.smooth) for seed in range(o.arms)])
    there = rows[~np.isnan(rows[:, 0])]
    print(f"{o.policy}, randomize {o.randomize}, settle {o.settle:g} m, smooth {o.smooth:g}: {len(there)} of {o.arms}")
    print(f"reached, median step {np.median(there[:, 0]):.0f} (90%: {np.percentile(there[:, 0], 90):.0f})")
    for name, values in zip(("near", "near by its readings", "flips"), there[:, 1:].T, strict=True):
        spread = 1.96 * values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
        print(
            f"{name}: {values.mean():.1%} +- {spread:.1%} of the later steps ({values.min():.1%} to {values.max():.1%})"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
