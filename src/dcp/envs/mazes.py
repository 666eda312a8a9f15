"""Mazes as text, their walls, their plane, and a point in them. To add a maze, write a few lines here.

In a layout's text `#` is a wall, `r` a start, `g` a goal and `.` a free cell.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dcp.envs.base import EnvState, sparse_state
from dcp.errors import UserError
from dcp.types import Array, EnvSpec, MazeLayout

U = """
#####
#rgg#
###g#
#ggg#
#####
"""

BIG = """
########
#rg##gg#
#gg#ggg#
##ggg###
#gg#ggg#
#g#gg#g#
#ggg#gg#
########
"""

HARDEST = """
############
#rggg#ggggg#
#g##g#g#g#g#
#gggggg#ggg#
#g####g###g#
#gg#g#ggggg#
##g#g#g#g###
#gg#ggg#ggg#
############
"""

# Scaled CRL's two longer U mazes (arXiv 2503.14858).
U4 = """
#####
#ggg#
#r#g#
###g#
#g#g#
#ggg#
#####
"""

U5 = """
########
#gggggg#
#r####g#
######g#
#g####g#
#gggggg#
########
"""

# The evaluation layouts keep only far goals.
U_EVAL = """
#####
#r..#
###.#
#ggg#
#####
"""

BIG_EVAL = """
########
#r.##gg#
#..#.gg#
##...###
#..#...#
#.#g.#g#
#.gg#gg#
########
"""

U4_EVAL = """
#####
#...#
#r#.#
###.#
#g#.#
#ggg#
#####
"""

U5_EVAL = """
########
#......#
#r####.#
######.#
#g####g#
#gggggg#
########
"""

LAYOUTS: dict[str, str] = {"u_maze": U, "big_maze": BIG, "hardest_maze": HARDEST, "u4_maze": U4, "u5_maze": U5}
EVAL_LAYOUTS: dict[str, str] = {"u_maze": U_EVAL, "big_maze": BIG_EVAL, "u4_maze": U4_EVAL, "u5_maze": U5_EVAL}


def parse_layout(text: str, scale: float) -> MazeLayout:
    """Read a maze from its text and check it: rectangular, closed, with a start and a goal."""
    rows = tuple(line.strip() for line in text.strip().splitlines())
    if not rows or len({len(row) for row in rows}) != 1:
        raise UserError("a maze's rows must all have the same length: pad the short ones with '#'")
    border = rows[0] + rows[-1] + "".join(row[0] + row[-1] for row in rows)
    if set(border) != {"#"}:
        raise UserError("a maze must be closed: its outermost rows and columns must all be '#'")
    cells = "".join(rows)
    for cell, meaning in (("r", "start"), ("g", "goal")):
        if cell not in cells:
            raise UserError(f"a maze needs at least one {meaning} cell: mark it with {cell!r}")
    return MazeLayout(rows, scale)


def cell_of(layout: MazeLayout, position: Array) -> tuple[Array, Array]:
    """Return row and column of the cell that holds each position [..., 2]."""
    index = jnp.floor(position / layout.scale + 0.5).astype(jnp.int32)
    return index[..., 0], index[..., 1]


def slide(layout: MazeLayout, radius: float, position: Array, move: Array) -> tuple[Array, Array]:
    """Move a point of this radius; walls block each axis separately, so that the point slides along them.

    position [2], move [2] -> new position [2], blocked [2]. A blocked axis stops at the wall's face.
    A move must be shorter than a cell.
    """
    walls = jnp.asarray(layout.walls)
    half = 0.5 * layout.scale
    body = radius * (1.0 - 1e-3)  # a point that touches a wall may slide along it

    def move_axis(position: Array, axis: int) -> tuple[Array, Array]:
        sign = jnp.sign(move[axis])
        along = position[axis] + move[axis]
        front = jnp.floor((along + sign * radius) / layout.scale + 0.5)  # the cell that the point's front enters
        sides = position[1 - axis] + jnp.array([-body, body])
        beside = jnp.floor(sides / layout.scale + 0.5).astype(jnp.int32)  # [2]: the cells that its sides lie in
        ahead = jnp.full((2,), front, jnp.int32)
        hit = jnp.any(walls[ahead, beside] if axis == 0 else walls[beside, ahead]) & (sign != 0.0)
        face = front * layout.scale - sign * half
        return position.at[axis].set(jnp.where(hit, face - sign * radius, along)), hit

    position, hit_x = move_axis(position, 0)
    position, hit_y = move_axis(position, 1)
    return position, jnp.stack([hit_x, hit_y])


def share_of_cells_visited(layout: MazeLayout, positions: Array) -> Array:
    """Return the share of the free cells that hold at least one of the positions [K, 2]."""
    free = jnp.asarray(~layout.walls)
    row, column = cell_of(layout, positions)
    visited = jnp.zeros(free.shape, bool).at[row, column].set(True, mode="drop")
    return jnp.sum(visited & free) / np.sum(~layout.walls)


def has_plane(spec: EnvSpec) -> bool:
    """Return whether goals lie in a maze's plane; they may also have a height."""
    return spec.maze is not None and spec.maze_dims == spec.goal_dims[:2]


def goals_at(points: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Return goals at these points, [K, 2] -> [K, G]; other coordinates, such as a height, come from `goal`."""
    rest = np.broadcast_to(np.asarray(goal)[2:], (len(points), len(goal) - 2))
    return np.concatenate([points, rest], axis=1).astype(np.float32)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors [..., G] to length one; zero stays zero."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.divide(vectors, length, out=np.zeros_like(vectors), where=length > 0.0)


# A point in a maze: pure JAX, learned in minutes.

SPEED = 0.12  # without inertia: position += SPEED * action
EPISODE_LENGTH = 250
START_NOISE = 0.12
RADIUS = 0.08  # of the point in a maze
THRESHOLD = 0.125
FRICTION, FORCE = 0.8, 0.05  # inertia: velocity = FRICTION * velocity + FORCE * action


class PointMaze:
    """Move a point through a maze: driftless, so that the theory applies exactly, or with inertia.

    State: x, y; with inertia also the velocity. Goal: x, y.
    """

    def __init__(self, name: str, layout: MazeLayout, inertia: bool = False):
        self.layout, self.inertia = layout, inertia
        self.spec = EnvSpec(
            name=name,
            state_size=4 if inertia else 2,
            goal_size=2,
            action_size=2,
            goal_dims=(0, 1),
            threshold=THRESHOLD,
            episode_length=EPISODE_LENGTH,
            maze=layout,
            maze_dims=(0, 1),
        )

    def reset(self, key: Array) -> EnvState:
        key_start, key_noise, key_goal = jax.random.split(key, 3)
        start = jax.random.choice(key_start, jnp.asarray(self.layout.cells("r")))
        noise = jax.random.uniform(key_noise, (2,), minval=-START_NOISE, maxval=START_NOISE)
        goal = jax.random.choice(key_goal, jnp.asarray(self.layout.cells("g")))
        return self._state(start + noise, jnp.zeros(2), goal)

    def reset_to(self, q: Array, qd: Array) -> EnvState:
        """Start from q (x, y, goal x, goal y) and qd, their velocities; the goal's velocity is ignored."""
        q, qd = jnp.asarray(q, jnp.float32), jnp.asarray(qd, jnp.float32)
        return self._state(q[:2], qd[:2], q[2:4])

    def step(self, state: EnvState, action: Array) -> EnvState:
        body, goal = self.spec.split(state.obs)
        action = jnp.clip(action, -1.0, 1.0)
        velocity = FRICTION * body[2:4] + FORCE * action if self.inertia else SPEED * action
        position, blocked = slide(self.layout, RADIUS, body[:2], velocity)
        return self._state(position, jnp.where(blocked, 0.0, velocity), goal)

    def _state(self, position: Array, velocity: Array, goal: Array) -> EnvState:
        body = jnp.concatenate([position, velocity]) if self.inertia else position
        return sparse_state(self.spec, body, goal)
