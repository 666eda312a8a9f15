"""The pool, its clock and who is commanded what; the frontier of the pool; the single goal."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import chisquare

from dcp.envs.mazes import parse_layout
from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.interfaces import Representation
from dcp.methods.commands import Frontier, FrontierState, PooledSubgoal, PoolState, SingleGoal

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


FRONTIER = Frontier(
    pool_size=8, num_candidates=8, subgoal_period=25, pool_refresh_steps=16, score="energy", threshold=0.1
)
LINE = points(0, 1, 2, 3, 4, 5, 6, 7)


def frontier_state(command: Frontier, start: jax.Array, goal: jax.Array, **changes) -> FrontierState:
    """A state whose pool is the line 0 .. 7 and whose episodes began at `start`."""
    state = command.init(start, goal)
    return state._replace(pooled=state.pooled._replace(pool=LINE), **{k: jnp.asarray(v) for k, v in changes.items()})


@pytest.mark.parametrize(
    ("start", "goal", "reach", "z"),
    [
        (0.0, 9.0, 0.5, 3),  # distances 0 .. 7 have the median 3.5
        (0.0, 9.0, 1.0, 7),
        (0.0, 9.0, 0.1, 0),  # the tenth lies at 0.7
        (7.0, -9.0, 0.5, 4),
        (3.0, 9.0, 0.5, 5),  # distances 3 2 1 0 1 2 3 4 have the median 2
    ],
)
def test_the_cutoff_counts_from_the_episodes_start(start: float, goal: float, reach: float, z: int):
    """With the whole weight on the score, z is the member nearest to the goal within reach, wherever the body is."""
    goals = points(goal, goal)
    state = frontier_state(FRONTIER, points(start, start), goals, reach=reach, goal_weight=1.0)
    for at in (start, 5.0):
        chosen = FRONTIER.choose(state, points(at, at), goals, IDENTITY, jax.random.key(0))
        assert np.array_equal(chosen.pooled.subgoal, points(z, z))


def test_the_cutoff_is_in_steps_where_the_critic_gives_them():
    """These steps call the far end near: from 0 the half within reach is 4 .. 7."""
    backwards = IDENTITY._replace(steps=lambda a, b: 100.0 - jnp.linalg.norm(a - b, axis=-1))
    goal = points(-9)
    state = frontier_state(FRONTIER, points(0), goal, reach=0.5, goal_weight=1.0)
    assert np.array_equal(
        FRONTIER.choose(state, points(0), goal, backwards, jax.random.key(0)).pooled.subgoal, points(4)
    )


def test_novelty_is_minus_the_log_of_a_gaussian_kernels_density():
    """Pool 0, 0, 0, 4: mean 1, spread sqrt(3), so a bandwidth of 1 / sqrt(3) spreads is 1."""
    novelty = replace(FRONTIER, bandwidth=3**-0.5).novelty(points(0, 0, 0, 4))
    rare, common = (1 + 3 * np.exp(-8.0)) / 4, (3 + np.exp(-8.0)) / 4
    assert_allclose(novelty, -np.log([common, common, common, rare]), rtol=1e-4)


def test_without_weight_on_the_score_z_is_the_rarest_within_reach():
    goal, pool = points(0), points(0, 0, 0, 1, 1, 2, 7, 7)
    state = frontier_state(FRONTIER, points(0), goal, reach=1.0, goal_weight=0.0)
    state = state._replace(pooled=state.pooled._replace(pool=pool))
    chosen = FRONTIER.choose(state, points(5), goal, IDENTITY, jax.random.key(0))
    assert np.array_equal(chosen.pooled.subgoal, points(2))
    assert_allclose(chosen.novelty, FRONTIER.novelty(pool)[5])


def test_coverage_counts_cells_of_the_thresholds_size():
    """0 and 0.05 share the first cell of size 0.1; 0.12 and 0.31 lie in the second and the fourth."""
    assert_allclose(FRONTIER.coverage(points(0, 0.05, 0.12, 0.31)), 3 / 4)


@pytest.mark.parametrize(
    ("arrived", "share", "new_share", "move"),
    [
        ([1, 1, 1, 1], 0.70, 0.85, 1),  # 0.5 * 0.7 + 0.5 * 1: more than 0.7
        ([1, 1, 0, 1], 0.70, 0.70 / 2 + 1 / 3, 0),  # the fourth was no attempt: two of three; within the band
        ([0, 0, 0, 0], 0.70, 0.35, 0),
        ([0, 0, 0, 1], 0.40, 0.20, -1),
    ],
)
def test_the_cutoff_and_the_weight_follow_the_share_that_is_reached(arrived, share, new_share, move):
    command = replace(FRONTIER, memory=0.5, adaptation=0.05)
    state = frontier_state(command, points(0, 0, 0, 0), points(9, 9, 9, 9), share_reached=share)
    state = state._replace(attempts=jnp.array([True, True, True, False]), arrived=jnp.array(arrived, bool))
    after = command.adapted(state)
    assert_allclose(after.share_reached, new_share, rtol=1e-6)
    assert_allclose(after.reach, 0.5 + 0.05 * move, rtol=1e-6)
    assert_allclose(after.goal_weight, 0.5 + 0.05 * move, rtol=1e-6)


def test_the_cutoff_and_the_weight_stay_within_their_bounds_and_rest_without_attempts():
    no = jnp.zeros(1, bool)
    for share, reach, weight in ((0.0, 0.1, 0.0), (1.0, 1.0, 1.0)):
        state = frontier_state(FRONTIER, points(0), points(9), share_reached=share, reach=reach, goal_weight=weight)
        after = FRONTIER.adapted(state._replace(attempts=no))
        assert_allclose([after.share_reached, after.reach, after.goal_weight], [share, reach, weight], rtol=1e-6)


def test_who_arrives_explores_and_is_counted_once():
    """z = 1: environment 0 arrives at the second step and stays, 1 never does, and 2's goal changes before it would."""
    command, goal = replace(FRONTIER, explore_after=2), points(9, 9, 9)
    state = frontier_state(command, points(0, 0, 0), goal, attempts=[True] * 3)
    state = state._replace(pooled=state.pooled._replace(subgoal=points(1, 1, 1)))
    exploring = []
    for at, g in ((0.5, 9.0), (0.95, 8.0), (1.0, 8.0), (1.05, 8.0)):
        state = command.watched(state, points(at, 0.0, at), goal.at[2, 0].set(g))
        exploring.append(np.asarray(command.explores(state)).tolist())
    assert exploring == [[False] * 3, [True, False, False], [True, False, False], [False] * 3]
    assert np.asarray(state.attempts).tolist() == [True, True, False]
    assert np.asarray(state.arrived).tolist() == [True, False, False]


def test_a_z_that_is_reached_when_it_is_chosen_is_no_attempt():
    goal = points(9, 9)
    state = frontier_state(FRONTIER, points(0, 0), goal, reach=1.0, goal_weight=1.0)
    state = FRONTIER.choose(state, points(7.05, 2), goal, IDENTITY, jax.random.key(0))
    assert np.array_equal(state.pooled.subgoal, points(7, 7))
    assert np.asarray(state.attempts).tolist() == [False, True]


def test_an_episodes_begin_is_remembered_and_ends_its_exploring():
    state = frontier_state(FRONTIER, points(0, 0), points(9, 9), exploring=[3, 3])
    state = FRONTIER.begin(state, points(5, 6), jnp.array([True, False]))
    assert np.array_equal(state.start, points(5, 0))
    assert np.asarray(state.exploring).tolist() == [0, 3]


@partial(jax.jit, static_argnums=0)
def walk(command: Frontier, key: jax.Array):
    """60 steps of three environments that jump about, whose goals change twice -> states, commanded goals, goals"""
    key_at, key_goal, key_run = jax.random.split(key, 3)
    at = jax.random.normal(key_at, (60, 3, 2))
    goal = jnp.repeat(jax.random.normal(key_goal, (3, 3, 2)), 20, axis=0)

    def one(state, inputs):
        at, goal, key = inputs
        state, commanded = command.step(command.begin(state, at, jnp.zeros(3, bool)), at, goal, IDENTITY, key)
        return state, (state, commanded)

    _, (states, commanded) = jax.lax.scan(one, command.init(at[0], goal[0]), (at, goal, jax.random.split(key_run, 60)))
    return states, commanded, goal


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31 - 1), share=st.sampled_from([0.0, 0.34]))
def test_the_frontier_never_leaves_the_pool_and_equal_seeds_give_equal_bits(seed: int, share: float):
    command = replace(FRONTIER, num_candidates=4, final_goal_share=share)
    states, commanded, goal = walk(command, jax.random.key(seed))
    z, pool = np.asarray(states.pooled.subgoal), np.asarray(states.pooled.pool)
    for tick in (0, 25, 50):
        assert (z[tick][:, None] == pool[tick]).all(-1).any(-1).all()
    assert set((z[1:] != z[:-1]).any((1, 2)).nonzero()[0]) <= {24, 49}  # between choices z stays
    commanded, goal = np.asarray(commanded), np.asarray(goal)
    assert ((commanded == z).all(-1) | (commanded == goal).all(-1)).all()
    for name, low in (("reach", command.least_reach), ("goal_weight", 0.0), ("share_reached", 0.0)):
        assert low - 1e-6 <= np.min(getattr(states, name)) and np.max(getattr(states, name)) <= 1.0
    again = walk(command, jax.random.key(seed))
    jax.tree.map(np.testing.assert_array_equal, (states, commanded, goal), again)


def test_the_frontiers_metrics_are_the_pools_and_its_own():
    state = frontier_state(FRONTIER, points(0), points(9))
    own = {"share_reached", "reach", "goal_weight", "subgoal_novelty", "pool_coverage"}
    pools = set(COMMAND.metrics(state.pooled, points(0), points(9)))
    assert set(FRONTIER.metrics(state, points(0), points(9))) == pools | own


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"bandwidth": 0.0}, "command.bandwidth 0.0 is too small: use a number above 0"),
        ({"explore_after": -1}, "command.explore_after -1 is too small: use 0 or more"),
        ({"target_reached": 1.5}, "command.target_reached 1.5 is no share: use a number from 0 to 1"),
    ],
)
def test_a_frontiers_setting_without_meaning_is_refused(setting: dict, words: str):
    with pytest.raises(UserError, match=words):
        Frontier(**setting)


def test_the_single_goal_is_the_one_with_the_longest_way():
    """In the U maze (3, 1) lies six cells from the start at (1, 1), though (3, 3) is farther as the crow flies."""
    command = SingleGoal().for_task(make_env("point_u_maze").spec, 250)
    assert command.goal == (3.0, 1.0)
    _, commanded = command.step((), points(0, 1), points(9, 8), IDENTITY, jax.random.key(0))
    assert np.array_equal(commanded, [[3.0, 1.0], [3.0, 1.0]])


def test_a_goal_that_no_way_leads_to_is_not_the_farthest():
    layout = parse_layout("#####\n#r#g#\n#g#g#\n#####", scale=2.0)
    assert np.array_equal(layout.farthest_goal(), [4.0, 2.0])


def test_a_single_goal_of_ones_own_keeps_the_goals_other_coordinates():
    command = SingleGoal(goal=(7.0,)).for_task(make_env("point_soccer").spec, 250)
    _, commanded = command.step((), points(0), jnp.array([[1.0, 2.0]]), IDENTITY, jax.random.key(0))
    assert np.array_equal(commanded, [[7.0, 2.0]])


@pytest.mark.parametrize(
    ("goal", "words"),
    [
        (None, "asks for a maze's farthest goal, and point_soccer has no goals in a maze: set command.goal"),
        ((1.0, 2.0, 3.0), "command.goal has 3 numbers: a goal of point_soccer has 2"),
    ],
)
def test_a_task_without_a_farthest_goal_is_refused_in_one_sentence(goal, words: str):
    with pytest.raises(UserError, match=words):
        SingleGoal(goal=goal).for_task(make_env("point_soccer").spec, 250)
