"""Pictures that a run leaves behind."""

import json

import numpy as np
import pytest
from PIL import Image, ImageColor

from dcp.config import SCHEMA_VERSION, Config
from dcp.envs.mazes import U, parse_layout
from dcp.envs.registry import ENVIRONMENTS
from dcp.errors import UserError
from dcp.lab.maze_episodes import MazePath
from dcp.lab.run_plots import AFTER_SUCCESS, LAST_FRAME_MS, WIDTH, save_gif, save_run_plots
from dcp.lab.style import BLUE, FREE, GOAL_COLOUR, WALL
from dcp.policies.policy_file import save_policy
from tests.support.toys import LineWorld


def write_run(folder, config, metrics="env_steps,success_once,time_near_goal\n1000,0.5,7\n"):
    stored = {"schema_version": SCHEMA_VERSION, "config": json.loads(config.to_json()), "versions": {}}
    (folder / "config.json").write_text(json.dumps(stored))
    (folder / "metrics.csv").write_text(metrics)


def test_a_maze_run_leaves_curve_landscape_and_gif(tmp_path, policy):
    write_run(tmp_path, Config(env="point_u_maze", eval_env="point_u_maze_eval", episode_length=5))
    save_policy(tmp_path / "policy.safetensors", policy, {})
    written = save_run_plots(tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in written] == [
        "plots/learning_curve.png",
        "plots/landscape.png",
        "plots/episode.gif",
    ]
    assert all(path.stat().st_size > 0 for path in written)


def test_a_run_without_a_maze_leaves_the_curve_alone(tmp_path, monkeypatch):
    monkeypatch.setitem(ENVIRONMENTS, "line_world", LineWorld)
    write_run(tmp_path, Config(env="line_world"))
    assert [path.name for path in save_run_plots(tmp_path)] == ["learning_curve.png"]
    assert [path.name for path in (tmp_path / "plots").iterdir()] == ["learning_curve.png"]


def test_a_run_that_stopped_before_its_policy_was_saved_leaves_the_curve(tmp_path):
    write_run(tmp_path, Config(env="point_u_maze"))
    assert [path.name for path in save_run_plots(tmp_path)] == ["learning_curve.png"]


def test_a_folder_that_is_no_run_is_a_mistake(tmp_path):
    with pytest.raises(UserError, match="not a run folder"):
        save_run_plots(tmp_path)


LAYOUT = parse_layout(U, 1.0)
SHOWN = 3.5  # cells from side to side: three free ones and a quarter of the wall on either side


def walk(reached, length=41):
    """Along the first row, from (1, 1) to (1, 3)."""
    points = np.stack([np.ones(length), np.linspace(1.0, 3.0, length)], axis=-1)
    return MazePath(points, np.array([1.0, 3.0]), reached)


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
    monkeypatch.setattr("dcp.lab.run_plots.MAX_FRAMES", 20)
    episodes = [walk(None, length=1001), walk(None, length=1001)]
    shown = list(frames(save_gif(tmp_path / "episode.gif", LAYOUT, episodes, threshold=0.125)))
    assert len(shown) == 2 * (10 + 1)  # each: every 101st of 1000 steps, and the last
    assert colour_at(shown[-1][0], 1.0, 3.0) == ImageColor.getrgb(BLUE)


def test_no_episode_is_a_mistake(tmp_path):
    with pytest.raises(UserError, match="at least one episode"):
        save_gif(tmp_path / "episode.gif", LAYOUT, [], threshold=0.125)
