"""Wrap any of our environments as a `brax.envs.Env`, for Brax's trainers and for libraries that train on Brax.

    from brax.training.agents.ppo import train as ppo
    mend_trainers()
    ppo.train(BraxEnv("ant_u_maze"), num_timesteps=1_000_000, num_envs=256, episode_length=1000)

It also has what JaxGCRL's agents read from an environment: `state_dim`, `goal_indices`, `goal_reach_thresh`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp

from dcp.envs.base import Environment, EnvState, step_and_check
from dcp.envs.registry import ENVIRONMENTS, make_env, require_stepped_by
from dcp.errors import UserError, install_hint
from dcp.types import Array

try:
    from brax import envs
    from brax.envs.base import Env, State
except ImportError as error:
    raise ImportError(f"{error}: for Brax's interface, {install_hint('brax')}") from error

Reward = Literal["zero_one", "minus_one", "distance"]
PREFIX = "dcp/"  # of our names in Brax's registry


class BraxEnv(Env):
    """Wrap one instance; Brax's wrappers vmap it, apply the time limit and reset an episode that has ended.

    Brax's AutoResetWrapper always returns an environment to its own first state and goal, as the paper's setting does.
    A step that diverges is done, and its state is the last sound one, so that no NaN reaches the learner.
    """

    def __init__(
        self, env: str | Environment, fidelity: str = "paper", physics: str = "brax", reward: Reward = "zero_one"
    ):
        """Wrap an environment. `reward`: zero_one (1 near the goal, else 0), minus_one (0 near the goal, else -1), or
        distance (minus the distance to the goal), for learners without hindsight."""
        if reward not in get_args(Reward):
            raise UserError(f"unknown reward {reward!r}: choose one of {', '.join(get_args(Reward))}")
        if not isinstance(env, str):
            require_stepped_by(env, None if physics == "brax" else physics)
        self.env = make_env(env, fidelity, physics) if isinstance(env, str) else env
        self.spec, self._reward = self.env.spec, reward

    def reset(self, rng: Array) -> State:
        """Start the episode that `dcp.make_env(name).reset` starts with this key, in either form of JAX's keys."""
        key = rng if jnp.issubdtype(rng.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(rng)
        state = self.env.reset(key)
        zero = jnp.zeros(())
        return State(state, state.obs, zero, zero, self._metrics(state, zero))  # pyright: ignore[reportArgumentType]

    def step(self, state: State, action: Array) -> State:
        before: EnvState = state.pipeline_state  # pyright: ignore[reportAssignmentType]
        after, sound = step_and_check(self.env, before, action)
        after = jax.tree.map(lambda new, old: jnp.where(sound, new, old), after, before)
        done = (after.done | ~sound).astype(jnp.float32)
        metrics = {**state.metrics, **self._metrics(after, (~sound).astype(jnp.float32))}
        return state.replace(  # pyright: ignore[reportAttributeAccessIssue]
            pipeline_state=after, obs=after.obs, reward=self._rewarded(after), done=done, metrics=metrics
        )

    def _rewarded(self, state: EnvState) -> Array:
        if self._reward == "distance":
            return -self._distance(state)
        near = state.near_goal.astype(jnp.float32)
        return near if self._reward == "zero_one" else near - 1.0

    def _distance(self, state: EnvState) -> Array:
        body, goal = self.spec.split(state.obs)
        return jnp.linalg.norm(self.spec.achieved(body) - goal)

    def _metrics(self, state: EnvState, diverged: Array) -> dict[str, Array]:
        """Return metrics by JaxGCRL's names. Brax sums them per episode: `success` becomes the time near the goal."""
        success = state.near_goal.astype(jnp.float32)
        return {"success": success, "dist": self._distance(state), "diverged": diverged}

    @property
    def observation_size(self) -> int:
        """Return S + G: the state, then the goal."""
        return self.spec.state_size + self.spec.goal_size

    @property
    def action_size(self) -> int:
        return self.spec.action_size

    @property
    def backend(self) -> str:
        return self.spec.physics

    @property
    def state_dim(self) -> int:
        return self.spec.state_size

    @property
    def goal_indices(self) -> Array:
        return jnp.asarray(self.spec.goal_dims)

    @property
    def goal_reach_thresh(self) -> float:
        return self.spec.threshold


def mend_trainers() -> None:
    """Restore `jax.device_put_replicated`, which Brax 0.14's trainers call and JAX 0.10 no longer has.

    Without it they fail on every environment, even Brax's own. If JAX has the function, nothing changes.
    """
    if not hasattr(jax, "device_put_replicated"):
        jax.device_put_replicated = _replicated  # pyright: ignore[reportAttributeAccessIssue]


def _replicated(tree: Any, devices: Sequence[Any]) -> Any:
    """Return the tree with one copy of each leaf per device along a new leading axis, as `jax.pmap` expects it."""
    return jax.tree.map(lambda leaf: jnp.stack([jnp.asarray(leaf)] * len(devices)), tree)


def register() -> list[str]:
    """Add every environment to Brax's registry: `brax.envs.create("dcp/ant_u_maze")`. -> the names"""
    names = [PREFIX + name for name in ENVIRONMENTS]
    for name in names:
        envs.register_environment(name, partial(BraxEnv, name.removeprefix(PREFIX)))  # pyright: ignore[reportArgumentType]
    return names
