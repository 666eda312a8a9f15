import jax
import pytest

from dcp.config import Config
from dcp.envs.registry import make_env
from dcp.learner import make_networks
from dcp.methods.table import make_condition
from dcp.policies.policy import DeployedPolicy


@pytest.fixture(scope="session")
def policy() -> DeployedPolicy:
    """Small and untrained, on the U maze."""
    spec, condition = make_env("point_u_maze").spec, make_condition("direction")
    networks = make_networks(Config(width=8, depth=1, repr_dim=4), spec, condition)
    actor, encoders = jax.jit(networks.init)(jax.random.key(0))
    return DeployedPolicy(networks, condition, spec, actor, encoders)
