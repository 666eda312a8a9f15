"""The shapes that everything else speaks in.

Letters, used in every shape comment of the project:
N environments, T time, B batch, C candidates, P pool, S state, G goal, A action, D representation.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array
Params = Any  # a pytree of arrays
Metrics = dict[str, Array]


class Transition(NamedTuple):
    """Hold one row of experience, as collected and as stored."""

    state: Array  # [S]
    action: Array  # [A]
    commanded_goal: Array  # [G]: g for CRL, z for SSGC and DCP (Algorithm 1: "z stored in buffer goal slot")
    episode_id: Array  # []: rows of one episode share it
    fell: Array | None = None  # []: this step ended its episode before the time limit; stored where a critic needs it


class Batch(NamedTuple):
    """Hold what one update sees. The critic's goal and the commanded goal are separate fields on purpose."""

    state: Array  # [B, S]
    action: Array  # [B, A]
    commanded_goal: Array  # [B, G]
    # What a critic, or the actor's goal, needs besides; None where nobody does.
    future_goal: Array | None = None  # [B, G]: the hindsight goal
    future_steps: Array | None = None  # [B]: how many steps later it was reached; 0 where nothing follows
    next_state: Array | None = None  # [B, S]: the state after the action, or the chunk; the last one where it ends
    goal_sequence: Array | None = None  # [B, m * G]: the hindsight goal and the m - 1 achieved goals after it
    valid: Array | None = None  # [B]: the whole chunk of actions lies in the row's own episode and window
    has_next: Array | None = None  # [B]: next_state is what the action, or the chunk, led to
    terminal: Array | None = None  # [B]: the action, or the chunk, ended the episode in a fall
    reward: Array | None = None  # [B]: discounted sum over the chunk of 1 where the next state is near the goal
    hit_time: Array | None = None  # [B]: steps until the hindsight goal is first near, 0 where it is; see `hit`
    hit: Array | None = None  # [B]: it is reached in the row's own episode and window; else it is censored
    occupancy: Array | None = None  # [B, K]: how near the goal the body is, averaged over each bin of later steps
    occupancy_seen: Array | None = None  # [B, K]: something of the bin was observed
    falls: Array | None = None  # [B]: the episode ends in a fall inside the window
    # What the learner adds, since it depends on the actor.
    next_action: Array | None = None  # [B, A]: drawn at next_state for the hindsight goal
    next_bonus: Array | None = None  # [B]: what the entropy of that draw is worth


def masked_mean(values: Array, valid: Array | None) -> Array:
    """Average over the entries that count: all of them without a mask, none gives 0."""
    if valid is None:
        return jnp.mean(values)
    return jnp.sum(jnp.where(valid, values, 0.0)) / jnp.maximum(jnp.sum(valid), 1)


def array_name(path: Any) -> str:
    """Return the name of an array by its path in a tree: actor/out/bias."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def named_arrays(tree: Any) -> dict[str, Any]:
    """Return a tree's arrays by name: {"actor": {"out": {"bias": b}}} -> {"actor/out/bias": b}."""
    return {array_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


@dataclass(frozen=True)
class MazeLayout:
    """A text grid: `#` wall, `r` start, `g` goal, anything else free. Row i, column j sits at (i, j) * scale."""

    rows: tuple[str, ...]
    scale: float

    def cells(self, kinds: str) -> np.ndarray:
        """Return centres of the cells of these kinds, [K, 2]."""
        cells = [(i, j) for i, row in enumerate(self.rows) for j, cell in enumerate(row) if cell in kinds]
        return np.asarray(cells, np.float32).reshape(-1, 2) * self.scale

    @property
    def walls(self) -> np.ndarray:
        """Return where a wall stands: [rows, columns]."""
        return np.array([[cell == "#" for cell in row] for row in self.rows])

    def farthest_goal(self) -> np.ndarray:
        """Return the centre [2] of the goal cell that is the longest way from the nearest start."""
        way = np.where([[cell == "r" for cell in row] for row in self.rows], 0.0, np.inf)  # [rows, columns], in cells
        for _ in range(way.size):  # no way is longer
            neighbours = [np.roll(way, shift, axis) for shift in (-1, 1) for axis in (0, 1)]  # the border is closed
            way = np.where(self.walls, np.inf, np.minimum(way, np.min(neighbours, axis=0) + 1.0))
        goals = self.cells("g")  # [K, 2]
        row, column = np.rint(goals / self.scale).astype(int).T
        return goals[np.argmax(np.where(np.isfinite(way[row, column]), way[row, column], -1.0))]


@dataclass(frozen=True)
class EnvSpec:
    """Describe an environment to an agent. An observation is [state (S), goal (G)]."""

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
    scale: tuple[tuple[float, ...], tuple[float, ...]] | None = None  # centre and spread of each number of a state
    control: str = "joints"  # what an action of an arm moves: its joints, or its tool point (tool)
    action_chunk: int = 1  # as a learner sees the task: an action is that many of the environment's

    @property
    def stepped_by(self) -> str:
        """Return the setting `physics` that makes it."""
        return "mujoco" if self.physics == "mujoco" else "brax"

    def in_chunks(self, length: int) -> "EnvSpec":
        """Return the spec that a learner sees if its actions are chunks of this length."""
        return self if length == 1 else replace(self, action_size=length * self.action_size, action_chunk=length)

    def achieved(self, state: Any) -> Any:
        """[..., S] -> [..., G]"""
        return state[..., np.asarray(self.goal_dims)]

    def split(self, obs: Any) -> tuple[Any, Any]:
        """[..., S + G] -> [..., S], [..., G]"""
        return obs[..., : self.state_size], obs[..., self.state_size :]
