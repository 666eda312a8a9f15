"""Frames into files: MP4 by PyAV, GIF by Pillow. A file appears under its name when it is whole."""

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from PIL import Image, ImageColor

from dcp.analysis.style import BLUE, INK, ORANGE
from dcp.errors import UserError
from dcp.render.frames import PAPER, Frame
from dcp.render.moment import COLOURS

FPS = 30
CODECS = ("libx264", "libopenh264", "mpeg4")  # the first that this build of FFmpeg has
GIF_FRAMES, GIF_WIDTH, GIF_COLOURS = 150, 720, 96
NO_AV = "MP4 files need PyAV: pip install 'dcp[video]' (GIF and HTML go without)"


class Writer(Protocol):
    path: Path

    def write(self, frame: Frame) -> None: ...

    def close(self, whole: bool) -> None: ...


def load_av() -> Any:
    try:
        import av
    except ImportError as error:
        raise UserError(NO_AV) from error
    return av


class _Draft:
    """A file that has its name only once it is whole."""

    def __init__(self, path: Path):
        self.path, self.draft = path, path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")

    def close(self, whole: bool) -> None:
        if whole:
            os.replace(self.draft, self.path)
        self.draft.unlink(missing_ok=True)


class Mp4Writer:
    """H.264 in yuv420p where FFmpeg can, which every browser and player opens."""

    def __init__(self, path: Path, fps: int = FPS):
        self._av = load_av()
        self.path, self._file, self._fps = path, _Draft(path), fps
        self._container = self._av.open(str(self._file.draft), "w", options={"movflags": "faststart"})
        self._stream: Any = None  # av.VideoStream, once the first frame tells its size

    def _open(self, image: np.ndarray) -> Any:
        codec = next(name for name in CODECS if name in self._av.codecs_available)
        stream = self._container.add_stream(codec, rate=self._fps)
        stream.height, stream.width = image.shape[:2]
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": "20", "preset": "veryfast"} if codec == "libx264" else {"b": "2500000"}
        return stream

    def write(self, frame: Frame) -> None:
        if self._stream is None:
            self._stream = self._open(frame.image)
        image = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(frame.image), format="rgb24")
        for _ in range(1 if frame.seconds is None else round(frame.seconds * self._fps)):
            image.pts = None
            self._container.mux(self._stream.encode(image))

    def close(self, whole: bool) -> None:
        if whole and self._stream is not None:
            self._container.mux(self._stream.encode(None))
        self._container.close()
        self._file.close(whole and self._stream is not None)


class GifWriter:
    """Thinned out, reduced, and in one palette for all frames, so that what stands still costs nothing."""

    def __init__(self, path: Path, num_frames: int, fps: int = FPS):
        self.path, self._file = path, _Draft(path)
        self._every = max(1, -(-num_frames // GIF_FRAMES))
        self._milliseconds = 1000 * self._every / fps
        self._seen, self._images, self._durations = 0, [], []

    def write(self, frame: Frame) -> None:
        self._seen += 1
        if frame.seconds is None and (self._seen - 1) % self._every:
            return
        image = Image.fromarray(frame.image)
        if image.width > GIF_WIDTH:
            image = image.resize((GIF_WIDTH, round(image.height * GIF_WIDTH / image.width)), Image.Resampling.LANCZOS)
        self._images.append(image)
        self._durations.append(round(self._milliseconds if frame.seconds is None else 1000 * frame.seconds))

    def close(self, whole: bool) -> None:
        if whole and self._images:
            palette = _palette(self._images)
            images = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in self._images]
            images[0].save(
                self._file.draft,
                save_all=True,
                append_images=images[1:],
                duration=self._durations,
                loop=0,
                optimize=False,
            )
        self._file.close(whole and bool(self._images))


def _palette(images: list[Image.Image]) -> Image.Image:
    """Of a few frames; and the colours that mean something, however small their share."""
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


class Writers:
    """All files at once: each frame is drawn a single time. After an error none of them is left behind."""

    def __init__(self, writers: list[Writer]):
        self.writers = writers

    def write(self, frame: Frame) -> None:
        for writer in self.writers:
            writer.write(frame)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self.writers:
            writer.close(whole=kind is None)
