"""The MJX engine against plain Brax: recorded frames (fast), and the pipeline itself (slow to compile)."""

from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from dcp.envs import ant_push
from dcp.physics import models
from dcp.physics.constraint_rows import Dynamics, Rows
from dcp.physics.line_search import Settings
from dcp.physics.mjx import MjxEngine, MjxState
from dcp.physics.mjx_contacts import Scene
from dcp.physics.newton import solve

FRAMES = Path(__file__).parents[1] / "golden" / "ant_push_frames.npz"


@pytest.fixture(scope="module")
def frames() -> dict[str, np.ndarray]:
    """Single frames of brax.mjx.pipeline (Brax 0.14.2, MJX 3.17) among walls, box and floor, and from resets."""
    with np.load(FRAMES, allow_pickle=False) as file:
        return dict(file)


def geom_positions(model: mujoco.MjModel, q: np.ndarray) -> np.ndarray:
    """[K, Q] -> [geoms, 3, K], by MuJoCo's C code"""
    data, found = mujoco.MjData(model), []
    for row in q:
        data.qpos = row
        mujoco.mj_kinematics(model, data)
        found.append(data.geom_xpos.copy())
    return np.stack(found, -1).astype(np.float32)


def test_what_touches_is_what_mjx_finds_at_the_same_depth(frames):
    model = ant_push.model().compile()
    scene = Scene(model)
    dist = np.asarray(jax.jit(lambda p: scene.touch(p).dist)(geom_positions(model, frames["q"])))
    most = 0
    for ours, theirs in zip(dist.T, frames["distances"], strict=True):
        depths = np.repeat(ours, scene.slots.count)  # a face counts four times
        touching = np.sort(depths[depths < -1e-5])
        np.testing.assert_allclose(touching, np.sort(theirs[theirs < -1e-5]), atol=1e-5)
        most = max(most, len(touching))
    assert most >= 12  # the recording has crowded corners


def test_nothing_can_touch_three_fixed_boxes_at_once():
    """So the two that a geom keeps are all that count: foot, torso and even the movable box, wherever they are."""
    x, y = np.meshgrid(np.linspace(-12, 28, 401), np.linspace(-12, 28, 401))
    for half in (0.25, 3.6):
        touching = sum(
            (np.abs(x - cx) < hx + half) & (np.abs(y - cy) < hy + half)
            for (cx, cy), (hx, hy) in ant_push.WALLS.values()
        )
        assert np.max(touching) == 2


def test_an_unknown_scene_is_refused():
    spec = ant_push.model()
    models.set_contact(spec, ["aux_1_geom"], contype=1, conaffinity=0)  # a capsule
    with pytest.raises(ValueError, match="every sphere"):
        Scene(spec.compile())


def test_a_mass_on_the_floor_gets_the_acceleration_of_the_hand_computed_minimum():
    """min 1/2 (a + 9.81)^2 + 4/2 D (a - 2)^2 for D = 3: a = (-9.81 + 4 * 3 * 2) / (1 + 4 * 3); free where a > 2."""
    one = np.ones((1, 1), np.float32)
    normal = jnp.zeros((3, 1, 1, 2)).at[0].set(1.0)
    rows = Rows(normal, one, np.array([], int), jnp.zeros((0, 2)), jnp.full((4, 2), 3.0), jnp.full((4, 2), 2.0))
    force = jnp.array([[-9.81, 5.0]])
    free = Dynamics(jnp.ones((1, 1, 2)), force, force)
    found = jax.jit(lambda: solve(rows, free, jnp.zeros((1, 2)), Settings(4, 8, 1e-8, 0.01)))()
    np.testing.assert_allclose(found, [[(-9.81 + 24) / 13, 5.0]], rtol=1e-5)


@pytest.fixture(scope="module")
def engine() -> MjxEngine:
    return MjxEngine(models.system(ant_push.model()), frames=1)


def assert_close(q, qd, next_q, next_qd) -> None:
    """The ant to float noise. The box weighs 0.2 g: where four iterations leave it unsolved, noise is amplified."""
    speed = 1.0 + np.abs(next_qd).max(1, keepdims=True)
    np.testing.assert_array_less(np.abs(qd - next_qd)[:, :14] / speed, 1e-3)
    np.testing.assert_array_less(np.quantile(np.abs(qd - next_qd) / speed, 0.99), 1e-4)
    np.testing.assert_array_less(np.abs(q - next_q)[:, :15] / speed, 1e-5)


@pytest.mark.slow
def test_single_frames_equal_plain_brax_as_recorded(engine: MjxEngine, frames):
    start = jax.jit(jax.vmap(engine.init))(frames["q"], frames["qd"])
    state = jax.jit(jax.vmap(engine.step))(start._replace(warm=frames["warm"]), frames["control"])
    assert_close(state.q, state.qd, frames["next_q"], frames["next_qd"])
    np.testing.assert_allclose(state.x.pos[:, 0], start.q[:, :3], atol=1e-6)  # links lag by a frame, as in Brax


@pytest.mark.slow
def test_single_frames_equal_plain_brax_as_it_is_now(engine: MjxEngine, frames):
    from brax.mjx import pipeline

    some = {key: jnp.asarray(value[::4]) for key, value in frames.items()}
    with jax.numpy_rank_promotion("allow"):
        plain = jax.jit(jax.vmap(lambda q, qd: pipeline.init(engine.sys, q, qd)))(some["q"], some["qd"])
        plain = plain.replace(qacc_warmstart=some["warm"])
        plain = jax.jit(jax.vmap(lambda s, a: pipeline.step(engine.sys, s, a)))(plain, some["control"])
    start = MjxState(some["q"], some["qd"], jax.vmap(engine.init)(some["q"], some["qd"]).x, some["warm"])
    state = jax.jit(jax.vmap(engine.step))(start, some["control"])
    assert_close(state.q, state.qd, plain.q, plain.qd)
