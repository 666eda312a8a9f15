"""A goal task from any MuJoCo model: what has to reach the goal, how actions move it, how episodes start and end.

A feature names numbers of a simulation: `q`, `qd`, `joint:NAME` (its part of q), `speed:NAME` (its part of qd),
`site:NAME` and `body:NAME` (places in the world), `turn:BODY` (its quaternion) and `sensor:NAME`. It may also be a
function of `MujocoState`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from dcp.config import cores
from dcp.envs.base import EnvState
from dcp.envs.physics_env import MUJOCO, PhysicsEnv
from dcp.errors import UserError, one_line, shown, unknown
from dcp.physics.mujoco_engine import Links, MujocoEngine, MujocoState
from dcp.types import Array, EnvSpec

Feature = str | Callable[[MujocoState], Array]
FEATURES = "q, qd, joint:NAME, speed:NAME, site:NAME, body:NAME, turn:BODY or sensor:NAME"
CONTROLS = "torques, targets, changes, site:NAME or mocap:NAME"
POSES = "poses"
DAMPING = 1e-4  # of the inverse kinematics: metres^2 per radian^2
_JOINT, _OBJECT, _EQUALITY = mujoco.mjtJoint, mujoco.mjtObj, mujoco.mjtEq
_POSITIONS = {_JOINT.mjJNT_FREE: 7, _JOINT.mjJNT_BALL: 4}  # numbers of a joint in q; others have one
_SPEEDS = {_JOINT.mjJNT_FREE: 6, _JOINT.mjJNT_BALL: 3}


class TaskState(NamedTuple):
    body: MujocoState
    goal: Array  # [G]

    @property
    def q(self) -> Array:
        return self.body.q

    @property
    def qd(self) -> Array:
        return self.body.qd

    @property
    def x(self) -> Any:
        return self.body.x


class Chain(NamedTuple):
    """Hinges and slides between the world and a site, K of them."""

    joints: np.ndarray
    q: np.ndarray  # where they are in q and in qd
    qd: np.ndarray
    slides: np.ndarray
    rows: np.ndarray  # in what the engine reads
    site: int  # its row there

    def jacobian(self, body: MujocoState) -> Array:
        """Return the site's velocity per speed of each joint: [3, K]."""
        assert isinstance(body.read, dict)
        axis, anchor = body.read["xaxis"][self.rows], body.read["xanchor"][self.rows]  # [K, 3]
        arm = body.read["site_xpos"][self.site][None] - anchor
        return jnp.where(self.slides[:, None], axis, jnp.cross(axis, arm)).T


class MujocoTask(PhysicsEnv):
    """Make a task of a model: a file, an XML string or a `mujoco.MjSpec`. MuJoCo's own engine steps it.

    A state is what has to reach the goal, followed by `observe`.
    `goal`: a feature, or several; `axes`, such as "xy", picks coordinates of a place.
    `goals`: how goals are drawn: a box (low, high), a function (key, achieved goal of the start) -> [G], or "poses",
    where random joint angles would bring it.
    `control`: what an action in [-1, 1] means. torques: each actuator's control over its range (or from -1 to 1).
    targets: the same for position servos, over their joint's range if they have none. changes: a servo's joint angle
    plus `max_change` times the action. site:NAME: three numbers displace the site by up to `max_change` metres, by
    inverse kinematics of the servos on its way to the world. mocap:NAME: three numbers put the mocap body up to
    `max_change` from the body that is welded to it (or from itself). After the three come the other actuators.
    `frames`: time steps of the model per step of the task.
    `starts`: place, or (low, high) of a uniform draw, by joint; others are as in the model, or in `keyframe`. Or a
    function of a key that returns q and qd.
    `ends_outside`: (low, high) by feature; an episode ends early where one of its numbers is outside.
    """

    def __init__(
        self,
        name: str,
        model: str | Path | mujoco.MjSpec,
        *,
        goal: Feature | Sequence[Feature],
        goals: str | tuple[Any, Any] | Callable[[Array, Array], Array],
        threshold: float,
        episode_length: int,
        observe: Feature | Sequence[Feature] = ("q", "qd"),
        axes: str | None = None,
        control: str = "torques",
        max_change: float = 0.05,
        frames: int = 5,
        starts: Mapping[str, Any] | Callable[[Array], tuple[Array, Array]] | None = None,
        keyframe: str | None = None,
        ends_outside: Mapping[str, tuple[Any, Any]] | None = None,
        links: Links = "current",
        zeroed: Sequence[str] = (),
    ):
        if frames < 1 or episode_length < 1 or not threshold > 0.0 or not np.isfinite(max_change):
            raise UserError(
                f"{name} has frames {frames}, episode_length {episode_length}, threshold {threshold}, max_change "
                f"{max_change}: the first three must be positive and the last finite"
            )
        self._name, self.frames, self.max_change, self.links = name, frames, max_change, links
        self._spec = read_model(model)
        self.compiled = self._compile()
        self._keyframe = None if keyframe is None else self._find("key", keyframe)
        self._zeroed = [self._joint(joint)[0].start for joint in zeroed]
        self._rows: dict[str, list[int]] = {}  # what the engine reads of each field
        self._goal = self._readers(goal)
        self._axes = None if axes is None else _axes(axes)
        self._observed = self._readers(observe)
        limits = [(at, self._reader(at), box) for at, box in (ends_outside or {}).items()]
        self._starts = starts if callable(starts) else self._start_ranges(starts or {})
        action_size = self._set_control(control)
        self._goals = goals
        try:
            body = jax.eval_shape(lambda: self.engine.init(*self.draw(jax.random.key(0))))
            goal_size = jax.eval_shape(self.achieved, body).shape[0]
            state_size = jax.eval_shape(self.observe_body, body).shape[0]
            self._limits = [(read, *_box(at, box, jax.eval_shape(read, body).size)) for at, read, box in limits]
        except UserError:
            raise
        except Exception as error:  # a user's function may fail in any way
            raise UserError(f"a function of {name} fails ({one_line(error)}): repair it") from error
        if not callable(goals) and goals != POSES:
            self._goals = _box("goals", goals, goal_size)
        self.spec = EnvSpec(
            name=name,
            state_size=state_size,
            goal_size=goal_size,
            action_size=action_size,
            goal_dims=self.goal_dims(goal_size),
            threshold=threshold,
            episode_length=episode_length,
            physics=MUJOCO,
        )

    # The model

    def model(self) -> mujoco.MjSpec:
        return self._spec.copy()

    def make_engine(self) -> MujocoEngine:
        more = {"reads": self._rows, "zeroed": self._zeroed, "keyframe": self._keyframe}
        return MujocoEngine(self.compiled, self.frames, cores(), self.links, **more)

    @cached_property
    def engine(self) -> MujocoEngine:
        return self.make_engine()

    def by_mujoco(self) -> Self:
        return self

    def _compile(self) -> mujoco.MjModel:
        try:
            model = self.model().compile()
        except ValueError as error:
            raise UserError(
                f"MuJoCo cannot compile the model of {self._name} ({one_line(error)}): repair it"
            ) from error
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        if not all(np.all(np.isfinite(values)) for values in (data.qpos, data.qacc, data.xpos)):
            raise UserError(f"the model of {self._name} has a NaN or an infinity where it starts: repair it")
        return model

    def _find(self, kind: str, name: str) -> int:
        """Return the number of a site, body, joint, sensor or keyframe."""
        number = mujoco.mj_name2id(self.compiled, getattr(_OBJECT, f"mjOBJ_{kind.upper()}"), name)
        first = int(kind == "body")  # 0 is the world
        if number >= first:
            return number
        count = getattr(self.compiled, {"joint": "njnt"}.get(kind, f"n{kind}"))
        names = [other for i in range(first, count) if (other := getattr(self.compiled, kind)(i).name)]
        if not names:
            raise UserError(f"the model of {self._name} has no {kind} with a name, so it cannot be {shown(name)}")
        raise UserError(f"{unknown(kind, name, names)} (in the model of {self._name})")

    def _joint(self, name: str) -> tuple[slice, slice]:
        """Return where a joint is in q and in qd."""
        model, joint = self.compiled, self._find("joint", name)
        q, qd, kind = model.jnt_qposadr[joint], model.jnt_dofadr[joint], _JOINT(int(model.jnt_type[joint]))
        return slice(q, q + _POSITIONS.get(kind, 1)), slice(qd, qd + _SPEEDS.get(kind, 1))

    # Features

    def _readers(self, features: Feature | Sequence[Feature]) -> list[Callable[[MujocoState], Array]]:
        several = [features] if isinstance(features, str) or callable(features) else features
        return [self._reader(feature) for feature in several]

    def _reader(self, feature: Feature) -> Callable[[MujocoState], Array]:
        """Return the function that reads a feature: [...]."""
        if callable(feature):
            return lambda body: jnp.ravel(feature(body))
        kind, _, name = feature.partition(":") if isinstance(feature, str) else ("", "", "")
        if kind in ("q", "qd") and not name:
            return lambda body: getattr(body, kind)
        if kind in ("joint", "speed") and name:
            place, speed = self._joint(name)
            return (lambda body: body.q[place]) if kind == "joint" else (lambda body: body.qd[speed])
        if kind in ("body", "turn") and name:
            link = self._find("body", name) - 1
            return lambda body: (body.x.pos if kind == "body" else body.x.rot)[link]
        if kind == "site" and name:
            return self.field("site_xpos", self._find("site", name))
        if kind == "sensor" and name:
            self.links = "sensed" if self.links == "current" else self.links
            sensor = self._find("sensor", name)
            start, size = self.compiled.sensor_adr[sensor], self.compiled.sensor_dim[sensor]
            return self.field("sensordata", *range(start, start + size))
        raise UserError(
            f"{self._name} reads {shown(feature)}: a feature is {FEATURES}, or a function of the simulation"
        )

    def field(self, field: str, *indices: int) -> Callable[[MujocoState], Array]:
        """Return a function that reads rows of a field of MjData, flat. To be called before the engine is made."""
        rows = np.array([self._row(field, index) for index in indices])
        return lambda body: body.read[field][rows].ravel()  # pyright: ignore[reportArgumentType, reportCallIssue]

    def _row(self, field: str, index: int) -> int:
        rows = self._rows.setdefault(field, [])
        if index not in rows:
            rows.append(index)
        return rows.index(index)

    def chain(self, site: str, among: Sequence[int] | None = None) -> Chain:
        """Return the hinges and slides (of these joints) that move a site. To be called before the engine is made."""
        model, number = self.compiled, self._find("site", site)
        bodies, body = [], int(model.site_bodyid[number])
        while body:
            bodies.append(body)
            body = int(model.body_parentid[body])
        one_axis = (int(_JOINT.mjJNT_HINGE), int(_JOINT.mjJNT_SLIDE))
        joints = [j for j in range(model.njnt) if model.jnt_bodyid[j] in bodies and model.jnt_type[j] in one_axis]
        joints = np.array([j for j in joints if among is None or j in among], int)
        rows = np.array([(self._row("xaxis", j), self._row("xanchor", j))[0] for j in joints.tolist()], int)
        slides = model.jnt_type[joints] == int(_JOINT.mjJNT_SLIDE)
        places, speeds = model.jnt_qposadr[joints], model.jnt_dofadr[joints]
        return Chain(joints, places, speeds, slides, rows, self._row("site_xpos", number))

    def achieved(self, body: MujocoState) -> Array:
        """Return what has to reach the goal: [G]."""
        parts = [read(body) for read in self._goal]
        if self._axes is None:
            return jnp.concatenate(parts)
        if any(part.shape != (3,) for part in parts):
            raise UserError(f"{self._name}: axes picks coordinates of a place, and not every part of the goal is one")
        return jnp.concatenate([part[self._axes] for part in parts])

    def observe_body(self, body: MujocoState) -> Array:
        """Return the state: [S]."""
        return jnp.concatenate([self.achieved(body), *(read(body) for read in self._observed)])

    def goal_dims(self, goal_size: int) -> tuple[int, ...]:
        return tuple(range(goal_size))

    def observe(self, physics: Any, control: Array) -> tuple[Array, Array]:
        return self.observe_body(physics.body), physics.goal

    # Starts and goals

    def _start_ranges(self, starts: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        model = self.compiled
        low = np.array(model.qpos0 if self._keyframe is None else model.key_qpos[self._keyframe], np.float32)
        high = low.copy()
        for joint, value in starts.items():
            at, _ = self._joint(joint)
            size, numbers = at.stop - at.start, np.asarray(value, np.float32)
            shapes = {(), (1,), (2,), (2, 1)} if size == 1 else {(size,), (2, size)}
            if numbers.shape not in shapes or not np.all(np.isfinite(numbers)):
                raise UserError(
                    f"the start {shown(value)} of joint {joint!r} of {self._name} must be {size} finite numbers, or "
                    "twice as many: low and high"
                )
            low[at], high[at] = numbers if numbers.ndim and len(numbers) == 2 else (numbers, numbers)
        return low, high

    def draw(self, key: Array) -> tuple[Array, Array]:
        if callable(self._starts):
            q, qd = (jnp.asarray(values, jnp.float32) for values in self._starts(key))
            if (q.shape, qd.shape) != ((self.compiled.nq,), (self.compiled.nv,)):
                raise UserError(
                    f"starts of {self._name} returns q {q.shape} and qd {qd.shape}: the model has "
                    f"{self.compiled.nq} and {self.compiled.nv} numbers"
                )
            return q, qd
        still = np.zeros(self.compiled.nv) if self._keyframe is None else self.compiled.key_qvel[self._keyframe]
        return _uniform(key, *self._starts), jnp.asarray(still, jnp.float32)

    def draw_goal(self, key: Array, start: MujocoState) -> Array:
        if callable(self._goals):
            return jnp.asarray(self._goals(key, self.achieved(start)), jnp.float32)
        if isinstance(self._goals, str):
            return self.achieved(self.engine.init(self.draw_pose(key, start.q), jnp.zeros(self.compiled.nv)))
        return _uniform(key, *self._goals)

    def draw_pose(self, key: Array, q: Array) -> Array:
        """Return q with random hinges and slides: over their range, or over a turn for a hinge without one."""
        model = self.compiled
        hinge = model.jnt_type == int(_JOINT.mjJNT_HINGE)
        slide = model.jnt_type == int(_JOINT.mjJNT_SLIDE)
        limited = model.jnt_limited.astype(bool) & (hinge | slide)
        joints = np.flatnonzero(limited | hinge)
        low, high = np.where(limited, model.jnt_range.T, np.array([[-np.pi], [np.pi]]))[:, joints].astype(np.float32)
        return q.at[model.jnt_qposadr[joints]].set(_uniform(key, low, high))

    def reset(self, key: Array) -> EnvState:
        key_start, key_goal = jax.random.split(key)
        body = self.engine.init(*self.draw(key_start))
        return self._env_state(TaskState(body, self.draw_goal(key_goal, body)))

    def reset_toward(self, key: Array, goal: Array) -> EnvState:
        """Return the start that `reset` draws, with this goal [G] instead of the drawn one."""
        return self._env_state(TaskState(self.engine.init(*self.draw(jax.random.split(key)[0])), goal))

    def reset_to(self, q: Array, qd: Array) -> EnvState:
        """Start from q and qd, with the goal of key 0."""
        body = self.engine.init(jnp.asarray(q, jnp.float32), jnp.asarray(qd, jnp.float32))
        return self._env_state(TaskState(body, self.draw_goal(jax.random.key(0), body)))

    # A step

    def step(self, state: EnvState, action: Array) -> EnvState:
        task: TaskState = state.physics
        control, mocap = self.actuate(task.body, jnp.clip(action, -1.0, 1.0))
        return self._env_state(task._replace(body=self.engine.step(task.body, control, mocap=mocap)))

    def _env_state(self, task: TaskState) -> EnvState:
        state = self.observe_body(task.body)
        near_goal = self.near_goal(state, task.goal)
        obs = jnp.concatenate([state, task.goal])
        return EnvState(obs, near_goal.astype(jnp.float32), self.fallen(task), near_goal, task)

    def fallen(self, physics: Any) -> Array:
        outside = [
            jnp.any((read(physics.body) < low) | (read(physics.body) > high)) for read, low, high in self._limits
        ]
        return jnp.any(jnp.stack(outside)) if outside else jnp.zeros((), bool)

    def actuate(self, body: MujocoState, action: Array) -> tuple[Array, Array | None]:
        """Return the controls [U], and the mocap bodies' poses [M, 7] unless they stay; action [A] is in [-1, 1]."""
        low, high = self._ranges
        direct = action[-len(self._direct) :] if len(self._direct) else action[:0]
        control = jnp.zeros(self.compiled.nu).at[self._direct].set((low + high) / 2 + direct * (high - low) / 2)
        change = self.max_change * action
        if self._kind == "changes":
            return self._gear * (body.q[self._servo_q] + change), None
        if self._kind == "site":
            jacobian = self._chain.jacobian(body)  # [3, K]
            turn = jacobian.T @ jnp.linalg.solve(jacobian @ jacobian.T + DAMPING * jnp.eye(3), change[:3])
            targets = (body.q[self._chain.q] + turn)[self._of_site]
            return control.at[self._by_site].set(self._gear[self._by_site] * targets), None
        if self._kind == "mocap":
            place = body.x.pos[self._anchor] + change[:3]
            return control, self.mocap_poses(body).at[self._mocap, :3].set(place)
        return control, None

    def mocap_poses(self, body: MujocoState) -> Array:
        """Return where the mocap bodies are: [M, 7]."""
        links = np.flatnonzero(self.compiled.body_mocapid >= 0) - 1  # their order is that of the bodies
        return jnp.concatenate([body.x.pos[links], body.x.rot[links]], axis=1)

    def _set_control(self, control: str) -> int:
        """Prepare `actuate` and return the size of an action."""
        model = self.compiled
        self._kind, _, name = control.partition(":")
        named = {"torques": False, "targets": False, "changes": False, "site": True, "mocap": True}
        if named.get(self._kind) is not bool(name):
            raise UserError(f"{self._name} has the control {shown(control)}: use {CONTROLS}")
        if model.nu != model.nactuator:
            raise UserError(f"the model of {self._name} has actuators with more than one input: leave them out")
        self._gear = model.actuator_gear[:, 0].astype(np.float32)
        joint = np.where(model.actuator_trntype == int(mujoco.mjtTrn.mjTRN_JOINT), model.actuator_trnid[:, 0], -1)
        servo = (model.actuator_biastype == int(mujoco.mjtBias.mjBIAS_AFFINE)) & (joint >= 0)
        servo &= model.actuator_biasprm[:, 1] != 0.0  # a servo of the speed has none
        servo &= ~np.isin(model.jnt_type[joint], [int(kind) for kind in _POSITIONS]) if model.njnt else False
        if self._kind in ("targets", "changes") and not np.all(servo):
            other = model.actuator(int(np.flatnonzero(~servo)[0])).name
            raise UserError(f"{self._name}: actuator {other!r} is no position servo of a joint: use control torques")
        direct = np.ones(model.nu, bool)
        if self._kind == "changes":
            self._servo_q, direct[:] = model.jnt_qposadr[joint], False
        elif self._kind == "site":
            self._chain = self.chain(name, joint[servo].tolist())
            if not len(self._chain.joints):
                raise UserError(
                    f"{self._name}: no position servo moves the site {name!r}, so control cannot be {control}"
                )
            self._by_site = np.flatnonzero(servo & np.isin(joint, self._chain.joints))
            self._of_site = np.array([self._chain.joints.tolist().index(j) for j in joint[self._by_site]])
            direct[self._by_site] = False
        elif self._kind == "mocap":
            self._anchor, self._mocap = self._welded_to(name)
        self._direct = np.flatnonzero(direct)
        self._ranges = self._control_ranges(joint, servo)[:, self._direct]
        size = int(direct.sum()) + {"changes": model.nu, "site": 3, "mocap": 3}.get(self._kind, 0)
        if not size:
            raise UserError(f"the model of {self._name} has no actuators: add some, or use control mocap:NAME")
        return size

    def _control_ranges(self, joint: np.ndarray, servo: np.ndarray) -> np.ndarray:
        """Return low and high [2, U] of each actuator's control."""
        model = self.compiled
        ranges = np.tile(np.array([[-1.0], [1.0]]), model.nu)
        of_joint = servo & model.jnt_limited[joint].astype(bool) if model.njnt else servo
        ranges[:, of_joint] = model.jnt_range[joint[of_joint]].T * model.actuator_gear[of_joint, 0]
        limited = model.actuator_ctrllimited.astype(bool)
        ranges[:, limited] = model.actuator_ctrlrange[limited].T
        if self._kind == "targets" and not np.all(limited | of_joint):
            other = model.actuator(int(np.flatnonzero(~(limited | of_joint))[0])).name
            raise UserError(f"{self._name}: actuator {other!r} and its joint have no range: add one or use changes")
        return ranges.astype(np.float32)

    def _welded_to(self, name: str) -> tuple[int, int]:
        """Return the link that a mocap body pulls (or itself), and its number among the mocap bodies."""
        model, body = self.compiled, self._find("body", name)
        if model.body_mocapid[body] < 0:
            raise UserError(f"{self._name}: the body {name!r} is no mocap body, so control cannot be mocap:{name}")
        for i in np.flatnonzero(model.eq_type == int(_EQUALITY.mjEQ_WELD)):
            ends = [int(model.eq_obj1id[i]), int(model.eq_obj2id[i])]
            if model.eq_objtype[i] == int(_OBJECT.mjOBJ_BODY) and body in ends and 0 not in ends:
                ends.remove(body)
                return ends[0] - 1, int(model.body_mocapid[body])
        return body - 1, int(model.body_mocapid[body])


def read_model(model: str | Path | mujoco.MjSpec) -> mujoco.MjSpec:
    """Read a model's file or XML, or copy an MjSpec."""
    if not isinstance(model, str | Path):
        return model.copy()
    text = str(model)
    try:
        if text.lstrip().startswith("<"):
            return mujoco.MjSpec.from_string(text)
        return mujoco.MjSpec.from_file(text)
    except ValueError as error:
        raise UserError(
            f"MuJoCo cannot read the model {shown(text)} ({one_line(error)}): give XML or its file"
        ) from error


def _box(name: object, box: Any, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return low and high, [size] each."""
    try:
        low, high = (np.broadcast_to(np.asarray(side, np.float32), size) for side in box)
    except (TypeError, ValueError):
        raise UserError(f"{name} is {shown(box)}: give (low, high), each one number or {size}") from None
    if not np.all(low <= high):  # nor with a NaN
        raise UserError(f"{name} is {shown(box)}: no low may be above its high, and none a NaN")
    return low, high


def _axes(axes: str) -> np.ndarray:
    if not axes or not set(axes) <= set("xyz"):
        raise UserError(f"axes {shown(axes)}: choose of xyz, such as xy")
    return np.array(["xyz".index(axis) for axis in axes])


def _uniform(key: Array, low: np.ndarray, high: np.ndarray) -> Array:
    return jax.random.uniform(key, low.shape, minval=jnp.asarray(low), maxval=jnp.asarray(high))
