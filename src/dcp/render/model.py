"""A task's model as it is drawn: its own bodies in our colours, under our light. The physics' model stays untouched."""

from typing import TYPE_CHECKING

import numpy as np
from PIL import ImageColor

from dcp.analysis.style import BLUE, ORANGE, WALL
from dcp.render.cameras import FIELD, STEEP, View
from dcp.types import EnvSpec

if TYPE_CHECKING:
    import mujoco

FLOOR, FLOOR_TILE, SKY_LOW, SKY_HIGH = "#F4F2EE", "#E9E6E0", "#FFFFFF", "#DCE8F2"
MOVABLE, HIDDEN = ("ball", "box", "object"), ("target", "goal")  # hidden: the models' own marks of the goal
WALL_SHARE = 0.4  # how much of a wall's height is drawn
LAMP = (0.35, 0.45, -1.0)  # where its light goes
SAMPLES = 4  # a pixel, against jagged edges
SHADOW_PIXELS = 2048


def rgb(colour: str) -> tuple[float, float, float]:
    """#RRGGBB -> numbers from 0 to 1"""
    red, green, blue = (value / 255 for value in ImageColor.getrgb(colour)[:3])
    return red, green, blue


def tile_of(spec: EnvSpec) -> float:
    """The side of the floor's tiles."""
    return spec.maze.scale / 2 if spec.maze else 2.0 * spec.threshold


def body_colour(body: str) -> str:
    """Blue: what acts. Orange: what is pushed. Grey: what stands."""
    return {"world": WALL, **dict.fromkeys(MOVABLE, ORANGE)}.get(body, BLUE)


def drawn_model(spec: "mujoco.MjSpec", view: View, tile: float, width: int, height: int) -> "mujoco.MjModel":
    """Compiled for pictures of up to this size; the floor is tiled, and shadows are sharp where the view is."""
    extent = float(np.linalg.norm(view.high - view.low)) / 2
    _paint(spec, tile)
    _light(spec, view, extent)
    spec.stat.center, spec.stat.extent = view.centre, extent
    spec.visual.global_.offwidth, spec.visual.global_.offheight, spec.visual.global_.fovy = width, height, FIELD
    spec.visual.quality.offsamples, spec.visual.quality.shadowsize = SAMPLES, SHADOW_PIXELS
    return spec.compile()


def _paint(spec: "mujoco.MjSpec", tile: float) -> None:
    import mujoco

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
            geom.material, geom.rgba, geom.size = "dcp_floor", [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 1.0]  # without end
        else:
            seen = body not in HIDDEN and geom.rgba[3] > 0.0
            geom.material, geom.rgba = "", [*rgb(body_colour(body)), float(seen)]
            if body == "world" and geom.type == mujoco.mjtGeom.mjGEOM_BOX:
                _lower(geom)


def _lower(wall: "mujoco.MjsGeom") -> None:
    """To a share of its height, so that it hides no body behind it. Where it stands is as it was."""
    foot, half = wall.pos[2] - wall.size[2], WALL_SHARE * wall.size[2]
    wall.pos[2], wall.size[2] = foot + half, half


def _light(spec: "mujoco.MjSpec", view: View, extent: float) -> None:
    """A lamp high up that throws shadows, and enough light from the eye to see into them."""
    import mujoco

    for light in spec.lights:
        spec.delete(light)
    lamp = mujoco.mjtLightType.mjLIGHT_DIRECTIONAL
    grey = {"diffuse": [0.42] * 3, "specular": [0.1] * 3, "ambient": [0.0] * 3}
    away = np.array(LAMP) / np.linalg.norm(LAMP)
    spec.worldbody.add_light(type=lamp, pos=view.centre - 4.0 * extent * away, dir=away, castshadow=True, **grey)
    head = spec.visual.headlight
    head.ambient, head.diffuse, head.specular = [0.42] * 3, [0.22] * 3, [0.05] * 3
    # Where shadows end they are speckled: out of sight, which for a camera that sees far is farther away.
    spec.visual.map.shadowclip = 2.0 if view.elevation <= STEEP else 4.0
    spec.visual.map.znear, spec.visual.map.zfar = 0.02, 12.0
