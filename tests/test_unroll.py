"""An unroll: what is stored is what happened."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.algorithm import Algorithm, make_algorithm
from dcp.config import Config
from dcp.critics.contrastive import Contrastive
from dcp.interfaces import Agent, Hindsight
from dcp.learner import LearnerParams
from dcp.methods.commands import FinalGoal
from dcp.methods.conditions import RawGoal
from tests.support.tiny import tiny_config
from tests.support.toys import LineWorld

STEPS, NUM_ENVS = 12, 4
POOL_METRICS = {"pool_spread", "state_to_subgoal", "subgoal_to_goal", "time_at_subgoal"}


def make(method: str, **settings: Any) -> Algorithm:
    """With a pool, environments 0 and 1 are commanded g, 2 and 3 a z that is chosen every third step."""
    config = Config(
        env="point_u_maze", method=method, steps=10_000, num_envs=NUM_ENVS, episode_length=5, unroll_length=STEPS,
        batch_size=4, replay_rows=24, min_replay_rows=12, num_evals=1, width=8, depth=1, repr_dim=4, pool_size=6,
        num_candidates=3, subgoal_period=3, final_goal_share=0.5, **settings,
    )  # fmt: skip
    return make_algorithm(config)


def certain_params(trainer: Algorithm) -> LearnerParams:
    """Random parameters with the log deviation at its least: actions are nearly tanh(mean)."""
    random = np.random.default_rng(0)
    shapes = jax.eval_shape(trainer.learner.init, jax.random.key(0)).params
    params = jax.tree.map(lambda x: jnp.array(random.uniform(-1, 1, x.shape), jnp.float32), shapes)
    actor = jax.tree.map(lambda x: x.at[2:].set(-30.0) if x.shape == (4,) else x, params.actor)  # the heads' bias
    return params._replace(actor=actor)


@pytest.fixture(scope="module", params=["crl", "dcp"])
def unrolled(request: pytest.FixtureRequest):
    """trainer, parameters, the acting state before, transitions, metrics"""
    trainer = make(request.param)
    params = certain_params(trainer)

    def go(params: LearnerParams):
        first, _ = trainer.init_experience(jax.random.key(0))
        _, rows, metrics = trainer.unroll(params, first, jax.random.key(2))
        return first, rows, metrics

    return trainer, params, *jax.jit(go)(params)


def has_pool(trainer: Algorithm) -> bool:
    return trainer.config.method == "dcp"


def test_rows_hold_what_the_environments_went_through(unrolled):
    """Driftless: within an episode each coordinate moves by 0.12 a, or less where a wall stops it."""
    _, _, first, rows, _ = unrolled
    state, action = np.asarray(rows.state), np.asarray(rows.action)
    assert state.shape == action.shape == (STEPS, NUM_ENVS, 2)
    assert np.array_equal(state[0], first.episodes.env.obs[:, :2])
    assert np.abs(action).max() <= 1.0
    moved, wished = state[1:5] - state[:4], 0.12 * action[:4]
    stopped = ~np.isclose(moved, wished, atol=1e-5)
    assert np.all(np.abs(moved[stopped]) < np.abs(wished[stopped]))
    assert np.mean(stopped) < 0.5


def test_episodes_are_numbered_and_in_paper_fidelity_start_where_they_started(unrolled):
    rows = unrolled[3]
    assert np.array_equal(rows.episode_id, np.repeat([[0], [1], [2]], [5, 5, 2], axis=0) * np.ones((1, NUM_ENVS)))
    assert np.array_equal(rows.state[5], rows.state[0]) and np.array_equal(rows.state[10], rows.state[0])


def test_the_goal_slot_holds_g_or_where_a_pool_commands_a_visited_z(unrolled):
    trainer, _, first, rows, _ = unrolled
    goals, commanded = np.asarray(first.episodes.env.obs[:, 2:]), np.asarray(rows.commanded_goal)
    num_goal = 2 if has_pool(trainer) else NUM_ENVS
    assert np.array_equal(commanded[:, :num_goal], np.tile(goals[:num_goal], (STEPS, 1, 1)))
    visited = {tuple(point) for point in np.asarray(rows.state).reshape(-1, 2)}
    assert {tuple(point) for point in commanded[:, num_goal:].reshape(-1, 2)} <= visited
    for tick in (0, 3, 6, 9):  # z stays for a period
        assert np.array_equal(commanded[tick : tick + 3], np.tile(commanded[tick], (3, 1, 1)))


def test_the_actor_is_fed_the_commanded_goal_as_at_deployment_it_is_fed_g(unrolled):
    """The least deviation is e^-5 = 0.007, so the stored action is the deployed policy's at the stored goal."""
    trainer, params, _, rows, _ = unrolled
    _, action = trainer.policy(params).act((), rows.state, rows.commanded_goal)
    assert_allclose(rows.action, action, atol=0.04)
    _, elsewhere = trainer.policy(params).act((), rows.state, rows.commanded_goal + 1.0)
    assert np.abs(np.asarray(elsewhere - rows.action)).max() > 2 * 0.04


def test_metrics_say_what_the_pool_does(unrolled):
    trainer, _, _, rows, metrics = unrolled
    cells = {tuple(cell) for cell in np.floor(np.asarray(rows.state).reshape(-1, 2) + 0.5)}
    assert_allclose(metrics["cells_visited"], len(cells) / 7, rtol=1e-6)  # the U maze has 7 free cells
    assert (POOL_METRICS & set(metrics)) == (POOL_METRICS if has_pool(trainer) else set())
    assert all(np.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize(("held", "stays"), [(1, []), (5, [1, 2, 3, 4, 6, 7, 8, 9, 11])])
def test_noise_is_held_for_as_many_steps_as_asked(held: int, stays: list[int]):
    """All parameters zero: the mean is 0 everywhere, so an action repeats where its noise does. 12 steps: 5, 5, 2."""
    algorithm = make("crl", noise_hold=held)
    shapes = jax.eval_shape(algorithm.learner.init, jax.random.key(0)).params
    params = jax.tree.map(lambda x: jnp.zeros(x.shape), shapes)
    acting, _ = algorithm.init_experience(jax.random.key(0))
    action = np.asarray(jax.jit(algorithm.unroll)(params, acting, jax.random.key(2))[1].action)
    assert [t for t in range(1, STEPS) if np.array_equal(action[t], action[t - 1])] == stays
    assert len(np.unique(action[0])) == action[0].size  # each environment has its own


def test_two_methods_start_from_the_same_environments():
    """Every method draws from the same keys: seeds are paired."""
    one, other = (make(method).init_experience(jax.random.key(0))[0].episodes for method in ("crl", "dcp"))
    assert np.array_equal(one.env.obs, other.env.obs)


@dataclass(frozen=True)
class FinalGoals(Contrastive):
    """The paper's critic with HER's final goals; its `needs` name nothing about falls."""

    hindsight: ClassVar[Hindsight] = Hindsight(draws="final")


def test_a_critic_with_final_goals_has_the_falls_that_they_depend_on():
    """A fall gives no final goal: the row keeps its commanded goal. Without `fell` a fall looks like a time limit."""
    agent = Agent(FinalGoals(repr_dim=4), FinalGoal(), RawGoal(), "future")
    trainer = Algorithm(LineWorld(edge=0.1, episode_length=50), agent, tiny_config(width=8))
    assert trainer.config.num_envs == 16
    acting, replay = trainer.init_experience(jax.random.key(0))
    assert replay.rows.fell.shape == (trainer.config.replay_rows, 16)
    params = trainer.learner.init(jax.random.key(3)).params
    _, rows, _ = jax.jit(trainer.unroll)(params, acting, jax.random.key(2))
    beyond = np.asarray(rows.state + rows.action)[..., 0] > 0.1
    assert beyond.any() and np.array_equal(rows.fell, beyond)


@dataclass(frozen=True)
class HalfExplore(FinalGoal):
    """A command that keeps in mind who begins an episode, and whose first two environments act at random."""

    def init(self, achieved, goal, seed_states=None):
        return jnp.zeros(len(goal), bool)

    def begin(self, state, achieved, begins):
        return begins

    def step(self, state, achieved, goal, representation, key):
        return state, goal

    def explores(self, state):
        return jnp.arange(len(state)) < 2

    def metrics(self, state, achieved, goal):
        return {"begins": jnp.mean(state)}


def test_where_a_command_explores_actions_are_uniform_and_elsewhere_the_actors():
    """Starts, goals and noise come from the same keys, so environments 2 and 3 do what they would do without it."""
    plain = make("crl")
    config, params = plain.config, certain_params(plain)
    half = Algorithm(plain.env, plain.agent._replace(command=HalfExplore()), config)
    rows = {}
    for name, trainer in (("plain", plain), ("half", half)):
        acting, _ = trainer.init_experience(jax.random.key(0))
        _, rows[name], metrics = jax.jit(trainer.unroll)(params, acting, jax.random.key(2))
    actions = np.asarray(rows["half"].action)
    assert np.array_equal(actions[:, 2:], np.asarray(rows["plain"].action)[:, 2:])
    drawn = actions[:, :2]
    assert np.all(np.abs(drawn) <= 1.0) and len(np.unique(drawn)) == drawn.size
    assert -0.25 < drawn.mean() < 0.25 and 0.2 < drawn.var() < 0.5  # of 48 numbers: 0 and 1/3
    assert_allclose(metrics["begins"], 3 / STEPS)  # episodes of 5 steps begin at steps 0, 5 and 10
