"""One update: what it moves, what it leaves alone, and what no method may change."""

import inspect
from dataclasses import dataclass, replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.actor import actor_heads, sample_squashed
from dcp.config import Config
from dcp.critics.contrastive import CONTRASTIVE_LOSSES, ENERGIES, Contrastive, logsumexp_penalty
from dcp.envs.registry import make_env
from dcp.learner import Learner, LearnerParams, LearnerState
from dcp.methods.table import METHODS, PAPER, make_agent
from dcp.policies.policy import DeployedPolicy
from dcp.types import Batch
from tests.support import compilation

ENV = make_env("point_u_maze_inertia")  # S 4, G 2, A 2
SIZE = 12
KEY = jax.random.key(11)


@cache
def make_learner(method: str = "dcp", **settings) -> Learner:
    config = Config(method=method, width=16, repr_dim=6, **settings)
    agent = make_agent(config, ENV.spec)
    return Learner(config, ENV.spec, agent)


@cache
def first_state(method: str = "dcp", **settings) -> LearnerState:
    """As `init` makes it, but filled by NumPy: the same encoders for every method, and nothing to compile."""
    state = jax.tree.map(
        lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(make_learner(method, **settings).init, jax.random.key(0))
    )

    def fill(params, seed: int):
        random = np.random.default_rng(seed)
        return jax.tree.map(lambda x: jnp.array(random.uniform(-0.5, 0.5, x.shape), jnp.float32), params)

    filled = state.params._replace(actor=fill(state.params.actor, 0), critic=fill(state.params.critic, 1))
    return state._replace(params=filled)


@cache
def updater(method: str, **settings):
    return jax.jit(make_learner(method, **settings).update)


def make_batch(seed: int = 0) -> Batch:
    random = np.random.default_rng(seed)
    state = random.normal(size=(SIZE, 4))
    state[0, :2] = 0.25
    arrays = state, random.uniform(-1, 1, (SIZE, 2)), random.normal(size=(SIZE, 2)), random.normal(size=(SIZE, 2))
    batch = Batch(*(jnp.array(array, jnp.float32) for array in arrays))
    return batch._replace(commanded_goal=batch.commanded_goal.at[0].set(0.25))  # row 0 stands at its z


def critic_loss(learner: Learner):
    return lambda params, batch: learner.agent.critic.loss(learner.problem, params, (), batch, KEY)


def same(one, other) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def test_the_critic_loss_is_the_contrastive_loss_of_future_goals_and_the_penalty():
    learner, batch = make_learner(), make_batch()
    encoders = first_state().params.critic
    psi_sa = learner.agent.critic.psi_sa(learner.problem, encoders, batch.state, batch.action)
    psi_g = learner.agent.critic.psi_g(learner.problem, encoders, batch.future_goal)
    logits = jnp.stack([ENERGIES["norm"].plain(row[None], psi_g) for row in psi_sa])  # row: (s, a), column: goal
    infonce = CONTRASTIVE_LOSSES["backward"](logits)
    loss, metrics = critic_loss(learner)(encoders, batch)
    assert_allclose(loss, infonce + 0.1 * logsumexp_penalty(logits), rtol=1e-4)
    assert_allclose(metrics["critic_loss"], infonce, rtol=1e-4)


def test_the_actor_loss_is_entropy_minus_energy_at_the_actors_goal():
    """mean(alpha log prob - energy(psi_sa(s, a), psi_g(z))), with a by the actor fed [direction, magnitude]."""
    learner, batch, params = make_learner(), make_batch(), first_state().params
    noise = jax.random.normal(KEY, (SIZE, 2))
    critic, problem, goal = learner.agent.critic, learner.problem, batch.commanded_goal
    psi_s, psi_z = (critic.psi_g(problem, params.critic, x) for x in (batch.state[:, :2], goal))
    length = np.linalg.norm(np.asarray(psi_z - psi_s), axis=-1, keepdims=True)
    direction = np.asarray(psi_z - psi_s) / np.where(length == 0.0, 1.0, length)  # row 0: s equals z
    condition = jnp.array(np.concatenate([direction, length], axis=-1))
    action, log_prob = sample_squashed(*actor_heads(learner.network, params.actor, batch.state, condition), noise)
    energy = ENERGIES["norm"].plain(critic.psi_sa(problem, params.critic, batch.state, action), psi_z)
    loss, _ = learner.actor_loss(params._replace(log_alpha=jnp.log(0.3)), batch, noise)
    assert_allclose(loss, jnp.mean(0.3 * log_prob - energy), rtol=1e-5)


def test_the_penalty_on_changes_of_action_is_the_squared_change_from_a_state_to_the_next():
    batch, params = make_batch(), first_state("crl").params
    batch = batch._replace(next_state=batch.state + 0.5)
    noise = jax.random.normal(KEY, (SIZE, 2))
    plain, penalised = make_learner("crl"), make_learner("crl", action_change_penalty=3.0)
    now, after = (
        actor_heads(plain.network, params.actor, s, batch.future_goal)[0] for s in (batch.state, batch.next_state)
    )
    change = np.square(np.tanh(now) - np.tanh(after)).sum(axis=-1).mean()
    assert change > 1e-4
    (without, _), (loss, _) = (learner.actor_loss(params, batch, noise) for learner in (plain, penalised))
    assert_allclose(loss - without, 3.0 * change, rtol=1e-3)
    assert "next_state" not in plain.needs and "next_state" in penalised.needs


def test_critic_gradients_are_bit_identical_across_methods():
    batch = make_batch()
    gradients = {
        method: jax.grad(critic_loss(make_learner(method)), has_aux=True)(first_state(method).params.critic, batch)[0]
        for method in PAPER
    }
    assert any(np.any(np.asarray(leaf) != 0.0) for leaf in jax.tree.leaves(gradients["crl"]))
    for method in PAPER:
        assert same(gradients[method], gradients["crl"])


@pytest.mark.parametrize(
    ("methods", "options"), [(PAPER, None), (("crl", "dcp"), compilation.SHIPPED)], ids=["all", "as shipped"]
)
def test_after_whole_updates_the_encoders_are_bit_identical_across_methods(methods: tuple[str, ...], options):
    """Actors, commands and conditions differ; the critic does not notice, in the one fused program of the update."""
    encoders = {}
    for method in methods:
        state = first_state(method)
        update = jax.jit(make_learner(method).update, compiler_options=options) if options else updater(method)
        for seed in range(3):
            state, _ = update(state, make_batch(seed), KEY)
        encoders[method] = state.params.critic
    assert not same(encoders["crl"], first_state("crl").params.critic)
    for method in methods:
        assert same(encoders[method], encoders["crl"]), method


@pytest.mark.parametrize("method", PAPER)
@pytest.mark.parametrize("field", ["future_goal", "commanded_goal"])
def test_the_actor_aims_only_at_its_own_goal_and_the_critic_at_the_future(method: str, field: str):
    batch = make_batch()
    moved = batch._replace(**{field: getattr(batch, field) + 1.0})
    before, after = (updater(method)(first_state(method), each, KEY)[0].params for each in (batch, moved))
    aims_at = "future_goal" if METHODS[method].actor_goal == "future" else "commanded_goal"
    assert same(before.actor, after.actor) is (field != aims_at)
    assert same(before.critic, after.critic) is (field != "future_goal")


def test_the_override_swaps_what_the_actor_aims_at():
    batch = make_batch()
    moved = batch._replace(commanded_goal=batch.commanded_goal + 1.0)
    update = updater("dcp", actor_goal="future")
    before, after = (update(first_state(), each, KEY)[0].params for each in (batch, moved))
    assert same(before.actor, after.actor)


@pytest.mark.parametrize("method", ["crl", "dcp"])
def test_actor_gradients_never_reach_the_encoders_nor_the_temperature(method: str):
    learner, params, noise = make_learner(method), first_state(method).params, jax.random.normal(KEY, (SIZE, 2))

    def loss(actor, encoders, alpha):
        return learner.actor_loss(LearnerParams(actor, encoders, jnp.log(alpha)), make_batch(), noise)[0]

    actor, encoders, alpha = jax.grad(loss, argnums=(0, 1, 2))(params.actor, params.critic, jnp.array(0.5))
    assert any(np.any(np.asarray(leaf) != 0.0) for leaf in jax.tree.leaves(actor))
    assert all(np.all(np.asarray(leaf) == 0.0) for leaf in jax.tree.leaves((encoders, alpha)))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(actor))  # although row 0 stands at its z


def test_the_critic_never_trains_the_actor():
    """Changing the stored actions changes the critic's loss and no number of the actor's step."""
    batch = make_batch()
    moved = batch._replace(action=-batch.action)
    before, after = (updater("dcp")(first_state(), each, KEY)[0].params for each in (batch, moved))
    assert same((before.actor, before.log_alpha), (after.actor, after.log_alpha))
    assert not same(before.critic, after.critic)


RATES = {"actor_learning_rate": 1e-2, "critic_learning_rate": 1e-3, "alpha_learning_rate": 1e-4}


def test_each_part_steps_by_its_own_learning_rate():
    """Adam's first step moves a parameter with a plain gradient by the learning rate itself."""
    before = first_state("dcp", **RATES)
    after, _ = updater("dcp", **RATES)(before, make_batch(), KEY)
    for part, rate in zip(("actor", "critic", "log_alpha"), RATES.values(), strict=True):
        old, new = (jax.tree.leaves(getattr(state.params, part)) for state in (before, after))
        farthest = max(np.abs(np.asarray(a - b)).max() for a, b in zip(old, new, strict=True))
        assert_allclose(farthest, rate, rtol=1e-2)


def test_the_actor_steps_with_the_encoders_as_they_were():
    """Actor and temperature first: a faster critic cannot change this update's actor, only its encoders."""
    slow, fast = (
        updater("dcp", **settings)(first_state("dcp", **settings), make_batch(), KEY)[0].params
        for settings in (RATES, {**RATES, "critic_learning_rate": 0.5})
    )
    assert same((slow.actor, slow.log_alpha), (fast.actor, fast.log_alpha))
    assert not same(slow.critic, fast.critic)


@dataclass(frozen=True)
class Remembering(Contrastive):
    """Carries the parameters that `after` gets."""

    def init(self, keys, problem):
        state = super().init(keys, problem)
        return state._replace(carried=state.params)

    def after(self, problem, params, carried):
        return params


def test_after_a_step_the_critic_carries_what_it_makes_of_its_new_parameters():
    """Slow target networks follow the networks that were just trained."""
    learner = make_learner()
    learner = replace(learner, agent=learner.agent._replace(critic=Remembering(repr_dim=6)))
    state = learner.init(KEY)
    new, _ = jax.jit(learner.update)(state, make_batch(), KEY)
    assert same(new.carried, new.params.critic) and not same(new.carried, state.params.critic)


def test_the_deployed_weights_are_a_plain_mean_at_first_and_then_a_moving_one():
    learner = make_learner(average_weights=2)
    state = jax.eval_shape(learner.init, KEY)
    state = jax.tree.map(lambda x: jnp.full(x.shape, 100, x.dtype), state)  # what it began with does not count
    state = state._replace(average=state.average._replace(iterations=jnp.zeros((), jnp.int32)))
    means = []
    for weight in (4.0, 8.0, 2.0):
        params = jax.tree.map(lambda x, weight=weight: jnp.full_like(x, weight), state.params)
        state = learner.averaged(state._replace(params=params))
        deployed = jax.tree.leaves([state.deployed.actor, state.deployed.critic])
        means.append({float(leaf.ravel()[0]) for leaf in deployed})
    assert means == [{4.0}, {6.0}, {4.0}]  # 4; (4 + 8) / 2; (6 + 2) / 2
    assert float(state.params.log_alpha) == float(state.deployed.log_alpha) == 2.0


def test_without_an_average_the_last_weights_are_deployed():
    state = first_state()
    assert state.average == ()
    assert make_learner().averaged(state).deployed is state.params


def test_alpha_rises_while_the_entropy_is_below_its_target_and_falls_above_it():
    """Target -0.5 * 2 = -1. With log std at its least, -5, the entropy is at most 2 (0.5 log(2 pi e) - 5) = -7.2."""
    state = first_state()
    actor = jax.tree.map(lambda x: x.at[2:].set(-30.0) if x.shape == (4,) else x, state.params.actor)  # the heads' bias
    certain = state._replace(params=state.params._replace(actor=actor))
    after, metrics = updater("dcp")(certain, make_batch(), KEY)
    assert float(metrics["entropy"]) < -7.0 + 0.5
    assert float(after.params.log_alpha) > 0.0

    # All zero: mean 0, log std -1.5, so at most 2 (1.42 - 1.5) = -0.16 before squashing, which takes a little more.
    middle = state._replace(params=state.params._replace(actor=jax.tree.map(jnp.zeros_like, actor)))
    after, metrics = updater("dcp")(middle, make_batch(), KEY)
    assert float(metrics["entropy"]) > -1.0
    assert float(after.params.log_alpha) < 0.0


def test_an_update_reports_its_losses():
    _, metrics = updater("dcp")(first_state(), make_batch(), KEY)
    assert {"critic_loss", "infonce_accuracy", "actor_loss", "alpha", "entropy"} <= set(metrics)
    assert float(metrics["alpha"]) == 1.0  # log alpha starts at 0
    assert all(np.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("method", ["crl", "dcp"])  # one for each condition
def test_the_deployed_policy_is_the_training_time_actor_fed_the_goal(method: str):
    """Bit for bit tanh(mean), and no pool: there is nothing to pass one by."""
    learner, params, batch = make_learner(method), first_state(method).params, make_batch()

    def training_time(params: LearnerParams, state: jax.Array, goal: jax.Array) -> jax.Array:
        representation = learner.representation(params.critic)
        condition = learner.agent.condition(representation, learner.spec.achieved(state), goal)
        return jnp.tanh(actor_heads(learner.network, params.actor, state, condition)[0])

    parts = (learner.network, learner.agent.critic, learner.agent.condition)
    policy = DeployedPolicy(learner.spec, *parts, params.actor, params.critic)
    deployed = policy(np.asarray(batch.state), np.asarray(batch.future_goal))
    assert np.array_equal(deployed, jax.jit(training_time)(params, batch.state, batch.future_goal))
    assert np.abs(deployed).max() < 1.0 and np.ptp(deployed) > 0.1


def test_a_policy_cannot_receive_a_command():
    made_of, fed = (set(inspect.signature(part).parameters) for part in (DeployedPolicy, DeployedPolicy.act))
    parts = {"spec", "network", "critic", "condition", "actor", "critic_params", "action_chunk", "scale"}
    assert made_of == parts
    assert fed == {"self", "policy_state", "state", "goal"}
