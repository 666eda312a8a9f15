import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image, ImageColor

from dcp.analysis.style import GOAL_COLOUR
from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.render.frames import Frame, Subject
from dcp.render.show import Look, write_files
from dcp.render.video import FPS, GIF_FRAMES, GifWriter, Mp4Writer, Writers
from tests.render.conftest import ant_walk, point_walk

av = pytest.importorskip("av", reason="MP4 files need dcp[video]")


def shades(count: int, shape=(48, 64)) -> list[Frame]:
    """Grey that grows lighter; a small spot in the goal's colour."""
    found = []
    for k in range(count):
        image = np.full((*shape, 3), 10 + 200 * k // count, np.uint8)
        image[2:6, 2:6] = ImageColor.getrgb(GOAL_COLOUR)
        found.append(Frame(image))
    return found


def write(writer, shown):
    with Writers([writer]) as files:
        for frame in shown:
            files.write(frame)
    return writer.path


def test_a_video_opens_with_a_standard_decoder_and_has_every_frame(tmp_path):
    shown = shades(20)
    path = write(Mp4Writer(tmp_path / "a.mp4"), [*shown[:-1], shown[-1]._replace(seconds=0.5)])
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        images = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
        assert (stream.width, stream.height, stream.average_rate) == (64, 48, FPS)
        assert stream.codec_context.pix_fmt == "yuv420p"
        assert stream.codec_context.name in ("h264", "mpeg4")
    assert len(images) == 19 + FPS // 2
    for k in (0, 10, 19):
        np.testing.assert_allclose(images[k][20:, 20:].mean(), shown[k].image[20, 20, 0], atol=4)


@pytest.mark.skipif(shutil.which("ffprobe") is None, reason="ffprobe is not installed")
def test_ffprobe_reads_it_too(tmp_path):
    path = write(Mp4Writer(tmp_path / "a.mp4"), shades(5))
    command = ["ffprobe", "-v", "error", "-count_frames", "-show_entries", "stream=nb_read_frames,width,height"]
    said = subprocess.run([*command, "-of", "csv=p=0", str(path)], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "64,48,5" and not said.stderr


def test_a_gif_is_thinned_out_and_keeps_the_goal_s_colour(tmp_path):
    shown = []
    for k in range(2 * GIF_FRAMES):  # a bar moves to the right: no two frames are alike
        image = np.full((48, 2 * GIF_FRAMES, 3), 200, np.uint8)
        image[2:6, 2:6] = ImageColor.getrgb(GOAL_COLOUR)
        image[10:, : k + 1] = 90
        shown.append(Frame(image))
    shown[-1] = shown[-1]._replace(seconds=1.0)
    path = write(GifWriter(tmp_path / "a.gif", len(shown)), shown)
    with Image.open(path) as image:
        assert image.n_frames == GIF_FRAMES + 1  # every second, and the last
        assert image.size == (2 * GIF_FRAMES, 48)
        durations = []
        for k in range(image.n_frames):
            image.seek(k)
            durations.append(image.info["duration"])
            assert image.convert("RGB").getpixel((3, 3)) == ImageColor.getrgb(GOAL_COLOUR)
    assert durations[-1] == 1000 and set(durations[:-1]) == {60}  # GIF counts in hundredths of a second


def test_after_an_error_no_half_file_is_left(tmp_path):
    files = Writers([Mp4Writer(tmp_path / "a.mp4"), GifWriter(tmp_path / "a.gif", 2)])
    with pytest.raises(KeyboardInterrupt), files:
        files.write(shades(1)[0])
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_without_pyav_the_other_files_are_written_and_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    subjects = [Subject("dcp", None, [point_walk(steps=4)])]
    look = Look(width=64, height=64)
    written, problems = write_files(make_env("point_u_maze"), subjects, tmp_path, "a", ("mp4", "gif", "html"), look)
    assert [path.name for path in written] == ["a.gif", "a.html"]
    assert len(problems) == 1 and "pip install 'dcp[video]'" in problems[0]
    with pytest.raises(UserError, match=r"dcp\[video\]"):
        Mp4Writer(tmp_path / "b.mp4")


def test_without_a_renderer_the_page_is_written_all_the_same(tmp_path, monkeypatch):
    def nothing(*_):
        raise UserError("no off-screen renderer works: apt install libegl1")

    monkeypatch.setattr("dcp.render.bodies.make_renderer", nothing)
    subjects = [Subject("dcp", None, [ant_walk()])]
    written, problems = write_files(make_env("ant_u_maze"), subjects, tmp_path, "a", ("mp4", "gif", "html"), Look())
    assert [path.name for path in written] == ["a.html"]
    assert problems == ["no off-screen renderer works: apt install libegl1"]
