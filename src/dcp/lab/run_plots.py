"""Draw a finished run: its curve, and in a maze its landscape and a GIF of its episodes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

from dcp.config import Config
from dcp.envs.registry import env_of
from dcp.errors import UserError
from dcp.files.run_folder import RunRecord, load_run
from dcp.files.writing import require_no_links_out
from dcp.lab.curves import run_figure
from dcp.lab.landscape_figure import landscape_figure
from dcp.lab.maze_drawing import MazeCanvas
from dcp.lab.maze_episodes import MazePath, maze_of, paths, shows_maze
from dcp.lab.style import BLUE, FREE, GOAL_COLOUR, INK, SKY, WALL, save
from dcp.policies.policy_file import load_policy
from dcp.types import MazeLayout

GIF_EPISODES = 4
WIDTH = 420  # pixels of the longer side of the maze
CAPTION = 26  # pixels below it
MAX_FRAMES = 180
FRAME_MS, LAST_FRAME_MS = 50, 900
AFTER_SUCCESS = 6  # steps shown after the goal is reached


def save_run_plots(folder: Path) -> list[Path]:
    """Write into <folder>/plots: the curve, and landscape and GIF if goals lie in a maze's plane."""
    run = load_run(folder)
    require_no_links_out(run.plots, of=run.folder)
    config = Config.from_dict(run.config)
    title = f"{config.env}, {config.method}, seed {config.seed}"
    curve = save(run_figure(run.metrics, title, config.method), run.plots / "learning_curve.png")
    return [curve, *_maze_plots(run, config, title)]


def _maze_plots(run: RunRecord, config: Config, title: str) -> list[Path]:
    """Draw the environment that the run was evaluated on. A run that was stopped early may have no policy."""
    env = env_of(config, config.eval_env)
    if not shows_maze(env.spec) or not run.policy_path.is_file():
        return []
    policy = load_policy(run.policy_path)
    length = config.episode_length or env.spec.episode_length
    landscape = save(landscape_figure(policy, env, title, length), run.plots / "landscape.png")
    episodes = paths(env, policy, config.seed, GIF_EPISODES, length)
    return [landscape, save_gif(run.plots / "episode.gif", maze_of(env.spec), episodes, env.spec.threshold)]


def save_gif(path: Path, layout: MazeLayout, episodes: Sequence[MazePath], threshold: float) -> Path:
    """Write episodes one after another, each up to shortly after its success, in one palette."""
    if not episodes:
        raise UserError("a GIF needs at least one episode")
    stride = max(2, -(-sum(_last_index(episode) + 1 for episode in episodes) // MAX_FRAMES))
    canvas, palette, font = MazeCanvas(layout, threshold, WIDTH, WIDTH), _palette(), ImageFont.load_default(size=13)
    frames, durations = [], []
    for number, episode in enumerate(episodes):
        caption = f"episode {number + 1} of {len(episodes)}" if len(episodes) > 1 else "episode"
        last = _last_index(episode)
        for at in (*range(0, last, stride), last):
            image = _captioned(canvas.picture(episode.goal, episode.points[: at + 1]), episode, at, caption, font)
            frames.append(image.quantize(palette=palette, dither=Image.Dither.NONE))
            durations.append(FRAME_MS)
        durations[-1] = LAST_FRAME_MS
    path.parent.mkdir(parents=True, exist_ok=True)
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=False)
    return path


def _last_index(episode: MazePath) -> int:
    end = len(episode.points) - 1
    return end if episode.reached is None else min(end, episode.reached + AFTER_SUCCESS)


def _captioned(maze: Image.Image, episode: MazePath, at: int, caption: str, font: Any) -> Image.Image:
    image = Image.new("RGB", (maze.width, maze.height + CAPTION), FREE)
    image.paste(maze)
    reached = episode.reached is not None and at >= episode.reached
    text = f"{caption}    step {at}" + ("    reached" if reached else "")
    ImageDraw.Draw(image).text((8, maze.height + 5), text, fill=INK, font=font)
    return image


def _palette() -> Image.Image:
    """Make one palette for all frames: every colour, and its blends with the colours below it."""
    base = [np.array(ImageColor.getrgb(c)) for c in (FREE, WALL, GOAL_COLOUR, SKY, BLUE, INK)]
    blends = [np.round(a + (b - a) * k / 6) for a in base for b in base for k in range(6)]
    unique = np.unique(np.array(blends + base, np.uint8), axis=0)  # at most 156
    image = Image.new("P", (1, 1))
    image.putpalette(np.resize(unique, (256, 3)).astype(np.uint8).tobytes())
    return image
