"""Open what a user names to be evaluated: a run's folder, a policy file, the zoo, an export, a function of arrays."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dcp.config import Config
from dcp.envs.base import Environment
from dcp.envs.registry import make_env, require_stepped_by
from dcp.errors import UserError
from dcp.files import require_no_links_out
from dcp.files.run_folder import CONFIG_FILE, POLICY_FILE, is_zoo, located, read_config_file
from dcp.named_code import require_allowed, require_imported
from dcp.policies.numpy_policy import ExportedPolicy
from dcp.policies.policy import DeployedPolicy, Policy
from dcp.policies.policy_file import load_policy_and_about
from dcp.policies.wrappers import as_policy
from dcp.types import EnvSpec

IDENTITY = ("env", "method", "seed", "eval_env", "fidelity", "physics")  # what a policy and its run's config share


@dataclass(frozen=True)
class Target:
    """Hold something that acts, and what is known about its origin."""

    label: str
    policy: Policy
    sizes: tuple[int, int, int] | None = None  # S, G, A; a plain function has none
    about: dict[str, Any] = field(default_factory=dict)  # env, eval_env, fidelity, physics, method, seed, env_steps
    config: Config | None = None  # of the run
    folder: Path | None = None  # where its results belong

    @property
    def env(self) -> str | None:
        """Return the environment that training evaluated it on, as far as is known."""
        if self.config is not None:
            return self.config.eval_env or self.config.env
        return self.about.get("eval_env") or self.about.get("env")

    @property
    def home(self) -> Path:
        """Return the folder for its results: the run's, or runs/zoo, since the zoo lies in the installed package."""
        if is_zoo(self.label) and not Path(self.label).exists():
            return Path("runs") / self.label
        return self.folder or Path("runs")

    def results_dir(self, name: str) -> Path:
        """Return the folder of this name in its home. A link there that leads elsewhere is refused: a run folder may be
        a stranger's, and results must not be written outside it."""
        require_no_links_out(self.home / name, of=self.home)
        return self.home / name

    @property
    def fidelity(self) -> str:
        return self.config.fidelity if self.config else self.about.get("fidelity") or "paper"

    @property
    def physics(self) -> str:
        return self.config.physics if self.config else self.about.get("physics") or "brax"

    @property
    def control(self) -> str:
        """Return what its actions move."""
        if isinstance(self.policy, DeployedPolicy):
            return self.policy.spec.control
        return self.about.get("control") or "joints"

    @property
    def randomize(self) -> str | None:
        """Return what changed between the run's episodes, as far as is known."""
        return self.config.randomize if self.config else None


def open_target(source: "str | Path | Policy | Callable[[np.ndarray, np.ndarray], Any] | Target") -> Target:
    if isinstance(source, Target):
        return source
    if isinstance(source, str | Path):
        return _from_path(source)
    if isinstance(source, DeployedPolicy):
        about = {"env": source.spec.name, "physics": source.spec.stepped_by}
        return Target(source.spec.name, source, _sizes(source.spec), about)
    if isinstance(source, ExportedPolicy):
        return _exported("exported policy", source)
    if hasattr(source, "act"):
        return Target(type(source).__name__, source)  # pyright: ignore[reportArgumentType]
    if callable(source):
        return Target(getattr(source, "__name__", type(source).__name__), as_policy(source))
    raise UserError(
        f"cannot evaluate a {type(source).__name__}: give a path, a policy, or a function of state and goal"
    )


def _from_path(path: str | Path) -> Target:
    from dcp.policies.exports import is_exported, load_exported

    label, path = str(path), located(path)
    folder = path if path.is_dir() else path.parent
    if is_exported(path):
        exported = load_exported(path)
        return _exported(label, exported, _config(folder, exported.about), folder)
    if path.is_dir() and (path / CONFIG_FILE).is_file() and not (path / POLICY_FILE).is_file():
        raise UserError(f"{path} has no policy yet: the run writes {POLICY_FILE} at its first evaluation")
    policy, about = load_policy_and_about(path)
    return Target(label, policy, _sizes(policy.spec), about, _config(folder, about), folder)


def _exported(label: str, exported: ExportedPolicy, config: Config | None = None, folder: Path | None = None) -> Target:
    sizes = exported.state_size, exported.goal_size, exported.action_size
    return Target(label, as_policy(exported), sizes, dict(exported.about), config, folder)


def _config(folder: Path, about: dict[str, Any]) -> Config | None:
    """Return the config next to a policy; None if it is another run's, because a file may be moved anywhere."""
    path = folder / CONFIG_FILE
    if not path.is_file():
        return None
    config = Config.from_dict(read_config_file(path)["config"])
    same = all(about.get(name, getattr(config, name)) == getattr(config, name) for name in IDENTITY)
    return config if same else None


def require_psi(target: Target) -> DeployedPolicy:
    """Return the target's policy, or refuse one without a psi."""
    if not isinstance(target.policy, DeployedPolicy):
        raise UserError(f"{target.label} holds no psi: name the run's folder or its policy.safetensors")
    return target.policy


def require_known_parts(config: Config, source: object) -> None:
    """Refuse a config that names code as a part of its agent, unless the user has imported it: call this before an
    agent is made from a config that was read, because making it imports what the config names."""
    require_imported([name for flag, name in config.code.items() if flag not in ("env", "eval-env")], source)


def _sizes(spec: EnvSpec) -> tuple[int, int, int]:
    return spec.state_size, spec.goal_size, spec.action_size


def environment_of(
    target: Target,
    env: str | Environment | None = None,
    fidelity: str | None = None,
    physics: str | None = None,
    randomize: str | None = None,
) -> Environment:
    """Return the given environment, or the target's own. Refuse one whose sizes are not the target's.

    `physics`: what steps it, instead of what the target was trained with. `randomize`: what changes between episodes,
    instead of what changed in training; "none": nothing.
    """
    if env is not None and not isinstance(env, str):
        require_stepped_by(env, physics)
        made = env
        if target.sizes is not None and target.control != made.spec.control:
            raise UserError(
                f"{target.label} was trained with control {target.control}, but {made.spec.name} has control "
                f"{made.spec.control}: make the environment with control={target.control!r}"
            )
    else:
        name = env or target.env
        if name is None:
            raise UserError(f"{target.label} does not say which environment it is for: name one with --env")
        if env is None:
            require_allowed({"env": name})
        randomize = randomize or (target.randomize if env is None else None)
        made = make_env(name, fidelity or target.fidelity, physics or target.physics, randomize, target.control)
    if target.sizes not in (None, _sizes(made.spec)):
        raise UserError(
            f"{target.label} has sizes (state, goal, action) {target.sizes}, but {made.spec.name} has "
            f"{_sizes(made.spec)}: choose an environment of the policy's sizes"
        )
    return made
