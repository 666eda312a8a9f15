"""SAC's and TD3's targets by hand, their slow copies, the delayed actor; and imitation."""

import itertools
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.actor import Deterministic, Imitation, log_prob_squashed, sample_squashed
from dcp.config import Config
from dcp.critics.value import SAC, TD3
from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.interfaces import ActorStep, Agent, Problem, needs
from dcp.learner import Learner, LearnerState
from dcp.methods.commands import FinalGoal
from dcp.methods.conditions import RawGoal
from dcp.methods.table import make_agent
from dcp.networks import MLP
from dcp.types import Batch

SPEC = make_env("point_u_maze_inertia").spec  # S 4, G 2, A 2
PROBLEM = Problem(SPEC, MLP(width=8, depth=1))
KEY = jax.random.key(3)
SIZE = 6


def make_batch() -> Any:
    random = np.random.default_rng(0)

    def draw(*shape: int) -> jax.Array:
        return jnp.array(random.uniform(-0.9, 0.9, size=shape), jnp.float32)

    flags = [jnp.array(random.random(SIZE) < 0.5) for _ in range(2)]
    return Batch(
        draw(SIZE, 4), draw(SIZE, 2), draw(SIZE, 2), future_goal=draw(SIZE, 2), next_state=draw(SIZE, 4),
        has_next=flags[0], terminal=flags[1], reward=draw(SIZE), next_action=draw(SIZE, 2), next_bonus=draw(SIZE),
    )  # fmt: skip


def q(params: Any, name: str, state: jax.Array, action: jax.Array, goal: jax.Array) -> np.ndarray:
    return np.asarray(PROBLEM.network.apply(params[name], jnp.concatenate([state, action, goal], -1))[:, 0])


@pytest.mark.parametrize("chunk", [1, 2])
@pytest.mark.parametrize("critic", [SAC(discount=0.8), TD3(discount=0.8)])
def test_the_loss_is_a_plain_loop_over_the_bellman_error(critic: SAC, chunk: int):
    b, problem = make_batch(), Problem(replace(SPEC, action_chunk=chunk), PROBLEM.network)
    params, carried = critic.init(jax.random.split(KEY), PROBLEM)
    carried = carried._replace(params=jax.tree.map(lambda x: 0.7 * x + 0.01, params))
    onward = np.minimum(*(q(carried.params, n, b.next_state, b.next_action, b.future_goal) for n in ("q_1", "q_2")))
    errors = []
    for i in range(SIZE):
        target = b.reward[i] + 0.8**chunk * (0.0 if b.terminal[i] else onward[i] + b.next_bonus[i])
        values = [q(params, n, b.state, b.action, b.future_goal)[i] for n in ("q_1", "q_2")]
        if b.has_next[i] or b.terminal[i]:
            errors.append(np.mean([(value - target) ** 2 for value in values]) / 2)
    assert 0 < len(errors) < SIZE
    assert_allclose(critic.loss(problem, params, carried, b, KEY)[0], np.mean(errors), rtol=1e-5)


def test_the_actor_maximises_the_lesser_of_sacs_two_and_the_first_of_td3s():
    b = make_batch()
    for critic, choose in ((SAC(), np.minimum), (TD3(), lambda first, second: first)):
        params, _ = critic.init(jax.random.split(KEY), PROBLEM)
        both = [q(params, n, b.state, b.action, b.future_goal) for n in ("q_1", "q_2")]
        value = critic.representation(PROBLEM, params).value(b.state, b.action, b.future_goal)
        assert_allclose(value, choose(*both), rtol=1e-6)


def test_the_slow_copies_take_over_their_share_and_td3s_every_other_time():
    for critic, moves in ((SAC(target_rate=0.1), [True, True, True]), (TD3(target_rate=0.1), [True, False, True])):
        params, carried = critic.init(jax.random.split(KEY), PROBLEM)
        new = jax.tree.map(lambda x: x + 1.0, params)
        for moved in moves:
            before, carried = carried, critic.after(PROBLEM, new, carried)
            old, now = (np.asarray(x.params["q_1"]["out"]["bias"]) for x in (before, carried))
            assert_allclose(now, 0.9 * old + 0.1 * np.asarray(new["q_1"]["out"]["bias"]) if moved else old, rtol=1e-6)


@cache
def make_learner(method: str) -> Learner:
    config = Config(method=method, width=8, repr_dim=8)
    return Learner(config, SPEC, make_agent(config, SPEC))


@cache
def after_updates(method: str, count: int) -> list[LearnerState]:
    learner, batch = make_learner(method), make_batch()._replace(next_action=None, next_bonus=None)
    update, states = jax.jit(learner.update), [learner.init(jax.random.key(0))]
    for number in range(count):
        states.append(update(states[-1], batch, jax.random.key(number))[0])
    return states


def moved(before: Any, after: Any) -> bool:
    return any(not np.array_equal(a, b) for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True))


def test_td3s_actor_and_its_slow_copy_step_every_other_update_and_the_critic_at_each():
    states = after_updates("td3_her", 4)
    pairs = list(itertools.pairwise(states))
    assert [moved(a.params.actor, b.params.actor) for a, b in pairs] == [True, False, True, False]
    assert [moved(a.delayed.actor, b.delayed.actor) for a, b in pairs] == [True, False, True, False]
    assert [moved(a.params.critic, b.params.critic) for a, b in pairs] == [True] * 4
    assert not moved(states[0].params.log_alpha, states[-1].params.log_alpha)  # it has no temperature
    first, second = states[0], states[1]
    kernel = [np.asarray(s.params.actor["out"]["kernel"]) for s in (first, second)]
    assert_allclose(second.delayed.actor["out"]["kernel"], 0.995 * kernel[0] + 0.005 * kernel[1], rtol=1e-5)


def test_td3_explores_around_its_mean_and_smooths_its_next_action_within_a_cut():
    rule, mean = Deterministic(), jnp.array([[0.0, 3.0]])
    assert_allclose(rule.explore(mean, mean, jnp.array([[0.5, 0.5]])), [[0.2, 1.0]])  # 0.4 * 0.5, and clipped
    found, _ = rule.next_action(mean, mean, jnp.array([[9.0, -1.0]]))
    assert_allclose(found, [[0.5, np.tanh(3.0) - 0.2]], rtol=1e-6)


def test_the_next_action_is_the_actors_own_at_the_next_state_and_its_entropy_a_bonus():
    learner, batch = make_learner("sac_her"), make_batch()._replace(next_action=None, next_bonus=None)
    params = learner.init(jax.random.key(0)).params._replace(log_alpha=jnp.log(0.3))
    found = learner.with_next_action(params, params.actor, batch, KEY)
    heads = learner.network.apply(params.actor, jnp.concatenate([batch.next_state, batch.future_goal], -1))
    spread = -5.0 + 3.5 * (np.tanh(np.asarray(heads[:, 2:])) + 1.0)
    noise = (np.arctanh(np.asarray(found.next_action)) - np.asarray(heads[:, :2])) / np.exp(spread)
    assert 0.1 < np.std(noise) < 3.0  # unit normal, six rows of two
    log_prob = log_prob_squashed(heads[:, :2], jnp.array(spread), found.next_action)
    assert_allclose(found.next_bonus, -0.3 * np.asarray(log_prob), rtol=2e-3)


def test_without_a_temperature_the_entropy_of_the_next_action_is_worth_nothing():
    """TD-InfoNCE's actor draws its actions and has no entropy term: log_alpha stays 0, which is no temperature of 1."""
    learner, batch = make_learner("td_infonce"), make_batch()._replace(next_action=None, next_bonus=None)
    params = learner.init(jax.random.key(0)).params
    found = learner.with_next_action(params, params.actor, batch, KEY)
    assert found.next_action.shape == (SIZE, 2) and np.array_equal(found.next_bonus, np.zeros(SIZE))


@dataclass(frozen=True)
class Bootstraps(SAC):
    """A user's critic that names only a part of what its next action takes."""

    asks: tuple[str, ...] = ("next_action",)

    @property
    def needs(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return frozenset(self.asks)


@pytest.mark.parametrize("asks", [("next_action",), ("next_bonus",), ("next_state", "next_action")])
def test_a_critic_that_needs_the_next_action_gets_all_that_it_takes(asks: tuple[str, ...]):
    agent = Agent(Bootstraps(asks=asks), FinalGoal(), RawGoal(), "commanded", PROBLEM.network)
    assert needs(agent) == {"next_action", "next_state", "future_goal", *asks}
    learner, whole = Learner(Config(), SPEC, agent), make_batch()
    batch = Batch(*whole[:3], future_goal=whole.future_goal, next_state=whole.next_state)
    params = learner.init(jax.random.key(0)).params
    found = learner.with_next_action(params, params.actor, batch, KEY)
    assert found.next_action.shape == (SIZE, 2) and found.next_bonus.shape == (SIZE,)


def test_imitation_is_the_negative_log_probability_of_the_stored_actions_that_count():
    mean, log_std, noise = (jnp.array([[0.1, -0.2], [0.3, 0.4]]), jnp.full((2, 2), -1.0), jnp.array([[1.0, -0.5]] * 2))
    action, log_prob = sample_squashed(mean, log_std, noise)
    batch = make_batch()._replace(action=action, valid=jnp.array([True, False]))
    step = ActorStep(lambda a: a[:, 0], mean, log_std, noise, jnp.ones(()), batch)
    assert_allclose(Imitation().loss(step)[0], -log_prob[0], rtol=1e-4)
    at_the_bounds = step._replace(batch=batch._replace(action=jnp.ones((2, 2))))
    slope = jax.grad(lambda m: Imitation().loss(at_the_bounds._replace(mean=m))[0])
    assert np.all(np.isfinite(slope(mean)))


def test_gcbc_raises_the_probability_of_what_was_done():
    learner, batch = make_learner("gcbc"), make_batch()
    states = after_updates("gcbc", 3)

    def log_prob(state: LearnerState) -> float:
        heads = learner.network.apply(state.params.actor, jnp.concatenate([batch.state, batch.future_goal], -1))
        spread = -5.0 + 3.5 * (jnp.tanh(heads[:, 2:]) + 1.0)
        return float(jnp.mean(log_prob_squashed(heads[:, :2], spread, batch.action)))

    assert log_prob(states[-1]) > log_prob(states[0])


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"method": "dcp", "critic": "sac"}, "the condition direction reads psi, and the critic sac has none: use raw"),
        (
            {"method": "ssgc", "critic": "td3"},
            "the score inner_product reads psi, and the critic td3 has none: use fin",
        ),
        ({"method": "dcp_no_pool", "critic": "srl"}, "direction reads psi, and the critic srl has none: use raw_goal"),
        ({"method": "crl", "critic": "gcbc", "actor_goal": "commanded"}, "gcbc cannot teach the actor the commanded"),
    ],
)
def test_what_cannot_work_together_is_refused_in_one_sentence(settings: dict, sentence: str):
    with pytest.raises(UserError, match=sentence):
        make_agent(Config(**settings), SPEC)
