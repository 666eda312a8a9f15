"""Draw simulated bodies with MuJoCo: the camera, the model in our colours, goals and trails; the same for the page."""

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import mujoco
import numpy as np
from matplotlib.colors import to_rgb as rgb

from dcp.lab.offscreen import make_renderer
from dcp.lab.render import DIRECTION_COLOUR, FLOOR, FLOOR_TILE, SUBGOAL_COLOUR, TRAIL_COLOUR, Camera, Moment
from dcp.lab.style import BLUE, BORDER, GOAL_COLOUR, ORANGE, WALL
from dcp.types import EnvSpec

FIELD = 30.0  # degrees, from the picture's lower to its upper edge
FROM_ABOVE = -90.0  # degrees of elevation
STEEP = -68.0  # over walls
# A maze is drawn like its text: x (row) downwards, y (column) to the right. Elsewhere x is to the right and y upwards.
AZIMUTH_MAZE, AZIMUTH = 180.0, 90.0
MARGIN = 1.04
SKY_LOW, SKY_HIGH = "#FFFFFF", "#DCE8F2"
MOVABLE, HIDDEN = ("ball", "box", "object", "object0", "cube"), ("target", "goal")  # hidden: models' goal markers
WALL_SHARE = 0.4  # how much of a wall's height is drawn
LAMP = (0.35, 0.45, -1.0)  # where its light goes
SAMPLES = 4  # per pixel, against jagged edges
SHADOW_PIXELS = 2048
UPRIGHT = np.eye(3)
TRAIL_PIECES = 120
DISC, BEAM = 0.04, 3.0  # thresholds: the height of a mark on the floor, and that of the light above it
ARROW, ARROW_WIDTH, TRAIL_WIDTH = 0.1, 0.005, 0.004  # of the width of what is seen
PAGE_GEOMS = ("sphere", "capsule", "cylinder", "ellipsoid", "box")  # no meshes; the floor is the page's own
DIGITS = 5  # of the page's numbers
EMISSION = 0.4  # what shines by itself shows its colour in the shade too


class BodyPicture:
    """Draw one task. Brax's q is MuJoCo's qpos: model, joints and quaternions are in the same order."""

    def __init__(self, env: Any, width: int, height: int, camera: Camera = "fixed"):
        self.spec, self.aspect = env.spec, width / height
        self.camera: Camera = camera
        own = env.model()
        self.view = view_of(env.spec, own)
        self.model = drawn_model(own, self.view, tile_of(env.spec), width, height)
        self.data = mujoco.MjData(self.model)
        self.renderer = make_renderer(self.model, height, width)

    def draw(self, moment: Moment) -> np.ndarray:
        """Return uint8 [H, W, 3]."""
        self.pose(moment)
        watched = moment.watched if moment.watched is not None else self.body(moment)
        self.renderer.update_scene(self.data, make_camera(self.view, self.camera, self.aspect, watched))
        add_overlays(self.renderer.scene, moment, self.spec.threshold, self.view)
        return self.renderer.render()

    def pose(self, moment: Moment) -> None:
        self.data.qpos[:] = moment.q
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)

    def body(self, moment: Moment) -> np.ndarray:
        """Return [3]: the body that moves freely; without one, what has to reach the goal."""
        if self.model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE:
            return np.array(self.data.qpos[:3])
        return np.append(moment.achieved[:2], self.view.floor)

    def close(self) -> None:
        self.renderer.close()


# Cameras: a fixed view of everything, one that follows the body, or a plan


@dataclass(frozen=True)
class Stage:
    """The part of the world that matters: a box on the floor."""

    low: np.ndarray  # [3]
    high: np.ndarray  # [3]
    azimuth: float  # degrees: where the camera looks
    elevation: float  # degrees, of the fixed camera
    tracking: float  # and of the one that follows
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


# Without a maze. The pusher is seen from behind its object, because from the front the arm would hide it.
STAGES = {
    "ant_push": Stage(np.array([-6.5, -6.5, 0.0]), np.array([24.0, 24.0, 1.0]), AZIMUTH, STEEP, -50.0, near=13.0),
    "ant_soccer": Stage(np.array([-6.5, -6.5, 0.0]), np.array([6.5, 6.5, 1.0]), AZIMUTH, -50.0, -40.0, near=7.0),
    "so101": Stage(np.array([0.0, -0.28, 0.0]), np.array([0.4, 0.28, 0.33]), 140.0, -28.0, -28.0, near=0.6),
    "fetch": Stage(np.array([0.2, 0.2, 0.0]), np.array([1.7, 1.3, 1.1]), 132.0, -22.0, -22.0, near=1.6),
    "pusher": Stage(np.array([-0.3, -0.9, -0.325]), np.array([1.1, 0.5, 0.2]), AZIMUTH + 180.0, -48.0, -40.0, near=1.2),
}


def view_of(spec: EnvSpec, model: mujoco.MjSpec) -> Stage:
    """Return what is shown: the maze, the box in the table above, or the model's own extent."""
    kind = next((kind for kind in ("pusher", "so101", "fetch") if spec.name.startswith(kind)), spec.name)
    if spec.maze is not None:
        scale, cells = spec.maze.scale, np.array(spec.maze.walls.shape)
        low, high = scale * (np.full(2, 0.5) - BORDER), scale * (cells - 1.5 + BORDER)
        return Stage(np.append(low, 0.0), np.append(high, scale / 8), AZIMUTH_MAZE, STEEP, -57.0, 2.2 * scale)
    if kind in STAGES:
        return STAGES[kind]
    stat = model.compile().stat
    centre, half = np.array(stat.center), float(stat.extent) / 2
    return Stage(np.append(centre[:2] - half, 0.0), np.append(centre[:2] + half, half), AZIMUTH, -50.0, -40.0, half)


def make_camera(view: Stage, kind: Camera, aspect: float, body: np.ndarray) -> mujoco.MjvCamera:
    """Place a camera. `aspect`: the picture's width over its height. `body` [3]: what a tracking camera looks at."""
    camera = mujoco.MjvCamera()
    camera.type = mujoco.mjtCamera.mjCAMERA_FREE
    camera.azimuth = view.azimuth
    camera.elevation = {"fixed": view.elevation, "tracking": view.tracking, "top": FROM_ABOVE}[kind]
    forward, right, up = axes_of(camera.azimuth, camera.elevation)
    if kind == "tracking":
        camera.lookat[:] = [*body[:2], view.floor + 0.05 * view.near]
        camera.distance = view.near / 2 / np.tan(np.radians(FIELD / 2))
    else:
        corners = np.stack(np.meshgrid(*zip(view.low, view.high, strict=True)), axis=-1).reshape(-1, 3) - view.centre
        tan = np.tan(np.radians(FIELD / 2)) / MARGIN
        v, h, depth = corners @ up, corners @ right, corners @ forward
        # The smallest distance d with all corners in the picture, and how far up the camera must look:
        # v_i - shift <= (d + depth_i) tan and shift - v_j <= (d + depth_j) tan; their sum bounds d, and then the shift.
        above, below = np.max(v - depth * tan), np.max(-v - depth * tan)
        camera.distance = max((above + below) / (2 * tan), np.max(np.abs(h) / (tan * aspect) - depth))
        camera.lookat[:] = view.centre + (above - below) / 2 * up
    return camera


def axes_of(azimuth: float, elevation: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return forward, right and up of MuJoCo's free camera, [3] each."""
    a, e = np.radians([azimuth, elevation])
    forward = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
    right = np.array([np.sin(a), -np.cos(a), 0.0])
    return forward, right, np.cross(right, forward)


# The task's model as it is drawn: its bodies in our colours and light. The model of the physics is not changed.


def tile_of(spec: EnvSpec) -> float:
    """Return the side of the floor's tiles."""
    return spec.maze.scale / 2 if spec.maze else 2.0 * spec.threshold


def body_colour(body: str) -> str:
    """Return blue for what acts, orange for what is pushed, grey for what does not move."""
    return {"world": WALL, "table0": WALL, **dict.fromkeys(MOVABLE, ORANGE)}.get(body, BLUE)


def drawn_model(spec: mujoco.MjSpec, view: Stage, tile: float, width: int, height: int) -> mujoco.MjModel:
    """Compile for pictures of up to this size, with a tiled floor and shadows that are sharp in view."""
    extent = float(np.linalg.norm(view.high - view.low)) / 2
    _paint(spec, tile)
    _light(spec, view, extent)
    spec.stat.center, spec.stat.extent = view.centre, extent
    spec.visual.global_.offwidth, spec.visual.global_.offheight, spec.visual.global_.fovy = width, height, FIELD
    spec.visual.quality.offsamples, spec.visual.quality.shadowsize = SAMPLES, SHADOW_PIXELS
    return spec.compile()


def _paint(spec: mujoco.MjSpec, tile: float) -> None:
    two_d, sky = mujoco.mjtTexture.mjTEXTURE_2D, mujoco.mjtTexture.mjTEXTURE_SKYBOX
    for texture in spec.textures:
        if texture.type == sky:
            spec.delete(texture)
    checker, gradient = mujoco.mjtBuiltin.mjBUILTIN_CHECKER, mujoco.mjtBuiltin.mjBUILTIN_GRADIENT
    size = {"width": 256, "height": 256}
    spec.add_texture(name="dcp_tiles", type=two_d, builtin=checker, rgb1=rgb(FLOOR), rgb2=rgb(FLOOR_TILE), **size)
    spec.add_texture(type=sky, builtin=gradient, rgb1=rgb(SKY_LOW), rgb2=rgb(SKY_HIGH), width=64, height=384)
    floor = spec.add_material(name="dcp_floor", texuniform=True, texrepeat=[1 / tile] * 2, specular=0.0, shininess=0.0)
    floor.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "dcp_tiles"
    for geom in spec.geoms:
        body = geom.parent.name
        if geom.type == mujoco.mjtGeom.mjGEOM_PLANE:
            geom.material, geom.rgba, geom.size = "dcp_floor", [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 1.0]  # infinite
        else:
            is_visible = body not in HIDDEN and geom.rgba[3] > 0.0
            geom.material, geom.rgba = "", [*rgb(body_colour(body)), float(is_visible)]
            if body == "world" and geom.type == mujoco.mjtGeom.mjGEOM_BOX:
                foot, half = geom.pos[2] - geom.size[2], WALL_SHARE * geom.size[2]
                geom.pos[2], geom.size[2] = foot + half, half  # lower, so that it hides no body behind it


def _light(spec: mujoco.MjSpec, view: Stage, extent: float) -> None:
    """Add a lamp high up that casts shadows, and enough light from the camera to see into them."""
    for light in spec.lights:
        spec.delete(light)
    lamp = mujoco.mjtLightType.mjLIGHT_DIRECTIONAL
    grey = {"diffuse": [0.42] * 3, "specular": [0.1] * 3, "ambient": [0.0] * 3}
    away = np.array(LAMP) / np.linalg.norm(LAMP)
    spec.worldbody.add_light(type=lamp, pos=view.centre - 4.0 * extent * away, dir=away, castshadow=True, **grey)
    head = spec.visual.headlight
    head.ambient, head.diffuse, head.specular = [0.42] * 3, [0.22] * 3, [0.05] * 3
    # The shadow map's edge is speckled, so it is put out of sight, farther away for a camera that sees far.
    spec.visual.map.shadowclip = 2.0 if view.elevation <= STEEP else 4.0
    spec.visual.map.znear, spec.visual.map.zfar = 0.02, 12.0


# Goal, subgoal, direction and trail are geoms of MuJoCo's scene: in the picture, but not in the model.


def add_overlays(scene: mujoco.MjvScene, moment: Moment, radius: float, view: Stage) -> None:
    """Add what a moment holds. `radius` is the threshold within which a goal counts as reached."""
    if moment.trail is not None:
        _trail(scene, moment.trail, view)
    if moment.subgoal is not None:
        _place(scene, moment.subgoal, radius, view.floor, SUBGOAL_COLOUR)
    _place(scene, moment.goal, radius, view.floor, GOAL_COLOUR)
    if moment.direction is not None and np.any(moment.direction):  # an arrow from the body, just above it
        height = moment.achieved[2] + 1.2 * radius if len(moment.achieved) >= 3 else view.floor + 2.0 * radius
        start = np.array([*moment.achieved[:2], height])
        end = start + 2.0 * ARROW * view.width * np.append(moment.direction, 0.0)  # MuJoCo draws half of this
        geom = _geom(scene, mujoco.mjtGeom.mjGEOM_ARROW, [1.0] * 3, start, DIRECTION_COLOUR, 1.0)
        mujoco.mjv_connector(geom, mujoco.mjtGeom.mjGEOM_ARROW, ARROW_WIDTH * view.width, start, end)


def _place(scene: Any, goal: np.ndarray, radius: float, floor: float, colour: str) -> None:
    """Mark a goal: with a height by a ball within which it is reached, without one by a disc."""
    if len(goal) >= 3:
        _geom(scene, mujoco.mjtGeom.mjGEOM_SPHERE, [radius] * 3, goal[:3], colour, 0.55)
        return
    x, y = goal[:2]
    cylinder, thickness, height = mujoco.mjtGeom.mjGEOM_CYLINDER, DISC * radius, BEAM * radius
    _geom(scene, cylinder, [radius, radius, thickness], [x, y, floor + thickness], colour, 1.0)
    _geom(scene, cylinder, [radius, radius, height / 2], [x, y, floor + height / 2], colour, 0.25)


def _trail(scene: Any, trail: np.ndarray, view: Stage) -> None:
    """Draw flat boxes: capsules would have a hundred times as many triangles."""
    points, thick = trail[:: max(1, -(-len(trail) // TRAIL_PIECES)), :2], TRAIL_WIDTH * view.width
    for start, end in pairwise(points):
        length = float(np.linalg.norm(end - start))
        if length > 0.0:
            x, y = (end - start) / length
            turn = np.array([[x, -y, 0.0], [y, x, 0.0], [0.0, 0.0, 1.0]])
            place, size = [*(start + end) / 2, view.floor], [length / 2 + thick / 2, thick, thick]
            _geom(scene, mujoco.mjtGeom.mjGEOM_BOX, size, place, TRAIL_COLOUR, 1.0, turn)


def _geom(scene: Any, kind: Any, size: Any, pos: Any, colour: str, alpha: float, turn: np.ndarray = UPRIGHT) -> Any:
    geom = scene.geoms[scene.ngeom]
    rgba = np.array([*rgb(colour), alpha], np.float32)
    mujoco.mjv_initGeom(geom, kind, np.asarray(size, float), np.asarray(pos, float), turn.ravel(), rgba)
    geom.emission, geom.specular, geom.transparent = EMISSION * (alpha < 1.0), 0.0, int(alpha < 1.0)
    geom.category = mujoco.mjtCatBit.mjCAT_DECOR
    scene.ngeom += 1
    return geom


# For the page


class PageScene:
    """Describe a model in numbers: its visible geoms, and where its bodies are in each pose. Needs no OpenGL."""

    def __init__(self, env: Any):
        own = env.model()
        self.view, self.tile = view_of(env.spec, own), tile_of(env.spec)
        self.model = drawn_model(own, self.view, self.tile, 64, 64)
        self.data = mujoco.MjData(self.model)
        solid = np.flatnonzero(self.model.geom_rgba[:, 3] > 0.0)
        self.geoms = [i for i in solid.tolist() if self._kind(i) in PAGE_GEOMS]
        self.bodies = sorted({int(self.model.geom_bodyid[i]) for i in self.geoms} - {0})  # that move

    def _kind(self, geom: int) -> str:
        return mujoco.mjtGeom(int(self.model.geom_type[geom])).name.removeprefix("mjGEOM_").lower()

    def poses(self, q: np.ndarray) -> np.ndarray:
        """Return place and quaternion, whose sign never jumps, of every body: q [K, Q] -> [K, bodies, 7]."""
        poses = np.empty((len(q), len(self.bodies), 7))
        for k, row in enumerate(q):
            self.data.qpos[:] = row
            mujoco.mj_kinematics(self.model, self.data)
            poses[k, :, :3], poses[k, :, 3:] = self.data.xpos[self.bodies], self.data.xquat[self.bodies]
        turns = np.sum(poses[1:, :, 3:] * poses[:-1, :, 3:], axis=-1)  # [K - 1, bodies]
        poses[1:, :, 3:] *= np.cumprod(np.where(turns < 0.0, -1.0, 1.0), axis=0)[..., None]
        return poses

    def description(self) -> dict[str, Any]:
        view, body = self.view, int(self.model.jnt_bodyid[0])
        free = self.model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE
        return {
            "geoms": [self._geom(i) for i in self.geoms],
            "floor": view.floor,
            "tile": self.tile,
            "width": view.width,
            "lamp": list(LAMP),
            "field": FIELD,
            "tracked": self.bodies.index(body) if free and body in self.bodies else -1,
            "view": {**asdict(view), "low": view.low.tolist(), "high": view.high.tolist()},
        }

    def _geom(self, i: int) -> dict[str, Any]:
        """Describe a geom. One that is fixed to the world has body -1 and a place in the world."""
        model, body = self.model, int(self.model.geom_bodyid[i])
        colour = body_colour(model.body(body).name)
        arrays = {"size": model.geom_size[i], "pos": model.geom_pos[i], "quat": model.geom_quat[i]}
        arrays["rgba"] = [*rgb(colour), 1.0]
        return {
            "type": self._kind(i),
            **{name: np.round(values, DIGITS).tolist() for name, values in arrays.items()},
            "body": self.bodies.index(body) if body else -1,
            "acts": colour == body_colour(""),
        }
