"""Direction-conditioned policies. Names are loaded when first used: a policy needs neither physics nor the trainer."""

import sys
from importlib import import_module

TYPE_CHECKING = False  # type checkers take it for typing.TYPE_CHECKING, which takes a while to import
if TYPE_CHECKING:
    from typing import Any

    from dcp import presets as presets
    from dcp.algorithm import Algorithm as Algorithm
    from dcp.components import register as register
    from dcp.config import Config as Config
    from dcp.critics.contrastive import Contrastive as Contrastive
    from dcp.envs.base import EnvState as EnvState
    from dcp.envs.mujoco_task import MujocoTask as MujocoTask
    from dcp.envs.registry import make_env as make_env
    from dcp.envs.registry import register_env as register_env
    from dcp.interfaces import Agent as Agent
    from dcp.interfaces import CriticState as CriticState
    from dcp.interfaces import Problem as Problem
    from dcp.interfaces import Representation as Representation
    from dcp.lab.trial import evaluate as evaluate
    from dcp.methods.commands import FinalGoal as FinalGoal
    from dcp.methods.commands import PooledSubgoal as PooledSubgoal
    from dcp.methods.conditions import Direction as Direction
    from dcp.methods.conditions import RawGoal as RawGoal
    from dcp.methods.table import METHODS as METHODS
    from dcp.methods.table import Method as Method
    from dcp.networks import MLP as MLP
    from dcp.policies.policy_file import load_policy as load_policy
    from dcp.runs.resuming import resume as resume
    from dcp.runs.seeds import train_seeds as train_seeds
    from dcp.runs.training import train as train
    from dcp.types import EnvSpec as EnvSpec

_HOMES = {
    "dcp.algorithm": ("Algorithm",),
    "dcp.components": ("register",),
    "dcp.config": ("Config",),
    "dcp.critics.contrastive": ("Contrastive",),
    "dcp.envs.base": ("EnvState",),
    "dcp.envs.mujoco_task": ("MujocoTask",),
    "dcp.envs.registry": ("make_env", "register_env"),
    "dcp.lab.trial": ("evaluate",),
    "dcp.interfaces": ("Agent", "CriticState", "Problem", "Representation"),
    "dcp.methods.commands": ("FinalGoal", "PooledSubgoal"),
    "dcp.methods.conditions": ("Direction", "RawGoal"),
    "dcp.methods.table": ("METHODS", "Method"),
    "dcp.networks": ("MLP",),
    "dcp.policies.policy_file": ("load_policy",),
    "dcp.runs.seeds": ("train_seeds",),
    "dcp.runs.resuming": ("resume",),
    "dcp.runs.training": ("train",),
    "dcp.types": ("EnvSpec",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = ("presets",)  # written as dcp.presets.preset_config, without an import of their own
__all__ = sorted(_HOME_OF)  # pyright: ignore[reportUnsupportedDunderAll]
__version__ = "0.1.0"


def __getattr__(name: str) -> "Any":
    if name in _MODULES:
        return import_module(f"dcp.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'dcp' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, "__version__"})


# gymnasium.make("dcp:dcp/AntUMaze-v0") imports dcp and then looks the id up. Without Gymnasium nothing is imported.
if "gymnasium.envs.registration" in sys.modules:
    import_module("dcp.gym")
