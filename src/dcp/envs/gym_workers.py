"""Goal environments of Gymnasium in worker processes. A worker needs no JAX.

Gymnasium's `AsyncVectorEnv` holds the workers. What it takes for one environment is a worker's whole share, so that a
step of hundreds of environments is one message to each worker.
"""

import multiprocessing
import os
import pickle
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv

from dcp.errors import UserError, WorkerError, one_line
from dcp.named_code import on_path

TIMEOUT = "DCP_GYM_TIMEOUT"  # in the environment: seconds that one step of all environments may take
DEFAULT_TIMEOUT = 120.0
STARTING = 5  # times as long may the first answer take, for which a worker makes its environments
NOTHING, RESET, STEP = range(3)  # what an environment is asked for
ASKED = ("ask", "episode", "moment", "action")
GOALS = ("achieved_goal", "desired_goal")


@dataclass(frozen=True)
class Recipe:
    """Say how a worker makes an environment, and what its numbers are."""

    name: str
    gym_spec: bytes  # pickled: the module that it may name is imported by the worker
    modules: tuple[str, ...]  # to import before
    folder: Path | None  # where they may lie
    state_size: int  # of the observation and the achieved goal together
    goal_size: int
    action_size: int
    threshold: float

    def make(self) -> gymnasium.Env[Any, Any]:
        with on_path(self.folder):
            for module in self.modules:
                import_module(module)
            return made(pickle.loads(self.gym_spec))


def made(spec: Any) -> gymnasium.Env[Any, Any]:
    """Make an environment without a time limit, which is the run's own setting."""
    return gymnasium.make(spec, max_episode_steps=-1, disable_env_checker=True)


class _Slot:
    """One environment, and the moment at which it is: an episode, which its seed names, and a time step.

    A caller says at which moment its state is. Zero is any episode's start, to which an environment can always return.
    """

    def __init__(self, recipe: Recipe):
        self._env, self._recipe = recipe.make(), recipe
        box = self._env.action_space
        assert isinstance(box, spaces.Box)
        bounded = np.isfinite(box.low) & np.isfinite(box.high)  # elsewhere an action is taken as it is, in [-1, 1]
        self._low = np.where(bounded, box.low, -1.0)
        self._half = 0.5 * (np.where(bounded, box.high, 1.0) - self._low)
        self._at: tuple[int, int] | None = None  # episode and time step
        self._over = False
        self.obs = np.zeros(recipe.state_size + recipe.goal_size, np.float32)
        self.flags = np.zeros(2, np.uint8)

    def reset(self, episode: int) -> None:
        observation, info = self._env.reset(seed=episode)
        self._at, self._over = (episode, 0), False
        self._see(observation, info)

    def step(self, episode: int, moment: int, action: np.ndarray) -> None:
        if self._at != (episode, moment):
            if moment:
                raise RuntimeError("somebody else has reset the environment between two steps")
            self.reset(episode)
        if not self._over:
            observation, _, terminated, truncated, info = self._env.step(self._own(action))
            self._see(observation, info)
            self.flags[1] = self._over = bool(terminated or truncated)
        finite = bool(np.isfinite(self.obs).all())
        self._over |= not finite
        self._at = (episode, moment + finite)  # a state that is not finite is never continued

    def _own(self, action: np.ndarray) -> np.ndarray:
        """Return an action from [-1, 1] in the environment's own range, where it has one."""
        clipped = np.minimum(np.maximum(action.reshape(self._low.shape), -1.0), 1.0)
        return (self._low + self._half * (clipped + 1.0)).astype(self._env.action_space.dtype)

    def _see(self, observation: Any, info: dict[str, Any]) -> None:
        achieved, desired = (np.ravel(observation[name]) for name in GOALS)
        near = info.get("is_success", info.get("success"))
        if near is None:
            near = np.linalg.norm(achieved - desired) < self._recipe.threshold
        state, goal = self._recipe.state_size, self._recipe.goal_size
        self.obs[: state - goal] = np.ravel(observation["observation"])
        self.obs[state - goal : state], self.obs[state:] = achieved, desired
        self.flags[0], self.flags[1] = bool(near), False


class Share(gymnasium.Env[Any, Any]):
    """A worker's environments as one: its observation holds all of theirs, and its action says what each is to do."""

    def __init__(self, recipe: Recipe, count: int):
        self._recipe, self._slots = recipe, []
        size = recipe.state_size + recipe.goal_size
        self.observation_space = spaces.Dict(
            obs=spaces.Box(-np.inf, np.inf, (count, size), np.float32), flags=spaces.Box(0, 1, (count, 2), np.uint8)
        )
        self.action_space = spaces.Dict(
            ask=spaces.Box(0, STEP, (count,), np.uint8),
            episode=spaces.Box(0, 2**32 - 1, (count,), np.uint32),
            moment=spaces.Box(0, 2**31 - 1, (count,), np.int32),
            action=spaces.Box(-1.0, 1.0, (count, recipe.action_size), np.float32),
        )

    def step(self, action: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        try:
            if not self._slots:
                _belong_to_parent()
                self._slots = [_Slot(self._recipe) for _ in range(len(action["ask"]))]
            for slot, ask, episode, moment, own in zip(self._slots, *(action[name] for name in ASKED), strict=True):
                if ask == RESET:
                    slot.reset(int(episode))
                elif ask == STEP:
                    slot.step(int(episode), int(moment), own)
        except Exception as error:  # a user's environment may fail in any way
            self._slots = []
            return self.observation_space.sample(), 0.0, False, False, {"error": _said(error)}
        seen = {"obs": np.stack([slot.obs for slot in self._slots]), "flags": np.stack([s.flags for s in self._slots])}
        return seen, 0.0, False, False, {}


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(error)}"


def _belong_to_parent() -> None:
    """Leave it to the parent to react to signals, and end with it."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    if multiprocessing.parent_process() is not None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        threading.Thread(target=watch, daemon=True).start()


class Workers(AsyncVectorEnv):
    """N environments, shared out over worker processes."""

    def __init__(self, recipe: Recipe, num_envs: int, processes: int):
        self.recipe, self.count = recipe, num_envs
        workers = min(processes, num_envs)
        self._each = -(-num_envs // workers)
        self._answered = False
        try:
            super().__init__([partial(Share, recipe, self._each)] * workers, context="spawn")
        except (EOFError, OSError) as error:
            raise WorkerError(
                f"a worker process of {recipe.name} died at its start: a script that trains must do so below "
                "`if __name__ == '__main__':`, because each worker imports it"
            ) from error
        Finalize(self, _kill, (self.processes,), exitpriority=10)  # before Python waits for its children

    def ask(self, **asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ask each environment for nothing, a reset or a step. -> obs [N, S + G], near goal and done [N, 2]"""
        patience = timeout() * (1 if self._answered else STARTING)
        try:
            self.step_async({name: self._shared_out(value) for name, value in asked.items()})
            seen, _, _, _, infos = self.step_wait(patience)
        except multiprocessing.TimeoutError:
            self._give_up(f"gave no answer for {patience:g} s (${TIMEOUT} sets how long a step may take)")
        except (EOFError, OSError):
            self._give_up(f"died{self._how()}")
        if errors := [error for error in infos.get("error", ()) if error]:
            self._give_up(f"failed ({errors[0]})")
        self._answered = True
        return tuple(seen[name].reshape(-1, *seen[name].shape[2:])[: self.count] for name in ("obs", "flags"))

    def _shared_out(self, values: np.ndarray) -> np.ndarray:
        """[N, ...] -> [workers, each, ...]; the last share may have environments that nobody asks for anything."""
        missing = self.num_envs * self._each - self.count
        padded = np.concatenate([values, np.zeros((missing, *values.shape[1:]), values.dtype)])
        return padded.reshape(self.num_envs, self._each, *values.shape[1:])

    def _how(self) -> str:
        for process in self.processes:
            process.join(1.0)
            if process.exitcode:
                return f" (exit code {process.exitcode})"
        return ""

    def _give_up(self, what: str) -> Any:
        self.close()
        raise WorkerError(f"a worker process of {self.recipe.name} {what}")

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """End the workers at once, whatever they do."""
        _kill(self.processes)
        for pipe in self.parent_pipes:
            pipe.close()


def _kill(processes: list[Any]) -> None:
    for process in processes:
        with suppress(ValueError):  # closed already
            process.kill()
    for process in processes:
        with suppress(ValueError, AssertionError):
            process.join()


def timeout() -> float:
    text = os.environ.get(TIMEOUT) or str(DEFAULT_TIMEOUT)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        raise UserError(f"{TIMEOUT} is {text[:40]!r}: set it to a number of seconds above 0")
    return seconds
