"""A policy drives a simulated robot in real time, through the same three calls that a real robot would have.

    python examples/controller_realtime.py                                  # the zoo's policy on a point maze
    python examples/controller_realtime.py runs/ant_u_maze/dcp/seed_0       # a run of your own; physics compiles first
    python examples/controller_realtime.py policy.npz --env point_u_maze    # an exported policy
    python examples/controller_realtime.py --freeze-after 1                 # the sensor dies: the controller stops

The simulator steps in a thread of its own and waits for nobody. Controller and simulator see each other through a
mailbox alone: the newest state, the newest action.
"""

import argparse
import sys
import threading
from pathlib import Path

import jax
import numpy as np

import dcp
from dcp.envs.base import Environment
from dcp.errors import UserError
from dcp.files.run_folder import located
from dcp.policies.exports import is_exported, load_exported
from dcp.policies.policy_file import policy_about
from dcp.robots import Controller, Reading, Stopped
from dcp.robots.timing import Clock, Pacer

ZOO = "zoo/point_u_maze/dcp"
DT = {
    "humanoid": 0.015
}  # seconds a step, by the first word of an environment's name; a point maze has no time of its own
DEFAULT_DT = 0.05


class Robot(threading.Thread):
    """An environment that goes on by itself, with whatever action came last: as a real one does."""

    def __init__(self, env: Environment, dt: float, seed: int, freeze_after: float):
        super().__init__(name="robot", daemon=True)
        self.spec, self._step = env.spec, jax.jit(env.step)
        self._env_state = jax.jit(env.reset)(jax.random.key(seed))
        self._freeze_after = round(freeze_after / dt) if freeze_after else None
        self._dt, self._ended, self._mailbox = dt, threading.Event(), threading.Lock()
        self._action = np.zeros(env.spec.action_size, np.float32)
        self.reached_after: float | None = None
        self.steps = self.late = 0
        self.publish()
        jax.block_until_ready(self._step(self._env_state, self._action))  # compile before time begins

    def run(self) -> None:
        pacer = Pacer(self._dt, Clock())
        while not self._ended.is_set():
            with self._mailbox:
                action = self._action
            self._env_state = jax.block_until_ready(self._step(self._env_state, action))
            self.steps += 1
            if self._freeze_after is None or self.steps < self._freeze_after:
                self.publish()
            if self.reached_after is None and bool(self._env_state.near_goal):
                self.reached_after = self.steps * self._dt
            self.late += pacer.missed()
            pacer.wait()

    def publish(self) -> None:
        state, goal = self.spec.split(np.asarray(self._env_state.obs))
        with self._mailbox:
            self._reading, self._goal = Reading(state, self.steps), goal

    # The three calls

    def read_state(self) -> Reading:
        with self._mailbox:
            return self._reading

    def read_goal(self) -> np.ndarray:
        with self._mailbox:
            return self._goal

    def send_action(self, action: np.ndarray) -> None:
        with self._mailbox:
            self._action = action.astype(np.float32)

    def end(self) -> None:
        self._ended.set()
        self.join()


def load(path: str):
    """The policy, and the environment it was trained on."""
    if is_exported(path):
        policy = load_exported(path)
        return policy, policy.about.get("env")
    found = located(path)
    return dcp.load_policy(found), policy_about(found).get("env")


def drive(arguments: argparse.Namespace) -> int:
    policy, trained_on = load(arguments.policy)
    name = arguments.env or trained_on
    if name is None:
        raise UserError("the policy does not say where it was trained: name an environment with --env")
    dt = arguments.dt or DT.get(name.split("_")[0], DEFAULT_DT)
    rate = arguments.rate or 1 / dt
    print(
        f"{name}: the simulator at {1 / dt:g} Hz, the controller at {rate:g} Hz, for {arguments.seconds:g} s",
        flush=True,
    )
    robot = Robot(dcp.make_env(name), dt, arguments.seed, arguments.freeze_after)
    controller = Controller(
        policy,
        robot.read_state,
        robot.read_goal,
        robot.send_action,
        rate_hz=rate,
        safe_action=np.zeros(robot.spec.action_size),  # a point stands still, an ant goes limp
        stale_after=max(arguments.stale_after, 5 * dt, 5 / rate),
        black_box=arguments.black_box,
    )
    robot.start()
    code = 0
    try:
        controller.run(seconds=arguments.seconds)
    except Stopped as stopped:
        print(f"stopped: {stopped}", file=sys.stderr)
        code = 1
    finally:
        robot.end()
        print(controller.report())
        print(f"the simulator: {robot.steps} steps, {robot.late} periods too late")
        after = robot.reached_after
        print("the goal was not reached" if after is None else f"the goal was reached after {after:.2f} s")
    return code


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy", nargs="?", default=ZOO, help="a run folder, a policy file, an export, or a zoo name")
    parser.add_argument("--env", help="the environment; default: the one that the policy was trained on")
    parser.add_argument("--seconds", type=float, default=12.5)
    parser.add_argument("--rate", type=float, help="of the controller, Hz; default: the simulator's")
    parser.add_argument(
        "--dt", type=float, help="seconds a simulator step; default: the physics' own, 0.05 for a point"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stale-after", type=float, default=0.5)
    parser.add_argument("--freeze-after", type=float, default=0.0, help="the sensor stops after this many seconds")
    parser.add_argument("--black-box", type=Path, help="a CSV file for the last steps")
    try:
        return drive(parser.parse_args(argv))
    except UserError as error:
        print(f"{error} (any policy of yours will do: `dcp train --preset demo` makes one)", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
