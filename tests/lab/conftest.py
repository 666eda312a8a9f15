import pytest

from dcp.envs.registry import make_env
from dcp.lab.offscreen import find_backend
from dcp.policies.policy import DeployedPolicy
from tests.support.untrained import untrained_policy


@pytest.fixture(scope="session")
def policy() -> DeployedPolicy:
    """Small and untrained, on the U maze."""
    return untrained_policy(make_env("point_u_maze").spec, width=8, depth=1, repr_dim=4)


@pytest.fixture(scope="session")
def renderer() -> str:
    """The backend that draws here."""
    backend, failures = find_backend()
    if backend is None:
        pytest.skip(f"no off-screen renderer: {failures}")
    return backend
