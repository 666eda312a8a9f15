import numpy as np
import pytest

from dcp.envs.registry import make_env
from dcp.render.cameras import FIELD, axes_of, make_camera, view_of

ENV = make_env("ant_u_maze")
VIEW = view_of(ENV.spec, ENV.model())


def test_a_maze_lies_as_its_text_does():
    forward, right, up = axes_of(180.0, -90.0)
    np.testing.assert_allclose(forward, [0, 0, -1], atol=1e-12)
    np.testing.assert_allclose(right, [0, 1, 0], atol=1e-12)  # columns to the right
    np.testing.assert_allclose(up, [-1, 0, 0], atol=1e-12)  # rows downwards


@pytest.mark.parametrize("aspect", [0.5, 1.2, 3.0])
@pytest.mark.parametrize("kind", ["fixed", "top"])
def test_the_whole_maze_is_in_the_picture_and_fills_it(kind, aspect):
    camera = make_camera(VIEW, kind, aspect, np.zeros(3))
    corners = np.stack(np.meshgrid(*zip(VIEW.low, VIEW.high, strict=True)), axis=-1).reshape(-1, 3)
    places = np.abs([seen_at(camera, corner, aspect) for corner in corners])
    assert 0.9 < places.max() < 1.0


def test_a_tracking_camera_looks_at_the_body():
    camera = make_camera(VIEW, "tracking", 1.2, np.array([4.0, 12.0, 0.5]))
    np.testing.assert_allclose(camera.lookat[:2], [4.0, 12.0])


def seen_at(camera, point, aspect):
    """Where a point is in the picture: -1 to 1, to the right and upwards."""
    forward, right, up = axes_of(camera.azimuth, camera.elevation)
    offset = point - (np.array(camera.lookat) - camera.distance * forward)
    tan = np.tan(np.radians(FIELD / 2)) * (offset @ forward)
    return np.array([offset @ right / (tan * aspect), offset @ up / tan])
