"""A critic of two: each half trains as it does alone, and each is read for what it is there for."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.components import build, describe
from dcp.config import Config
from dcp.critics.contrastive import Contrastive
from dcp.critics.pair import Pair
from dcp.critics.value import SAC
from dcp.errors import UserError
from dcp.interfaces import Problem, hindsight_of
from dcp.methods.table import config_of, make_agent
from dcp.networks import MLP
from dcp.policies.policy_file import load_policy, save_policy
from dcp.types import Batch, EnvSpec
from tests.support.untrained import untrained_policy

SPEC = EnvSpec("line", 2, 1, 1, goal_dims=(0,), threshold=0.5, episode_length=10)
PROBLEM = Problem(SPEC, MLP(width=8, depth=1))
PAIR = Pair(SAC(discount=0.9), Contrastive(repr_dim=4))


def batch_of(rows: int = 6) -> Batch:
    draw = iter(jax.random.split(jax.random.key(3), 8))
    normal = lambda size: jax.random.normal(next(draw), (rows, size))  # noqa: E731
    return Batch(
        state=normal(2),
        action=jnp.tanh(normal(1)),
        commanded_goal=normal(1),
        future_goal=normal(1),
        future_steps=jnp.array([1, 2, 0, 4, 0, 1]),
        next_state=normal(2),
        has_next=jnp.ones(rows, bool),
        terminal=jnp.zeros(rows, bool),
        reward=jnp.zeros(rows),
        next_action=jnp.tanh(normal(1)),
        next_bonus=jnp.zeros(rows),
    )


def test_the_loss_is_the_sum_of_both_and_random_goals_are_no_positive_pairs():
    keys, key, batch = jax.random.split(jax.random.key(0)), jax.random.key(1), batch_of()
    params, carried = PAIR.init(keys, PROBLEM)
    value, _ = PAIR.value.loss(PROBLEM, params["value"], carried["value"], batch, key)
    masked = batch._replace(valid=jnp.array([True, True, False, True, False, True]))
    embedding, _ = PAIR.embedding.loss(PROBLEM, params["embedding"], carried["embedding"], masked, key)
    loss, metrics = PAIR.loss(PROBLEM, params, carried, batch, key)
    assert_allclose(loss, value + embedding, rtol=1e-6)
    assert_allclose(metrics["critic_loss"], value, rtol=1e-6)
    assert "embedding_infonce_accuracy" in metrics and "embedding_loss" in metrics


def test_the_actor_maximises_the_value_and_sees_the_embedding():
    batch = batch_of()
    params = PAIR.init(jax.random.split(jax.random.key(0)), PROBLEM).params
    both = PAIR.representation(PROBLEM, params)
    q = PAIR.value.representation(PROBLEM, params["value"])
    psi = PAIR.embedding.representation(PROBLEM, params["embedding"])
    goal = batch.commanded_goal
    assert_allclose(both.value(batch.state, batch.action, goal), q.value(batch.state, batch.action, goal))
    assert_allclose(both.encode_goal(goal), psi.encode_goal(goal))


def test_only_the_value_s_slow_copies_follow():
    params, carried = PAIR.init(jax.random.split(jax.random.key(0)), PROBLEM)
    moved = jax.tree.map(lambda x: x + 1.0, params)
    after = PAIR.after(PROBLEM, moved, carried)
    assert after["embedding"] == ()
    assert_allclose(after["value"].params["q_1"]["out"]["bias"], 0.005)  # it was 0


def test_goals_are_drawn_as_the_value_wants_them():
    assert hindsight_of(PAIR) == SAC.hindsight


def test_a_pair_is_named_by_its_halves_and_made_again_from_names_and_settings():
    stored = describe("critic", PAIR)
    assert stored["name"] == "sac+contrastive"
    assert stored["settings"]["value.discount"] == 0.9 and stored["settings"]["embedding.repr_dim"] == 4
    assert build("critic", stored["name"], stored["settings"]) == PAIR


def test_the_config_s_settings_reach_both_halves():
    config = Config(
        method="sac_direction", discount=0.95, repr_dim=16, component_settings={"critic.value.target_rate": 0.01}
    )
    critic = make_agent(config, SPEC).critic
    assert critic == Pair(SAC(discount=0.95, target_rate=0.01), Contrastive(repr_dim=16))


@pytest.mark.parametrize("name", ["sac+nothing", "nothing+contrastive", "sac+my_parts:Critic"])
def test_a_half_that_no_row_has_is_one_sentence_and_never_imported(name: str):
    with pytest.raises(UserError, match="unknown critic"):
        make_agent(Config(critic=name), SPEC)


def test_a_pair_s_policy_is_saved_without_what_serves_only_training(tmp_path: Path):
    policy = untrained_policy(SPEC, method="sac_direction", width=8, repr_dim=4, depth=1).without_critic()
    loaded = load_policy(save_policy(tmp_path / "p.safetensors", policy, {}))
    assert set(loaded.critic_params["embedding"]) == {"psi_g"}
    state, goal = np.ones((3, 2), np.float32), np.zeros((3, 1), np.float32)
    assert np.array_equal(loaded(state, goal), policy(state, goal))


def test_an_agent_of_a_pair_is_written_into_the_config_and_built_from_it_again():
    config = Config(method="sac_direction", discount=0.95, hindsight="her")
    agent = make_agent(config, SPEC)
    written = config_of(agent, Config())
    assert (written.method, written.critic, written.discount, written.hindsight) == (
        "sac_direction", "sac+contrastive", 0.95, "her",
    )  # fmt: skip
    assert make_agent(written, SPEC) == agent
