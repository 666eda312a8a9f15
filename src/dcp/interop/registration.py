"""Our ids in Gymnasium's registry.

Gymnasium 1.0 dropped its entry-point plugins: a package's ids are known once the package is imported. So `import dcp`
registers ours, whether Gymnasium was imported before it or comes after it, and imports Gymnasium in neither case.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from dcp.interop.ids import EPISODE_STEPS, gymnasium_id

_REGISTRY = "gymnasium.envs"  # the package that fills Gymnasium's registry with its own ids


def register() -> None:
    """Enter every environment of `dcp envs`. A second call changes nothing."""
    from gymnasium.envs import registration

    for name, steps in EPISODE_STEPS.items():
        if (id_ := gymnasium_id(name)) not in registration.registry:
            registration.register(
                id_,
                entry_point="dcp.interop.goal_env:GoalEnv",
                vector_entry_point="dcp.interop.vector_env:GoalVectorEnv",
                max_episode_steps=steps,
                kwargs={"env": name},
            )


def register_when_imported() -> None:
    """Now, if Gymnasium is there already; else at the end of its import, should it be imported."""
    if _REGISTRY in sys.modules:
        register()
    elif not any(isinstance(finder, _Registrar) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Registrar())


class _Registrar(MetaPathFinder):
    """Finds nothing by itself: what the others find for Gymnasium's registry gets our ids added, once."""

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != _REGISTRY:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            register()

        spec.loader.exec_module = execute_and_register
        return spec
