"""The pictures of docs/environments.md: what a ray sees, and that a picture can be drawn."""

from pathlib import Path

import mujoco
import numpy as np
from PIL import Image

from tools.docs.environment_pictures import figure_of, save_small
from tools.docs.scene import AMBIENT, FINE, FLOOR, WALL, Scene, View, picture, to_rgb

BLOCK = """
<mujoco><worldbody>
  <geom type="plane" size="0 0 1"/>
  <geom type="box" pos="0 0 0.5" size="0.5 0.5 0.5"/>
</worldbody></mujoco>
"""


def test_a_block_hides_the_floor_below_it_and_darkens_the_floor_behind_it():
    model = mujoco.MjModel.from_xml_string(BLOCK)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    floor, block = (0.9, 0.9, 0.9), (0.2, 0.4, 0.6)
    # The lamp stands on the side of low x, 45 degrees high: the block of height 1 throws a shadow of length 1.
    view = View(np.array([-2.0, -2.0]), np.array([2.0, 2.0]), floor=0.0, lamp=(-1.0, 0.0, 1.0))
    image = picture(model, data, np.array([floor, block]), view, pixels=16)
    assert image.shape == (16 * FINE, 16 * FINE, 3)

    def seen(x: float, y: float) -> np.ndarray:
        return image[int((x + 2) * 4 * FINE), int((y + 2) * 4 * FINE)]

    np.testing.assert_allclose(seen(0.0, 0.0), block, atol=1e-6)  # its top lies flat and is lit
    np.testing.assert_allclose(seen(-1.0, 0.0), floor, atol=1e-6)
    np.testing.assert_allclose(seen(1.0, 0.0), AMBIENT * np.array(floor), atol=1e-6)
    np.testing.assert_allclose(seen(1.8, 0.0), floor, atol=1e-6)  # past the shadow's end at 1.5
    np.testing.assert_allclose(seen(0.0, 1.0), floor, atol=1e-6)


def test_a_picture_shows_the_maze_and_all_of_the_ant(tmp_path: Path):
    scene = Scene("ant_u_maze", pixels=100)
    per_metre = scene.image.shape[0] / (scene.view.high[0] - scene.view.low[0])

    def seen(x: float, y: float) -> np.ndarray:
        return scene.image[int((x - scene.view.low[0]) * per_metre), int((y - scene.view.low[1]) * per_metre)]

    np.testing.assert_allclose(seen(8.0, 6.0), to_rgb(WALL), atol=1e-6)  # row 2 is ###g#
    np.testing.assert_allclose(seen(8.0, 12.0), to_rgb(FLOOR), atol=1e-6)
    for part in ("torso_geom", "shin_1", "shin_2", "shin_3", "shin_4"):  # shins do not collide
        red, _, blue = seen(*scene.data.geom(part).xpos[:2])
        assert red < 0.1 < blue
    path = save_small(figure_of(scene), tmp_path / "ant_u_maze.png")
    assert Image.open(path).size == (800, 800)
