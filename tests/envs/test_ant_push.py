"""AntPush: the peer's recorded steps, and its resets in both fidelities."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dcp.envs.ant_push import AntPush
from dcp.envs.registry import make_env

GOLDEN = Path(__file__).parents[1] / "golden"
FEW = {"ant_push": 5, "ant_push_contact": 2, "ant_push_edge": 5}  # steps before the peer's own contact chaos
NEAR = 1e-3


@pytest.fixture(scope="module")
def env() -> AntPush:
    return AntPush()


@pytest.fixture(scope="module")
def programs(env: AntPush):
    return jax.jit(jax.vmap(env.reset_to)), jax.jit(jax.vmap(env.step))


def draws(fidelity: str, count: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    draw = jax.jit(jax.vmap(AntPush(fidelity=fidelity).draw))
    q, qd = draw(jax.random.split(jax.random.key(0), count))
    return np.asarray(q), np.asarray(qd)


def test_sizes_are_those_of_the_table():
    spec = make_env("ant_push").spec
    assert (spec.state_size, spec.goal_size, spec.action_size) == (31, 2, 8)
    assert (spec.goal_dims, spec.threshold, spec.episode_length, spec.physics) == ((0, 1), 0.5, 1000, "mjx")


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_steps_follow_the_peers_recording(env: AntPush, programs, name: str):
    with np.load(GOLDEN / f"{name}.npz", allow_pickle=False) as file:
        golden = dict(file)
    reset, step = programs
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
    q, qd = draws("paper")
    offset = q[:, :15] - np.array([0, 0, 0.75, 1, 0, 0, 0, 0, 1, 0, -1, 0, -1, 0, 1])
    assert np.abs(offset).max() <= 0.1 + 1e-6
    np.testing.assert_allclose(offset.mean(0), 0.0, atol=0.005)
    np.testing.assert_allclose(offset.std(0), 0.2 / np.sqrt(12), atol=0.003)
    np.testing.assert_allclose(qd[:, :14].mean(0), 0.0, atol=0.01)
    np.testing.assert_allclose(qd[:, :14].std(0), 0.1, atol=0.005)
    assert np.abs(q[:, 15:18]).max() <= 0.1  # the box: (8, 8, 2) and as much noise
    np.testing.assert_allclose(q[:, 15:18].std(0), 0.2 / np.sqrt(12), atol=0.003)


def test_a_goal_is_16_8_in_either_order_plus_up_to_two():
    goal = draws("paper")[0][:, -2:]
    east = goal[:, 0] > goal[:, 1]
    assert 0.46 < east.mean() < 0.54
    ordered = np.where(east[:, None], goal, goal[:, ::-1]) - np.array([16.0, 8.0])
    assert ordered.min() >= 0.0 and ordered.max() <= 2.0
    np.testing.assert_allclose(ordered.mean(0), 1.0, atol=0.05)
    np.testing.assert_allclose(ordered.std(0), 2.0 / np.sqrt(12), atol=0.02)


@pytest.mark.parametrize(("fidelity", "spread"), [("paper", 0.1), ("fixed", 0.0)])
def test_oddity_7_the_peers_box_starts_with_a_random_x_velocity(fidelity: str, spread: float):
    passive = draws(fidelity)[1][:, 14:]
    np.testing.assert_allclose(passive[:, 0].std(), spread, atol=0.005)
    assert not passive[:, 1:].any()


def test_fidelities_share_all_but_the_boxs_velocity():
    paper, fixed = draws("paper", 16), draws("fixed", 16)
    np.testing.assert_array_equal(paper[0], fixed[0])
    np.testing.assert_array_equal(np.delete(paper[1], 14, 1), np.delete(fixed[1], 14, 1))


def test_an_observation_is_ant_box_and_goal(env: AntPush):
    q = jnp.arange(20.0)
    links = SimpleNamespace(pos=jnp.arange(33.0).reshape(11, 3))
    physics: Any = SimpleNamespace(q=q, qd=100 + jnp.arange(19.0), x=links)
    state, goal = env.observe(physics, jnp.zeros(8))
    expected = [*range(15), *range(100, 114), 27.0, 28.0]  # the box is the last link but one
    np.testing.assert_array_equal(state, expected)
    np.testing.assert_array_equal(goal, [18.0, 19.0])


@pytest.mark.parametrize(
    "name", ["ant_push", *(pytest.param(n, marks=pytest.mark.slow) for n in ("ant_soccer", "humanoid_big_maze"))]
)
def test_a_step_of_each_engine_traces_and_keeps_every_shape(name: str):
    """What compiles too long for every run is at least built and traced in each."""
    env: Any = make_env(name)
    with jax.numpy_rank_promotion("allow"):
        first = jax.eval_shape(jax.vmap(env.reset), jax.random.split(jax.random.key(0), 2))
        after = jax.eval_shape(jax.vmap(env.step), first, jnp.zeros((2, env.spec.action_size)))
    assert first.obs.shape == (2, env.spec.state_size + env.spec.goal_size)
    same = jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), first, after)
    assert all(jax.tree.leaves(same))
