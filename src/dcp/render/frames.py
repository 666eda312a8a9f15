"""Frames of a video: one panel a policy, each on the same episode, with titles and a line that tells how it goes."""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from dcp.analysis.style import INK, human_count
from dcp.render.episodes import Episode
from dcp.render.moment import COLOURS, Moment
from dcp.render.picture import Drawing

TITLE, STATUS, LEGEND, GAP = 30, 24, 24, 6  # pixels
PAPER = "#FFFFFF"
SMOOTHING = 25  # steps over which a tracking camera is steadied
HOLD_SECONDS = 1.0  # for an episode's last frame


class Subject(NamedTuple):
    """A policy as it is shown: its name, what it was trained for, and its episodes."""

    name: str
    env_steps: int | None
    episodes: list[Episode]

    @property
    def title(self) -> str:
        return self.name if self.env_steps is None else f"{self.name}, {human_count(self.env_steps)} steps"


class Frame(NamedTuple):
    image: np.ndarray  # uint8 [H, W, 3]
    seconds: float | None = None  # how long it stands; None: as any other


def indices(subjects: Sequence[Subject], number: int, stride: int) -> list[int]:
    """The steps of an episode that are shown: until every subject has been shown to its end."""
    last = max(subject.episodes[number].last for subject in subjects)
    return [*range(0, last, stride), last]


def count_frames(subjects: Sequence[Subject], stride: int) -> int:
    return sum(len(indices(subjects, number, stride)) for number in range(len(subjects[0].episodes)))


def frames(subjects: Sequence[Subject], drawing: Drawing, stride: int) -> Iterator[Frame]:
    """Episodes one after another."""
    of = len(subjects[0].episodes)
    for number in range(of):
        shown = indices(subjects, number, stride)
        paths = [steadied(subject.episodes[number]) for subject in subjects]
        caption = f"episode {number + 1} of {of}    " if of > 1 else ""
        panels: dict[int, Image.Image] = {}
        for at in shown:
            for i, (subject, path) in enumerate(zip(subjects, paths, strict=True)):
                if i not in panels or at - stride < subject.episodes[number].last:  # else it has been shown to its end
                    panels[i] = _panel(subject, number, at, path, drawing, caption)
            yield Frame(np.asarray(_beside(list(panels.values()), subjects)), HOLD_SECONDS if at == shown[-1] else None)


def steadied(episode: Episode) -> np.ndarray:
    """[T + 1, 2]: where a tracking camera looks, a moving average of the body's place."""
    path = episode.achieved[:, :2] if episode.q is None else episode.q[:, :2]
    half = SMOOTHING // 2
    padded = np.concatenate([np.repeat(path[:1], half, 0), path, np.repeat(path[-1:], half, 0)])
    window = np.ones(2 * half + 1) / (2 * half + 1)
    return np.stack([np.convolve(padded[:, axis], window, mode="valid") for axis in range(2)], axis=-1)


def moment_at(episode: Episode, at: int, steady: np.ndarray | None = None) -> Moment:
    def of(values: np.ndarray | None) -> np.ndarray | None:
        return None if values is None else values[at]

    return Moment(
        achieved=episode.achieved[at],
        goal=episode.goal,
        q=of(episode.q),
        trail=episode.achieved[: at + 1],
        direction=of(episode.directions),
        subgoal=of(episode.subgoals),
        watched=of(steady),
    )


def status(episode: Episode, at: int) -> str:
    if episode.reached is not None and at >= episode.reached:
        outcome = f"reached at step {episode.reached}"
    elif at < episode.steps:
        outcome = ""
    else:
        outcome = "not reached" if episode.reached is None else ""
    return f"step {at}    distance {episode.distance[at]:.2f}    {outcome}".rstrip()


def _panel(subject: Subject, number: int, at: int, steady: np.ndarray, drawing: Drawing, caption: str) -> Image.Image:
    episode = subject.episodes[number]
    at = min(at, episode.last)
    picture = Image.fromarray(drawing.draw(moment_at(episode, at, steady)))
    panel = Image.new("RGB", (picture.width, TITLE + picture.height + STATUS), PAPER)
    panel.paste(picture, (0, TITLE))
    draw = ImageDraw.Draw(panel)
    draw.text((8, TITLE // 2), subject.title, INK, font("DejaVuSans-Bold", 15), anchor="lm")
    middle = TITLE + picture.height + STATUS // 2
    draw.text((8, middle), caption + status(episode, at), INK, font("DejaVuSans", 12), anchor="lm")
    return panel


def _beside(panels: Sequence[Image.Image], subjects: Sequence[Subject]) -> Image.Image:
    """All panels in a row, and below them what the colours mean. Even sizes: video wants them."""
    width = sum(panel.width for panel in panels) + GAP * (len(panels) - 1)
    height = panels[0].height + LEGEND
    image = Image.new("RGB", (width + width % 2, height + height % 2), PAPER)
    left = 0
    for panel in panels:
        image.paste(panel, (left, 0))
        left += panel.width + GAP
    _legend(ImageDraw.Draw(image), panels[0].height + LEGEND // 2, subjects)
    return image


def _legend(draw: ImageDraw.ImageDraw, middle: int, subjects: Sequence[Subject]) -> None:
    episodes = [episode for subject in subjects for episode in subject.episodes]
    names = {"goal": True}
    names["direction that the actor sees"] = any(e.directions is not None for e in episodes)
    names["subgoal that training would command"] = any(e.subgoals is not None for e in episodes)
    left = 8
    for name, there in names.items():
        if there:
            draw.ellipse((left, middle - 5, left + 10, middle + 5), fill=COLOURS[name.split()[0]])
            draw.text((left + 16, middle), name, INK, font("DejaVuSans", 12), anchor="lm")
            left += 16 + round(draw.textlength(name, font("DejaVuSans", 12))) + 20


@cache
def font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """Matplotlib brings its fonts along."""
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf", size)
