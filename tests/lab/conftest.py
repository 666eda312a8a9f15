import pytest

from dcp.envs.registry import make_env
from dcp.policies.policy import DeployedPolicy
from tests.support.untrained import untrained_policy


@pytest.fixture(scope="session")
def policy() -> DeployedPolicy:
    """Small and untrained, on the U maze."""
    return untrained_policy(make_env("point_u_maze").spec, width=8, depth=1, repr_dim=4)
