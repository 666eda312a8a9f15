"""A moving picture of episodes in a maze, drawn with Pillow alone: seconds to make, a fraction of a megabyte."""

from collections.abc import Iterator, Sequence
from pathlib import Path as FilePath

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

from dcp.analysis.episodes import Path
from dcp.analysis.maze_canvas import MazeCanvas
from dcp.analysis.style import BLUE, FREE, GOAL_COLOUR, INK, SKY, WALL
from dcp.errors import UserError
from dcp.types import MazeLayout

WIDTH = 420  # pixels of the longer side of the maze
CAPTION = 26  # pixels below it
MAX_FRAMES = 180
FRAME_MS, LAST_FRAME_MS = 50, 900
AFTER_SUCCESS = 6  # steps shown after the goal is reached


def save_gif(path: FilePath, layout: MazeLayout, episodes: Sequence[Path], threshold: float) -> FilePath:
    """Episodes one after another, each up to shortly after its success."""
    if not episodes:
        raise UserError("a GIF needs at least one episode")
    shown = [_last_index(episode) + 1 for episode in episodes]
    stride = max(2, -(-sum(shown) // MAX_FRAMES))
    canvas = _Frames(layout, threshold)
    frames, durations = [], []
    for number, episode in enumerate(episodes):
        caption = f"episode {number + 1} of {len(episodes)}" if len(episodes) > 1 else "episode"
        for at in _indices(_last_index(episode), stride):
            frames.append(canvas.frame(episode, at, caption))
            durations.append(FRAME_MS)
        durations[-1] = LAST_FRAME_MS
    path.parent.mkdir(parents=True, exist_ok=True)
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=False)
    return path


def _last_index(episode: Path) -> int:
    end = len(episode.points) - 1
    return end if episode.reached is None else min(end, episode.reached + AFTER_SUCCESS)


def _indices(last: int, stride: int) -> Iterator[int]:
    yield from range(0, last, stride)
    yield last


class _Frames:
    """The maze with a caption below it, in one palette."""

    def __init__(self, layout: MazeLayout, threshold: float):
        self.canvas = MazeCanvas(layout, threshold, WIDTH, WIDTH)
        self.palette = _palette()
        self.font = ImageFont.load_default(size=13)

    def frame(self, episode: Path, at: int, caption: str) -> Image.Image:
        small = self.canvas.picture(episode.goal, episode.points[: at + 1])
        image = Image.new("RGB", (small.width, small.height + CAPTION), FREE)
        image.paste(small)
        reached = episode.reached is not None and at >= episode.reached
        text = f"{caption}    step {at}" + ("    reached" if reached else "")
        ImageDraw.Draw(image).text((8, small.height + 5), text, fill=INK, font=self.font)
        return image.quantize(palette=self.palette, dither=Image.Dither.NONE)


def _palette() -> Image.Image:
    """One palette for all frames: every colour, and its blends with what it is drawn on."""
    base = [np.array(ImageColor.getrgb(c)) for c in (FREE, WALL, GOAL_COLOUR, SKY, BLUE, INK)]
    blends = [np.round(a + (b - a) * k / 6) for a in base for b in base for k in range(6)]
    unique = np.unique(np.array(blends + base, np.uint8), axis=0)  # at most 156
    image = Image.new("P", (1, 1))
    image.putpalette(np.resize(unique, (256, 3)).astype(np.uint8).tobytes())
    return image
