"""The point's tasks, with the constants of ENVIRONMENTS.md and pushes worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import chisquare, kstest

from dcp.envs.base import EnvState
from dcp.envs.mazes import SPEED, cell_of
from dcp.envs.point_tasks import POINT_RADIUS, REACH, TOLERANCE, PointPushing
from dcp.envs.registry import ENVIRONMENTS, make_env
from dcp.lab.paths import TruePaths

DRIFTLESS, INERTIA = make_env("point_u_maze"), make_env("point_u_maze_inertia")
NAMES = [name for name in ENVIRONMENTS if name.startswith("point_") and "_maze" in name]


def at(env, x: float, y: float, velocity=(0.0, 0.0), goal=(3.0, 3.0)) -> EnvState:
    return env.reset_to(np.array([x, y, *goal]), np.array([*velocity, 0.0, 0.0]))


def test_every_maze_exists_with_and_without_inertia_and_with_far_goals_but_the_hardest():
    mazes, with_far_goals = ("u", "u4", "u5", "big", "hardest"), ("u", "u4", "u5", "big")
    assert set(NAMES) == {
        *(f"point_{maze}_maze{inertia}" for maze in mazes for inertia in ("", "_inertia")),
        *(f"point_{maze}_maze{inertia}_eval" for maze in with_far_goals for inertia in ("", "_inertia")),
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_spec_states_the_documented_sizes(name: str):
    spec = make_env(name).spec
    assert spec.name == name
    assert (spec.state_size, spec.goal_size, spec.action_size) == (4 if "inertia" in name else 2, 2, 2)
    assert spec.goal_dims == (0, 1) and spec.maze_dims == (0, 1)
    assert spec.threshold == 0.125
    assert spec.episode_length == 250
    assert spec.maze is not None and spec.maze.scale == 1.0


def test_the_driftless_point_moves_by_twelve_hundredths_of_the_action():
    state = DRIFTLESS.step(at(DRIFTLESS, 1.0, 2.0), jnp.array([-0.5, 1.0]))
    assert_allclose(state.obs, [1.0 - 0.06, 2.0 + 0.12, 3.0, 3.0], atol=1e-6)


def test_an_action_beyond_one_counts_as_one():
    state = DRIFTLESS.step(at(DRIFTLESS, 1.0, 2.0), jnp.array([0.0, 7.0]))
    assert_allclose(state.obs[:2], [1.0, 2.12], atol=1e-6)


def test_inertia_gathers_speed_by_hand():
    """velocity = 0.8 velocity + 0.05 action: 0.05, 0.09, then 0.072 without action."""
    state = at(INERTIA, 1.0, 1.0)
    state = INERTIA.step(state, jnp.array([0.0, 1.0]))
    assert_allclose(state.obs[:4], [1.0, 1.05, 0.0, 0.05], atol=1e-6)
    state = INERTIA.step(state, jnp.array([0.0, 1.0]))
    assert_allclose(state.obs[:4], [1.0, 1.05 + 0.09, 0.0, 0.8 * 0.05 + 0.05], atol=1e-6)
    state = INERTIA.step(state, jnp.array([0.0, 0.0]))
    assert_allclose(state.obs[:4], [1.0, 1.14 + 0.072, 0.0, 0.8 * 0.09], atol=1e-6)


def test_a_wall_stops_only_the_velocity_of_its_axis():
    """x 0.6 with the wall's face at 0.5 and radius 0.08: the point stops at 0.58 and slides on in y."""
    state = INERTIA.step(at(INERTIA, 0.6, 1.0, velocity=(-0.2, 0.1)), jnp.zeros(2))
    assert_allclose(state.obs[:4], [0.58, 1.0 + 0.08, 0.0, 0.08], atol=1e-6)


@pytest.mark.parametrize(("distance", "near"), [(0.124, True), (0.126, False)])
def test_near_goal_is_within_an_eighth_and_pays_one(distance: float, near: bool):
    state = at(DRIFTLESS, 3.0, 3.0 - distance)
    assert bool(state.near_goal) is near
    assert float(state.reward) == float(near)
    assert not bool(state.done)


def test_near_goal_is_judged_after_the_step():
    state = DRIFTLESS.step(at(DRIFTLESS, 3.0, 2.8), jnp.array([0.0, 1.0]))  # 0.2 away, then 0.08
    assert bool(state.near_goal)


def test_reset_to_sets_position_velocity_and_goal():
    assert_allclose(at(INERTIA, 1.1, 2.2, (0.3, -0.4), (3.0, 1.0)).obs, [1.1, 2.2, 0.3, -0.4, 3.0, 1.0])
    assert_allclose(at(DRIFTLESS, 1.1, 2.2, (0.3, -0.4), (3.0, 1.0)).obs, [1.1, 2.2, 3.0, 1.0])


@pytest.mark.parametrize("env", [INERTIA, make_env("point_big_maze_eval")], ids=lambda env: env.spec.name)
def test_resets_start_around_the_start_cell_with_goals_uniform_over_the_goal_cells(env):
    obs = np.asarray(jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 4000)).obs)
    state, goal = env.spec.split(obs)
    noise = state[:, :2] - 1.0  # the start cell is (1, 1) in every maze
    assert np.abs(noise).max() <= 0.12 + 1e-6
    for axis in (0, 1):
        assert kstest(noise[:, axis], "uniform", args=(-0.12, 0.24)).pvalue > 1e-3
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.06
    assert np.all(state[:, 2:] == 0.0)  # at rest
    cells, counts = np.unique(goal, axis=0, return_counts=True)
    assert {tuple(cell) for cell in cells} == {tuple(cell) for cell in env.spec.maze.cells("g")}
    assert chisquare(counts).pvalue > 1e-3


def placed(env: PointPushing, rng: np.random.Generator, count: int) -> np.ndarray:
    """q [K, 6]: any free places for both that do not overlap, many of them close to each other; any goal"""
    found: list[np.ndarray] = []
    cells = env.layout.cells("rg.")
    while len(found) < count:
        thing = rng.choice(cells) + rng.uniform(-1, 1, 2) * (0.499 - env.size)
        point = rng.choice(cells) + rng.uniform(-1, 1, 2) * (0.499 - POINT_RADIUS)
        away = np.abs(thing - point)
        apart = np.linalg.norm(np.maximum(away - env.size, 0.0) if env.shape == "square" else away)
        if apart > POINT_RADIUS + (env.size if env.shape == "disc" else 0.0) and (np.max(away) < 1.3 or len(found) % 4):
            found.append(np.concatenate([point, thing, rng.choice(cells)]))
    return np.asarray(found, np.float32)


PUSHING = ("point_soccer", "point_push")
MANY, STEPS = 64, 40
SLACK = 1e-5  # float32 in a room of a few units


def depth(env: PointPushing, body: np.ndarray) -> np.ndarray:
    """[..., 4] -> how far point and thing overlap, in NumPy and by a formula of its own"""
    away = np.abs(body[..., 2:] - body[..., :2])
    if env.shape == "square":
        return POINT_RADIUS - np.linalg.norm(np.maximum(away - env.size, 0.0), axis=-1)
    return POINT_RADIUS + env.size - np.linalg.norm(away, axis=-1)


def in_wall(env: PointPushing, centre: np.ndarray, half: float) -> np.ndarray:
    """Whether a corner of the square around these places [..., 2] lies in a wall"""
    half = half * (1.0 - 1e-3) - SLACK  # `slide` lets a body that touches a wall pass along it
    corners = [centre + np.array([i, j]) * half for i in (-1, 1) for j in (-1, 1)]
    walls = env.layout.walls
    return np.any([walls[tuple(np.asarray(index) for index in cell_of(env.layout, c))] for c in corners], axis=0)


@pytest.fixture(scope="module", params=PUSHING)
def world(request):
    env = make_env(request.param)

    @jax.jit
    def run(q: jax.Array, actions: jax.Array) -> jax.Array:
        def one(state, action):
            state = jax.vmap(env.step)(state, action)
            return state, state.obs

        first = jax.vmap(env.reset_to)(q)
        return jnp.concatenate([first.obs[None], jax.lax.scan(one, first, actions)[1]])

    return env, run


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), persistence=st.sampled_from([1, 8, STEPS]))
def test_whatever_is_done_nothing_overlaps_nothing_enters_a_wall_and_nothing_moves_untouched(world, seed, persistence):
    """From any free places, under actions beyond the bounds too; long pushes in one direction among them."""
    env, run = world
    rng = np.random.default_rng(seed)
    chosen = rng.uniform(-1.5, 1.5, (-(-STEPS // persistence), MANY, 2)).astype(np.float32)
    actions = np.repeat(chosen, persistence, axis=0)[:STEPS]
    obs = np.asarray(run(placed(env, rng, MANY), actions))  # [T + 1, N, 8]
    body = obs[..., :4]
    assert np.isfinite(obs).all()
    assert np.array_equal(obs[1:, :, 6:], obs[:-1, :, 6:])  # the goal stays
    assert_allclose(obs[..., 4:6], body[..., 2:] - body[..., :2], atol=SLACK)
    assert depth(env, body).max() <= TOLERANCE + SLACK
    assert not in_wall(env, body[..., :2], POINT_RADIUS).any()
    assert not in_wall(env, body[..., 2:], env.size).any()
    still = np.all(body[1:, :, 2:] == body[:-1, :, 2:], axis=-1)  # [T, N]
    longest = SPEED * np.sqrt(2.0)
    assert still[depth(env, body[:-1]) < -longest - REACH].all()  # out of the point's reach within a step
    assert not still.all()  # some were pushed
    assert np.linalg.norm(np.diff(body[..., 2:], axis=0), axis=-1).max() < 2 * longest  # and none was thrown


def test_without_an_action_nothing_moves(world):
    env, run = world
    q = placed(env, np.random.default_rng(3), MANY)
    assert_allclose(run(q, np.zeros((STEPS, MANY, 2), np.float32))[-1, :, :4], q[:, :4], atol=SLACK)


def test_even_the_fastest_point_cannot_pass_through(world):
    """Straight at the thing from both sides: whoever was before it stays before it."""
    env, run = world
    thing = np.array([3.0, 3.0]) if env.shape == "disc" else np.array([2.0, 5.0])
    x, y = thing
    q = np.array([[x, y - 0.9, x, y, 0, 0], [x, y + 0.9, x, y, 0, 0]], np.float32)
    q, towards = np.repeat(q, MANY // 2, axis=0), np.repeat([[0.0, 1.0], [0.0, -1.0]], MANY // 2, axis=0)
    body = np.asarray(run(q, np.broadcast_to(towards.astype(np.float32), (STEPS, MANY, 2))))[..., :4]
    ahead = body[..., 3] - body[..., 1]  # [T + 1, N]
    assert (ahead[:, : MANY // 2] > 0.3).all() and (ahead[:, MANY // 2 :] < -0.3).all()


def test_the_spec_names_the_thing_and_the_room(world):
    env, _ = world
    spec = env.spec
    assert (spec.state_size, spec.goal_size, spec.action_size, spec.episode_length) == (6, 2, 2, 250)
    assert spec.threshold == 0.25 and spec.physics == "none" and spec.maze_dims == (0, 1)
    assert [(thing.shape, thing.dims, thing.acts) for thing in env.things] == [
        (env.shape, (2, 3), False),
        ("disc", (0, 1), True),
    ]


SOCCER, SLICK = make_env("point_soccer"), make_env("point_soccer_slick")
STEP = {SOCCER: jax.jit(SOCCER.step), SLICK: jax.jit(SLICK.step)}


def after_ball(point, ball, action, steps: int = 1, env=SLICK) -> np.ndarray:
    state = env.reset_to(np.array([*point, *ball, 3.0, 3.0]))
    for _ in range(steps):
        state = STEP[env](state, jnp.array(action))
    return np.asarray(state.obs[:4])


def test_the_point_by_itself_moves_by_twelve_hundredths_of_the_action():
    assert_allclose(after_ball((2.0, 2.0), (4.0, 4.0), (-0.5, 1.0)), [1.94, 2.12, 4.0, 4.0], atol=1e-6)
    assert_allclose(after_ball((2.0, 2.0), (4.0, 4.0), (0.0, 9.0)), [2.0, 2.12, 4.0, 4.0], atol=1e-6)


def test_a_push_from_behind_moves_the_ball_by_what_the_gap_leaves():
    """0.5 apart, 0.1 of it free: of a step of 0.12 the ball takes the last 0.02, and of the next one all."""
    assert_allclose(after_ball((3.0, 3.0), (3.0, 3.5), (0.0, 1.0)), [3.0, 3.12, 3.0, 3.52], atol=1e-6)
    assert_allclose(after_ball((3.0, 3.0), (3.0, 3.5), (0.0, 1.0), steps=2), [3.0, 3.24, 3.0, 3.64], atol=1e-6)


def test_a_glancing_push_goes_along_the_normal():
    """At the end of the step the offset is 0.395 (0.6, 0.8): the ball gives way by 0.005 in that direction."""
    assert_allclose(after_ball((3.0, 3.0), (3.357, 3.316), (1.0, 0.0)), [3.12, 3.0, 3.36, 3.32], atol=1e-6)


def test_a_ball_that_sticks_goes_along_in_every_direction():
    """Touching at 0.4: carried as far as the point moves, also where that is away from the ball or across."""
    for action in ((1.0, 0.0), (0.0, -1.0), (-0.5, 0.5)):
        moved = 0.12 * np.array(action)
        found = after_ball((3.0, 3.0), (3.0, 3.4), action, env=SOCCER)
        assert_allclose(found, [3.0 + moved[0], 3.0 + moved[1], 3.0 + moved[0], 3.4 + moved[1]], atol=1e-6)
    assert_allclose(
        after_ball((3.0, 3.0), (3.0, 3.45), (0.0, -1.0), env=SOCCER), [3.0, 2.88, 3.0, 3.45], atol=1e-6
    )  # too far


def test_a_wall_takes_the_ball_from_the_point_that_moves_on():
    """The ball at the wall (y 5.25) stays behind while the point slides along x past it, pushing it a little aside."""
    held = after_ball((2.65, 5.0), (3.0, 5.25), (0.0, 1.0), env=SOCCER)
    assert_allclose(held[3], 5.25, atol=1e-5)


def test_a_ball_that_is_left_stays():
    assert_allclose(after_ball((3.0, 3.0), (3.0, 3.5), (0.0, -1.0)), [3.0, 2.88, 3.0, 3.5], atol=1e-6)


def test_at_the_wall_neither_moves():
    """The wall's face is at 5.5: the ball stands at 5.25, the point behind it at 4.85."""
    assert_allclose(after_ball((3.0, 4.85), (3.0, 5.25), (0.0, 1.0), steps=3), [3.0, 4.85, 3.0, 5.25], atol=1e-5)


def test_a_ball_at_the_wall_can_be_lifted_off_it_from_the_wedge():
    """The smaller point fits under the ball's side: the normal then leads away from the wall too."""
    _, _, x, y = after_ball((2.4, 5.35), (3.0, 5.25), (1.0, 0.0), steps=6)
    assert x > 3.1 and y < 5.22


def test_near_goal_is_the_balls_affair():
    ball_there = SOCCER.reset_to(np.array([3.0, 3.0, 4.0, 4.0, 4.0, 4.24]))
    assert bool(ball_there.near_goal) and float(ball_there.reward) == 1.0 and not bool(ball_there.done)
    point_there = SOCCER.reset_to(np.array([4.0, 4.24, 2.0, 2.0, 4.0, 4.24]))
    assert not bool(point_there.near_goal)
    assert not bool(SOCCER.reset_to(np.array([3.0, 3.0, 4.0, 4.0, 4.0, 4.26])).near_goal)


@pytest.mark.parametrize(("part", "distance"), [(slice(2, 4), 0.6), (slice(6, 8), 1.3)])
def test_ball_and_target_lie_in_any_direction_at_their_distances(part: slice, distance: float):
    obs = np.asarray(jax.jit(jax.vmap(SOCCER.reset))(jax.random.split(jax.random.key(0), 2000)).obs)
    offset = obs[:, part] - 3.0
    assert_allclose(np.linalg.norm(offset, axis=-1), distance, atol=1e-5)
    angle = np.arctan2(offset[:, 1], offset[:, 0])
    assert kstest(angle, "uniform", args=(-np.pi, 2 * np.pi)).pvalue > 1e-3
    assert np.abs(obs[:, :2] - 3.0).max() <= 0.12 + 1e-6
    apart = np.linalg.norm(obs[:, 4:6], axis=-1)
    assert apart.min() > 0.42 and np.linalg.norm(obs[:, 2:4] - obs[:, 6:], axis=-1).min() > 0.25  # nothing is begun


PUSH = make_env("point_push")
push_step = jax.jit(PUSH.step)


def after_box(point, box, *actions) -> np.ndarray:
    state = PUSH.reset_to(np.array([*point, *box, 2.0, 5.0]))
    for action in actions:
        state = push_step(state, jnp.array(action))
    return np.asarray(state.obs[:4])


def test_a_push_at_a_face_moves_the_box_straight():
    """The box's face is at 2.6 and the point's front at 2.55: of 0.12 the box takes 0.07."""
    assert_allclose(after_box((2.0, 2.4), (2.0, 3.0), (0.0, 1.0)), [2.0, 2.52, 2.0, 3.07], atol=1e-6)


def test_a_push_off_the_middle_of_a_face_does_not_turn_the_box():
    assert_allclose(after_box((1.7, 4.4), (2.0, 5.0), (0.0, 1.0)), [1.7, 4.52, 2.0, 5.07], atol=1e-6)


def test_a_corner_is_pushed_along_the_line_to_it():
    """The corner (1.6, 4.6) lies 0.145 (0.6, 0.8) from the point at the end: the box gives way by 0.005 that way."""
    assert_allclose(after_box((1.513, 4.364), (2.0, 5.0), (0.0, 1.0)), [1.513, 4.484, 2.003, 5.004], atol=1e-6)


def test_the_box_in_the_door_gives_way_along_it_and_not_across():
    """Between the door's posts, at 1.5 and 2.5 in x, a box that reaches 0.4 has 0.1 to each side."""
    pushed = after_box((2.0, 2.4), (2.08, 3.0), *[(0.0, 1.0)] * 5)
    assert_allclose(pushed[2:], [2.08, 3.0 + 5 * 0.12 - 0.05], atol=1e-5)
    aside = after_box((1.65, 3.7), (2.1, 3.19), *[(1.0, -1.0)] * 10)  # from the far room's side, at its corner
    assert aside[2] <= 2.1 + 1e-5


def test_the_way_is_closed_until_the_box_is_pushed_through():
    """Straight through the door, then around the box: 13 steps push it 1.5 on, and the goals' room is open."""
    straight = [(0.0, 1.0)] * 20
    through = after_box((2.0, 1.0), (2.0, 3.0), *straight)
    assert_allclose(through, [2.0, 1.0 + 20 * 0.12, 2.0, 1.0 + 20 * 0.12 + 0.55], atol=1e-5)
    around = after_box((2.0, 1.0), (2.0, 3.0), *straight, *[(0.0, 1.0)] * 8, *[(-1.0, 0.0)] * 8)
    assert around[0] < 1.2 and around[1] > 4.3
    blocked = after_box((1.0, 2.0), (2.0, 3.0), *[(0.0, 1.0)] * 30)  # beside the door is wall
    assert_allclose(blocked, [1.0, 2.35, 2.0, 3.0], atol=1e-5)


def test_near_goal_is_the_points_affair():
    assert bool(PUSH.reset_to(np.array([2.0, 4.8, 2.0, 6.0, 2.0, 5.0])).near_goal)
    assert not bool(PUSH.reset_to(np.array([2.0, 1.0, 2.0, 5.0, 2.0, 5.0])).near_goal)


def test_the_point_starts_in_the_near_room_the_box_in_the_door_and_goals_fill_the_far_room():
    obs = np.asarray(jax.jit(jax.vmap(PUSH.reset))(jax.random.split(jax.random.key(0), 2000)).obs)
    assert np.abs(obs[:, :2] - [2.0, 1.0]).max() <= 0.12 + 1e-6
    assert np.all(obs[:, 2:4] == [2.0, 3.0])
    goals, counts = np.unique(obs[:, 6:], axis=0, return_counts=True)
    assert {tuple(goal) for goal in goals} == {(float(x), float(y)) for x in (1, 2, 3) for y in (4, 5, 6)}
    assert chisquare(counts).pvalue > 1e-3
    assert np.isfinite(TruePaths(PUSH.layout).lengths(obs[:, :2], obs[:, 6:])).all()  # but for the box there is a way
