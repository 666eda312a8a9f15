"""Where a picture is taken from: a fixed view of everything, one that goes along, or a plan."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from dcp.analysis.style import BORDER
from dcp.types import EnvSpec

if TYPE_CHECKING:
    import mujoco

Camera = Literal["fixed", "tracking", "top"]
FIELD = 30.0  # degrees, from the picture's lower to its upper edge
FROM_ABOVE = -90.0  # degrees of elevation
STEEP = -68.0  # over walls
# A maze lies as its text does: x (row) downwards, y (column) to the right. Elsewhere x is to the right and y upwards.
AZIMUTH_MAZE, AZIMUTH = 180.0, 90.0
MARGIN = 1.04


@dataclass(frozen=True)
class View:
    """The part of the world that matters: a box on the floor."""

    low: np.ndarray  # [3]
    high: np.ndarray  # [3]
    azimuth: float  # degrees: where the camera looks
    elevation: float  # degrees, of the fixed camera
    tracking: float  # and of the one that goes along
    near: float  # metres of it that the latter shows

    @property
    def centre(self) -> np.ndarray:
        return (self.low + self.high) / 2

    @property
    def width(self) -> float:
        return float(np.max(self.high - self.low))

    @property
    def floor(self) -> float:
        return float(self.low[2])


# Where there is no maze. The pusher is seen from behind its object: from before it the arm would hide it.
VIEWS = {
    "ant_push": View(np.array([-6.5, -6.5, 0.0]), np.array([24.0, 24.0, 1.0]), AZIMUTH, STEEP, -50.0, near=13.0),
    "ant_soccer": View(np.array([-6.5, -6.5, 0.0]), np.array([6.5, 6.5, 1.0]), AZIMUTH, -50.0, -40.0, near=7.0),
    "pusher": View(np.array([-0.3, -0.9, -0.325]), np.array([1.1, 0.5, 0.2]), AZIMUTH + 180.0, -48.0, -40.0, near=1.2),
}


def view_of(spec: EnvSpec, model: "mujoco.MjSpec") -> View:
    """By the maze, by the table above, or by the model's own extent."""
    kind = "pusher" if spec.name.startswith("pusher") else spec.name
    if spec.maze is not None:
        scale, cells = spec.maze.scale, np.array(spec.maze.walls.shape)
        low, high = scale * (np.full(2, 0.5) - BORDER), scale * (cells - 1.5 + BORDER)
        return View(np.append(low, 0.0), np.append(high, scale / 8), AZIMUTH_MAZE, STEEP, -57.0, 2.2 * scale)
    if kind in VIEWS:
        return VIEWS[kind]
    stat = model.compile().stat
    centre, half = np.array(stat.center), float(stat.extent) / 2
    return View(np.append(centre[:2] - half, 0.0), np.append(centre[:2] + half, half), AZIMUTH, -50.0, -40.0, half)


def make_camera(view: View, kind: Camera, aspect: float, body: np.ndarray) -> "mujoco.MjvCamera":
    """`aspect`: the picture's width over its height. `body` [3]: what a tracking camera looks at."""
    import mujoco

    camera = mujoco.MjvCamera()
    camera.type = mujoco.mjtCamera.mjCAMERA_FREE
    camera.azimuth = view.azimuth
    camera.elevation = {"fixed": view.elevation, "tracking": view.tracking, "top": FROM_ABOVE}[kind]
    forward, right, up = axes_of(camera.azimuth, camera.elevation)
    if kind == "tracking":
        camera.lookat[:] = [*body[:2], view.floor + 0.05 * view.near]
        camera.distance = view.near / 2 / np.tan(np.radians(FIELD / 2))
    else:
        corners = np.stack(np.meshgrid(*zip(view.low, view.high, strict=True)), axis=-1).reshape(-1, 3)
        camera.distance, shift = _fit(corners - view.centre, forward, right, up, aspect)
        camera.lookat[:] = view.centre + shift * up
    return camera


def axes_of(azimuth: float, elevation: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """forward, right and up of MuJoCo's free camera, [3] each"""
    a, e = np.radians([azimuth, elevation])
    forward = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
    right = np.array([np.sin(a), -np.cos(a), 0.0])
    return forward, right, np.cross(right, forward)


def _fit(
    corners: np.ndarray, forward: np.ndarray, right: np.ndarray, up: np.ndarray, aspect: float
) -> tuple[float, float]:
    """The least distance from which all corners [K, 3] are in the picture, and how far up the camera must look.

    A corner at height v and depth w is in the picture if |v - shift| <= (distance + w) tan; likewise to the sides.
    """
    tan = np.tan(np.radians(FIELD / 2)) / MARGIN
    v, h, depth = corners @ up, corners @ right, corners @ forward
    # v_i - shift <= (d + w_i) tan and shift - v_j <= (d + w_j) tan: their sum bounds d, and then the shift.
    above, below = np.max(v - depth * tan), np.max(-v - depth * tan)
    distance = max((above + below) / (2 * tan), np.max(np.abs(h) / (tan * aspect) - depth))
    return float(distance), float((above - below) / 2)
