"""The SO-101 arm: its model against recorded numbers, its goals against inverse kinematics, its tasks and switches."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from dcp.config import Config
from dcp.envs.registry import env_of, make_env
from dcp.errors import UserError
from dcp.networks import init_scale, scaled_state
from dcp.policies.policy_file import load_policy
from dcp.robots import so101
from dcp.robots.so101 import MAX_DELAY, RANGES
from dcp.robots.so101_simulated import arm_spec, table_spec
from dcp.robots.so101_tasks import HOME, TASKS
from tests.support.golden import load

TICK = 2 * np.pi / 4096


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    return load("so101")


@pytest.fixture(scope="module")
def arm() -> tuple[mujoco.MjModel, mujoco.MjData]:
    spec = arm_spec()
    spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    model = spec.compile()
    return model, mujoco.MjData(model)


@pytest.fixture(scope="module")
def programs():
    """Return a task's batched reset and step, compiled once for the module."""
    made = {}

    def get(name: str, randomize: str | None = None):
        if (name, randomize) not in made:
            env = make_env(name, randomize=randomize)
            made[name, randomize] = env, jax.jit(jax.vmap(env.reset)), jax.jit(jax.vmap(env.step))
        return made[name, randomize]

    return get


def keys(n: int, seed: int = 0):
    return jax.random.split(jax.random.key(seed), n)


# The model


def test_the_joints_have_the_recorded_order(golden, arm):
    assert list(golden["joints"]) == list(so101.JOINTS) == [arm[0].joint(i).name for i in range(6)]


def test_the_tool_point_is_where_it_was_recorded(golden, arm):
    """By MuJoCo and by our own kinematics."""
    model, data = arm
    places, turns = so101.tool_pose(golden["poses"])
    np.testing.assert_allclose(places, golden["tool"], atol=1e-6)
    np.testing.assert_allclose(turns.reshape(-1, 9), golden["tool_rot"], atol=1e-6)
    for pose, place, turn in zip(golden["poses"], golden["tool"], golden["tool_rot"], strict=True):
        data.qpos[:] = pose
        mujoco.mj_kinematics(model, data)
        np.testing.assert_allclose(data.site("gripperframe").xpos, place, atol=1e-6)
        np.testing.assert_allclose(data.site("gripperframe").xmat, turn, atol=1e-6)


def test_masses_and_gravity_are_as_recorded(golden, arm):
    model, data = arm
    for pose, mass, bias in zip(golden["poses"], golden["mass_matrix"], golden["bias"], strict=True):
        data.qpos[:], data.qvel[:] = pose, 0.0
        mujoco.mj_forward(model, data)
        found = np.zeros((6, 6))
        mujoco.mj_fullM(model, data, found)
        np.testing.assert_allclose(found, mass, atol=1e-9)
        np.testing.assert_allclose(data.qfrc_bias, bias, atol=1e-9)


def test_free_motion_follows_the_recorded_paths_for_40_controls(golden, arm):
    model, data = arm
    for start, controls, path in zip(golden["starts"], golden["controls"], golden["paths"], strict=True):
        mujoco.mj_resetData(model, data)
        data.qpos[:] = start
        for control, after in zip(controls, path, strict=True):
            data.ctrl[:] = control
            mujoco.mj_step(model, data, nstep=5)
            np.testing.assert_allclose(np.append(data.qpos, data.qvel), after, atol=1e-6)


def test_a_control_step_takes_a_30th_of_a_second():
    engine = make_env("so101_reach").engine
    assert engine.frames * engine.sys.opt.timestep == pytest.approx(1 / 30, abs=1e-12)


# Goals


def solve(goals: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return joint angles [N, 5] within the limits by damped least squares, and whether each reaches its goal.

    goals [N, 3], or [N, 4] with the tilt.
    """
    low, high = so101.LOW[:5], so101.HIGH[:5]

    def gap(q: np.ndarray) -> np.ndarray:
        place, turn = so101.tool_pose(q)
        return np.concatenate([place, so101.tilt_of(turn)[:, None]], axis=1)[:, : goals.shape[1]] - goals

    q = starts
    for _ in range(60):
        now = gap(q)
        jacobian = np.stack([(gap(q + step) - now) / 1e-6 for step in 1e-6 * np.eye(5)], axis=-1)  # [N, G, 5]
        across = jacobian.transpose(0, 2, 1)
        damped = jacobian @ across + 1e-5 * np.eye(goals.shape[1])
        change = across @ np.linalg.solve(damped, now[..., None])
        q = np.clip(q - np.clip(change[..., 0], -0.3, 0.3), low, high)
    return q, np.abs(gap(q)).max(axis=1) < 1e-4


def unreached(goals: np.ndarray, rounds: int) -> np.ndarray:
    """Return the goals without a pose that touches neither the table nor the arm itself."""
    model, rng = table_spec(0.005, cube=False).compile(), np.random.default_rng(0)
    data = mujoco.MjData(model)

    def is_free(pose: np.ndarray) -> bool:
        data.qpos[:] = np.append(pose, HOME[5])
        mujoco.mj_kinematics(model, data)
        mujoco.mj_collision(model, data)
        return data.ncon == 0

    for _ in range(rounds):
        poses, found = solve(goals, rng.uniform(so101.LOW[:5], so101.HIGH[:5], (len(goals), 5)))
        found &= [is_free(pose) for pose in poses]
        goals = goals[~found]
        if not len(goals):
            break
    return goals


def drawn_goals(name: str, number: int) -> np.ndarray:
    env = make_env(name)
    goals = jax.jit(jax.vmap(lambda key: env.draw_goal(key, env.draw(key)[0])))(keys(number))
    return np.asarray(goals, float)


@pytest.mark.parametrize("number", [300, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["so101_reach", "so101_reach_pose"])
def test_every_drawn_goal_can_be_reached_within_the_limits_and_above_the_table(name: str, number: int):
    goals = drawn_goals(name, number)
    assert so101.in_reach(goals[:, :3]).all()
    assert len(unreached(goals, rounds=60)) == 0


def test_a_place_beyond_the_arm_is_not_reached():
    """The search above can fail."""
    assert len(unreached(np.array([[0.6, 0.0, 0.1], [0.0388, 0.0, 0.02]]), rounds=5)) == 2


def test_goals_of_reaching_fill_their_shell():
    goals = drawn_goals("so101_reach", 2000)
    assert len(np.unique(goals, axis=0)) == 2000
    low, high = goals.min(axis=0), goals.max(axis=0)
    assert low[1] < -0.36 and high[1] > 0.36 and low[2] < 0.03 and high[2] > 0.38 and high[0] > 0.41


def test_a_cubes_goal_is_on_the_table_and_away_from_the_cube(programs):
    env, reset, _ = programs("so101_push")
    state = reset(keys(16))
    cube, goal = env.spec.achieved(state.obs[:, : env.spec.state_size]), state.obs[:, env.spec.state_size :]
    assert float(jnp.linalg.norm(cube - goal, axis=1).min()) >= 0.06
    radius = np.hypot(goal[:, 0] - so101.PAN_AXIS[0], goal[:, 1])
    assert radius.min() >= 0.189 and radius.max() <= 0.301


# Steps


def test_the_state_is_angles_speeds_and_the_tool_point(programs):
    _, reset, step = programs("so101_reach")
    before = reset(keys(16))
    after = step(before, jnp.full((16, 5), 0.5))
    q0, q1 = np.asarray(before.physics.q[:, :5]), np.asarray(after.physics.q[:, :5])
    obs = np.asarray(after.obs)
    np.testing.assert_allclose(obs[:, :5], q1, atol=1e-6)
    np.testing.assert_allclose(obs[:, 5:10], (q1 - q0) * 30.0, atol=2e-4)
    np.testing.assert_allclose(obs[:, 10:13], so101.tool_pose(q1)[0], atol=1e-6)
    np.testing.assert_array_equal(obs[:, 13:], before.obs[:, 13:])


def test_an_action_moves_the_target_by_a_tenth_of_a_radian_and_no_further_than_the_limits(programs):
    _, reset, step = programs("so101_reach")
    state = reset(keys(16))
    for _ in range(60):
        after = step(state, jnp.array([[1.0, 0.0, 0.0, 0.0, 3.0]] * 16))  # 3: a policy that is out of bounds
        command, present = np.asarray(after.physics.commands[:, 0]), np.asarray(state.physics.q)
        wanted = np.minimum(present[:, [0, 4]] + 0.1, so101.HIGH[[0, 4]])
        np.testing.assert_allclose(command[:, [0, 4]], wanted, atol=1e-6)
        state = after
    np.testing.assert_allclose(state.physics.q[:, 0], so101.HIGH[0], atol=0.01)
    assert float(jnp.abs(state.physics.q[:, 5]).max()) < 0.01  # the jaws stay closed


def test_success_is_within_the_threshold_of_where_the_tool_truly_is(programs):
    env, reset, _ = programs("so101_reach")
    state = reset(keys(1))
    at = jnp.asarray(so101.tool_pose(np.asarray(state.physics.q[0]))[0], jnp.float32)
    begin = jax.jit(env.reset_toward)
    assert bool(begin(keys(1)[0], at + jnp.array([0.0, 0.0, 0.019])).near_goal)
    assert not bool(begin(keys(1)[0], at + jnp.array([0.0, 0.0, 0.021])).near_goal)


def test_an_episode_with_a_cube_starts_with_the_tool_beside_it(programs):
    """4 to 7 cm away, no higher than 5 cm: random actions find it. The cube lies where the arm can push it."""
    _, reset, _ = programs("so101_push")
    q = np.asarray(reset(keys(16)).physics.q)
    tool, cube = so101.tool_pose(q[:, :5])[0], q[:, 6:8]
    gap, radius = np.linalg.norm(tool[:, :2] - cube, axis=1), np.hypot(cube[:, 0] - so101.PAN_AXIS[0], cube[:, 1])
    assert gap.min() >= 0.0399 and gap.max() <= 0.0701 and np.ptp(gap) > 0.01
    assert tool[:, 2].min() >= 0.0299 and tool[:, 2].max() <= 0.0501
    assert radius.min() >= 0.189 and radius.max() <= 0.301


@pytest.mark.slow
@pytest.mark.parametrize("name", ["so101_push", "so101_lift"])
def test_an_arm_that_sweeps_over_the_table_moves_the_cube(name: str):
    env = make_env(name)
    state = jax.jit(env.reset)(jax.random.key(3))
    step = jax.jit(env.step)
    start = np.asarray(state.physics.q[6:9])
    np.testing.assert_allclose(start[2], 0.015, atol=1e-6)
    for t in range(120):  # the tool point goes beside the cube, down, and across it
        side, height = (0.06, 0.08) if t < 30 else (0.06, 0.02) if t < 60 else (-0.04, 0.02)
        gap = np.array([start[0], start[1] + side, height]) - so101.tool_pose(q := np.asarray(state.physics.q[:5]))[0]
        jacobian = np.stack([so101.tool_pose(q + d)[0] - so101.tool_pose(q)[0] for d in 1e-3 * np.eye(5)], 1) / 1e-3
        change = jacobian.T @ np.linalg.solve(jacobian @ jacobian.T + 1e-4 * np.eye(3), gap)
        action = np.zeros(env.spec.action_size)
        action[:5] = np.clip(5.0 * change, -1.0, 1.0)
        state = step(state, jnp.asarray(action))
    assert np.linalg.norm(np.asarray(state.physics.q[6:8]) - start[:2]) > 0.02


# By the tool


@pytest.mark.parametrize(("name", "sizes", "more"), [("so101_push", (18, 2), 2), ("so101_lift", (21, 4), 3)])
def test_by_the_tool_a_state_ends_with_the_cubes_place_relative_to_the_tool(name: str, sizes, more: int):
    env, plain = env_of(Config(env=name, control="tool", randomize="offsets")), make_env(name, randomize="offsets")
    assert (env.spec.state_size, env.spec.action_size, env.spec.control) == (*sizes, "tool")
    state, _ = env.spec.split(jax.jit(env.reset)(keys(1)[0]).obs)
    before, _ = plain.spec.split(jax.jit(plain.reset)(keys(1)[0]).obs)
    np.testing.assert_array_equal(state[:-more], before)
    tool, cube = state[-more - 6 : -more - 3], state[-more - 3 : -more]
    np.testing.assert_allclose(state[-more:], (cube - tool)[:more], atol=1e-7)
    assert env.spec.goal_dims == plain.spec.goal_dims


def test_a_pushing_tool_goes_where_it_is_sent_and_stays_low():
    """Ten steps of 4 mm outwards and 1 cm to the left, a third more by the servos' swing; the cube is far away."""
    env = make_env("so101_push", control="tool")
    step = jax.jit(env.step)
    start = np.concatenate([[0.0, 0.35, -0.2, 1.35, 0.0, 0.0], [0.1, 0.25, 0.015, 1.0, 0.0, 0.0, 0.0]])
    state = env.reset_to(start, np.zeros(12))
    places = [np.asarray(state.obs[10:13])]
    for action in [[0.2, 0.5]] * 10 + [[0.0, 0.0]] * 5:
        state = step(state, jnp.array(action))
        places.append(np.asarray(state.obs[10:13]))
    moved = places[-1] - places[0]
    assert 0.015 < moved[0] < 0.05 and 0.09 < moved[1] < 0.14
    assert 0.012 < places[-1][2] < 0.028


@pytest.mark.parametrize(
    ("name", "control", "sentence"),
    [
        ("so101_reach", "tool", "'so101_reach' is not steered by a tool: leave out --control"),
        ("point_u_maze", "tool", "'point_u_maze' is not steered by a tool: leave out --control"),
        ("so101_push", "hand", "unknown control 'hand': choose one of joints, tool"),
    ],
)
def test_a_control_that_a_task_does_not_have_gets_one_sentence(name: str, control: str, sentence: str):
    with pytest.raises(UserError, match=sentence):
        make_env(name, control=control)


@pytest.mark.parametrize("control", ["joints", "tool"])
@pytest.mark.parametrize("name", TASKS)
def test_a_tasks_own_scale_makes_its_states_about_unit_size(name: str, control: str):
    if control == "tool" and name.startswith("so101_reach"):
        return
    env = make_env(name, control=control)
    scale = init_scale("task", env.spec)
    assert scale.centre.shape == scale.spread.shape == (env.spec.state_size,)
    states, _ = env.spec.split(jax.jit(jax.vmap(env.reset))(keys(16)).obs)
    assert 0.5 < float(jnp.abs(scaled_state(scale, states)).max()) < 4.0
    push = make_env("so101_push", control="tool").spec.scale
    assert push[0][10:] == (0.27, 0.0, 0.05, 0.27, 0.0, 0.02, 0.0, 0.0)
    assert push[1] == (1.0,) * 5 + (1 / 0.3,) * 5 + (0.1,) * 6 + (0.05,) * 2


@pytest.mark.parametrize("name", ["zoo/so101_reach/dcp", "zoo/so101_push/sac_her"])
def test_a_policy_that_came_with_the_package_has_its_environments_spec(name: str):
    """But for the scale, which a policy has among its arrays."""
    spec = load_policy(name).spec
    assert replace(make_env(spec.name, control=spec.control).spec, scale=None) == spec


# Switches


def test_each_switch_draws_its_own_number_and_leaves_the_others_neutral():
    for kind in RANGES:
        drawn = jax.vmap(make_env("so101_reach", randomize=kind).draw_episode)(keys(64))
        neutral = jax.vmap(make_env("so101_reach").draw_episode)(keys(64))
        parts = {
            **{name: np.asarray(drawn.factors[:, i]) for i, name in enumerate(("gains", "friction", "masses"))},
            "delay": np.asarray(drawn.delays),
            "offsets": np.asarray(drawn.offsets),
            "encoders": np.asarray(drawn.phases),
        }
        low, high = RANGES[kind]
        assert parts[kind].min() >= low and parts[kind].max() <= high and len(np.unique(parts[kind])) >= 3
        for name, part in parts.items():
            assert name == kind or len(np.unique(part)) == 1
        assert set(np.unique(np.asarray(neutral.factors))) == {1.0} and not np.asarray(neutral.delays).any()


def test_a_delayed_command_arrives_that_many_steps_later(programs):
    _, reset, step = programs("so101_reach", "delay")
    state = reset(keys(64))
    delays = np.asarray(state.physics.draw.delays)  # [64, 2]: readings, commands
    start = np.asarray(state.physics.q[:, 0])
    moved, seen = np.full(64, -1), np.full(64, -1)
    for t in range(5):
        state = step(state, jnp.ones((64, 5)))
        truly, read = np.asarray(state.physics.q[:, 0]) - start, np.asarray(state.obs[:, 0]) - start
        moved = np.where((moved < 0) & (truly > 0.02), t, moved)
        seen = np.where((seen < 0) & (read > 0.02), t, seen)
    np.testing.assert_array_equal(moved, delays[:, 1])
    np.testing.assert_array_equal(seen, delays.sum(axis=1))
    assert set(np.unique(delays)) == set(range(MAX_DELAY + 1))


def test_an_offset_shifts_what_is_read_and_where_the_servo_goes(programs):
    env, reset, step = programs("so101_reach", "offsets")
    state = step(reset(keys(16)), jnp.zeros((16, 5)))
    offsets = np.asarray(state.physics.draw.offsets)
    np.testing.assert_allclose(state.obs[:, :5], (state.physics.q + offsets)[:, :5], atol=1e-6)
    tool = so101.tool_pose(np.asarray(state.physics.q))[0]
    assert np.abs(np.asarray(state.obs[:, 10:13]) - tool).max() > 1e-3  # and the tool point is not where it seems
    goal = np.asarray(state.obs[:, env.spec.state_size :])
    np.testing.assert_array_equal(state.near_goal, np.linalg.norm(tool - goal, axis=1) < 0.02)


def test_encoders_read_whole_ticks(programs):
    _, reset, step = programs("so101_reach", "encoders")
    state = step(reset(keys(16)), jnp.full((16, 5), 0.3))
    ticks = (np.asarray(state.obs[:, :5], float) + np.asarray(state.physics.draw.phases[:, :5], float)) / TICK
    np.testing.assert_allclose(ticks, np.round(ticks), atol=2e-3)
    assert np.abs(np.asarray(state.obs[:, :5] - state.physics.q[:, :5])).max() <= TICK / 2 + 1e-6


def test_weaker_servos_and_heavier_links_move_differently_and_a_factor_of_one_does_not(programs):
    _, reset, step = programs("so101_reach", "gains,friction,masses")
    _, _, plain_step = programs("so101_reach")
    state, actions = reset(keys(16)), jnp.full((16, 5), 0.7)
    ones = state.physics.draw._replace(factors=jnp.ones((16, 3)))
    neutral = state._replace(physics=state.physics._replace(draw=ones))
    plain = plain_step(state, actions).physics.q
    np.testing.assert_array_equal(step(neutral, actions).physics.q, plain)
    for i in range(3):
        factors = jnp.ones((16, 3)).at[:, i].set(0.7)
        changed = state._replace(physics=state.physics._replace(draw=ones._replace(factors=factors)))
        assert float(jnp.abs(step(changed, actions).physics.q - plain).max()) > 1e-4


@pytest.mark.parametrize(
    ("name", "randomize", "sentence"),
    [
        ("so101_reach", "gain", "cannot randomize 'gain': choose from gains"),
        ("point_u_maze", "all", "'point_u_maze' has nothing to randomize: leave out --randomize"),
    ],
)
def test_a_switch_that_is_not_there_gets_one_sentence(name: str, randomize: str, sentence: str):
    with pytest.raises(UserError, match=sentence):
        make_env(name, randomize=randomize)


def test_the_registry_has_every_task():
    assert {name: make_env(name).spec.name for name in TASKS} == {name: name for name in TASKS}
