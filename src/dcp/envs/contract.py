"""A user's own environment: import it as `module:factory`, and check that it keeps the contract of `Environment`."""

from typing import cast

import jax
import jax.numpy as jnp

from dcp.envs.base import Environment, EnvState
from dcp.envs.registry import Factory, call_factory
from dcp.errors import UserError, one_line, shown
from dcp.named_code import NotAllowedError, import_named
from dcp.types import EnvSpec


def env_from_module(name: str, fidelity: str) -> Environment:
    """Import and make the environment that `module:factory` names, or say in one sentence why that fails."""
    try:
        factory = import_named(name)
    except NotAllowedError:
        raise
    except (Exception, SystemExit) as error:  # a user's module may fail in any way
        raise UserError(
            f"cannot load environment {shown(name)} ({one_line(error)}): name it as module:factory"
        ) from error
    if not callable(factory):
        raise UserError(f"{shown(name)} is not a function that makes an environment: name it as module:factory")
    try:
        env = call_factory(cast(Factory, factory), fidelity)
    except UserError as error:  # such as a MujocoTask's
        raise UserError(f"{name}(): {error}") from error
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise UserError(f"{name}() fails ({reason}): make it work without arguments") from error
    if not isinstance(env, Environment):
        kind = type(env).__name__
        raise UserError(f"{name} made a {kind}, which is not an environment: it needs spec, reset and step")
    return env


def contract_violations(name: str, env: Environment) -> list[str]:
    """Check a user's own environment by its shapes, without computing anything."""
    spec = env.spec
    if not isinstance(spec, EnvSpec):
        return [f"the spec of {name} is a {type(spec).__name__}: make it a dcp.types.EnvSpec"]
    if len(spec.goal_dims) != spec.goal_size or not all(0 <= dim < spec.state_size for dim in spec.goal_dims):
        return [f"goal_dims {spec.goal_dims} of {name} must be {spec.goal_size} indices below {spec.state_size}"]
    try:
        state = jax.eval_shape(lambda: env.reset(jax.random.key(0)))
    except Exception as error:  # a user's code may fail in any way
        return [f"reset of {name} fails ({_first_line(error)}): repair it"]
    if not isinstance(state, EnvState):
        return [f"reset of {name} returns a {type(state).__name__}: make it a dcp.envs.base.EnvState"]
    shape = (spec.state_size + spec.goal_size,)
    if state.obs.shape != shape:
        return [f"obs of {name} has shape {state.obs.shape}: by its spec, [state, goal] has shape {shape}"]
    if not jnp.issubdtype(state.obs.dtype, jnp.floating):
        return [f"obs of {name} is {state.obs.dtype}: make it float32"]
    for flag in ("done", "near_goal"):
        leaf = getattr(state, flag)
        if leaf.shape != () or leaf.dtype != bool:
            return [f"{flag} of {name} is {leaf.dtype}{list(leaf.shape)}: make it a single bool"]
    action = jax.ShapeDtypeStruct((spec.action_size,), jax.numpy.float32)
    try:
        after = jax.eval_shape(env.step, state, action)
    except Exception as error:
        return [f"step of {name} fails ({_first_line(error)}): repair it"]
    if jax.tree.structure(after) != jax.tree.structure(state):
        return [f"step of {name} returns another structure than reset: give both the same fields"]
    for (path, was), now in zip(jax.tree.leaves_with_path(state), jax.tree.leaves(after), strict=True):
        if (was.shape, was.dtype) != (now.shape, now.dtype):
            field = jax.tree_util.keystr(path)
            return [f"{field} of {name} is {was.dtype}{list(was.shape)} after reset but {now.dtype}{list(now.shape)} "
                    "after step: make them the same"]  # fmt: skip
    return []


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
