"""Edits of the bodies' models: walls, targets, balls and boxes are data."""

from collections.abc import Sequence
from typing import Any

import mujoco

from dcp.physics.bodies import BOX, SLIDE, SPHERE
from dcp.types import MazeLayout

AXES = {"x": (1, 0, 0), "y": (0, 1, 0), "z": (0, 0, 1)}
WALL = "wall"  # wall geoms are named wall_<row>_<column>


def set_contact(spec: mujoco.MjSpec, geoms: Sequence[str], contype: int, conaffinity: int) -> None:
    for name in geoms:
        geom = spec.geom(name)
        geom.contype, geom.conaffinity = contype, conaffinity


def add_sliding_body(
    spec: mujoco.MjSpec, name: str, position: Sequence[float], axes: str, range_: float | None, **joint: Any
) -> Any:
    """Add a body of the world that slides along these axes; its joints are <name>_<axis>."""
    body = spec.worldbody.add_body(name=name, pos=list(position))
    limits = {"limited": False} if range_ is None else {"range": [-range_, range_], "limited": True}
    for axis in axes:
        body.add_joint(name=f"{name}_{axis}", type=SLIDE, axis=list(AXES[axis]), **limits, **joint)
    return body


def add_target(spec: mujoco.MjSpec, height: float, radius: float, range_: float) -> None:
    """Add the goal's marker, which slides in the plane and touches nothing."""
    body = add_sliding_body(spec, "target", (0.0, 0.0, height), "xy", range_, armature=0.0, damping=0.0)
    colour = [0.85, 0.2, 0.2, 0.6]
    body.add_geom(type=SPHERE, size=[radius, 0, 0], mass=1.0, contype=0, conaffinity=0, rgba=colour)


def add_walls(spec: mujoco.MjSpec, layout: MazeLayout) -> None:
    """Add a box per wall cell. Neighbours stay separate, because the spring solver averages over contacts."""
    half = layout.scale / 2
    for row, cells in enumerate(layout.rows):
        for column, cell in enumerate(cells):
            if cell == "#":
                spec.worldbody.add_geom(
                    name=f"{WALL}_{row}_{column}",
                    type=BOX,
                    pos=[row * layout.scale, column * layout.scale, half / 2],
                    size=[half, half, half / 2],
                    contype=1,
                    conaffinity=1,
                )
