"""A moving picture of episodes in a maze, drawn with Pillow alone: seconds to make, a fraction of a megabyte."""

from collections.abc import Iterator, Sequence
from pathlib import Path as FilePath

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

from dcp.analysis.episodes import Path
from dcp.analysis.style import BLUE, BORDER, FREE, GOAL_COLOUR, INK, SKY, WALL
from dcp.errors import UserError
from dcp.types import MazeLayout

WIDTH = 420  # pixels of the longer side of the maze
CAPTION = 26  # pixels below it
SMOOTH = 3  # drawn so many times larger, then reduced
MAX_FRAMES = 180
FRAME_MS, LAST_FRAME_MS = 50, 900
POINT_RADIUS = 0.085  # cells
AFTER_SUCCESS = 6  # steps shown after the goal is reached


def save_gif(path: FilePath, layout: MazeLayout, episodes: Sequence[Path], threshold: float) -> FilePath:
    """Episodes one after another, each up to shortly after its success."""
    if not episodes:
        raise UserError("a GIF needs at least one episode")
    shown = [_last_index(episode) + 1 for episode in episodes]
    stride = max(2, -(-sum(shown) // MAX_FRAMES))
    canvas = _Canvas(layout, threshold)
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


class _Canvas:
    """The maze drawn once; each frame is drawn on a copy. x (row) runs downwards, y (column) to the right."""

    def __init__(self, layout: MazeLayout, threshold: float):
        self.layout, self.threshold = layout, threshold
        rows, columns = layout.walls.shape
        rim = 2.0 * (1.0 - BORDER)  # cells of the outermost walls that are cut away
        self.cell = round(SMOOTH * WIDTH / (max(rows, columns) - rim))
        self.size = tuple(SMOOTH * round((n - rim) * self.cell / SMOOTH) for n in (columns, rows))
        self.maze = Image.new("RGB", self.size, FREE)
        draw = ImageDraw.Draw(self.maze)
        for i, j in np.argwhere(layout.walls):
            corner, opposite = ((np.array((i, j)) + side) * layout.scale for side in (-0.5, 0.5))
            draw.rectangle((*self._pixel(corner), *self._pixel(opposite)), fill=WALL)
        self.palette = _palette()
        self.font = ImageFont.load_default(size=13)

    def frame(self, episode: Path, at: int, caption: str) -> Image.Image:
        large = self.maze.copy()
        draw = ImageDraw.Draw(large)
        self._disc(draw, episode.goal, self.threshold / self.layout.scale, GOAL_COLOUR)
        trail = [self._pixel(point) for point in episode.points[: at + 1]]
        if len(trail) > 1:
            draw.line(trail, fill=SKY, width=max(2 * SMOOTH, self.cell // 24), joint="curve")
        self._disc(draw, episode.points[at], POINT_RADIUS, BLUE)
        small = large.resize((self.size[0] // SMOOTH, self.size[1] // SMOOTH), Image.Resampling.BOX)
        image = Image.new("RGB", (small.width, small.height + CAPTION), FREE)
        image.paste(small)
        reached = episode.reached is not None and at >= episode.reached
        text = f"{caption}    step {at}" + ("    reached" if reached else "")
        ImageDraw.Draw(image).text((8, small.height + 5), text, fill=INK, font=self.font)
        return image.quantize(palette=self.palette, dither=Image.Dither.NONE)

    def _pixel(self, point: np.ndarray) -> tuple[float, float]:
        x, y = np.asarray(point) / self.layout.scale - (0.5 - BORDER)  # cells from the picture's upper left corner
        return float(y) * self.cell, float(x) * self.cell

    def _disc(self, draw: ImageDraw.ImageDraw, centre: np.ndarray, radius: float, colour: str) -> None:
        """The radius in cells. A goal's disc is exactly where it counts as reached."""
        u, v = self._pixel(centre)
        radius *= self.cell
        draw.ellipse((u - radius, v - radius, u + radius, v + radius), fill=colour)


def _palette() -> Image.Image:
    """One palette for all frames: every colour, and its blends with what it is drawn on."""
    base = [np.array(ImageColor.getrgb(c)) for c in (FREE, WALL, GOAL_COLOUR, SKY, BLUE, INK)]
    blends = [np.round(a + (b - a) * k / 6) for a in base for b in base for k in range(6)]
    unique = np.unique(np.array(blends + base, np.uint8), axis=0)  # at most 156
    image = Image.new("P", (1, 1))
    image.putpalette(np.resize(unique, (256, 3)).astype(np.uint8).tobytes())
    return image
