"""Make videos, frames with one panel per policy, all on the same episode; and the interactive page of `dcp render`.

PyAV writes MP4 and Pillow GIF. A file gets its name when it is complete. The page is one file that holds the episodes
as numbers, and the browser draws them without a network.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib
import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

from dcp.envs.base import Environment
from dcp.envs.point_tasks import things_of
from dcp.errors import UserError, install_hint
from dcp.lab.episodes import Episode, ShownPolicy
from dcp.lab.pages import asset, pack, theme, whole_page
from dcp.lab.render import COLOURS, FLOOR, FLOOR_TILE, HEIGHT, WIDTH, Camera, Drawing, Moment, make_drawing
from dcp.lab.style import BLUE, BORDER, FREE, INK, ORANGE, WALL
from dcp.policies.policy_file import write_whole
from dcp.types import MazeLayout

TITLE, STATUS, LEGEND, GAP = 30, 24, 24, 6  # pixels
PAPER = "#FFFFFF"
SMOOTHING = 25  # steps over which a tracking camera is steadied
HOLD_SECONDS = 1.0  # for an episode's last frame
FPS = 30
CODECS = ("libx264", "libopenh264", "mpeg4")  # the first that this build of FFmpeg has
GIF_FRAMES, GIF_WIDTH, GIF_COLOURS = 150, 720, 96
NO_AV = f"MP4 files need PyAV: {install_hint('video')} (GIF and HTML do not)"
Format = Literal["mp4", "gif", "html"]
FORMATS: tuple[Format, ...] = ("mp4", "gif", "html")
STRIDE_BODIES, STRIDE_POINT = 2, 1
TINTS = (BLUE, INK, "#B8860B", "#7F7F7F")  # of the policies, when they are overlaid and in the page's chart
OnFrame = Callable[[int, int], object]  # frames done, and in all


# Frames


class Frame(NamedTuple):
    image: np.ndarray  # uint8 [H, W, 3]
    seconds: float | None = None  # how long it is shown; None: as any other


def _indices(policies: Sequence[ShownPolicy], number: int, stride: int) -> list[int]:
    """Return the steps of an episode that are shown: until every policy has been shown to its end."""
    last = max(shown.episodes[number].last for shown in policies)
    return [*range(0, last, stride), last]


def count_frames(policies: Sequence[ShownPolicy], stride: int) -> int:
    return sum(len(_indices(policies, number, stride)) for number in range(len(policies[0].episodes)))


def frames(policies: Sequence[ShownPolicy], drawing: Drawing, stride: int) -> Iterator[Frame]:
    """Draw the episodes one after another."""
    of = len(policies[0].episodes)
    for number in range(of):
        steps = _indices(policies, number, stride)
        paths = [steadied(shown.episodes[number]) for shown in policies]
        caption = f"episode {number + 1} of {of}    " if of > 1 else ""
        panels: dict[int, Image.Image] = {}
        for at in steps:
            for i, (shown, path) in enumerate(zip(policies, paths, strict=True)):
                if i not in panels or at - stride < shown.episodes[number].last:  # else it was shown to its end
                    panels[i] = _panel(shown, number, at, path, drawing, caption)
            yield Frame(np.asarray(_beside(list(panels.values()), policies)), HOLD_SECONDS if at == steps[-1] else None)


def steadied(episode: Episode) -> np.ndarray:
    """Return [T + 1, 2]: where a tracking camera looks, a moving average of the body's place."""
    path = episode.achieved[:, :2] if episode.q is None else episode.q[:, :2]
    half = SMOOTHING // 2
    padded = np.concatenate([np.repeat(path[:1], half, 0), path, np.repeat(path[-1:], half, 0)])
    window = np.ones(2 * half + 1) / (2 * half + 1)
    return np.stack([np.convolve(padded[:, axis], window, mode="valid") for axis in range(2)], axis=-1)


def status(episode: Episode, at: int) -> str:
    outcome = ""
    if episode.reached is not None and at >= episode.reached:
        outcome = f"reached at step {episode.reached}"
    elif episode.reached is None and at >= episode.steps:
        outcome = "not reached"
    return f"step {at}    distance {episode.distance[at]:.2f}    {outcome}".rstrip()


def _panel(shown: ShownPolicy, number: int, at: int, steady: np.ndarray, drawing: Drawing, caption: str) -> Image.Image:
    episode = shown.episodes[number]
    at = min(at, episode.last)
    guides = [None if of is None else of[at] for of in (episode.directions, episode.subgoals, steady)]
    q, trail = None if episode.q is None else episode.q[at], episode.achieved[: at + 1]
    picture = Image.fromarray(drawing.draw(Moment(episode.achieved[at], episode.goal, q, trail, *guides)))
    panel = Image.new("RGB", (picture.width, TITLE + picture.height + STATUS), PAPER)
    panel.paste(picture, (0, TITLE))
    draw = ImageDraw.Draw(panel)
    bold, plain = font("DejaVuSans-Bold", 15), font("DejaVuSans", 12)
    draw.text((8, TITLE // 2), shown.title, INK, bold, anchor="lm")
    if draw.textlength(shown.title, bold) + draw.textlength(shown.rate, plain) + 24 <= picture.width:
        draw.text((picture.width - 8, TITLE // 2), shown.rate, INK, plain, anchor="rm")
    middle = TITLE + picture.height + STATUS // 2
    draw.text((8, middle), caption + status(episode, at), INK, font("DejaVuSans", 12), anchor="lm")
    return panel


def _beside(panels: Sequence[Image.Image], policies: Sequence[ShownPolicy]) -> Image.Image:
    """Join the panels in a row, with a legend of the colours below. Sizes are even, as video codecs need."""
    width = sum(panel.width for panel in panels) + GAP * (len(panels) - 1)
    height = panels[0].height + LEGEND
    image = Image.new("RGB", (width + width % 2, height + height % 2), PAPER)
    left = 0
    for panel in panels:
        image.paste(panel, (left, 0))
        left += panel.width + GAP
    _legend(ImageDraw.Draw(image), panels[0].height + LEGEND // 2, policies)
    return image


def _legend(draw: ImageDraw.ImageDraw, middle: int, policies: Sequence[ShownPolicy]) -> None:
    episodes = [episode for shown in policies for episode in shown.episodes]
    names = ["goal"]
    names += ["direction that the actor sees"] if any(e.directions is not None for e in episodes) else []
    names += ["subgoal that training would command"] if any(e.subgoals is not None for e in episodes) else []
    left, plain = 8, font("DejaVuSans", 12)
    for name in names:
        draw.ellipse((left, middle - 5, left + 10, middle + 5), fill=COLOURS[name.split()[0]])
        draw.text((left + 16, middle), name, INK, plain, anchor="lm")
        left += 16 + round(draw.textlength(name, plain)) + 20


@cache
def font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """Load a font that comes with Matplotlib."""
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf", size)


# Files


def load_av() -> Any:
    try:
        import av
    except ImportError as error:
        raise UserError(NO_AV) from error
    return av


DRAFTS: set[Path] = set()  # that are being written; removed if the process is stopped


def _draft(path: Path) -> Path:
    """Return where a file is written before it is complete."""
    DRAFTS.add(draft := path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}"))
    draft.unlink(missing_ok=True)  # a link of this name in a stranger's folder would lead elsewhere
    return draft


class Mp4Writer:
    """Write H.264 in yuv420p if FFmpeg can, which every browser and player opens."""

    def __init__(self, path: Path):
        self._av = load_av()
        self.path, self.draft = path, _draft(path)
        self._container = self._av.open(str(self.draft), "w", options={"movflags": "faststart"})
        self._stream: Any = None  # av.VideoStream, once the size is known from the first frame

    def write(self, frame: Frame) -> None:
        if self._stream is None:
            codec = next(name for name in CODECS if name in self._av.codecs_available)
            self._stream = self._container.add_stream(codec, rate=FPS)
            self._stream.height, self._stream.width = frame.image.shape[:2]
            self._stream.pix_fmt = "yuv420p"
            options = {"crf": "20", "preset": "veryfast"} if codec == "libx264" else {"b": "2500000"}
            self._stream.options = options
        image = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(frame.image), format="rgb24")
        for _ in range(1 if frame.seconds is None else round(frame.seconds * FPS)):
            image.pts = None
            self._container.mux(self._stream.encode(image))

    def close(self) -> None:
        self._container.mux(self._stream.encode(None))
        self._container.close()


class GifWriter:
    """Write a GIF with fewer, smaller frames and one palette for all, so that what does not move costs nothing."""

    def __init__(self, path: Path, num_frames: int):
        self.path, self.draft = path, _draft(path)
        self._every = max(1, -(-num_frames // GIF_FRAMES))
        self._seen, self._images, self._durations = 0, [], []

    def write(self, frame: Frame) -> None:
        self._seen += 1
        if frame.seconds is None and (self._seen - 1) % self._every:
            return
        image = Image.fromarray(frame.image)
        if image.width > GIF_WIDTH:
            image = image.resize((GIF_WIDTH, round(image.height * GIF_WIDTH / image.width)), Image.Resampling.LANCZOS)
        self._images.append(image)
        self._durations.append(round(1000 * (self._every / FPS if frame.seconds is None else frame.seconds)))

    def close(self) -> None:
        palette = _palette(self._images)
        images = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in self._images]
        options = {"append_images": images[1:], "duration": self._durations, "loop": 0, "optimize": False}
        images[0].save(self.draft, save_all=True, **options)


def _palette(images: list[Image.Image]) -> Image.Image:
    """Choose colours from a few frames, and always those with a meaning, even if they cover little."""
    some = images[:: max(1, len(images) // 4)][:5]
    column = Image.new("RGB", (some[0].width, sum(image.height for image in some)))
    for number, image in enumerate(some):
        column.paste(image, (0, number * image.height))
    kept = [ImageColor.getrgb(colour)[:3] for colour in (*COLOURS.values(), BLUE, ORANGE, INK, PAPER)]
    common = column.quantize(GIF_COLOURS - len(kept), Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).getpalette()
    colours = np.concatenate([np.array(kept).ravel(), np.array(common or [])])[: 3 * GIF_COLOURS]
    palette = Image.new("P", (1, 1))
    palette.putpalette(colours.astype(np.uint8).tobytes())
    return palette


@contextmanager
def writing(writers: Sequence[Mp4Writer | GifWriter]) -> Iterator[Callable[[Frame], None]]:
    """Write all files together, so that each frame is drawn only once. After an error none of them is left behind."""

    def write(frame: Frame) -> None:
        for writer in writers:
            writer.write(frame)

    try:
        yield write
        for writer in writers:
            writer.close()
            os.replace(writer.draft, writer.path)
    finally:
        for writer in writers:
            writer.draft.unlink(missing_ok=True)
            DRAFTS.discard(writer.draft)


@dataclass(frozen=True)
class Look:
    camera: Camera = "fixed"
    width: int = WIDTH
    height: int = HEIGHT
    stride: int | None = None

    def stride_for(self, env: Environment) -> int:
        return self.stride or (STRIDE_POINT if env.spec.physics == "none" else STRIDE_BODIES)


def write_files(
    env: Environment,
    policies: Sequence[ShownPolicy],
    folder: Path,
    name: str,
    formats: Sequence[Format],
    look: Look,
    on_frame: OnFrame = lambda done, total: None,
) -> tuple[list[Path], list[str]]:
    """Return the files, and a sentence for each that failed. `on_frame` gets the number of frames done and in all."""
    stride, problems = look.stride_for(env), []
    written: list[Path] = []
    if "html" in formats:
        written.append(save_page(folder / f"{name}.html", env, policies, stride))
    moving: list[Format] = [kind for kind in formats if kind != "html"]
    if "mp4" in moving:
        try:
            load_av()
        except UserError:
            problems.append(NO_AV)
            moving.remove("mp4")
    if moving:
        try:
            drawing = make_drawing(env, look.width, look.height, look.camera)
            written += draw_files(policies, drawing, folder / name, moving, stride, on_frame)
        except UserError as error:  # no renderer: the page needs none
            problems.append(str(error))
    return sorted(written), problems


def draw_files(
    policies: Sequence[ShownPolicy],
    drawing: Drawing,
    stem: Path,
    formats: Sequence[Format],
    stride: int = STRIDE_POINT,
    on_frame: OnFrame = lambda done, total: None,
) -> list[Path]:
    """Write <stem>.mp4 and <stem>.gif, as far as they are among the formats, and close the drawing."""
    total = count_frames(policies, stride)
    try:
        writers: list[Mp4Writer | GifWriter] = []
        if "mp4" in formats:
            writers.append(Mp4Writer(stem.with_name(f"{stem.name}.mp4")))
        if "gif" in formats:
            writers.append(GifWriter(stem.with_name(f"{stem.name}.gif"), total))
        with writing(writers) as write:
            for done, frame in enumerate(frames(policies, drawing, stride), 1):
                write(frame)
                on_frame(done, total)
    finally:
        drawing.close()
    return [writer.path for writer in writers]


# The page


def save_page(path: Path, env: Environment, policies: Sequence[ShownPolicy], stride: int) -> Path:
    write_whole(path, page(page_data(env, policies, stride)).encode())
    return path


def page(data: dict[str, Any]) -> str:
    return whole_page("viewer", data, title=data["title"], style=theme() + asset("viewer/style.css"))


def page_data(env: Environment, policies: Sequence[ShownPolicy], stride: int) -> dict[str, Any]:
    """Return the page's data, ready for JSON."""
    spec, bodies = env.spec, {"body": BLUE, "pushed": ORANGE}
    if spec.physics == "none":
        assert spec.maze is not None
        things = [{"shape": t.shape, "size": t.size, "acts": t.acts} for t in things_of(env)]
        scene, kind = None, {"kind": "maze", "plane": maze_plane(spec.maze), "things": things}
    else:
        from dcp.lab.render.body_pictures import PageScene

        scene = PageScene(env)
        kind = {"kind": "bodies", "scene": scene.description()}
    return {
        "title": f"{spec.name}: {', '.join(shown.title for shown in policies)}",
        "threshold": spec.threshold,
        "stride": stride,
        "steps_per_second": FPS * stride,
        "colours": {**COLOURS, "wall": WALL, "free": FREE, **bodies, "floor": FLOOR, "tile": FLOOR_TILE},
        "tints": list(TINTS),
        **kind,
        "policies": [
            {"title": s.title, "rate": s.rate, "episodes": [packed_episode(e, stride, scene) for e in s.episodes]}
            for s in policies
        ],
    }


def maze_plane(maze: MazeLayout) -> dict[str, Any]:
    """Describe the view of a maze: up to the inner edge of its outer walls."""
    near, far = 0.5 - BORDER, 1.5 - BORDER
    high = [(n - far) * maze.scale for n in maze.walls.shape]
    rows = ["".join("#" if cell == "#" else "." for cell in row) for row in maze.rows]
    return {"low": [near * maze.scale] * 2, "high": high, "maze": {"rows": rows, "scale": maze.scale}}


def packed_episode(episode: Episode, stride: int, scene: Any) -> dict[str, Any]:
    """Pack every `stride`-th step and the last. That is enough for subgoals too, because they change rarely.

    Poses are those of every body of the scene; in a plane, where each thing is, [K, things, 2].
    """
    steps = [*range(0, episode.last, stride), episode.last]

    def packed(values: np.ndarray | None) -> dict[str, Any] | None:
        return None if values is None else pack(values[steps])

    poses = None
    if episode.q is not None:
        q = episode.q[steps]
        poses = pack(q.reshape(len(steps), -1, 2) if scene is None else scene.poses(q))
    return {
        "steps": steps,
        "goal": np.asarray(episode.goal, np.float64).tolist(),
        "reached": episode.reached,
        "achieved": packed(episode.achieved),
        "directions": packed(episode.directions),
        "subgoals": packed(episode.subgoals),
        "poses": poses,
    }
