"""An environment that diverges starts anew, is counted, and leaves nothing behind."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.envs.base import DIVERGENCE_LIMIT as LIMIT
from dcp.envs.base import EnvState, Episodes, EpisodeState, is_sound
from tests.support.toys import BrittleLine, LineWorld

NAN, INF = math.nan, math.inf


def run(env: BrittleLine, fidelity: str, steps: int = 6) -> list[EpisodeState]:
    """Three environments: one stands still, two go by 1 and by 2; what passes 2.5 diverges. Episodes of 6 steps."""
    episodes = Episodes(env, 3, 6, fidelity)
    step, states = jax.jit(episodes.step), [episodes.reset(jax.random.key(0))]
    for t in range(steps):
        states.append(step(states[-1], jnp.array([[0.0], [1.0], [2.0]]), jax.random.key(t + 1)))
    return states


@pytest.mark.parametrize("fidelity", ["paper", "fixed"])
@pytest.mark.parametrize(
    ("into", "where"),
    [
        (NAN, "obs"),
        (INF, "obs"),
        (-INF, "q"),
        (NAN, "qd"),
        (2 * LIMIT, "qd"),
        (-2 * LIMIT, "obs"),
    ],
)
def test_what_diverges_returns_to_a_first_state_under_a_new_episode(into: float, where: str, fidelity: str):
    """By 1: 0 1 2 (3). By 2: 0 2 (4). The numbers in brackets are never seen. The first ends by time alone."""
    states = run(BrittleLine(into, where), fidelity)
    assert_allclose(
        np.stack([state.env.obs[:, 0] for state in states]).T,
        [[0, 0, 0, 0, 0, 0, 0], [0, 1, 2, 0, 1, 2, 0], [0, 2, 0, 2, 0, 2, 0]],
    )
    ids = np.stack([state.episode_id for state in states]).T
    assert np.array_equal(ids, [[0, 0, 0, 0, 0, 0, 1], [0, 0, 0, 1, 1, 1, 2], [0, 0, 1, 1, 2, 2, 3]])
    assert np.array_equal(states[-1].diverged, [0, 2, 3])
    counts = np.stack([state.env.physics.count for state in states]).T  # an integer leaf is reset with the others
    assert np.array_equal(counts[1:], [[0, 1, 2, 0, 1, 2, 0], [0, 1, 0, 1, 0, 1, 0]])
    for state in states:
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(state))
        assert not np.any(state.env.done)


def test_in_paper_fidelity_it_is_its_own_first_state_and_in_fixed_a_fresh_one():
    firsts = {fidelity: run(BrittleLine(spread=0.25), fidelity) for fidelity in ("paper", "fixed")}
    x = {fidelity: [float(state.env.obs[2, 0]) for state in states] for fidelity, states in firsts.items()}
    assert x["paper"][2] == x["paper"][4] == x["paper"][0]
    assert len({x["fixed"][0], x["fixed"][2], x["fixed"][4]}) == 3


def test_large_numbers_are_absurd_only_under_simulated_physics():
    def state(x: float) -> EnvState:
        return LineWorld().reset(jax.random.key(0))._replace(obs=jnp.array([x, 0.0]))

    spring, plain = BrittleLine().spec, LineWorld().spec
    assert bool(is_sound(spring, state(0.99 * LIMIT))) and not bool(is_sound(spring, state(1.01 * LIMIT)))
    assert bool(is_sound(plain, state(1e30)))
    assert not any(bool(is_sound(plain, state(x))) for x in (NAN, INF, -INF))


class SometimesBroken(BrittleLine):
    """A reset that is sometimes NaN itself."""

    def reset(self, key):
        state = super().reset(key)
        bad = jax.random.uniform(jax.random.fold_in(key, 7)) < 0.5
        return state._replace(obs=jnp.where(bad, NAN, state.obs))


def test_a_fresh_start_that_is_unsound_gives_way_to_the_last_good_one():
    episodes = Episodes(SometimesBroken(spread=0.25), 64, 1, "fixed")  # every step ends an episode
    good = jax.vmap(BrittleLine(spread=0.25).reset)(jax.random.split(jax.random.key(0), 64))
    zeros = jnp.zeros(64, jnp.int32)
    state = EpisodeState(good, good, zeros, zeros, zeros)
    after = jax.jit(episodes.step)(state, jnp.zeros((64, 1)), jax.random.key(5))
    assert np.all(np.isfinite(after.env.obs))
    kept = np.asarray(after.env.obs[:, 0] == good.obs[:, 0])
    assert 10 < kept.sum() < 54  # about half of the draws were broken
    assert np.array_equal(after.diverged, zeros)  # no episode diverged
