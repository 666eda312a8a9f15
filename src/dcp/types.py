"""The shapes that everything else speaks in.

Letters, used in every shape comment of the project:
N environments, T time, B batch, C candidates, P pool, S state, G goal, A action, D representation.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

Array = jax.Array
Params = Any  # a pytree of arrays
Metrics = dict[str, Array]


class Transition(NamedTuple):
    """One row of experience, as collected and as stored."""

    state: Array  # [S]
    action: Array  # [A]
    commanded_goal: Array  # [G]: g for CRL, z for SSGC and DCP (Algorithm 1: "z stored in buffer goal slot")
    episode_id: Array  # []: rows of one episode share it


class Batch(NamedTuple):
    """What one update sees. The critic's goal and the commanded goal are separate fields on purpose."""

    state: Array  # [B, S]
    action: Array  # [B, A]
    commanded_goal: Array  # [B, G]
    # What a critic, or the actor's goal, needs besides; None where nobody does.
    future_goal: Array | None = None  # [B, G]: the hindsight goal
    future_steps: Array | None = None  # [B]: how many steps later it was reached; 0 where nothing follows
    next_state: Array | None = None  # [B, S]: the state after; the same one where its episode ends


@dataclass(frozen=True)
class MazeLayout:
    """A text grid: `#` wall, `r` start, `g` goal, anything else free. Row i, column j sits at (i, j) * scale."""

    rows: tuple[str, ...]
    scale: float

    def cells(self, kinds: str) -> np.ndarray:
        """Centres of the cells of these kinds, [K, 2]."""
        found = [(i, j) for i, row in enumerate(self.rows) for j, cell in enumerate(row) if cell in kinds]
        return np.asarray(found, np.float32).reshape(-1, 2) * self.scale

    @property
    def walls(self) -> np.ndarray:
        """[rows, columns], True where a wall stands."""
        return np.array([[cell == "#" for cell in row] for row in self.rows])


@dataclass(frozen=True)
class EnvSpec:
    """What an agent may know of an environment. An observation is [state (S), goal (G)]."""

    name: str
    state_size: int
    goal_size: int
    action_size: int
    goal_dims: tuple[int, ...]  # the achieved goal is state[goal_dims]
    threshold: float  # near_goal: distance(achieved, goal) below it
    episode_length: int
    maze: MazeLayout | None = None
    maze_dims: tuple[int, int] | None = None  # the state's coordinates in the maze's plane
    physics: str = "none"  # none (pure kinematics), the paper's spring, generalized or mjx, or mujoco (its C engine)
    fixes: tuple[str, ...] = ()  # what fidelity `fixed` repairs here, besides drawing new goals at each episode

    @property
    def steps_pay_splitting(self) -> bool:
        """Tell whether devices should share its steps: kinematics is too little work, MuJoCo has threads of its own."""
        if self.physics == "mjx":  # AntPush: on a CPU MuJoCo's engine steps it
            return jax.default_backend() != "cpu"
        return self.physics not in ("none", "mujoco")

    @property
    def stepped_by(self) -> str:
        """Return the setting `physics` that makes it."""
        return "mujoco" if self.physics == "mujoco" else "brax"

    def achieved(self, state: Any) -> Any:
        """[..., S] -> [..., G]"""
        return state[..., np.asarray(self.goal_dims)]

    def split(self, obs: Any) -> tuple[Any, Any]:
        """[..., S + G] -> [..., S], [..., G]"""
        return obs[..., : self.state_size], obs[..., self.state_size :]
