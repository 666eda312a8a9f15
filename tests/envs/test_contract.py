"""Our own environments keep the contract that a user's is held to before a run."""

import jax.numpy as jnp
import pytest

from dcp.envs.base import EnvState
from dcp.envs.contract import contract_violations
from dcp.envs.registry import ENVIRONMENTS, make_env
from dcp.types import Array
from tests.support.toys import LineWorld

PHYSICS = ("ant_u_maze", "humanoid_u_maze", "ant_soccer", "ant_push", "pusher_hard")


@pytest.mark.parametrize("name", [name for name in ENVIRONMENTS if name.startswith("point_")])
def test_a_point_maze_keeps_the_contract(name: str):
    assert contract_violations(name, make_env(name)) == []


@pytest.mark.slow
@pytest.mark.parametrize("fidelity", ["paper", "fixed"])
@pytest.mark.parametrize("name", PHYSICS)
def test_a_simulated_body_keeps_the_contract(name: str, fidelity: str):
    assert contract_violations(name, make_env(name, fidelity)) == []


class WholeNumbers(LineWorld):
    """An environment that counts in integers."""

    def reset(self, key: Array) -> EnvState:
        state = super().reset(key)
        return state._replace(obs=state.obs.astype(jnp.int32))


def test_an_observation_of_integers_is_refused_in_one_sentence():
    assert contract_violations("mine", WholeNumbers()) == ["obs of mine is int32: make it float32"]
