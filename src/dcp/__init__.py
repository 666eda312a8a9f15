"""Direction-conditioned policies. Names are loaded when first used: a policy needs neither Brax nor the trainer."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dcp.config import Config as Config
    from dcp.envs.registry import make_env as make_env
    from dcp.envs.registry import register_env as register_env
    from dcp.evaluation.trial import evaluate as evaluate
    from dcp.methods.table import METHODS as METHODS
    from dcp.policies.policy_file import load_policy as load_policy
    from dcp.runs.train import resume as resume
    from dcp.runs.train import train as train
    from dcp.runs.train import train_seeds as train_seeds

_HOMES = {
    "Config": "dcp.config",
    "METHODS": "dcp.methods.table",
    "make_env": "dcp.envs.registry",
    "register_env": "dcp.envs.registry",
    "evaluate": "dcp.evaluation.trial",
    "load_policy": "dcp.policies.policy_file",
    "resume": "dcp.runs.train",
    "train": "dcp.runs.train",
    "train_seeds": "dcp.runs.train",
}
__all__ = [
    "METHODS",
    "Config",
    "evaluate",
    "load_policy",
    "make_env",
    "register_env",
    "resume",
    "train",
    "train_seeds",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dcp' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


# gymnasium.make("dcp:dcp/AntUMaze-v0") imports dcp and then looks the id up. Without Gymnasium nothing is imported.
if "gymnasium.envs.registration" in sys.modules:
    import_module("dcp.gym")
