"""The gradient boundary: whoever reads a critic trains nothing of it. By hand, on a critic of one number."""

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dcp.interfaces import (
    Agent,
    Critic,
    Hindsight,
    Problem,
    Representation,
    actor_value,
    goals_of,
    needs,
    representation_of,
)
from dcp.methods.commands import FinalGoal
from dcp.methods.conditions import RawGoal
from dcp.networks import MLP
from dcp.types import Batch, EnvSpec

PROBLEM = Problem(EnvSpec("line", 1, 1, 1, (0,), threshold=0.5, episode_length=6), MLP())
ONE = jnp.ones((2, 1))


@dataclass(frozen=True)
class Scaling:
    """psi(g) = w g, and the value of an action is w a."""

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    hindsight: ClassVar[Hindsight] = Hindsight(discount=0.5, goal_steps=3)

    def representation(self, problem: Problem, params: Any) -> Representation:
        return Representation(
            lambda goal: params * goal,
            lambda x, y: jnp.abs(x - y)[..., 0],
            lambda state, action, goal: params * action[..., 0],
        )


@dataclass(frozen=True)
class WithItsOwnValue(Scaling):
    """The actor maximises w^2 a."""

    def actor_value(self, problem: Problem, params: Any, batch: Batch, action: Any, goal: Any) -> Any:
        return params**2 * action[..., 0]


@dataclass(frozen=True)
class Bootstraps(Scaling):
    needs: ClassVar[frozenset[str]] = frozenset({"next_bonus"})


def agent_of(critic: Any, **parts: Any) -> Agent:
    return Agent(cast(Critic, critic), FinalGoal(), RawGoal(), **parts)


def test_a_representation_gives_the_critics_numbers_and_no_gradient():
    def read(w: Any) -> Any:
        representation = representation_of(cast(Critic, Scaling()), PROBLEM, w)
        return jnp.sum(representation.encode_goal(ONE)) + jnp.sum(representation.value(ONE, ONE, ONE))

    assert float(read(3.0)) == 2 * 3.0 + 2 * 3.0
    assert float(jax.grad(read)(3.0)) == 0.0


@pytest.mark.parametrize(("critic", "slope"), [(Scaling(), 3.0), (WithItsOwnValue(), 9.0)])
def test_what_the_actor_maximises_passes_gradients_to_the_action_and_none_to_the_critic(critic: Any, slope: float):
    def value(w: Any, action: Any) -> Any:
        return jnp.sum(actor_value(critic, PROBLEM, w, Batch(ONE, ONE, ONE), ONE)(action))

    to_critic, to_action = jax.grad(value, argnums=(0, 1))(3.0, ONE)
    assert float(to_critic) == 0.0
    assert np.array_equal(to_action, slope * np.ones((2, 1)))


def test_an_agent_needs_what_its_critic_and_its_actors_goal_read():
    assert needs(agent_of(Scaling())) == {"reward"}
    assert needs(agent_of(Scaling(), actor_goal="future")) == {"reward", "future_goal"}
    assert needs(agent_of(Bootstraps())) == {"next_bonus", "next_action", "next_state", "future_goal"}


def test_goals_are_drawn_as_the_agent_says_else_as_its_critic_does():
    assert goals_of(agent_of(Scaling())) == Hindsight(discount=0.5, goal_steps=3)
    own = goals_of(agent_of(Scaling(), hindsight=Hindsight(others_share=0.2)))
    assert own == Hindsight(others_share=0.2, goal_steps=3)  # how long a goal is, only the critic knows
