"""Policies with random weights, made without compiling anything, and inputs at the scale of mazes."""

from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dcp.policies.exports import encode, load_exported
from dcp.policies.numpy_policy import ExportedPolicy
from dcp.policies.policy import DeployedPolicy, deployed_params
from dcp.policies.policy_file import save_policy
from dcp.types import EnvSpec
from tests.support.untrained import learner_of

ANT = EnvSpec("ant_u_maze", 29, 2, 8, (0, 1), 0.5, 1000)
SCATTERED = EnvSpec("scattered", 7, 3, 2, (5, 0, 3), 0.5, 100)  # goal dims that are no slice
SMALL = {"width": 16, "repr_dim": 8}
ENDINGS = {"numpy": ".npz", "onnx": ".onnx", "stablehlo": ".stablehlo"}


@cache
def untrained(method: str, spec: EnvSpec = ANT, **settings: Any) -> DeployedPolicy:
    """Weights as at the start of training, but every bias and LayerNorm random too: each must show."""
    learner = learner_of(spec, method=method, **{**SMALL, **settings})
    agent = learner.agent
    random = np.random.default_rng(3)

    def draw(path: Any, leaf: Any) -> np.ndarray:
        part, name = str(getattr(path[-2], "key", "")), path[-1].key
        drawn = random.uniform(-1.0, 1.0, leaf.shape).astype(np.float32)
        if part.startswith("norm") or name in ("scale", "shift"):
            return drawn * 0.2 + (1.0 if name == "scale" else 0.0)
        return drawn / np.sqrt(leaf.shape[-2] if name == "kernel" else 16.0).astype(np.float32)

    shapes = jax.eval_shape(learner.init, jax.random.key(0)).params
    actor, critic = jax.tree_util.tree_map_with_path(draw, (shapes.actor, shapes.critic))
    critic = deployed_params(agent.critic, critic)  # a policy may come without what serves only training
    return DeployedPolicy(spec, learner.network, agent.critic, agent.condition, actor, critic)


def exported(folder: Path, form: str, policy: DeployedPolicy) -> ExportedPolicy:
    """Written and read, without the comparison that `export_policy` makes: a test makes its own."""
    path = folder / f"policy{ENDINGS[form]}"
    path.write_bytes(encode(policy, form, {}))
    return load_exported(path)


def maze_inputs(spec: EnvSpec, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions and goals up to 40, the rest of the state of size one."""
    random = np.random.default_rng(0)
    state = random.standard_normal((rows, spec.state_size)).astype(np.float32)
    state[:, spec.goal_dims] = random.uniform(0.0, 40.0, (rows, spec.goal_size))
    return state, random.uniform(0.0, 40.0, (rows, spec.goal_size)).astype(np.float32)


def saved(folder: Path, method: str = "dcp", spec: EnvSpec = ANT, **settings: Any) -> Path:
    """A run folder with nothing but a policy. -> the folder"""
    about = {"env": spec.name, "method": method, "seed": 0, "env_steps": 5000}
    return save_policy(folder / "policy.safetensors", untrained(method, spec, **settings), about).parent
