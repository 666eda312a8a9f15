"""The pool, its clock and who is commanded what; the single goal."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import chisquare

from dcp.envs.mazes import parse_layout
from dcp.interfaces import Representation
from dcp.methods.commands import PooledSubgoal, PoolState

COMMAND = PooledSubgoal(
    pool_size=8,
    num_candidates=3,
    subgoal_period=25,
    pool_refresh_steps=16,
    score="energy",
    final_goal_share=0.0,
    threshold=0.1,
)
IDENTITY = Representation(
    encode_goal=lambda goal: goal,
    distance=lambda a, b: jnp.linalg.norm(a - b, axis=-1),
    value=lambda state, action, goal: jnp.zeros(state.shape[:-1]),
)


def points(*values: float) -> jax.Array:
    """[K] numbers -> [K, 2] goals on a line"""
    return jnp.stack([jnp.array(values), jnp.zeros(len(values))], axis=-1)


@partial(jax.jit, static_argnums=(0, 1))
def run(command: PooledSubgoal, representation: Representation, state: PoolState, achieved, goal, keys):
    """achieved, goal [T, N, G] -> the last state, and after each step z, the commanded goal and the pool"""

    def one(state, inputs):
        state, commanded = command.step(state, inputs[0], inputs[1], representation, inputs[2])
        return state, (state.subgoal, commanded, state.pool)

    return jax.lax.scan(one, state, (achieved, goal, keys))


def constant(value: jax.Array, steps: int) -> jax.Array:
    return jnp.broadcast_to(value[None], (steps, *value.shape))


def test_the_pool_starts_from_the_first_achieved_goals_repeated_as_needed():
    state = COMMAND.init(points(1, 2, 3), points(9, 9, 9))
    assert np.array_equal(state.pool, points(1, 2, 3, 1, 2, 3, 1, 2))


def test_seeds_take_the_first_slots():
    state = COMMAND.init(points(1, 2, 3), points(9, 9, 9), points(50, 60))
    assert np.array_equal(state.pool, points(50, 60, 3, 1, 2, 3, 1, 2))


def test_more_seeds_than_slots_fill_the_pool():
    state = COMMAND.init(points(1), points(9), points(*range(20, 40)))
    assert np.array_equal(state.pool, points(*range(20, 28)))


@pytest.mark.parametrize("num_seeds", [3, 8])
def test_seeds_are_never_overwritten_and_every_open_slot_is(num_seeds: int):
    seeds = points(*range(50, 50 + num_seeds))
    state = COMMAND.init(points(1, 2), points(9, 9), seeds)
    keys = jax.random.split(jax.random.key(0), 200)
    visited = constant(points(7, 7), 200)
    state, _ = run(COMMAND, IDENTITY, state, visited, visited, keys)
    assert np.array_equal(state.pool[:num_seeds], seeds)
    assert np.array_equal(state.pool[num_seeds:], points(*[7] * (8 - num_seeds)))


@pytest.mark.parametrize("refresh_steps", [16, 3])
def test_the_ring_is_replaced_once_in_refresh_steps_on_average(refresh_steps: int):
    """Every step achieves something new, so a slot that changes was entered.

    Of P = 8 slots P / refresh_steps enter a step: in 1600 steps, 800 (refresh 16; std 20) or 4266.7 (refresh 3).
    """
    command, steps = replace(COMMAND, pool_refresh_steps=refresh_steps), 1600
    achieved = jnp.arange(1.0, 2 * steps + 1).reshape(steps, 2, 1) * jnp.ones((1, 1, 2))  # [T, N, G], none twice
    state = command.init(-achieved[0], achieved[0])
    keys = jax.random.split(jax.random.key(1), steps)
    _, (_, _, pools) = run(command, IDENTITY, state, achieved, achieved, keys)
    pools = np.concatenate([np.asarray(state.pool)[None], np.asarray(pools)])[..., 0]  # [T + 1, P]
    entered = np.sum(pools[1:] != pools[:-1])
    share = 8 / refresh_steps % 1
    deviation = np.sqrt(steps * share * (1 - share))
    # With more than one entry a step two may be the same environment's, in different slots: all are counted.
    assert abs(entered - steps * 8 / refresh_steps) < 4 * deviation
    assert np.all(np.abs(np.diff(np.sum(pools[1:] != pools[:-1], axis=1))) <= 1)  # steadily, not in bursts


def test_entries_come_from_every_environment_and_the_oldest_leave_first():
    steps = 400
    command = replace(COMMAND, pool_refresh_steps=8)  # exactly one entry a step
    time = jnp.arange(1.0, steps + 1)[:, None] * jnp.ones((1, 4))
    achieved = jnp.stack([time, jnp.broadcast_to(jnp.arange(4.0), (steps, 4))], axis=-1)  # (time, environment)
    state = command.init(jnp.zeros((4, 2)), achieved[0])
    keys = jax.random.split(jax.random.key(2), steps)
    state, (_, _, pools) = run(command, IDENTITY, state, achieved, achieved, keys)
    assert sorted(np.asarray(state.pool)[:, 0]) == list(range(steps - 7, steps + 1))  # the last eight moments
    newest = np.asarray([pool[np.argmax(pool[:, 0]), 1] for pool in np.asarray(pools)]).astype(int)
    assert chisquare(np.bincount(newest, minlength=4)).pvalue > 1e-3


def test_candidates_are_drawn_without_replacement():
    """With as many candidates as slots, the best of the pool is always found: drawn with replacement it would be
    missed (1 - 1/8)^8 = 34% of the time."""
    command = replace(COMMAND, num_candidates=8)
    pool = points(0, 1, 2, 3, 4, 5, 6, 7)
    goal = points(*[6.9] * 500)
    best = command.select_subgoal(pool, jnp.zeros((500, 2)), goal, IDENTITY, jax.random.key(0))
    assert np.array_equal(best, points(*[7] * 500))


def test_candidates_are_drawn_uniformly_for_each_environment():
    """The best of the pool is among C = 3 of P = 8 with probability 3/8; the second best wins 5/8 * 3/7 of the time,
    the third 5/8 * 4/7 * 3/6, and so on; and environments with the same goal get different z at the same tick."""
    pool, num_envs = points(0, 1, 2, 3, 4, 5, 6, 7), 4000
    goal = points(*[10.0] * num_envs)
    z = COMMAND.select_subgoal(pool, jnp.zeros((num_envs, 2)), goal, IDENTITY, jax.random.key(5))
    counts = np.bincount(np.asarray(z)[:, 0].astype(int), minlength=8)
    by_hand = np.array([0, 0, 1, 3, 6, 10, 15, 21]) / 56  # C(rank, 2) / C(8, 3): the maximum of three out of eight
    assert_allclose(by_hand[-2:], [5 / 8 * 3 / 7, 3 / 8])
    assert counts[:2].sum() == 0  # the maximum of three is never the lowest or the second lowest
    assert chisquare(counts[2:], num_envs * by_hand[2:]).pvalue > 1e-3


def test_the_highest_score_wins_under_the_chosen_rule():
    pool = points(-8, 1, 3)
    for score, best in (("inner_product", 3), ("energy", 1)):
        command = replace(COMMAND, pool_size=3, num_candidates=3, score=score)
        z = command.select_subgoal(pool, points(0), points(1.5), IDENTITY, jax.random.key(0))
        assert np.array_equal(z, points(best))


def moving(steps: int, num_envs: int = 4) -> jax.Array:
    """[T, N, 2]: an achieved goal that is never the same twice"""
    return jnp.arange(1.0, steps * num_envs * 2 + 1).reshape(steps, num_envs, 2)


def test_z_is_chosen_only_on_the_25_step_clock():
    steps = 60
    goal = constant(points(40, 80, 120, 160), steps)
    state = COMMAND.init(moving(1)[0], goal[0])
    keys = jax.random.split(jax.random.key(3), steps)
    _, (z, commanded, _) = run(COMMAND, IDENTITY, state, moving(steps), goal, keys)
    z = np.asarray(z)
    changes = [t for t in range(1, steps) if not np.array_equal(z[t], z[t - 1])]
    assert changes == [25, 50]
    assert not np.array_equal(z[0], goal[0])  # the first choice comes with the first step
    assert np.array_equal(commanded, z)


def test_the_representation_is_not_consulted_off_the_clock():
    """Counted at run time: three encodings (pool, achieved, goal) at each of the ticks 0, 25 and 50, none between."""
    calls: list[int] = []

    def encode(goal: jax.Array) -> jax.Array:
        jax.debug.callback(lambda: calls.append(1))
        return goal

    goal = constant(points(40, 80, 120, 160), 60)
    state = COMMAND.init(moving(1)[0], goal[0])
    keys = jax.random.split(jax.random.key(3), 60)
    jax.block_until_ready(run(COMMAND, IDENTITY._replace(encode_goal=encode), state, moving(60), goal, keys))
    jax.effects_barrier()
    assert len(calls) == 3 * 3


@pytest.mark.parametrize(("share", "num_goal"), [(0.0, 0), (0.5, 2), (1.0, 4)])
def test_a_share_of_the_environments_is_commanded_the_goal_itself(share: float, num_goal: int):
    command = replace(COMMAND, final_goal_share=share)
    goal = points(40, 80, 120, 160)
    state = command.init(moving(1)[0], goal)
    state, commanded = command.step(state, moving(1)[0], goal, IDENTITY, jax.random.key(0))
    takes_goal = np.all(np.asarray(commanded) == np.asarray(goal), axis=-1)
    assert takes_goal.sum() == num_goal
    takes_z = np.all(np.asarray(commanded) == np.asarray(state.subgoal), axis=-1)
    assert np.array_equal(takes_z, ~takes_goal)


def test_an_environment_whose_goal_changed_is_commanded_it_until_the_next_tick():
    steps, old, new = 40, points(40, 80, 120, 160), points(40, 90, 120, 160)
    goal = jnp.concatenate([constant(old, 10), constant(new, 30)])  # environment 1's goal changes at step 10
    state = COMMAND.init(moving(1)[0], old)
    keys = jax.random.split(jax.random.key(3), steps)
    _, (z, commanded, _) = run(COMMAND, IDENTITY, state, moving(steps), goal, keys)
    z, commanded = np.asarray(z), np.asarray(commanded)
    assert np.array_equal(commanded[:10], z[:10])
    assert np.array_equal(commanded[10:25, 1], np.asarray(constant(points(90)[0], 15)))
    assert np.array_equal(commanded[10:25, [0, 2, 3]], z[10:25, [0, 2, 3]])
    assert np.array_equal(commanded[25:], z[25:])


def test_with_only_the_goal_in_the_pool_z_is_the_goal():
    goal = points(4, 4)
    state = COMMAND.init(goal, goal)
    state, commanded = COMMAND.step(state, goal, goal, IDENTITY, jax.random.key(0))
    assert np.array_equal(state.subgoal, goal)
    assert np.array_equal(commanded, goal)


def test_the_metrics_match_the_numbers_by_hand():
    """Pool 0, 4: mean 2, root mean square distance from it 2. z = 1, 4 from s = 1.05, 1: 0.05 (at z) and 3."""
    state = COMMAND.init(points(0, 4), points(5, 5))._replace(subgoal=points(1, 4))
    metrics = COMMAND.metrics(state, points(1.05, 1), points(5, 5))
    by_hand = {
        "pool_spread": 2.0,
        "state_to_subgoal": (0.05 + 3) / 2,
        "subgoal_to_goal": (4 + 1) / 2,
        "time_at_subgoal": 1 / 2,
    }
    assert set(metrics) == set(by_hand)
    for name, value in by_hand.items():
        assert_allclose(metrics[name], value, rtol=1e-5)


def test_with_seeds_the_open_slots_are_replaced_once_in_the_refresh_time():
    command = replace(COMMAND, pool_size=8, pool_refresh_steps=4)
    state = command.init(points(1, 2), points(9, 9), points(50, 51, 52, 53))  # 4 open slots in 4 steps: one a step
    for step in range(3):
        state = command.visit(state, points(7, 7), jax.random.key(step))
    assert np.sum(np.asarray(state.pool[4:, 0]) == 7) == 3


@pytest.mark.parametrize(("moved", "follows"), [(0.0, True), (1e-6, True), (1e-3, False), (-1e-3, False)])
def test_a_goal_that_moves_by_a_rounding_error_is_the_same_goal(moved: float, follows: bool):
    """A simulator that carries the goal as a body may move it by its last bit at every step."""
    goal = points(4, 8)
    state = COMMAND.init(points(1, 2), goal)
    state, _ = COMMAND.step(state, points(1, 2), goal, IDENTITY, jax.random.key(0))
    commanded = COMMAND.commanded(state, goal.at[1, 1].add(moved))
    assert np.array_equal(commanded[0], state.subgoal[0])
    assert np.array_equal(commanded[1], state.subgoal[1] if follows else goal[1].at[1].add(moved))


def test_a_goal_that_no_way_leads_to_is_not_the_farthest():
    layout = parse_layout("#####\n#r#g#\n#g#g#\n#####", scale=2.0)
    assert np.array_equal(layout.farthest_goal(), [4.0, 2.0])
