"""What every exported file says of itself."""

from collections.abc import Mapping
from typing import Any

from dcp import __version__
from dcp.deploy.numpy_policy import FORMAT, SCHEMA_VERSION, Burst
from dcp.errors import UserError
from dcp.policies.policy import DeployedPolicy


def describe(policy: DeployedPolicy, about: Mapping[str, Any], burst: tuple[int, int] | None) -> dict[str, Any]:
    s = policy.spec
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "dcp_version": __version__,
        "inputs": {"state": ["batch", s.state_size], "goal": ["batch", s.goal_size]},
        "outputs": {"action": ["batch", s.action_size]},
        "state_size": s.state_size,
        "goal_size": s.goal_size,
        "action_size": s.action_size,
        "goal_dims": list(s.goal_dims),
        "condition": policy.condition.name,
        "burst": _burst(burst),
        "about": {"env": s.name, **about},
    }


def _burst(burst: tuple[int, int] | None) -> dict[str, int] | None:
    if burst is None:
        return None
    try:
        made = Burst(*burst)
    except ValueError as error:
        raise UserError(f"{error}: give --burst P L with 0 <= L <= P and P of 1 or more") from None
    return {"period": made.period, "length": made.length} if made.length else None
