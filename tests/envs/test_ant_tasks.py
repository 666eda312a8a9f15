"""The ant's tasks: JaxGCRL's recorded steps, and where episodes start in both fidelities."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dcp.envs import ant_tasks
from dcp.envs.ant_tasks import AntMaze, AntPush
from dcp.envs.mazes import parse_layout
from dcp.envs.registry import make_env
from dcp.machine.devices import steps_pay_splitting
from dcp.methods.commands import PooledSubgoal
from dcp.physics.contacts import wall_codes
from dcp.physics.mujoco_engine import MjxEngine, MujocoEngine
from tests.support import compilation
from tests.support.golden import COPIES, check, closest, load, nudged, replay

MAZES = ("ant_u_maze", "ant_big_maze", "ant_hardest_maze")
STEPS = 20


@pytest.fixture(scope="module")
def replayed_maze():
    """One program for every maze: the walls are data to it. Compiled as shipped, from starts a last digit apart."""
    env = make_env("ant_u_maze")
    largest = wall_codes(make_env("ant_hardest_maze").layout).shape

    def run(codes, q, qd, actions):
        contacts = env.engine.contacts
        walls, contacts.walls = contacts.walls, dataclasses.replace(contacts.walls, codes=codes)
        try:
            return replay(env, q, qd, actions)
        finally:
            contacts.walls = walls

    jitted = jax.jit(run, compiler_options=compilation.SHIPPED)

    def of(maze: str, golden: dict):
        codes = wall_codes(make_env(maze).layout)
        room = [(0, big - small) for big, small in zip(largest, codes.shape, strict=True)]
        with jax.numpy_rank_promotion("allow"):
            start = nudged(golden["q0"]), np.tile(golden["qd0"], (COPIES, 1))
            found = jitted(np.pad(codes, room), *start, np.tile(golden["actions"], (1, COPIES, 1)))
        return closest(found, golden, STEPS)

    return of


@pytest.mark.parametrize("maze", MAZES)
@pytest.mark.parametrize("start", ["", "_contact", "_edge"])
def test_steps_in_mazes_follow_jaxgcrls_recording(replayed_maze, maze: str, start: str):
    golden = load(maze + start)
    check(make_env(maze).spec, golden, replayed_maze(maze, golden), STEPS, ant_tasks.HEALTHY_Z)


def test_at_the_edge_success_and_falling_are_both_seen():
    golden = load("ant_u_maze_edge")
    assert 0 < golden["success"].mean() < 1 and 0 < golden["done"].mean() < 1


@pytest.mark.parametrize("maze", MAZES)
def test_sizes_in_mazes_are_those_of_the_table(maze: str):
    spec = make_env(maze).spec
    assert (spec.state_size, spec.goal_size, spec.action_size) == (29, 2, 8)
    assert (spec.goal_dims, spec.threshold, spec.episode_length, spec.physics) == ((0, 1), 0.5, 1000, "spring")


def test_an_episode_starts_in_the_start_cell_with_noise_and_a_goal_from_the_layout():
    env = make_env("ant_big_maze")
    q, qd = map(np.asarray, jax.vmap(env.draw)(jax.random.split(jax.random.key(0), 4000)))
    np.testing.assert_array_equal(q[:, :2], np.broadcast_to([4.0, 4.0], (4000, 2)))  # no noise on the position
    legs = q[:, 2:15] - ant_tasks.INIT_Q[2:]
    assert (np.abs(legs) <= 0.1).all() and np.abs(legs.mean(0)).max() < 0.005
    np.testing.assert_allclose(legs.std(0), 0.2 / np.sqrt(12), rtol=0.05)
    np.testing.assert_allclose(qd[:, :14].std(0), 0.1, rtol=0.06)
    assert not qd[:, 14:].any()
    goals, counts = np.unique(q[:, 15:], axis=0, return_counts=True)
    cells = env.layout.cells("g")
    assert len(goals) == len(cells) and {tuple(g) for g in goals} == {tuple(c) for c in cells}
    assert counts.min() > 0.6 * counts.mean() and counts.max() < 1.4 * counts.mean()


def test_an_evaluation_layout_has_far_goals_only():
    env = make_env("ant_u_maze_eval")
    q, _ = jax.vmap(env.draw)(jax.random.split(jax.random.key(0), 200))
    assert {tuple(goal) for goal in np.asarray(q[:, 15:])} == {(12.0, 4.0), (12.0, 8.0), (12.0, 12.0)}


def test_a_maze_of_ones_own_is_a_text():
    env = AntMaze("mine", parse_layout("#####\n#r.g#\n#####", 4.0))
    assert env.model().compile().ngeom == make_env("ant_u_maze").model().compile().ngeom - 18 + 12
    q, _ = env.draw(jax.random.key(0))
    np.testing.assert_array_equal(q[15:], jnp.array([4.0, 12.0]))


@pytest.fixture(scope="module")
def replayed_soccer():
    env = make_env("ant_soccer")
    return jax.jit(lambda q, qd, actions: replay(env, q, qd, actions))


@pytest.mark.slow
@pytest.mark.parametrize("start", ["", "_contact", "_edge"])
def test_steps_of_soccer_follow_jaxgcrls_recording(replayed_soccer, start: str):
    golden = load("ant_soccer" + start)
    with jax.numpy_rank_promotion("allow"):
        ours = replayed_soccer(golden["q0"], golden["qd0"], golden["actions"])
    check(make_env("ant_soccer").spec, golden, ours, 20, ant_tasks.HEALTHY_Z)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ant_soccer", "ant_hardest_maze"])
def test_a_goal_that_the_solver_jitters_never_turns_z_into_g(name: str):
    """The target is a body on slides: its place changes by its last bits, and the commanded z must not notice."""
    env, ants, steps = make_env(name), 64, 150
    actions = jax.random.uniform(jax.random.key(1), (steps, ants, 8), minval=-1.0)
    first = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), ants))

    def step(state: Any, action: jax.Array) -> tuple[Any, jax.Array]:
        state = jax.vmap(env.step)(state, action)
        return state, env.spec.split(state.obs)[1]

    goals = np.asarray(jax.jit(lambda: jax.lax.scan(step, first, actions))()[1])
    goal = np.asarray(env.spec.split(first.obs)[1])
    command = PooledSubgoal(num_candidates=4, pool_size=8)
    state = command.init(jnp.asarray(goal), jnp.asarray(goal))
    sound = np.isfinite(goals).all(axis=(0, 2))
    assert sound.sum() > ants / 2
    assert np.any(goals[:, sound] != goal[sound])  # else this test shows nothing
    assert np.all([np.asarray(command.follows(state, now))[sound] for now in goals])


def soccer_draws(fidelity: str) -> tuple[np.ndarray, np.ndarray]:
    env = make_env("ant_soccer", fidelity)
    return jax.tree.map(np.asarray, jax.vmap(env.draw)(jax.random.split(jax.random.key(0), 4000)))


def test_sizes_of_soccer_are_those_of_the_table():
    spec = make_env("ant_soccer").spec
    assert (spec.state_size, spec.goal_size, spec.action_size, spec.goal_dims) == (31, 2, 8, (29, 30))


@pytest.mark.parametrize("fidelity", ["paper", "fixed"])
def test_a_target_is_five_metres_away_in_any_direction(fidelity: str):
    q, qd = soccer_draws(fidelity)
    target = q[:, 17:]
    np.testing.assert_allclose(np.linalg.norm(target, axis=1), 5.0, rtol=1e-5)
    assert np.abs(target.mean(0)).max() < 0.2
    assert not qd[:, 14:].any() and np.abs(q[:, :2]).max() <= 0.1


def test_oddity_2_the_balls_y_follows_from_the_target_only_in_paper_fidelity():
    """Offset (cos b, sin a): with target 5 (cos a, sin a) the ball's y is 0.2 * 5 sin a + sin a = 2 sin a."""
    q, _ = soccer_draws("paper")
    ball, target = q[:, 15:17], q[:, 17:]
    np.testing.assert_allclose(ball[:, 1], 2.0 * target[:, 1] / 5.0, atol=1e-5)

    q, _ = soccer_draws("fixed")
    offset = q[:, 15:17] - 0.2 * q[:, 17:]
    np.testing.assert_allclose(np.linalg.norm(offset, axis=1), 1.0, atol=1e-5)
    assert abs(np.corrcoef(offset[:, 1], q[:, 18])[0, 1]) < 0.06


FEW = {"ant_push": 5, "ant_push_contact": 2, "ant_push_edge": 5}  # steps before JaxGCRL's own contact chaos
NEAR = 1e-3


@pytest.fixture(scope="module", params=["mujoco", pytest.param("mjx", marks=pytest.mark.slow)])
def push_programs(request: pytest.FixtureRequest):
    env = AntPush(engine=request.param)
    return jax.jit(jax.vmap(env.reset_to)), jax.jit(jax.vmap(env.step))


def push_draws(fidelity: str, count: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    draw = jax.jit(jax.vmap(AntPush(fidelity=fidelity).draw))
    q, qd = draw(jax.random.split(jax.random.key(0), count))
    return np.asarray(q), np.asarray(qd)


def test_sizes_of_push_are_those_of_the_table():
    spec = make_env("ant_push").spec
    assert (spec.state_size, spec.goal_size, spec.action_size) == (31, 2, 8)
    assert (spec.goal_dims, spec.threshold, spec.episode_length, spec.physics) == ((0, 1), 0.5, 1000, "mjx")


@pytest.mark.parametrize("name", FEW)
def test_steps_of_push_follow_jaxgcrls_recording_by_either_engine(push_programs, name: str):
    golden = load(name)
    reset, step = push_programs
    state = reset(golden["q0"], golden["qd0"])
    np.testing.assert_allclose(state.obs, golden["obs0"], atol=1e-5)
    for t in range(FEW[name]):
        state = step(state, golden["actions"][t])
        recorded = golden["obs"][t]
        np.testing.assert_allclose(state.obs, recorded, atol=1e-3, err_msg=f"step {t}")
        distance = np.linalg.norm(recorded[:, :2] - recorded[:, 31:], axis=1)
        clear = np.abs(distance - 0.5) > NEAR
        np.testing.assert_array_equal(state.near_goal[clear], golden["success"][t][clear] > 0)
        np.testing.assert_allclose(state.reward[clear], golden["reward"][t][clear], atol=1e-6)
        height = np.asarray(state.physics.x.pos[:, 0, 2])
        upright = (np.abs(height - 0.2) > NEAR) & (np.abs(height - 1.0) > NEAR)
        np.testing.assert_array_equal(state.done[upright], golden["done"][t][upright] > 0)


def test_the_ant_starts_at_the_origin_with_noise_on_every_joint():
    q, qd = push_draws("paper")
    offset = q[:, :15] - np.array([0, 0, 0.75, 1, 0, 0, 0, 0, 1, 0, -1, 0, -1, 0, 1])
    assert np.abs(offset).max() <= 0.1 + 1e-6
    np.testing.assert_allclose(offset.mean(0), 0.0, atol=0.005)
    np.testing.assert_allclose(offset.std(0), 0.2 / np.sqrt(12), atol=0.003)
    np.testing.assert_allclose(qd[:, :14].mean(0), 0.0, atol=0.01)
    np.testing.assert_allclose(qd[:, :14].std(0), 0.1, atol=0.005)
    assert np.abs(q[:, 15:18]).max() <= 0.1  # the box: (8, 8, 2) and as much noise
    np.testing.assert_allclose(q[:, 15:18].std(0), 0.2 / np.sqrt(12), atol=0.003)


def test_a_goal_is_16_8_in_either_order_plus_up_to_two():
    goal = push_draws("paper")[0][:, -2:]
    east = goal[:, 0] > goal[:, 1]
    assert 0.46 < east.mean() < 0.54
    ordered = np.where(east[:, None], goal, goal[:, ::-1]) - np.array([16.0, 8.0])
    assert ordered.min() >= 0.0 and ordered.max() <= 2.0
    np.testing.assert_allclose(ordered.mean(0), 1.0, atol=0.05)
    np.testing.assert_allclose(ordered.std(0), 2.0 / np.sqrt(12), atol=0.02)


@pytest.mark.parametrize(("fidelity", "spread"), [("paper", 0.1), ("fixed", 0.0)])
def test_oddity_7_jaxgcrls_box_starts_with_a_random_x_velocity(fidelity: str, spread: float):
    passive = push_draws(fidelity)[1][:, 14:]
    np.testing.assert_allclose(passive[:, 0].std(), spread, atol=0.005)
    assert not passive[:, 1:].any()


def test_fidelities_share_all_but_the_boxs_velocity():
    paper, fixed = push_draws("paper", 16), push_draws("fixed", 16)
    np.testing.assert_array_equal(paper[0], fixed[0])
    np.testing.assert_array_equal(np.delete(paper[1], 14, 1), np.delete(fixed[1], 14, 1))


def test_push_is_stepped_by_mujocos_engine_on_a_cpu_and_by_mjx_elsewhere(monkeypatch: pytest.MonkeyPatch):
    """Either way it is the setting brax, the paper's physics; only an accelerator shares its steps over devices."""
    spec = make_env("ant_push").spec
    assert (spec.physics, spec.stepped_by) == ("mjx", "brax")
    assert isinstance(make_env("ant_push").engine, MujocoEngine) and not steps_pay_splitting(spec)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert isinstance(AntPush().engine, MjxEngine) and steps_pay_splitting(spec)
    by_mujoco = AntPush().by_mujoco()  # the setting mujoco is MuJoCo's engine everywhere
    assert isinstance(by_mujoco.engine, MujocoEngine) and by_mujoco.spec.stepped_by == "mujoco"


def test_an_observation_is_ant_box_and_goal():
    q = jnp.arange(20.0)
    links = SimpleNamespace(pos=jnp.arange(33.0).reshape(11, 3))
    physics: Any = SimpleNamespace(q=q, qd=100 + jnp.arange(19.0), x=links)
    state, goal = AntPush().observe(physics, jnp.zeros(8))
    expected = [*range(15), *range(100, 114), 27.0, 28.0]  # the box is the last link but one
    np.testing.assert_array_equal(state, expected)
    np.testing.assert_array_equal(goal, [18.0, 19.0])


@pytest.mark.parametrize(
    "env",
    [
        AntPush(engine="mjx"),
        make_env("ant_push"),
        *(pytest.param(make_env(n), marks=pytest.mark.slow) for n in ("ant_soccer", "humanoid_big_maze")),
    ],
    ids=("ant_push_mjx", "ant_push", "ant_soccer", "humanoid_big_maze"),
)
def test_a_step_of_each_engine_traces_and_keeps_every_shape(env: Any):
    """What compiles too long for every run is at least built and traced in each."""
    with jax.numpy_rank_promotion("allow"):
        first = jax.eval_shape(jax.vmap(env.reset), jax.random.split(jax.random.key(0), 2))
        after = jax.eval_shape(jax.vmap(env.step), first, jnp.zeros((2, env.spec.action_size)))
    assert first.obs.shape == (2, env.spec.state_size + env.spec.goal_size)
    same = jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), first, after)
    assert all(jax.tree.leaves(same))
