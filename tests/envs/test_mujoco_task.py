"""A task from any MuJoCo model: a two-joint arm, a box, and a ball that a mocap body pulls, worked out by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import dcp
from dcp.envs.base import is_sound
from dcp.envs.contract import contract_violations
from dcp.envs.registry import is_ours
from dcp.errors import UserError

ARM = """
<mujoco>
  <option timestep="0.005"/>
  <worldbody>
    <geom type="plane" size="0 0 1"/>
    <body name="upper" pos="0 0 0.5">
      <joint name="shoulder" axis="0 0 1" limited="true" range="-90 90" damping="0.5"/>
      <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.02"/>
      <body name="lower" pos="0.3 0 0">
        <joint name="elbow" axis="0 0 1" damping="0.5"/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.02"/>
        <site name="tip" pos="0.3 0 0"/>
      </body>
    </body>
    <body name="box" pos="0 2 0.05"><freejoint name="box"/><geom type="box" size="0.05 0.05 0.05"/></body>
    <body name="ball" pos="2 0 1"><freejoint name="ball"/><geom size="0.05"/></body>
    <body name="hand" mocap="true" pos="2 0 1"/>
  </worldbody>
  <equality><weld body1="hand" body2="ball"/></equality>
  <actuator>
    <position name="shoulder" joint="shoulder" kp="20"/>
    <position name="elbow" joint="elbow" kp="20" ctrllimited="true" ctrlrange="-1 2"/>
  </actuator>
  <sensor><framelinvel name="speed" objtype="site" objname="tip"/></sensor>
  <keyframe><key name="bent" qpos="0 1  0 2 0.05 1 0 0 0  2 0 1 1 0 0 0" mpos="3 0 1"/></keyframe>
</mujoco>
"""
TORQUES = ARM.replace("<position", "<motor").replace(' kp="20"', "")
SPEEDS = ARM.replace("<position", "<velocity").replace("kp", "kv")


def task(**settings: Any) -> dcp.MujocoTask:
    given = {"model": ARM, "goal": "site:tip", "goals": ([0.2, -0.3, 0.5], [0.4, 0.3, 0.5]), "threshold": 0.05}
    return dcp.MujocoTask("arm", **{**given, "episode_length": 50, **settings})  # type: ignore[arg-type]


def start(env: dcp.MujocoTask, shoulder: float = 0.0, elbow: float = 0.0) -> Any:
    return env.reset_to(jnp.asarray(env.compiled.qpos0).at[:2].set(jnp.array([shoulder, elbow])), jnp.zeros(14))


def test_a_state_begins_with_what_has_to_reach_the_goal_and_goes_on_with_what_is_observed():
    observed = ("joint:elbow", "speed:box", "body:lower", "turn:box", "sensor:speed", lambda body: body.q[0] * 2.0)
    env = task(observe=observed)
    state, goal = env.spec.split(start(env, np.pi / 2, -np.pi / 2).obs)
    by_hand = [0.3, 0.3, 0.5, -np.pi / 2, *[0.0] * 6, 0.0, 0.3, 0.5, 1.0, 0.0, 0.0, 0.0, *[0.0] * 3, np.pi]
    np.testing.assert_allclose(state, by_hand, atol=1e-6)
    assert env.spec.goal_dims == (0, 1, 2) and env.spec.goal_size == 3 and 0.2 <= goal[0] <= 0.4
    assert contract_violations("arm", env) == [] and not is_ours(env)


def test_a_sensor_is_that_of_the_steps_end():
    env = task(observe=("sensor:speed",), control="torques", model=TORQUES, starts={"shoulder": 0.5})
    state = env.step(env.reset(jax.random.key(0)), jnp.array([1.0, 0.0]))
    arm = 0.6 * np.array([-np.sin(state.physics.q[0]), np.cos(state.physics.q[0]), 0.0])
    elbow = 0.3 * np.array([-np.sin(sum(state.physics.q[:2])), np.cos(sum(state.physics.q[:2])), 0.0])
    expected = (arm / 2) * state.physics.qd[0] + elbow * (state.physics.qd[0] + state.physics.qd[1])
    assert np.linalg.norm(expected) > 0.01
    np.testing.assert_allclose(state.obs[3:6], expected, atol=1e-6)


def test_starts_are_drawn_by_joint_around_the_keyframe_and_goals_from_their_box():
    env = task(keyframe="bent", starts={"shoulder": (-0.5, 0.5)}, goal="body:box", axes="xy", goals=([1, 2], [3, 2]))
    states = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 50))
    assert np.all(states.physics.q[:, 1] == 1.0) and np.ptp(states.physics.q[:, 0]) > 0.8
    assert np.all(np.abs(states.physics.q[:, 0]) <= 0.5)
    assert np.all(states.physics.goal[:, 1] == 2.0) and np.ptp(states.physics.goal[:, 0]) > 1.5
    np.testing.assert_allclose(states.physics.body.x.pos[:, -1], np.tile([3.0, 0.0, 1.0], (50, 1)))  # the mocap body


def test_goals_of_random_poses_are_where_the_arm_can_be():
    env = task(goals="poses")
    goals = np.asarray(jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 50)).physics.goal)
    assert np.all(np.hypot(*goals[:, :2].T) <= 0.6 + 1e-6) and np.ptp(goals[:, 1]) > 0.5
    np.testing.assert_allclose(goals[:, 2], 0.5, atol=1e-6)


def test_goals_of_a_function_see_where_the_start_is_and_a_user_may_set_one():
    env = task(goals=lambda key, achieved: achieved + jnp.array([0.1, 0.0, 0.0]))
    state = env.reset(jax.random.key(0))
    np.testing.assert_allclose(state.physics.goal, [0.7, 0.0, 0.5], atol=1e-6)
    near = env.reset_toward(jax.random.key(0), jnp.array([0.62, 0.0, 0.5]))
    assert not state.near_goal and near.near_goal and near.reward == 1.0


@pytest.mark.parametrize(
    ("settings", "action", "expected"),
    [
        ({"control": "torques", "model": TORQUES}, [0.5, 0.5], [0.5, 1.25]),  # -1 to 1, and the actuator's range
        ({"control": "targets"}, [0.5, 1.0], [np.pi / 4, 2.0]),  # the joint's range, and the servo's
        ({"control": "changes", "max_change": 0.2}, [0.5, -1.0], [0.2, 0.8]),  # from angles 0.1 and 1
        ({"control": "changes", "max_change": 0.2}, [9.0, -9.0], [0.3, 0.8]),  # an action is clipped
        ({"control": "changes", "model": ARM.replace('kp="20"', 'kp="20" gear="2"')}, [0.0, 0.0], [0.2, 2.0]),
    ],
)
def test_what_an_action_means(settings: dict[str, Any], action: list[float], expected: list[float], monkeypatch):
    env = task(**settings)
    seen: list[Any] = []
    monkeypatch.setattr(env.engine, "step", lambda body, control, mocap: seen.append((control, mocap)) or body)
    env.step(start(env, 0.1, 1.0), jnp.array(action))
    np.testing.assert_allclose(seen[0][0], expected, rtol=1e-6)
    assert seen[0][1] is None


def test_a_site_is_displaced_by_inverse_kinematics():
    env = task(control="site:tip", max_change=0.01)
    state = start(env, 0.2, 1.2)
    jacobian = np.zeros((3, 14))
    data = mujoco.MjData(env.compiled)
    data.qpos = state.physics.q
    mujoco.mj_forward(env.compiled, data)
    mujoco.mj_jacSite(env.compiled, data, jacobian, None, 0)
    np.testing.assert_allclose(env._chain.jacobian(state.physics.body), jacobian[:, :2], atol=1e-6)
    targets, _ = env.actuate(state.physics.body, jnp.array([1.0, -1.0, 0.0]))
    moved = start(env, float(targets[0]), float(targets[1])).obs[:3] - state.obs[:3]
    np.testing.assert_allclose(moved, [0.01, -0.01, 0.0], atol=5e-4)


def test_a_mocap_body_pulls_what_is_welded_to_it_by_the_very_steps_of_mj_step():
    env = task(control="mocap:hand", goal="body:ball", max_change=0.1, frames=4)
    assert env.spec.action_size == 5  # three for the mocap body and one for each actuator
    state, action = env.reset(jax.random.key(0)), jnp.array([0.0, 0.0, 1.0, 0.0, 0.0])
    data = mujoco.MjData(env.compiled)
    step = jax.jit(env.step)
    for _ in range(5):
        data.mocap_pos[0] = np.asarray(state.physics.x.pos[3]) + np.float32([0, 0, 0.1])
        data.ctrl = [0.0, 0.5]
        state = step(state, action)
        mujoco.mj_step(env.compiled, data, nstep=4)
        np.testing.assert_allclose(state.physics.q, data.qpos, atol=1e-6)
    assert state.obs[2] > 1.02
    alone = jax.tree.map(np.asarray, state)  # as a checkpoint keeps it
    fresh = task(control="mocap:hand", goal="body:ball", max_change=0.1, frames=4)
    jax.tree.map(np.testing.assert_array_equal, step(state, action), jax.jit(fresh.step)(alone, action))


def test_an_episode_ends_where_a_number_leaves_its_range():
    env = task(ends_outside={"joint:shoulder": (-0.5, 0.5), "site:tip": ([-9, -9, 0], [9, 9, 9])})
    assert [bool(start(env, angle).done) for angle in (0.4, 0.6, -0.6)] == [False, True, True]


def test_a_nan_in_an_action_ends_that_episode_alone():
    env = task(control="mocap:hand")
    states = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 2))
    after = jax.vmap(env.step)(states, jnp.zeros((2, 5)).at[0, 1].set(jnp.nan))
    assert [bool(is_sound(env.spec, jax.tree.map(lambda leaf: leaf[i], after))) for i in range(2)] == [False, True]  # noqa: B023


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"model": "<mujoco><worldbody></mujoco>"}, "MuJoCo cannot read the model"),
        ({"model": "/nowhere/arm.xml"}, "MuJoCo cannot read the model '/nowhere/arm.xml'"),
        ({"model": ARM.replace("<geom size", "<joint/><geom size")}, "MuJoCo cannot compile the model of arm"),
        ({"model": ARM.replace('pos="2 0 1"><free', 'pos="nan 0 1"><free')}, "a NaN or an infinity where it starts"),
        ({"model": ARM.replace("<option", '<option><flag sleep="enable"/></option><option')}, "sleep"),
        ({"goal": "site:top"}, "unknown site 'top': choose one of tip"),
        ({"goal": "tip"}, "arm reads 'tip': a feature is q, qd, joint:NAME"),
        ({"goal": "geom:tip"}, "a feature is q, qd"),
        ({"goal": "body:world"}, "unknown body 'world': choose one of upper, lower"),
        ({"axes": "xw"}, "axes 'xw': choose of xyz"),
        ({"axes": "x", "goal": ("joint:elbow",)}, "axes picks coordinates of a place"),
        ({"observe": ("sensor:touch",)}, "unknown sensor 'touch': choose one of speed"),
        ({"observe": (lambda body: body.nothing,)}, "a function of arm fails"),
        ({"goals": ([0, 0], [1, 1])}, "each one number or 3"),
        ({"goals": ([0, 0, float("nan")], [1, 1, 1])}, "none a NaN"),
        ({"goals": "anywhere"}, "goals is 'anywhere'"),
        ({"starts": {"wrist": 0.0}}, "unknown joint 'wrist': choose one of shoulder, elbow"),
        ({"starts": {"box": (0.0, 1.0)}}, "must be 7 finite numbers"),
        ({"starts": lambda key: (jnp.zeros(3), jnp.zeros(14))}, "q (3,) and qd (14,): the model has 16 and 14"),
        ({"starts": lambda key: jnp.zeros(16)}, "a function of arm fails"),
        ({"keyframe": "home"}, "unknown key 'home': choose one of bent"),
        ({"control": "forces"}, "use torques, targets"),
        ({"control": "site"}, "use torques, targets"),
        ({"control": "changes", "model": TORQUES}, "'shoulder' is no position servo"),
        ({"control": "site:tip", "model": TORQUES}, "no position servo moves the site 'tip'"),
        ({"control": "mocap:box"}, "the body 'box' is no mocap body"),
        ({"control": "torques", "model": "<mujoco><worldbody><site name='tip'/></worldbody></mujoco>"}, "no actuators"),
        ({"frames": 0}, "frames 0"),
        ({"threshold": float("nan")}, "threshold nan"),
        ({"ends_outside": {"site:tip": (1.0, 0.0)}}, "no low may be above its high"),
        ({"ends_outside": {"site:tip": ([0, 0], [1, 1])}}, "site:tip is ([0, 0], [1, 1]): give (low, high)"),
        (
            {"control": "changes", "model": ARM.replace("<position", "<velocity").replace("kp", "kv")},
            "no position servo",
        ),
    ],
)
def test_a_mistake_gets_one_sentence(settings: dict[str, Any], sentence: str):
    with pytest.raises(UserError) as error:
        task(**settings)
    assert sentence in str(error.value) and "\n" not in str(error.value)
