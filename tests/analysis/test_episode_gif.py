import numpy as np
import pytest
from PIL import Image, ImageColor

from dcp.analysis.episode_gif import AFTER_SUCCESS, LAST_FRAME_MS, WIDTH, save_gif
from dcp.analysis.episodes import Path
from dcp.analysis.style import BLUE, FREE, GOAL_COLOUR, WALL
from dcp.envs.layouts import U
from dcp.envs.maze import parse_layout
from dcp.errors import UserError

LAYOUT = parse_layout(U, 1.0)
SHOWN = 3.5  # cells from side to side: three free ones and a quarter of the wall on either side


def walk(reached, length=41):
    """Along the first row, from (1, 1) to (1, 3)."""
    points = np.stack([np.ones(length), np.linspace(1.0, 3.0, length)], axis=-1)
    return Path(points, np.array([1.0, 3.0]), reached)


def frames(path):
    with Image.open(path) as image:
        for i in range(image.n_frames):  # pyright: ignore[reportAttributeAccessIssue]
            image.seek(i)
            yield np.asarray(image.convert("RGB")), image.info["duration"]


def colour_at(frame, x, y):
    """The colour of the pixel at a point of the maze."""
    u, v = ((np.array([y, x]) - 0.25) / SHOWN * WIDTH).astype(int)
    return tuple(frame[v, u])


def test_the_gif_shows_walls_goal_and_the_moving_point(tmp_path):
    path = save_gif(tmp_path / "plots" / "episode.gif", LAYOUT, [walk(None)], threshold=0.125)
    (first, _), *_, (last, _) = frames(path)
    wall, goal, point, free = (ImageColor.getrgb(c) for c in (WALL, GOAL_COLOUR, BLUE, FREE))
    assert colour_at(first, 2.0, 1.0) == wall
    assert colour_at(first, 2.0, 3.0) == free
    assert colour_at(first, 1.0, 1.0) == point
    assert colour_at(first, 1.0, 3.0) == goal
    assert colour_at(last, 1.0, 3.0) == point
    assert first.shape[1] == WIDTH
    assert path.stat().st_size < 1_000_000


def test_an_episode_stops_shortly_after_its_success(tmp_path):
    path = save_gif(tmp_path / "episode.gif", LAYOUT, [walk(reached=10)], threshold=0.125)
    shown = list(frames(path))
    assert len(shown) == (10 + AFTER_SUCCESS) // 2 + 1  # every second step, and the first
    assert shown[-1][1] == LAST_FRAME_MS


def test_long_episodes_are_thinned_out_and_end_with_their_last_step(tmp_path, monkeypatch):
    monkeypatch.setattr("dcp.analysis.episode_gif.MAX_FRAMES", 20)
    episodes = [walk(None, length=1001), walk(None, length=1001)]
    shown = list(frames(save_gif(tmp_path / "episode.gif", LAYOUT, episodes, threshold=0.125)))
    assert len(shown) == 2 * (10 + 1)  # each: every 101st of 1000 steps, and the last
    assert colour_at(shown[-1][0], 1.0, 3.0) == ImageColor.getrgb(BLUE)


def test_no_episode_is_a_mistake(tmp_path):
    with pytest.raises(UserError, match="at least one episode"):
        save_gif(tmp_path / "episode.gif", LAYOUT, [], threshold=0.125)
