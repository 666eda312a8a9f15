"""Writes mjx_<environment>.npz: five environment steps of our MuJoCo models by MJX in float64.

    python tests/golden/record_mjx.py [FOLDER] [ENVIRONMENT ...]

Eight starts each: four of the environment's own, and four of the peer's recordings in contact (its walls, ball, box,
object). Half a minute to two minutes an environment, nearly all of it compiling.
"""

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

HERE = Path(__file__).parent
ENVIRONMENTS = (
    "ant_u_maze", "ant_big_maze", "ant_hardest_maze", "humanoid_u_maze", "ant_push", "ant_soccer", "pusher_easy",
)  # fmt: skip
STEPS, EACH = 5, 4


def starts(env: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    q, qd = jax.vmap(env.draw)(jax.random.split(jax.random.key(0), EACH))
    with np.load(HERE / f"{name}_contact.npz", allow_pickle=False) as contact:
        q = np.concatenate([q, contact["q0"][:EACH]])
        qd = np.concatenate([qd, contact["qd0"][:EACH]])
    return q.astype(np.float32), qd.astype(np.float32)


def by_mjx(model: Any, q: np.ndarray, qd: np.ndarray, controls: np.ndarray, frames: int) -> tuple[Any, Any]:
    """-> q [T, N, Q], qd [T, N, V] after each environment step, in float64"""
    from mujoco import mjx

    with jax.enable_x64(True), jax.numpy_rank_promotion("allow"):
        m = mjx.put_model(model)

        def start(q: Any, qd: Any) -> Any:
            return mjx.make_data(m).replace(qpos=q, qvel=qd)

        def step(data: Any, control: Any) -> Any:
            def frame(data: Any, _: None) -> tuple[Any, None]:
                return mjx.step(m, data.replace(ctrl=control)), None

            return jax.lax.scan(frame, data, None, frames)[0]

        advance = jax.jit(jax.vmap(step))
        data = jax.vmap(start)(q.astype(np.float64), qd.astype(np.float64))
        seen = []
        for control in controls.astype(np.float64):
            data = advance(data, control)
            seen.append((np.asarray(data.qpos), np.asarray(data.qvel)))
    return tuple(np.stack(part) for part in zip(*seen, strict=True))


def record(name: str) -> dict[str, np.ndarray]:
    from dcp.envs.registry import make_env

    env: Any = make_env(name, physics="mujoco")
    q0, qd0 = starts(env, name)
    actions = np.random.default_rng(0).uniform(-1, 1, (STEPS, len(q0), env.spec.action_size)).astype(np.float32)
    controls = np.asarray(jax.vmap(jax.vmap(env.control))(actions))
    q, qd = by_mjx(env.engine.sys, q0, qd0, controls, env.engine.frames)
    return {"q0": q0, "qd0": qd0, "actions": actions, "q": q, "qd": qd}


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    for name in sys.argv[2:] or ENVIRONMENTS:
        np.savez_compressed(folder / f"mjx_{name}.npz", **record(name))
        print(name, flush=True)
