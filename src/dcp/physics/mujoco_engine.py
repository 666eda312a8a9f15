"""MuJoCo's own C engine behind the seam of the others: a step is one call for all environments, on a pool of threads.

A compiled program calls it by `jax.pure_callback`: rollouts, evaluations and whatever else steps an environment stay
the programs that they are, and a vmap over environments, or over seeds, is one call with all of them.
MuJoCo's `Batch` keeps nothing between calls that counts: all that a next step needs is in the state, warm start
included, so a checkpoint is exact, and neither the number of threads nor who else is stepped changes a bit.
"""

from collections.abc import Callable
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from dcp.types import Array

if TYPE_CHECKING:
    from brax.base import Motion, Transform
    from mujoco.batch import Batch

# A task reads link frames where the step ends; those of MJX lag behind by a frame, as in Brax.
AT_THE_END, LAGGING = mujoco.mjtStage.mjSTAGE_VEL, mujoco.mjtStage.mjSTAGE_NONE
_EXACT = ("qpos", "qvel", "act", "qacc_warmstart")  # all that decides the next step; controls come with it
_LINKS = ("xpos", "xquat", "cvel", "subtree_com")  # what is read of the links
_SIZES_KEPT = 4  # training's, evaluation's, and two more numbers of environments


class MujocoState(NamedTuple):
    q: Array  # [Q]
    qd: Array  # [V]
    x: "Transform"  # link frames
    xd: "Motion"
    exact: Array  # uint32 [2 K]: the integration state, K numbers of 64 bits, which JAX does not have, as pairs of 32


class MujocoEngine:
    def __init__(self, model: mujoco.MjModel, frames: int, threads: int, links: mujoco.mjtStage = AT_THE_END):
        model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)  # whoever diverges is ours to reset
        self.sys, self.frames, self.threads, self._stage = model, frames, threads, links
        self._batch = lru_cache(maxsize=_SIZES_KEPT)(self._make_batch)
        self._lock = Lock()  # virtual devices call at the same time, and a batch serves one at a time
        self._roots = model.body_rootid[1:]

    def init(self, q: Array, qd: Array) -> MujocoState:
        return self._call(self._start, q, qd)

    def step(self, state: MujocoState, control: Array) -> MujocoState:
        return self._call(self._advance, state.exact, control)

    def _call(self, function: Callable[..., Any], *inputs: Array) -> MujocoState:
        from brax.base import Motion, Transform

        m, links = self.sys, self.sys.nbody - 1
        shapes = {
            "q": (m.nq,),
            "qd": (m.nv,),
            "pos": (links, 3),
            "rot": (links, 4),
            "vel": (links, 3),
            "ang": (links, 3),
        }
        wanted = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
        wanted["exact"] = jax.ShapeDtypeStruct((2 * (m.nq + 2 * m.nv + m.na),), jnp.uint32)
        got = jax.pure_callback(function, wanted, *inputs, vmap_method="broadcast_all")
        x, xd = Transform(pos=got["pos"], rot=got["rot"]), Motion(vel=got["vel"], ang=got["ang"])
        return MujocoState(got["q"], got["qd"], x, xd, got["exact"])

    # On the host, for any number of environments: [..., K] arrays.

    def _start(self, q: Any, qd: Any) -> dict[str, np.ndarray]:
        q, qd = np.asarray(q), np.asarray(qd)
        many = q.shape[:-1]
        with self._lock:
            batch = self._batch(int(np.prod(many)))
            batch.bind("qpos")[:], batch.bind("qvel")[:] = q.reshape(-1, self.sys.nq), qd.reshape(-1, self.sys.nv)
            batch.bind("act")[:], batch.bind("qacc_warmstart")[:] = 0.0, 0.0
            return self._run(batch, many, lambda: batch.forward(stage=int(AT_THE_END)))

    def _advance(self, exact: Any, control: Any) -> dict[str, np.ndarray]:
        exact, control = np.asarray(exact), np.asarray(control)
        many = exact.shape[:-1]
        with self._lock:
            batch = self._batch(int(np.prod(many)))
            rows = np.ascontiguousarray(exact.reshape(batch.nsim, -1)).view(np.float64)
            start = 0
            for name in _EXACT:
                field = batch.bind(name)
                field[:] = rows[:, start : start + field.shape[1]]
                start += field.shape[1]
            batch.bind("ctrl")[:] = control.reshape(batch.nsim, -1)
            return self._run(batch, many, lambda: batch.step(nstep=self.frames, stage=int(self._stage)))

    def _run(self, batch: "Batch", many: tuple[int, ...], call: Callable[[], None]) -> dict[str, np.ndarray]:
        from mujoco.batch import SimulationError

        try:
            call()
        except SimulationError as error:  # such as a body thrown so far that memory for its contacts ends
            batch.bind("qpos")[error.ids] = np.nan  # diverged, for whoever judges the step
        rows = np.concatenate([batch.bind(name) for name in _EXACT], axis=1)  # [N, K]
        pos, rot, motion, centres = (batch.bind(name)[:, 1:] for name in _LINKS)  # without the world
        # MuJoCo's velocities are those of the tree's centre of mass, were it part of the link.
        arm = pos - centres[:, self._roots - 1]
        ang = motion[..., :3]
        out = {"q": batch.bind("qpos"), "qd": batch.bind("qvel"), "pos": pos, "rot": rot, "ang": ang}
        out["vel"] = motion[..., 3:] + np.cross(ang, arm)
        single = {name: part.astype(np.float32).reshape(*many, *part.shape[1:]) for name, part in out.items()}
        return {**single, "exact": rows.view(np.uint32).reshape(*many, -1)}

    def _make_batch(self, number: int) -> "Batch":
        from mujoco.batch import Batch

        batch = Batch(self.sys, number, self.threads)
        for name in _LINKS:
            batch.bind(name)
        return batch
