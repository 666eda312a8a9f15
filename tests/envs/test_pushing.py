"""What holds for every push: contact never leaves an overlap, walls hold, and nothing moves by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from dcp.envs.maze import cell_of
from dcp.envs.pushing import POINT_RADIUS, REACH, SPEED, TOLERANCE, PointPushing
from dcp.envs.registry import make_env
from tests.envs.placing import placed

NAMES = ("point_soccer", "point_push")
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


@pytest.fixture(scope="module", params=NAMES)
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
