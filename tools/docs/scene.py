"""Draw a task's MuJoCo model from above at a drawn start, by MuJoCo's own ray casting: no window, no GPU, no OpenGL.

Every pixel is a ray to a point of the floor and, for its shadow, a ray from the lamp back to what it hit.
"""

from typing import Any, NamedTuple, cast

import jax
import mujoco
import numpy as np
from matplotlib.colors import to_rgb

from dcp.envs.registry import make_env
from dcp.lab.render import FLOOR
from dcp.lab.render.body_pictures import HIDDEN, body_colour, view_of
from dcp.lab.style import WALL

__all__ = ["FLOOR", "WALL", "Scene", "to_rgb"]
DRAWS, SEED = 300, 3
EYE_HEIGHT, LAMP_HEIGHT = 5.0, 8.0  # in widths of the view: nearly, not quite, a plan
FINE = 3
AMBIENT = 0.7  # what a shadow leaves of the light


class View(NamedTuple):
    low: np.ndarray  # [2]: corners of what is seen of the floor, x and y
    high: np.ndarray  # [2]
    floor: float  # its z
    lamp: tuple[float, float, float]  # where the light comes from

    @property
    def width(self) -> float:
        return float(np.max(self.high - self.low))

    def from_above(self, direction: np.ndarray, height: float) -> np.ndarray:
        return np.append((self.low + self.high) / 2, self.floor) + height * self.width * direction


def picture(model: mujoco.MjModel, data: mujoco.MjData, colours: np.ndarray, view: View, pixels: int) -> np.ndarray:
    """[X, Y, 3]: pixel (i, j) is what stands over that point of the floor.

    `pixels` rays along the longer side; where colours jump, FINE x FINE for each, so the image is FINE times as large.
    """
    size = view.width / pixels
    x, y = (np.arange(low + size / 2, high, size) for low, high in zip(view.low, view.high, strict=True))
    points = np.stack(np.broadcast_arrays(x[:, None], y, view.floor), axis=-1)  # [x, y, 3]
    coarse = _light(model, data, colours, view, points.reshape(-1, 3)).reshape(points.shape)
    image = coarse.repeat(FINE, axis=0).repeat(FINE, axis=1)
    row, column = np.nonzero(_edges(coarse))
    for i, j in np.ndindex(FINE, FINE):
        offset = size * (np.array([i, j, 0.0]) - [FINE // 2, FINE // 2, 0]) / FINE
        image[FINE * row + i, FINE * column + j] = _light(model, data, colours, view, points[row, column] + offset)
    return image


def _light(
    model: mujoco.MjModel, data: mujoco.MjData, colours: np.ndarray, view: View, points: np.ndarray
) -> np.ndarray:
    """points [K, 3] on the floor -> colours [K, 3] as seen through them. A lit surface that lies flat has its own."""
    up, lamp = np.array([0.0, 0.0, 1.0]), np.array(view.lamp) / np.linalg.norm(view.lamp)
    eye = view.from_above(up, EYE_HEIGHT)
    geom, distance, normal = _cast(model, data, eye, points)
    hit = eye + distance[:, None] * _unit(points - eye)
    source = view.from_above(lamp, LAMP_HEIGHT)
    _, reach, _ = _cast(model, data, source, hit)
    lit = reach > np.linalg.norm(hit - source, axis=1) - 1e-4 * view.width
    light = AMBIENT + (1 - AMBIENT) * lit * np.maximum(normal @ lamp, 0.0) / lamp[2]
    return np.clip(colours[geom] * light[:, None], 0.0, 1.0)


def _cast(model: mujoco.MjModel, data: mujoco.MjData, origin: np.ndarray, points: np.ndarray):
    """What each ray to a point meets first: geom [K], distance [K], normal [K, 3]."""
    count = len(points)
    geom, distance, normal = np.empty(count, np.int32), np.empty(count), np.empty((count, 3))
    rays = _unit(points - origin)
    mujoco.mj_multiRay(model, data, origin, rays.ravel(), None, True, -1, geom, distance, normal.ravel(), count, 1e6)
    return geom, distance, normal


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _edges(image: np.ndarray, contrast: float = 0.04) -> np.ndarray:
    """[X, Y]: True beside a jump in colour; only there are more rays worth their time."""
    edge = np.zeros(image.shape[:2], bool)
    for axis in (0, 1):
        jump = np.max(np.abs(np.diff(image, axis=axis)), axis=2) > contrast
        pad = [(0, 0), (0, 0)]
        for side in ((0, 1), (1, 0)):
            pad[axis] = side
            edge |= np.pad(jump, pad)
    return edge


class Scene:
    """One task at one of its starts, and where its other starts would be."""

    def __init__(self, name: str, pixels: int):
        self.name, self.env = name, cast(Any, make_env(name))  # a task with a model
        self.maze = self.env.spec.maze
        keys = jax.random.split(jax.random.key(SEED), DRAWS)
        self.draws = np.asarray(jax.jit(jax.vmap(self.env.draw))(keys)[0])  # [DRAWS, Q]
        self.model = _model(self.env)
        self.data = mujoco.MjData(self.model)
        self.data.qpos[:] = self.draws[0]
        mujoco.mj_kinematics(self.model, self.data)
        self.view = self._view()
        self.image = picture(self.model, self.data, self._colours(), self.view, pixels)

    def _view(self) -> View:
        """The part of the floor that the package's own camera shows; in a maze x runs downwards."""
        seen = view_of(self.env.spec, self.env.model())
        lamp = (-1.0, 1.0 if self.maze is None else -1.0, 2.2)
        return View(seen.low[:2], seen.high[:2], seen.floor, lamp)

    def _colours(self) -> np.ndarray:
        """[geoms, 3]; and the model's own marks of the goal out of sight."""
        bodies = [self.model.body(i).name for i in self.model.geom_bodyid]
        floor = self.model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
        self.model.geom_size[floor] = 0.0  # without end
        self.model.geom_matid[:] = -1
        self.model.geom_rgba[[body in HIDDEN for body in bodies], 3] = 0.0
        return np.array([to_rgb(FLOOR if f else body_colour(b)) for f, b in zip(floor, bodies, strict=True)])

    def on_page(self, points: np.ndarray) -> np.ndarray:
        """A maze lies as its text does: x (row) downwards, y (column) to the right. Elsewhere x right, y up."""
        return points[..., ::-1] if self.maze else points

    def places(self, body: str) -> np.ndarray:
        """[DRAWS, 2]: where the draws put a body that slides"""
        which = self.model.body(body)
        joints = slice(which.jntadr[0], which.jntadr[0] + which.jntnum[0])
        return (which.pos + self.draws[:, self.model.jnt_qposadr[joints]] @ self.model.jnt_axis[joints])[:, :2]


def _model(env: Any) -> mujoco.MjModel:
    spec = env.model()
    for geom in spec.geoms:  # many rays at once miss what does not collide: MuJoCo bounds bodies by what does
        geom.contype = 1
    return spec.compile()
