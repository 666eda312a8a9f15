"""Maze geometry in the plane: reading a layout, and walls that a point cannot pass."""

import jax.numpy as jnp
import numpy as np

from dcp.errors import UserError
from dcp.types import Array, MazeLayout


def parse_layout(text: str, scale: float) -> MazeLayout:
    """A maze from its text, checked: rectangular, closed, with a start and a goal."""
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
    """[..., 2] -> row, column of the cell that holds it"""
    index = jnp.floor(position / layout.scale + 0.5).astype(jnp.int32)
    return index[..., 0], index[..., 1]


def slide(layout: MazeLayout, radius: float, position: Array, move: Array) -> tuple[Array, Array]:
    """Move a point of this radius; walls block each axis separately, so that it slides along them.

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
    """positions [K, 2] -> share of the free cells that hold at least one of them"""
    free = jnp.asarray(~layout.walls)
    row, column = cell_of(layout, positions)
    visited = jnp.zeros(free.shape, bool).at[row, column].set(True, mode="drop")
    return jnp.sum(visited & free) / np.sum(~layout.walls)
