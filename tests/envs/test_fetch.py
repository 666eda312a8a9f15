"""The Fetch tasks: as the package's own code steps them, by plain MuJoCo; and as it did when it was recorded.

golden/fetch.npz holds two of six recorded episodes of each task (`golden/README.md`). MuJoCo changed since: a weld's
reference acceleration counts the turning of its Jacobian, boxes collide twice as deep, a mesh on a plane has a fourth
contact and a cylinder on a box three more. So recorded trajectories part by millimetres, and the steps of the package's
formulas in today's MuJoCo are what ours are held to.
"""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import jax
import mujoco
import numpy as np
import pytest

from dcp.envs import fetch
from dcp.envs.contract import contract_violations
from dcp.envs.registry import make_env
from dcp.errors import UserError

GOLDEN = Path(__file__).parents[1] / "golden" / "fetch.npz"
RECORDED = dict(zip(fetch.KINDS, ("FetchReach", "FetchPush", "FetchSlide", "FetchPickAndPlace"), strict=True))
STEPS = 10
installed = pytest.mark.skipif(find_spec(fetch.PACKAGE) is None, reason="needs pip install '.[fetch]'")


def golden(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN, allow_pickle=False) as file:
        return {key.split("/")[1]: file[key] for key in file if key.startswith(f"{RECORDED[name]}/")}


def package_steps(name: str, q: np.ndarray, qd: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Observations [T + 1, S] of one episode by the package's formulas and mj_step in float64."""
    model = mujoco.MjModel.from_xml_path(str(fetch.assets() / "fetch" / fetch.KINDS[name].file))
    model.eq_data[:, :7] = [0, 0, 0, 0, 0, 0, 1]
    data, object_ = mujoco.MjData(model), name != "fetch_reach"
    hand, grip = model.body(fetch.HAND).id, model.site(fetch.GRIP).id
    fingers = [model.joint(f"robot0:{side}_gripper_finger_joint").qposadr[0] for side in "lr"]
    data.qpos, data.qvel = q, qd
    mujoco.mj_forward(model, data)

    def speeds(site: int) -> tuple[np.ndarray, np.ndarray]:
        place, turn = np.zeros((2, 3, model.nv))
        mujoco.mj_jacSite(model, data, place, turn, site)
        return 0.04 * place @ data.qvel, 0.04 * turn @ data.qvel

    def observation() -> np.ndarray:
        at, (speed, _) = data.site_xpos[grip].copy(), speeds(grip)
        sides = [model.joint(f"robot0:{side}_gripper_finger_joint") for side in "rl"]
        places, moves = [data.qpos[one.qposadr[0]] for one in sides], [0.04 * data.qvel[one.dofadr[0]] for one in sides]
        if not object_:
            return np.concatenate([at, places, speed, moves])
        number = model.site(fetch.OBJECT).id
        place, (move, turning), mat = data.site_xpos[number], speeds(number), data.site_xmat[number].reshape(3, 3)
        cy = np.hypot(mat[2, 2], mat[1, 2])
        euler = [-np.arctan2(mat[1, 2], mat[2, 2]), np.arctan2(mat[0, 2], cy), -np.arctan2(mat[0, 1], mat[0, 0])]
        return np.concatenate([at, place, place - at, places, euler, move - speed, turning, speed, moves])

    seen = [observation()]
    for action in actions.astype(float):
        if model.nu:
            data.ctrl = data.qpos[fingers] + action[3]
        data.mocap_pos[0] = data.xpos[hand] + 0.05 * action[:3]
        data.mocap_quat[0] = data.xquat[hand] + [1, 0, 1, 0]
        mujoco.mj_step(model, data, nstep=20)
        if not model.nu:
            data.qpos[fingers] = 0.0
            mujoco.mj_forward(model, data)
        seen.append(observation())
    return np.stack(seen)


def our_steps(env: Any, recorded: dict[str, np.ndarray]) -> np.ndarray:
    """[N, T + 1, S]"""
    state, step = jax.vmap(env.reset_to)(recorded["qpos"], recorded["qvel"]), jax.jit(jax.vmap(env.step))
    seen = [state.obs]
    for t in range(STEPS):
        state = step(state, recorded["actions"][:, t])
        seen.append(state.obs)
    return np.stack(seen, axis=1)[..., : env.spec.state_size]


@installed
@pytest.mark.parametrize("name", fetch.KINDS)
def test_ten_steps_are_those_of_the_packages_formulas_and_near_its_recorded_ones(name: str):
    env, recorded = make_env(name), golden(name)
    ours = our_steps(env, recorded)
    for episode in range(len(ours)):
        start = recorded["qpos"][episode], recorded["qvel"][episode]
        theirs = package_steps(name, *start, recorded["actions"][episode, :STEPS])
        np.testing.assert_allclose(ours[episode], theirs, atol=1e-4)
    np.testing.assert_allclose(ours[:, 0], recorded["obs0"], atol=1e-6)
    np.testing.assert_allclose(env.spec.achieved(ours[:, 0]), recorded["ach0"], atol=1e-6)
    np.testing.assert_allclose(ours[:, 1:, :3], recorded["obs"][:, :STEPS, :3], atol=6e-3)  # metres of the gripper


@installed
@pytest.mark.parametrize(
    ("name", "goal_range", "object_range", "offset"),
    [("fetch_reach", 0.15, None, 0.0), ("fetch_push", 0.15, 0.15, 0.0), ("fetch_slide", 0.3, 0.1, 0.4),
     ("fetch_pick_and_place", 0.15, 0.15, 0.0)],
)  # fmt: skip
def test_starts_and_goals_are_drawn_as_in_the_package(
    name: str, goal_range: float, object_range: float | None, offset: float
):
    env, recorded = cast(fetch.Fetch, make_env(name)), golden(name)
    moved = [15, 16] if object_range else []
    np.testing.assert_allclose(np.delete(env.q0, moved), np.delete(recorded["qpos"][0], moved), atol=1e-5)
    np.testing.assert_allclose(env.qd0, recorded["qvel"][0], atol=5e-5)
    if object_range:
        assert abs(env.height0 - recorded["goal"][:, 2].min()) < 1e-6  # of the lowest of them, on the table
    q = np.asarray(jax.vmap(lambda key: env.draw(key)[0])(jax.random.split(jax.random.key(0), 500)))
    goals = np.asarray(jax.vmap(env._draw_goal, in_axes=(0, None))(jax.random.split(jax.random.key(1), 500), None))
    spread = goals[:, :2] - env.grip0[:2] - np.array([offset, 0.0])
    assert 0.95 * goal_range < np.max(np.abs(spread)) <= goal_range + 1e-6
    if object_range is None:
        assert np.ptp(goals[:, 2]) > 0.28 and np.all(q == env.q0)
        return
    away = q[:, 15:17] - env.grip0[:2]
    assert 0.95 * object_range < np.max(np.abs(away)) <= object_range + 1e-6
    assert 0.1 - 1e-6 <= np.min(np.linalg.norm(away, axis=1)) < 0.105
    height = goals[:, 2] - env.height0
    in_air = np.mean(height > 1e-6)
    assert np.max(height) <= 0.45 and (0.4 < in_air < 0.6 if name == "fetch_pick_and_place" else in_air == 0.0)


@installed
def test_only_pick_and_place_moves_the_fingers_and_all_keep_the_contract():
    opened = {}
    for name in fetch.KINDS:
        env: Any = make_env(name)
        state = jax.jit(env.step)(env.reset(jax.random.key(0)), np.array([0, 0, 0, 1], np.float32))
        opened[name] = state.physics.q[env._fingers[0][0]][0] > 0.01
        assert contract_violations(name, env) == []
    assert opened == {**dict.fromkeys(fetch.KINDS, False), "fetch_pick_and_place": True}


def test_without_the_package_a_sentence_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fetch, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install '\.\[fetch\]'"):
        fetch.Fetch("fetch_push")


@installed
def test_nothing_of_the_package_is_imported():
    code = f"import sys, dcp; dcp.make_env('fetch_slide'); assert {fetch.PACKAGE!r} not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@installed
@pytest.mark.parametrize("name", fetch.KINDS)
def test_in_its_own_scale_recorded_states_are_of_about_unit_size(name: str):
    """And a centimetre between gripper and object is a fifth of a unit, where the running scale makes it a 27th."""
    spec, states = make_env(name).spec, golden(name)["obs"].reshape(-1, make_env(name).spec.state_size)
    assert spec.scale is not None
    centre, spread = map(np.asarray, spec.scale)
    units = np.abs(states - centre) / spread
    assert np.median(units) < 1.0 and np.quantile(units, 0.95) < 4.0
    assert np.all(np.quantile(units, 0.9, axis=0) < 15.0)
    if name != "fetch_reach":
        np.testing.assert_allclose(0.01 / spread[6:9], 0.2)
        np.testing.assert_allclose(centre[list(spec.goal_dims)], [*centre[:2], make_env(name).height0])
