"""MuJoCo's own engine: its very steps, by any number of threads, and what a task reads of them; and MJX."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from dcp.envs.ant_tasks import AntPush
from dcp.envs.base import Episodes, is_sound
from dcp.envs.physics_env import MUJOCO_FRAMES
from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.physics.mujoco_engine import MjxEngine, MujocoEngine
from tests.golden.record_mjx import ENVIRONMENTS, by_mjx
from tests.support.brax_models import brax_system

GOLDEN = Path(__file__).parents[1] / "golden"
N, STEPS = 6, 3
MAZES = ("u_maze", "big_maze", "hardest_maze")


def task(name: str, fidelity: str = "paper") -> Any:
    return make_env(name, fidelity, "mujoco")


def engine_of(name: str, threads: int) -> MujocoEngine:
    env = task(name)
    return MujocoEngine(env.model().compile(), MUJOCO_FRAMES, threads, env.links)


def starts(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q [N, Q], qd [N, V], controls [T, N, A], in contact: walls, box, object"""
    with np.load(GOLDEN / f"{name}_contact.npz", allow_pickle=False) as file:
        return file["q0"][:N], file["qd0"][:N], file["actions"][:STEPS, :N]


def integration_state(state: Any) -> np.ndarray:
    """[N, K] in float64"""
    return np.ascontiguousarray(state.exact).view(np.float64)


def by_hand(model: mujoco.MjModel, q: np.ndarray, qd: np.ndarray, controls: np.ndarray) -> np.ndarray:
    """One environment after another, each in data of its own, by plain mj_step."""
    rows = []
    for number in range(len(q)):
        data = mujoco.MjData(model)
        data.qpos, data.qvel = q[number], qd[number]
        for control in controls[:, number]:
            data.ctrl = control
            for _ in range(MUJOCO_FRAMES):
                mujoco.mj_step(model, data)
        rows.append(np.concatenate([data.qpos, data.qvel, data.qacc_warmstart]))
    return np.stack(rows)


@pytest.mark.parametrize("name", ["pusher_easy", "ant_push"])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_steps_are_those_of_mj_step_bit_for_bit_by_any_number_of_threads(name: str, threads: int):
    engine, (q, qd, controls) = engine_of(name, threads), starts(name)
    state = jax.vmap(engine.init)(q, qd)
    start = integration_state(state)[:, : engine.sys.nq]
    np.testing.assert_allclose(start, q, atol=1e-6)
    step = jax.jit(jax.vmap(engine.step))
    for control in controls:
        state = step(state, control)
    expected = by_hand(engine.sys, start, qd, controls)
    np.testing.assert_array_equal(integration_state(state), expected)
    np.testing.assert_array_equal(state.q, expected[:, : engine.sys.nq].astype(np.float32))


def test_a_state_is_all_that_a_step_needs():
    """Another engine, other neighbours, one environment alone: the same next step to the last bit."""
    q, qd, controls = starts("ant_push")
    first, second = engine_of("ant_push", 2), engine_of("ant_push", 1)
    state = jax.vmap(first.init)(q, qd)
    for control in controls[:2]:
        state = jax.vmap(first.step)(state, control)
    kept = jax.tree.map(np.asarray, state)  # as a checkpoint keeps it
    together = jax.vmap(first.step)(state, controls[2])
    alone = second.step(jax.tree.map(lambda leaf: jnp.asarray(leaf[4]), kept), jnp.asarray(controls[2, 4]))
    jax.tree.map(lambda one, all_: np.testing.assert_array_equal(one, all_[4]), alone, together)


def test_seeds_times_environments_are_one_call_of_all():
    engine, (q, qd, controls) = engine_of("pusher_easy", 2), starts("pusher_easy")
    flat = jax.vmap(engine.step)(jax.vmap(engine.init)(q, qd), controls[0])
    pairs = jax.tree.map(lambda a: jnp.asarray(a).reshape(2, 3, *a.shape[1:]), (q, qd, controls[0]))
    both = jax.vmap(jax.vmap(engine.step))(jax.vmap(jax.vmap(engine.init))(*pairs[:2]), pairs[2])
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a.reshape(6, *a.shape[2:]), b), both, flat)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_five_steps_are_those_of_mjx_as_recorded(name: str):
    """The same model and state in float64 by MJX: `tests/golden/record_mjx.py`."""
    with np.load(GOLDEN / f"mjx_{name}.npz", allow_pickle=False) as file:
        golden = dict(file)
    env = task(name)
    state, step = jax.vmap(env.reset_to)(golden["q0"], golden["qd0"]), jax.jit(jax.vmap(env.step))
    for t, action in enumerate(golden["actions"]):
        state = step(state, action)
        np.testing.assert_allclose(state.physics.q, golden["q"][t], atol=1e-3, err_msg=f"step {t}")
        np.testing.assert_allclose(state.physics.qd, golden["qd"][t], atol=1e-3, err_msg=f"step {t}")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pusher_easy", "ant_push"])
def test_five_steps_are_those_of_mjx_as_it_is_now(name: str):
    with np.load(GOLDEN / f"mjx_{name}.npz", allow_pickle=False) as file:
        golden = dict(file)
    q, qd = by_mjx(task(name).engine.sys, golden["q0"], golden["qd0"], golden["actions"], MUJOCO_FRAMES)
    np.testing.assert_allclose(q, golden["q"], atol=1e-6)
    np.testing.assert_allclose(qd, golden["qd"], atol=1e-5)


@pytest.mark.parametrize(
    ("name", "steps", "gap"), [("ant_push", 5, 1e-4), ("ant_push_contact", 4, 5e-5), ("ant_push_edge", 10, 3e-4)]
)
def test_ant_push_follows_jaxgcrls_own_recording(name: str, steps: int, gap: float):
    """The very physics of the paper: the recording's 32 bits are the gap. After these steps contact decides."""
    env = task("ant_push")
    with np.load(GOLDEN / f"{name}.npz", allow_pickle=False) as file:
        golden = dict(file)
    state, step = jax.vmap(env.reset_to)(golden["q0"], golden["qd0"]), jax.jit(jax.vmap(env.step))
    np.testing.assert_allclose(state.obs, golden["obs0"], atol=1e-5)
    for t in range(steps):
        state = step(state, golden["actions"][t])
        np.testing.assert_allclose(state.obs, golden["obs"][t], atol=gap, err_msg=f"step {t}")
        clear = np.abs(np.linalg.norm(golden["obs"][t][:, :2] - golden["obs"][t][:, 31:], axis=1) - 0.5) > 1e-3
        np.testing.assert_array_equal(state.near_goal[clear], golden["success"][t][clear] > 0)
        height = np.asarray(state.physics.x.pos[:, 0, 2])
        upright = (np.abs(height - 0.2) > 1e-3) & (np.abs(height - 1.0) > 1e-3)
        np.testing.assert_array_equal(state.done[upright], golden["done"][t][upright] > 0)


@pytest.mark.parametrize(
    "name",
    [*(f"ant_{name}" for name in MAZES), "ant_push", "ant_soccer", "pusher_easy", "pusher_hard", "humanoid_u_maze"],
)
def test_the_first_observation_is_jaxgcrls(name: str):
    """Whoever steps, a task begins the same: 1e-5, of the 32 bits of the recording."""
    for recording in (name, f"{name}_contact", f"{name}_edge"):
        with np.load(GOLDEN / f"{recording}.npz", allow_pickle=False) as file:
            q, qd, expected = file["q0"], file["qd0"], file["obs0"]
        np.testing.assert_allclose(jax.vmap(task(name).reset_to)(q, qd).obs, expected, atol=1e-5, err_msg=recording)


def test_ant_push_draws_its_quaternions_with_noise_and_shows_units_as_mjx_does():
    """By hand: q is (3, 0, 4, 0) / 4 there, of length 1.25."""
    env = task("ant_push")
    q, qd = env.draw(jax.random.key(0))
    q = q.at[3:7].set(jnp.array([0.75, 0.0, 1.0, 0.0]))
    np.testing.assert_allclose(env.reset_to(q, qd).obs[3:7], [0.6, 0.0, 0.8, 0.0], atol=1e-6)
    keys = jax.random.split(jax.random.key(0), N)
    drawn, _ = jax.vmap(env.draw)(keys)
    assert np.abs(np.linalg.norm(drawn[:, 3:7], axis=1) - 1.0).max() > 0.01
    np.testing.assert_allclose(
        jax.vmap(env.reset)(keys).obs, jax.jit(jax.vmap(AntPush(engine="mjx").reset))(keys).obs, atol=1e-6
    )


def test_links_are_where_the_step_ended_but_lag_by_a_frame_where_mjx_has_them_so():
    for name, lags in (("ant_u_maze", False), ("ant_push", True)):
        engine, (q, qd, controls) = engine_of(name, 1), starts(name)
        state = jax.vmap(engine.init)(q, qd)
        np.testing.assert_allclose(state.x.pos[:, 0], q[:, :3], atol=1e-6)  # the torso, at a start
        state = jax.vmap(engine.step)(state, controls[0])
        gap = np.linalg.norm(state.x.pos[:, 0] - state.q[:, :3], axis=1)
        speed = np.linalg.norm(state.qd[:, :3], axis=1)
        np.testing.assert_allclose(gap, 0.01 * speed if lags else 0.0, atol=1e-5)  # a frame of 0.01 s


def test_link_velocities_are_the_change_of_their_places():
    """Of the humanoid, which reads them: over a frame of 0.003 s each link moves by its velocity."""
    env = task("humanoid_u_maze")
    engine = MujocoEngine(env.model().compile(), 1, 1, env.links)
    q, qd = jax.vmap(env.draw)(jax.random.split(jax.random.key(0), N))
    qd = qd + jax.random.normal(jax.random.key(1), qd.shape)
    before = jax.vmap(engine.init)(q.at[:, 2].add(1.0), qd)  # in the air
    after = jax.vmap(engine.step)(before, jnp.zeros((N, 17)))
    moved = (after.x.pos - before.x.pos) / 0.003
    mean = 0.5 * (after.xd.vel + before.xd.vel)
    assert np.abs(mean).max() > 1.0
    np.testing.assert_allclose(moved, mean, atol=0.05)


def test_a_diverged_body_starts_again_is_counted_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """MuJoCo by itself would reset it unseen, and write MUJOCO_LOG.TXT into the present folder."""
    monkeypatch.chdir(tmp_path)
    env = task("pusher_easy")
    episodes = Episodes(env, 4, 1000, "paper")
    state = jax.jit(episodes.reset)(jax.random.key(0))
    q, qd = state.env.physics.q, state.env.physics.qd
    broken = jax.vmap(env.reset_to)(q, qd.at[1, 0].set(jnp.nan).at[2, 3].set(1e11))
    assert np.array_equal(jax.vmap(lambda s: is_sound(env.spec, s))(broken), [True, False, False, True])
    after = jax.jit(episodes.step)(state._replace(env=broken), jnp.zeros((4, 7)), jax.random.key(1))
    assert np.array_equal(after.diverged, [0, 1, 1, 0])
    assert np.array_equal(after.episode_id, [0, 1, 1, 0])
    for number in (1, 2):
        jax.tree.map(lambda new, first: np.testing.assert_array_equal(new[number], first[number]), after.env, state.env)  # noqa: B023
    assert np.all(np.isfinite(after.env.obs))
    assert list(tmp_path.iterdir()) == []


def test_a_control_that_is_no_number_diverges_where_mujoco_would_take_it_for_zero():
    env = task("pusher_easy")
    state = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 3))
    after = jax.vmap(env.step)(state, jnp.zeros((3, 7)).at[1, 2].set(jnp.nan))
    assert np.array_equal(jax.vmap(lambda s: is_sound(env.spec, s))(after), [True, False, True])


def test_a_model_that_remembers_more_than_is_kept_is_refused():
    xml = """<mujoco><worldbody><body><joint name="j"/><geom size=".1"/></body></worldbody>
             <actuator><motor joint="j" delay="0.01" nsample="4"/></actuator></mujoco>"""
    with pytest.raises(UserError, match="remember more than q and qd: use physics brax"):
        MujocoEngine(mujoco.MjModel.from_xml_string(xml), 5, 1)


@pytest.mark.parametrize(
    ("name", "dt"), [("ant_u_maze", 0.05), ("ant_push", 0.05), ("pusher_hard", 0.05), ("humanoid_u_maze", 0.015)]
)
def test_a_step_takes_the_papers_time(name: str, dt: float):
    assert task(name).engine.frames * task(name).engine.sys.opt.timestep == pytest.approx(dt)


def test_the_humanoids_gears_are_the_stock_models_and_its_state_holds_their_torques():
    """350 and 100 are Brax's for spring physics alone."""
    env = task("humanoid_u_maze")
    gears = [100.0] * 5 + [300.0, 200.0, 100.0, 100.0, 300.0, 200.0] + [25.0] * 6
    assert env.engine.sys.actuator_gear[:, 0].tolist() == gears
    q, qd = env.draw(jax.random.key(0))
    after = env.step(env.reset_to(q, qd), jnp.ones(17))
    forces = after.obs[: env.spec.state_size][-25:]  # of each degree of freedom: the free joint's and the target's 0
    np.testing.assert_allclose(np.sort(forces[forces != 0.0]), np.sort(0.4 * np.array(gears)), rtol=1e-6)
    assert make_env("humanoid_u_maze").model().compile().actuator_gear[:, 0].tolist() == [350.0] * 11 + [100.0] * 6


@pytest.fixture(scope="module")
def frames() -> dict[str, np.ndarray]:
    """Single frames of brax.mjx.pipeline (Brax 0.14.2, MJX 3.17) among walls, box and floor, and from resets."""
    with np.load(GOLDEN / "ant_push_frames.npz", allow_pickle=False) as file:
        return dict(file)


def assert_close(q, qd, next_q, next_qd) -> None:
    """The ant to float noise. The box weighs 0.2 g: where four iterations leave it unsolved, noise is amplified."""
    speed = 1.0 + np.abs(next_qd).max(1, keepdims=True)
    np.testing.assert_array_less(np.abs(qd - next_qd)[:, :14] / speed, 1e-3)
    np.testing.assert_array_less(np.quantile(np.abs(qd - next_qd) / speed, 0.99), 1e-4)
    np.testing.assert_array_less(np.abs(q - next_q)[:, :15] / speed, 1e-5)


def test_single_frames_of_mujocos_engine_equal_plain_brax_as_recorded(frames):
    engine = MujocoEngine(AntPush().model().compile(), 1, 2, AntPush.links)
    start = jax.vmap(engine.init)(frames["q"], frames["qd"])
    exact = integration_state(start)
    exact = np.concatenate([exact[:, : engine.sys.nq + engine.sys.nv], frames["warm"]], axis=1)
    state = jax.vmap(engine.step)(start._replace(exact=exact.view(np.uint32)), frames["control"])
    assert_close(state.q, state.qd, frames["next_q"], frames["next_qd"])


@pytest.mark.slow
def test_single_frames_of_mjx_equal_plain_brax_as_recorded(frames):
    engine = MjxEngine(AntPush().model().compile(), frames=1)
    start = jax.jit(jax.vmap(engine.init))(frames["q"], frames["qd"])
    state = jax.jit(jax.vmap(engine.step))(start._replace(warm_start=frames["warm"]), frames["control"])
    assert_close(state.q, state.qd, frames["next_q"], frames["next_qd"])
    np.testing.assert_allclose(state.x.pos[:, 0], start.q[:, :3], atol=1e-6)  # links lag by a frame, as in Brax


@pytest.mark.slow
def test_steps_of_mjx_equal_brax_s_own_pipeline(frames):
    """Two steps, so that the second starts from a state of which only q, qd and the warm start were kept."""
    from brax.mjx import pipeline

    engine = MjxEngine(AntPush().model().compile(), frames=1)
    sys = brax_system(engine.sys)
    some = {key: jnp.asarray(value[::16]) for key, value in frames.items()}
    state, step = jax.vmap(engine.init)(some["q"], some["qd"]), jax.jit(jax.vmap(engine.step))
    with jax.numpy_rank_promotion("allow"):
        brax = jax.jit(jax.vmap(lambda q, qd: pipeline.init(sys, q, qd)))(some["q"], some["qd"])
        brax_step = jax.jit(jax.vmap(lambda s, a: pipeline.step(sys, s, a)))
        for _ in range(2):
            state, brax = step(state, some["control"]), brax_step(brax, some["control"])
    assert_close(state.q, state.qd, brax.q, brax.qd)
    np.testing.assert_allclose(state.x.pos, brax.x.pos, atol=1e-5)


MANY_STEPS = """
import jax, jax.numpy as jnp, numpy as np, dcp
policy = dcp.load_policy("zoo/point_u_maze/dcp")
policy([1.0, 1.0], goal=[3.0, 1.0])  # JAX's first computation comes before the engine
BODY = '<worldbody><body><joint name="j" axis="0 1 0"/><geom size=".02"/></body></worldbody>'
ARM = f'<mujoco>{BODY}<actuator><motor joint="j"/></actuator></mujoco>'
env = dcp.MujocoTask("arm", ARM, goal="joint:j", goals=(-1.0, 1.0), threshold=0.1, episode_length=50)
slow = jax.jit(lambda x: jax.lax.fori_loop(0, 50, lambda i, y: jnp.tanh(y @ y), x))
step = jax.jit(jax.vmap(jax.vmap(env.step)))
state = jax.jit(jax.vmap(jax.vmap(env.reset)))(jax.random.split(jax.random.key(0), (2, 16384)))
for _ in range(3):
    action = jnp.where(slow(jnp.ones((256, 256)))[0, 0] > 0, 0.3, 0.1) * jnp.ones((2, 16384, env.spec.action_size))
    state = step(state, action)
alone = env.step(env.reset(jax.random.key(1)), jnp.ones(1))  # without a vmap or a jit
print(np.asarray(state.obs).tobytes().hex()[:2000], alone.obs.tolist())
"""


def test_on_one_thread_a_step_whose_action_is_still_being_computed_neither_waits_forever_nor_differs():
    """JAX copies a callback's arguments on the thread that the callback runs on (its issue 24255)."""
    seen = set()
    for threads in ("1", "2"):
        environment = {**os.environ, "NPROC": threads}
        command = [sys.executable, "-c", MANY_STEPS]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        seen.add(done.stdout)
    assert len(seen) == 1
