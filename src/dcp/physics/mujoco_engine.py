"""MuJoCo's physics: by its own C engine on all cores, or by MJX in XLA's programs.

A compiled program calls the C engine by `jax.pure_callback`, so rollouts and evaluations need no other program. A vmap
over environments, or over seeds, is one call with all of them. Everything that the next step needs is in the state,
including the solver's warm start, and nothing in MuJoCo's `Batch` carries over between calls. So a checkpoint is exact,
and neither the number of threads nor the other environments of a call change a bit.
"""

import contextlib
import ctypes
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from dcp.config import cores
from dcp.errors import UserError, install_hint
from dcp.physics.kinematics import Motion, Transform
from dcp.types import Array

if TYPE_CHECKING:
    from mujoco.batch import Batch

# What a task reads of the links: their frames at the start of the step's last frame, as in MJX; at its end; those at
# its end with velocities; or frames at its end and all sensors.
Links = Literal["lagging", "current", "moving", "sensed"]
_STAGES = {"lagging": mujoco.mjtStage.mjSTAGE_NONE, "current": mujoco.mjtStage.mjSTAGE_POS}
_STAGES |= {"moving": mujoco.mjtStage.mjSTAGE_VEL, "sensed": mujoco.mjtStage.mjSTAGE_ACC}
# All that decides the next step, where a model has it; controls come with it.
_EXACT = ("qpos", "qvel", "act", "qacc_warmstart", "mocap_pos", "mocap_quat", "eq_active")
_STATE = mujoco.mjtState
_UNKEPT = (_STATE.mjSTATE_HISTORY, _STATE.mjSTATE_PLASTIC, _STATE.mjSTATE_PLUGIN)  # would too, if a model had them
_NEEDS_MEMORY = int(mujoco.mjtEnableBit.mjENBL_SLEEP) | int(mujoco.mjtEnableBit.mjENBL_IPC)
_SIZES_KEPT = 4  # training's, evaluation's, and two more numbers of environments
_CALLING = Lock()  # virtual devices or concurrent programs may call at the same time; each call uses all threads


class MujocoState(NamedTuple):
    q: Array  # [Q]
    qd: Array  # [V]
    x: Transform  # link frames
    xd: Motion | tuple[()]  # where the task asks for it
    exact: Array  # uint32 [2 K]: the integration state, K numbers of 64 bits, which JAX does not have, as pairs of 32
    read: dict[str, Array] | tuple[()] = ()  # what else the task asks for: rows of fields of MjData


class MujocoEngine:
    """MuJoCo's C engine. A step is one call for all environments, on a pool of threads.

    `varied`: groups of the model's fields, such as (("body_mass", "body_inertia"),), that each environment multiplies
    by its own factor at each step. Constants that MuJoCo derives from them at compilation stay as in the model.
    `reads`: rows of more fields of MjData that the state holds, such as {"site_xpos": [0, 2]}. `zeroed`: positions that
    are set to 0 after each step. `keyframe`: where activations and mocap bodies start, if not as the model says.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        frames: int,
        threads: int,
        links: Links = "current",
        varied: tuple[tuple[str, ...], ...] = (),
        reads: Mapping[str, Sequence[int]] | None = None,
        zeroed: Sequence[int] = (),
        keyframe: int | None = None,
    ):
        if any(mujoco.mj_stateSize(model, int(part)) for part in _UNKEPT):
            raise UserError(
                "this engine cannot step a model whose delays, plastic bodies or plugins remember more than q and qd: "
                "use physics brax"
            )
        if model.opt.enableflags & _NEEDS_MEMORY:
            raise UserError("this engine cannot step a model with the flag sleep or ipc: leave it out")
        model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)  # we reset environments that diverge
        self.sys, self.frames, self.threads, self.links, self.varied = model, frames, threads, links, varied
        self.reads = {name: np.asarray(rows) for name, rows in (reads or {}).items()}
        self.zeroed = np.asarray(zeroed, int)
        self.timestep = model.opt.timestep
        data = mujoco.MjData(model)
        if keyframe is not None:
            mujoco.mj_resetDataKeyframe(model, data, keyframe)
        self._first = np.concatenate([np.ravel(getattr(data, name)).astype(np.float64) for name in _EXACT])  # [K]
        self._batch = lru_cache(maxsize=_SIZES_KEPT)(self._make_batch)
        self._quaternions = _quaternions(model)
        number = model.nbody - 1  # links; body 0 is the world
        self._shapes = {"q": (model.nq,), "qd": (model.nv,), "pos": (number, 3), "rot": (number, 4)}
        if links == "moving":
            self._shapes |= {"vel": (number, 3), "ang": (number, 3)}
        for name, rows in self.reads.items():
            self._shapes[name] = (len(rows), *getattr(data, name).shape[1:])

    def init(self, q: Array, qd: Array) -> MujocoState:
        return self._call(self._start, q, qd)

    def step(
        self, state: MujocoState, control: Array, factors: Array | None = None, mocap: Array | None = None
    ) -> MujocoState:
        """factors [groups of `varied`]; mocap [M, 7]: where mocap bodies are from now on, place and quaternion"""
        present = {name: value for name, value in (("factors", factors), ("mocap", mocap)) if value is not None}

        def advance(exact: Any, control: Any, *optional: Any) -> dict[str, np.ndarray]:
            return self._advance(exact, control, **dict(zip(present, optional, strict=True)))

        return self._call(advance, state.exact, control, *present.values())

    def _call(self, function: Callable[..., Any], *inputs: Array) -> MujocoState:
        shapes = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in self._shapes.items()}
        shapes["exact"] = jax.ShapeDtypeStruct((2 * len(self._first),), jnp.uint32)
        arrays = on_host(function, shapes, *inputs)
        x = Transform(pos=arrays["pos"], rot=arrays["rot"])
        xd = Motion(vel=arrays["vel"], ang=arrays["ang"]) if self.links == "moving" else ()
        read = {name: arrays[name] for name in self.reads}
        return MujocoState(arrays["q"], arrays["qd"], x, xd, arrays["exact"], read or ())

    # On the host, with arrays [..., K] for any number of environments.

    def _start(self, q: Any, qd: Any) -> dict[str, np.ndarray]:
        q, qd = np.asarray(q), np.asarray(qd)
        with _calling():
            batch = self._batch(int(np.prod(q.shape[:-1])))
            start = np.tile(self._first, (batch.nsim, 1))
            start[:, : self.sys.nq] = q.reshape(batch.nsim, -1)
            start[:, self.sys.nq : self.sys.nq + self.sys.nv] = qd.reshape(batch.nsim, -1)
            if self.links == "lagging":
                self._normalise(start)
            self._write(batch, start)
            stage = _STAGES["current" if self.links == "lagging" else self.links]
            self._run(batch, lambda: batch.forward(stage=int(stage)))
            return self._read(batch, q.shape[:-1])

    def _advance(self, exact: Any, control: Any, factors: Any = None, mocap: Any = None) -> dict[str, np.ndarray]:
        exact, control = np.asarray(exact), np.asarray(control)
        with _calling():
            batch = self._batch(int(np.prod(exact.shape[:-1])))
            self._write(batch, np.ascontiguousarray(exact.reshape(batch.nsim, -1)).view(np.float64))
            control = control.reshape(batch.nsim, -1)
            batch.bind("ctrl")[:] = control
            sound = np.isfinite(control).all(axis=1)
            if factors is not None:
                self._vary(batch, np.asarray(factors, np.float64).reshape(batch.nsim, -1))
            if mocap is not None:
                poses = np.asarray(mocap).reshape(batch.nsim, -1, 7)
                sound &= np.isfinite(poses).all(axis=(1, 2))
                batch.bind("mocap_pos")[:], batch.bind("mocap_quat")[:] = poses[..., :3], poses[..., 3:]
            self._run(batch, lambda: batch.step(nstep=self.frames, stage=int(_STAGES[self.links])))
            if len(self.zeroed):
                batch.bind("qpos")[:, self.zeroed] = 0.0
                self._run(batch, lambda: batch.forward(stage=int(_STAGES[self.links])))
            batch.bind("qpos")[~sound] = np.nan  # MuJoCo would take it for a zero
            return self._read(batch, exact.shape[:-1])

    def _vary(self, batch: "Batch", factors: np.ndarray) -> None:
        """Give each environment its own values of the varied fields: factors [N, groups]."""
        for fields, factor in zip(self.varied, factors.T, strict=True):
            for name in fields:
                own = getattr(self.sys, name)
                batch.expand(name)[:] = factor.reshape(-1, *[1] * own.ndim) * own

    def _normalise(self, rows: np.ndarray) -> None:
        """Normalise the quaternions of drawn starts [N, K], as MJX does first."""
        for at in self._quaternions:
            part = rows[:, at : at + 4]
            part /= np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-15)  # a zero stays one

    def _write(self, batch: "Batch", rows: np.ndarray) -> None:
        """Set the integration states of all environments: rows [N, K]."""
        start = 0
        for name in _EXACT:
            field = batch.bind(name)
            size = int(np.prod(field.shape[1:]))
            field[:] = rows[:, start : start + size].reshape(field.shape)
            start += size

    def _run(self, batch: "Batch", call: Callable[[], None]) -> None:
        from mujoco.batch import SimulationError

        try:
            call()
        except SimulationError as error:  # such as more contacts than fit into memory
            batch.bind("qpos")[error.ids] = np.nan  # marks the step as diverged

    def _read(self, batch: "Batch", many: tuple[int, ...]) -> dict[str, np.ndarray]:
        out = {"q": batch.bind("qpos"), "qd": batch.bind("qvel")}
        out |= {"pos": batch.bind("xpos")[:, 1:], "rot": batch.bind("xquat")[:, 1:]}
        if self.links == "moving":
            out |= self._motion(batch)
        out |= {name: batch.bind(name)[:, rows] for name, rows in self.reads.items()}
        exact = [batch.bind(name).reshape(batch.nsim, -1) for name in _EXACT]
        rows = np.concatenate(exact, axis=1)  # [N, K]
        with np.errstate(over="ignore", invalid="ignore"):  # what diverged may not fit
            arrays = {name: part.astype(np.float32).reshape(*many, *part.shape[1:]) for name, part in out.items()}
        return {**arrays, "exact": rows.view(np.uint32).reshape(*many, -1)}

    def _motion(self, batch: "Batch") -> dict[str, np.ndarray]:
        """Return each link's own velocities; MuJoCo's refer to the centre of mass of the link's tree."""
        motion = batch.bind("cvel")[:, 1:]  # [N, L, 6]: turning, then moving
        arm = batch.bind("xpos")[:, 1:] - batch.bind("subtree_com")[:, self.sys.body_rootid[1:]]
        return {"ang": motion[..., :3], "vel": motion[..., 3:] + np.cross(motion[..., :3], arm)}

    def _make_batch(self, number: int) -> "Batch":
        from mujoco.batch import Batch

        batch = Batch(self.sys, number, self.threads)
        for name in ("xpos", "xquat", *self.reads, *(("cvel", "subtree_com") if self.links == "moving" else ())):
            batch.bind(name)  # from now on it is copied out after each call
        return batch


def on_host(function: Callable[..., dict[str, Any]], shapes: Mapping[str, Any], *inputs: Array) -> dict[str, Array]:
    """Call a NumPy function from a compiled program, under a vmap with the arrays of all.

    This is `jax.pure_callback`, which first copies its arguments on XLA's threads. Where there is one, and the program
    runs on it, both would wait forever (JAX issue 24255): there the function gets the program's own arrays.
    """
    if cores() > 1 or jax.default_backend() != "cpu":
        return jax.pure_callback(function, shapes, *inputs, vmap_method="broadcast_all")
    names = tuple(sorted(shapes))
    avals = tuple((shapes[name].shape, shapes[name].dtype) for name in names)

    def in_order(*values: np.ndarray) -> tuple[np.ndarray, ...]:
        arrays = function(*values)
        return tuple(np.asarray(arrays[name]) for name in names)

    return dict(zip(names, _host_call.bind(*inputs, function=in_order, avals=avals), strict=True))


_host_call = Primitive("host_call")
_host_call.multiple_results = True


@_host_call.def_impl
def _call_now(*inputs: Array, function: Callable[..., Any], avals: Any) -> list[Array]:
    return [jnp.asarray(array) for array in function(*map(np.asarray, inputs))]


@_host_call.def_abstract_eval
def _shapes_of(*inputs: Any, function: Callable[..., Any], avals: Any) -> list[Any]:
    return [ShapedArray(shape, dtype) for shape, dtype in avals]


def _call_for_all(inputs: Any, dims: Any, *, function: Callable[..., Any], avals: Any) -> tuple[Any, list[int]]:
    [size] = {x.shape[dim] for x, dim in zip(inputs, dims, strict=True) if dim is not None}
    whole = [
        jnp.broadcast_to(x, (size, *x.shape)) if dim is None else jnp.moveaxis(x, dim, 0)
        for x, dim in zip(inputs, dims, strict=True)
    ]
    wider = tuple(((size, *shape), dtype) for shape, dtype in avals)
    return _host_call.bind(*whole, function=function, avals=wider), [0] * len(avals)


def _lower(ctx: Any, *inputs: Any, function: Callable[..., Any], avals: Any) -> Any:
    kinds = {"has_side_effect": False, "returns_token": False}
    return mlir.emit_python_callback(ctx, function, None, list(inputs), ctx.avals_in, ctx.avals_out, **kinds)[0]


batching.primitive_batchers[_host_call] = _call_for_all
mlir.register_lowering(_host_call, _lower, cacheable=False)


def _quaternions(model: mujoco.MjModel) -> list[int]:
    """Return where in q each begins."""
    joints = mujoco.mjtJoint
    skipped = {joints.mjJNT_FREE: 3, joints.mjJNT_BALL: 0}  # a free joint's place comes first
    kinds = zip(model.jnt_type.tolist(), model.jnt_qposadr.tolist(), strict=True)
    return [at + skipped[kind] for kind, at in kinds if kind in skipped]


# MuJoCo reports each diverged step on stderr and in a file MUJOCO_LOG.TXT, unless a handler is set. Episodes count them
# instead, so this handler does nothing. It is a C function, so that no thread waits for Python.
_IGNORE = ctypes.cast(
    ctypes.CDLL(None if os.name == "posix" else "msvcrt").strlen, ctypes.CFUNCTYPE(None, ctypes.c_char_p)
)


@contextlib.contextmanager
def _calling() -> Iterator[None]:
    with _CALLING:
        before = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(_IGNORE)
        try:
            yield
        finally:
            mujoco.set_mju_user_warning(before)


class MjxState(NamedTuple):
    """Hold the fields of `mjx.Data` that the next step needs."""

    q: Array  # [Q]
    qd: Array  # [V]
    x: Transform  # link frames; after a step those of its last frame's start, as in Brax
    warm_start: Array  # [V]: the last acceleration, where the solver starts


class MjxEngine:
    """MJX as Brax's pipeline runs it, for GPUs and TPUs."""

    def __init__(self, model: mujoco.MjModel, frames: int):
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # MJX prints that an optional backend is missing
                from mujoco import mjx
        except ImportError as error:
            raise UserError(f"on a GPU MJX steps this task, and it does not import: {install_hint('cuda')}") from error

        self.sys, self.frames, self._mjx = model, frames, mjx.put_model(model)

    def init(self, q: Array, qd: Array) -> MjxState:
        from mujoco import mjx

        with jax.numpy_rank_promotion("allow"):  # MJX's own code promotes
            return self._read(mjx.kinematics(self._mjx, mjx.make_data(self._mjx).replace(qpos=q, qvel=qd)))

    def step(self, state: MjxState, control: Array) -> MjxState:
        from mujoco import mjx

        def frame(state: MjxState, _: None) -> tuple[MjxState, None]:
            data = mjx.make_data(self._mjx).replace(qpos=state.q, qvel=state.qd, qacc_warmstart=state.warm_start)
            return self._read(mjx.step(self._mjx, data.replace(ctrl=control))), None

        with jax.numpy_rank_promotion("allow"):
            return jax.lax.scan(frame, state, None, self.frames)[0]

    @staticmethod
    def _read(data: Any) -> MjxState:
        x = Transform(pos=data.xpos[1:], rot=data.xquat[1:])
        return MjxState(data.qpos, data.qvel, x, data.qacc_warmstart)
