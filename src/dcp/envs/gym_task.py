"""A goal environment of Gymnasium as it is: `gym:ID`, stepped in worker processes behind one ordered callback.

A state is its observation, followed by the achieved goal. The simulation itself lies in the workers, so a `GymTask` is
for one user at a time, and a run on it is not resumed to the bit.
"""

import logging
from difflib import get_close_matches
from functools import lru_cache
from importlib import metadata
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.experimental import io_callback

from dcp.config import cores
from dcp.envs.base import EnvState
from dcp.errors import UserError, install_hint, one_line, shown
from dcp.named_code import GYM, import_folder, imported_modules, on_path
from dcp.types import Array, EnvSpec

if TYPE_CHECKING:
    from dcp.envs.gym_workers import Recipe, Workers

NO_LIMIT = 1000  # steps of an episode where the environment names none
FARTHEST = 1e3  # where a reward is probed for its threshold
_ROBOTICS = "gymnasium_robotics"


class GymMoment(NamedTuple):
    """Name the moment at which a worker's environment is."""

    episode: Array  # uint32 []: the seed that it was reset with
    moment: Array  # []: time steps since


class GymTask:
    """N environments of one kind, for as many as a vmap asks for."""

    exact = False  # whether a checkpoint holds all of it

    def __init__(self, name: str):
        self._recipe, self.spec = _described(name, tuple(imported_modules()))
        self._workers: Workers | None = None
        self._calling = Lock()
        self._ask = custom_vmap(self._ask_one)
        self._ask.def_vmap(self._ask_many)

    def for_evaluation(self) -> "GymTask":
        """Return the same task with workers of its own."""
        return GymTask(self.spec.name)

    def reset(self, key: Array) -> EnvState:
        return self.reset_if(key, jnp.ones((), bool))

    def reset_if(self, key: Array, due: Array) -> EnvState:
        """Return a new start if it is due; otherwise leave the environment alone, and return nothing of use."""
        from dcp.envs.gym_workers import NOTHING, RESET

        moment = GymMoment(jax.random.bits(key, (), jnp.uint32), jnp.zeros((), jnp.int32))
        return self._state(jnp.where(due, RESET, NOTHING), moment, jnp.zeros(self.spec.action_size), moment)

    def step(self, state: EnvState, action: Array) -> EnvState:
        from dcp.envs.gym_workers import STEP

        before: GymMoment = state.physics
        after = before._replace(moment=before.moment + 1)
        return self._state(jnp.full((), STEP), before, action, after)

    def _state(self, ask: Array, at: GymMoment, action: Array, after: GymMoment) -> EnvState:
        obs, flags = self._ask(ask.astype(jnp.uint8), at.episode, at.moment, action.astype(jnp.float32))
        near, done = flags[0] > 0, flags[1] > 0
        return EnvState(obs, near.astype(jnp.float32), done, near, after)

    def _ask_one(self, *asked: Array) -> tuple[Array, Array]:
        obs, flags = self._call(1, *(value[None] for value in asked))
        return obs[0], flags[0]

    def _ask_many(self, size: int, batched: list[bool], *asked: Array) -> tuple[tuple[Array, Array], tuple[bool, bool]]:
        whole = [
            value if one else jnp.broadcast_to(value, (size, *value.shape))
            for value, one in zip(asked, batched, strict=True)
        ]
        return self._call(size, *whole), (True, True)

    def _call(self, number: int, *asked: Array) -> tuple[Array, Array]:
        obs = jax.ShapeDtypeStruct((number, self.spec.state_size + self.spec.goal_size), jnp.float32)
        return io_callback(self._on_host, (obs, jax.ShapeDtypeStruct((number, 2), jnp.uint8)), *asked, ordered=True)

    def _on_host(self, *asked: Any) -> tuple[np.ndarray, np.ndarray]:
        from dcp.envs.gym_workers import ASKED, Workers

        ask, *_ = values = [np.asarray(value) for value in asked]
        with self._calling:
            if self._workers is None or self._workers.closed or self._workers.count != len(ask):
                self.close()
                self._workers = Workers(self._recipe, len(ask), cores())
            return self._workers.ask(**dict(zip(ASKED, values, strict=True)))

    def close(self) -> None:
        """End the workers."""
        if self._workers is not None:
            self._workers.close()
            self._workers = None


# JAX logs what a callback raises, with a traceback; the run says it in a sentence.
logging.getLogger("jax._src.callback").addFilter(lambda record: "WorkerError" not in str(record.exc_info))


@lru_cache(maxsize=16)
def _described(name: str, modules: tuple[str, ...]) -> tuple["Recipe", EnvSpec]:
    """Make one environment of this kind, and read from it what a run must know."""
    try:
        import cloudpickle

        from dcp.envs.gym_workers import Recipe, made
    except ImportError as error:
        raise UserError(f"{shown(name)} needs Gymnasium: {install_hint('gym')}") from error
    gym_spec = _registered(name.removeprefix(GYM))
    try:
        with on_path(import_folder()):
            env = made(gym_spec)
    except Exception as error:  # a user's environment may fail in any way
        raise UserError(_cannot_make(name, gym_spec, error)) from error
    try:
        sizes, threshold = _sizes(name, env), _threshold(name, env)
    finally:
        env.close()
    spec = EnvSpec(
        name=name,
        state_size=sizes[0],
        goal_size=sizes[1],
        action_size=sizes[2],
        goal_dims=tuple(range(sizes[0] - sizes[1], sizes[0])),
        threshold=threshold,
        episode_length=gym_spec.max_episode_steps or NO_LIMIT,
    )
    return Recipe(name, cloudpickle.dumps(gym_spec), modules, import_folder(), *sizes, threshold), spec


def _registered(id_: str) -> Any:
    """Return what Gymnasium has registered under an id. Nothing is imported for it."""
    from gymnasium import registry

    if id_ in registry:
        return registry[id_]
    close = get_close_matches(id_, registry, 1)
    hint = f"did you mean {close[0]!r}? If not, " if close else ""
    raise UserError(
        f"Gymnasium has no environment {shown(id_)}: {hint}import the module that registers it: --import MODULE"
    )


def _cannot_make(name: str, gym_spec: Any, error: Exception) -> str:
    what = f": {one_line(error)}" if str(error).strip() else ""
    why = f"Gymnasium cannot make {name} ({type(error).__name__}{what})"
    if str(gym_spec.entry_point).startswith(_ROBOTICS):
        have = f"{_version('gymnasium-robotics')} with mujoco {_version('mujoco')}"
        return (
            f"{why}: gymnasium-robotics {have} does not work, it wants mujoco 3.3 or older, and dcp wants 4; dcp's own "
            "fetch_reach, fetch_push, fetch_slide and fetch_pick_and_place are the same tasks"
        )
    return f"{why}: repair it"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _sizes(name: str, env: Any) -> tuple[int, int, int]:
    """Return S, G and A."""
    from gymnasium import spaces

    parts = getattr(env.observation_space, "spaces", {})
    names = ("observation", "achieved_goal", "desired_goal")
    if not all(isinstance(parts.get(part), spaces.Box) for part in names):
        raise UserError(
            f"{name} is no goal environment: its observations must be a dictionary of arrays with {', '.join(names)}"
        )
    if not isinstance(env.action_space, spaces.Box):
        raise UserError(f"{name} takes actions of {env.action_space}: dcp's policies give arrays of numbers (Box)")
    observation, achieved, desired = (int(np.prod(parts[part].shape)) for part in names)
    if achieved != desired:
        raise UserError(
            f"{name} has achieved goals of {achieved} numbers and desired ones of {desired}: make them alike"
        )
    return observation + achieved, achieved, int(np.prod(env.action_space.shape))


def _threshold(name: str, env: Any) -> float:
    """Return the distance to the goal that counts as success: the environment's own, or where its reward has a step."""
    own = getattr(env.unwrapped, "distance_threshold", None)
    if own is not None:
        return float(own)
    space = env.observation_space["achieved_goal"]
    reward = getattr(env.unwrapped, "compute_reward", None)
    one = np.zeros(space.shape, space.dtype)
    axis = np.zeros(space.shape)
    axis.flat[0] = 1.0

    def is_near(distance: float) -> bool:
        away = (one + distance * axis).astype(space.dtype)
        return bool(np.all(np.asarray(reward(away, one, {})) == np.asarray(reward(one, one, {}))))  # pyright: ignore

    try:
        sparse = is_near(1e-6) and not is_near(FARTHEST)
    except Exception:  # without such a function, or one that needs more
        sparse = False
    if not sparse:
        raise UserError(
            f"{name} does not say at which distance a goal is reached: give its class an attribute distance_threshold"
        )
    near, far = 1e-6, FARTHEST
    for _ in range(60):
        middle = 0.5 * (near + far)
        near, far = (middle, far) if is_near(middle) else (near, middle)
    return far
