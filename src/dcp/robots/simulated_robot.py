"""Simulate an SO-101 with the interface of LeRobot's `Robot`: its bus, its units and its delays.

Physics follows the clock: each read or send finds the arm where it would be by now. Faults of a real bus can be set:
lost packets, a bus that hangs, a joint that is pushed beyond its limits.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np

from dcp.errors import UserError
from dcp.robots import so101
from dcp.robots.so101_arm import CUBE, FEATURES, Units, from_radians, to_radians
from dcp.robots.so101_model import CUBE_HALF, table_spec
from dcp.robots.timing import Clock

TIMESTEP = 0.005
LONGEST = 1.0  # seconds of physics in one call; after a longer pause the arm has come to rest anyway
MIDDLE = 2048  # the encoder's ticks at an angle of zero
START = (0.0, -0.5, 0.6, 0.9, 0.0, 0.0)


class Errors:
    """Draw what makes one arm differ from the model, for the kinds of `so101.RANGES` that are named."""

    def __init__(self, kinds: tuple[str, ...], seed: int, delay: float):
        random = np.random.default_rng(seed)
        errors = {kind: random.uniform(low, high, 6) for kind, (low, high) in so101.RANGES.items()}
        self.factors = {kind: errors[kind][0] for kind in so101.VARIED if kind in kinds}
        self.offsets = errors["offsets"] * ("offsets" in kinds)  # [6]: radians
        self.phases = errors["encoders"] * ("encoders" in kinds)  # [6]: radians
        steps = random.integers(0, so101.MAX_DELAY + 1, 2) / so101.RATE_HZ
        self.of_readings, self.of_commands = steps.tolist() if "delay" in kinds else (0.0, delay)  # seconds


class SimulatedBus:
    """Simulate six servos on a serial line, as LeRobot's FeetechMotorsBus shows them. Positions are encoder ticks."""

    def __init__(self, start: Any, cube: Any, errors: Errors, clock: Clock):
        self.model = table_spec(TIMESTEP, cube is not None).compile()
        for kind, factor in errors.factors.items():
            for name in so101.VARIED[kind]:
                getattr(self.model, name)[:] *= factor
        self._gain, self._bias = self.model.actuator_gainprm.copy(), self.model.actuator_biasprm.copy()
        self.data = mujoco.MjData(self.model)
        self.data.qpos[:6] = self.data.ctrl[:] = np.clip(np.asarray(start, float), so101.LOW, so101.HIGH)
        if cube is not None:
            self.data.qpos[6:9] = [*np.asarray(cube, float)[:2], CUBE_HALF]
        self.errors, self.clock = errors, clock
        self.is_connected = self.has_torque = False
        self.lost = 0  # how many of the next packets are lost
        self.hang = 0.0  # seconds that the next packet takes
        self._time = clock.now()
        self._waiting: deque[tuple[float, np.ndarray]] = deque()  # when each target arrives at the servos
        self._seen: deque[np.ndarray] = deque(maxlen=1 + round(errors.of_readings / TIMESTEP))  # [6]: angles, delayed
        self._seen.append(self.data.qpos[:6].copy())

    def sync_read(self, name: str) -> dict[str, int]:
        """Return Present_Position of every servo, in ticks."""
        self._packet()
        if name != "Present_Position":
            raise KeyError(name)
        angles = self._seen[0] + self.errors.offsets + self.errors.phases
        ticks = np.round(angles / (2 * np.pi) * so101.TICKS_PER_TURN).astype(int) + MIDDLE
        return dict(zip(so101.JOINTS, ticks.tolist(), strict=True))

    def sync_write(self, name: str, targets: Mapping[str, int]) -> None:
        """Send Goal_Position to the servos, in ticks. It arrives after the delay."""
        self._packet()
        if name != "Goal_Position":
            raise KeyError(name)
        ticks = np.array([targets[joint] for joint in so101.JOINTS], float)
        angles = (ticks - MIDDLE) / so101.TICKS_PER_TURN * 2 * np.pi - self.errors.offsets - self.errors.phases
        target = np.clip(angles, so101.LOW, so101.CONTROL_HIGH)
        self._waiting.append((self.clock.now() + self.errors.of_commands, target))

    def _packet(self) -> None:
        if not self.is_connected:
            raise ConnectionError("the simulated bus is not connected")
        if self.hang:
            seconds, self.hang = self.hang, 0.0
            self.clock.sleep(seconds)
        self.advance()
        if self.lost > 0:
            self.lost -= 1
            raise ConnectionError("Failed to sync read 'Present_Position': no status packet")

    def advance(self) -> None:
        """Advance the physics to the present time."""
        now = self.clock.now()
        self._time = max(self._time, now - LONGEST)
        while self._time + TIMESTEP <= now:
            while self._waiting and self._waiting[0][0] <= self._time:
                self.data.ctrl[:] = self._waiting.popleft()[1]
            self.model.actuator_gainprm[:] = self._gain * self.has_torque
            self.model.actuator_biasprm[:] = self._bias * self.has_torque
            mujoco.mj_step(self.model, self.data)
            self._time += TIMESTEP
            self._seen.append(self.data.qpos[:6].copy())


class SimulatedSo101:
    """Provide the interface of `lerobot.robots.SO101Follower`, without the manual calibration."""

    name = "simulated_so101"

    def __init__(
        self,
        *,
        units: Units = "degrees",
        start: Any = START,  # radians
        cube: Any = None,  # its place on the table, x and y; None: no cube
        delay: float = 0.02,  # seconds from a command to the servos, unless `randomize` draws it
        randomize: str | None = None,  # the errors of a real arm: kinds of `so101.RANGES`, or all
        seed: int = 0,  # decides what `randomize` draws
        max_relative_target: float | None = None,  # in the robot's units, like LeRobot's setting of this name
        clock: Clock | None = None,
    ):
        self.units: Units = units
        self.max_relative_target = max_relative_target
        errors = Errors(so101.kinds_of(randomize) if randomize else (), seed, delay)
        self.bus = SimulatedBus(start, cube, errors, clock or Clock())
        self.observation_features = dict.fromkeys(FEATURES + (CUBE if cube is not None else ()), float)
        self.action_features = dict.fromkeys(FEATURES, float)
        self.sent: list[dict[str, float]] = []

    @property
    def is_connected(self) -> bool:
        return self.bus.is_connected

    @property
    def is_calibrated(self) -> bool:
        return True

    def connect(self, calibrate: bool = True) -> None:
        if self.is_connected:
            raise UserError("the simulated arm is already connected: disconnect it first")
        self.bus.is_connected = True
        self.configure()

    def calibrate(self) -> None:
        """Do nothing, because the robot's zero is the model's."""

    def configure(self) -> None:
        self.bus.has_torque = True

    def get_observation(self) -> dict[str, float]:
        ticks = self.bus.sync_read("Present_Position")
        observation = {f"{joint}.pos": self._from_ticks(i, ticks[joint]) for i, joint in enumerate(so101.JOINTS)}
        if CUBE[0] in self.observation_features:
            observation |= dict(zip(CUBE, self.bus.data.qpos[6:9].tolist(), strict=True))
        return observation

    def send_action(self, action: Mapping[str, float]) -> dict[str, float]:
        target = {name: float(action[name]) for name in FEATURES}
        if self.max_relative_target is not None:
            present, most = self.get_observation(), self.max_relative_target
            target = {name: float(np.clip(x, present[name] - most, present[name] + most)) for name, x in target.items()}
        ticks = {joint: self._to_ticks(i, target[f"{joint}.pos"]) for i, joint in enumerate(so101.JOINTS)}
        self.bus.sync_write("Goal_Position", ticks)
        self.sent.append(target)
        return target

    def disconnect(self) -> None:
        """Release the servos, as LeRobot's disable_torque_on_disconnect does."""
        self.bus.has_torque = self.bus.is_connected = False

    def _from_ticks(self, joint: int, ticks: int) -> float:
        return from_radians(self.units, joint, (ticks - MIDDLE) / so101.TICKS_PER_TURN * 2 * np.pi)

    def _to_ticks(self, joint: int, value: float) -> int:
        return round(to_radians(self.units, joint, value) / (2 * np.pi) * so101.TICKS_PER_TURN) + MIDDLE
