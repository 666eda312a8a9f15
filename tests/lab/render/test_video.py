"""Frames with their panels and titles, and the files that they are written to."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from PIL import Image, ImageColor

from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.lab.episodes import ShownPolicy
from dcp.lab.render import make_drawing
from dcp.lab.render.video import (
    FPS,
    GAP,
    GIF_FRAMES,
    HOLD_SECONDS,
    LEGEND,
    STATUS,
    TITLE,
    Frame,
    GifWriter,
    Look,
    Mp4Writer,
    count_frames,
    frames,
    status,
    steadied,
    write_files,
    writing,
)
from dcp.lab.style import BLUE, GOAL_COLOUR, WALL
from tests.lab.render.conftest import ant_walk, point_walk

needs_av = pytest.mark.skipif(find_spec("av") is None, reason="MP4 files need the extra `video`")
WIDTH = HEIGHT = 140
FAST, SLOW = point_walk(steps=4, reached=2), point_walk(steps=10)
PAIR = [ShownPolicy("dcp", 3_000_000, [FAST]), ShownPolicy("crl", 2_500_000, [SLOW])]


def drawn(subjects, stride=2):
    return list(frames(subjects, make_drawing(make_env("point_u_maze"), WIDTH, HEIGHT), stride))


def test_two_policies_stand_side_by_side_until_both_have_ended():
    shown = drawn(PAIR)
    assert len(shown) == count_frames(PAIR, 2) == 6  # steps 0, 2, ..., 10
    assert shown[0].image.shape == (TITLE + HEIGHT + STATUS + LEGEND, 2 * WIDTH + GAP, 3)
    left, right = shown[-1].image[:, :WIDTH], shown[-1].image[:, WIDTH + GAP :]
    np.testing.assert_array_equal(left, shown[2].image[:, :WIDTH])  # the first stands still from step 4 on
    assert not np.array_equal(right, shown[2].image[:, WIDTH + GAP :])
    for half in (left, right):
        assert (half == ImageColor.getrgb(WALL)).all(axis=-1).any()
        assert (half == ImageColor.getrgb(BLUE)).all(axis=-1).any()


def test_each_panel_shows_its_own_policy():
    """At step 2 the fast one has gone half of the row, the slow one a fifth."""
    both = drawn(PAIR)[1].image[TITLE : TITLE + HEIGHT]
    blue = (both == ImageColor.getrgb(BLUE)).all(axis=-1)
    left, right = (np.argwhere(half)[:, 1].mean() for half in (blue[:, :WIDTH], blue[:, WIDTH + GAP :]))
    assert left > right + 10


def test_an_episode_s_last_frame_stands_for_a_while_and_the_next_follows():
    twice = [ShownPolicy("dcp", None, [FAST, SLOW])]
    shown = drawn(twice, stride=4)
    assert [frame.seconds for frame in shown] == [None, HOLD_SECONDS, None, None, None, HOLD_SECONDS]


def test_sizes_are_even():
    shown = list(frames([PAIR[0]], make_drawing(make_env("point_u_maze"), 141, 141), 2))
    assert [side % 2 for side in shown[0].image.shape[:2]] == [0, 0]


def test_titles_and_status_say_who_and_how():
    assert PAIR[0].title == "dcp, 3M steps"
    assert ShownPolicy("mine", None, []).title == "mine"
    assert status(FAST, 1) == "step 1    distance 2.50"
    assert status(FAST, 2) == "step 2    distance 2.24    reached at step 2"
    assert status(SLOW, 9).endswith("distance 2.01")
    assert status(SLOW, 10) == "step 10    distance 2.00    not reached"


def test_the_legend_names_what_is_drawn():
    plain = drawn(PAIR)[0].image[-LEGEND:]
    guided = SLOW._replace(directions=np.tile([0.0, 1.0], (11, 1)), subgoals=np.tile([1.0, 3.0], (11, 1)))
    full = drawn([PAIR[0], PAIR[1]._replace(episodes=[guided])])[0].image[-LEGEND:]
    dark = [int((Image.fromarray(strip).convert("L").point(lambda v: v < 128)).getbbox()[2]) for strip in (plain, full)]
    assert dark[1] > dark[0] + 100


def test_a_tracking_camera_s_path_is_a_moving_average():
    episode = ant_walk(steps=60)
    path = steadied(episode)
    assert path.shape == (61, 2)
    np.testing.assert_allclose(path[30], episode.q[30, :2])  # a straight walk is its own average
    np.testing.assert_allclose(path[0, 1], 4.0 + 0.5 * (12 * 13 / 2) / 25)  # 13 of 25 at the start itself


def test_a_policy_that_reached_stands_still_shortly_after_while_the_other_continues():
    early, late = point_walk(steps=60, reached=5), point_walk(steps=60)
    shown = drawn([ShownPolicy("dcp", None, [early]), ShownPolicy("crl", None, [late])], stride=20)  # 0, 20, 40, 60
    np.testing.assert_array_equal(shown[2].image[:, :WIDTH], shown[3].image[:, :WIDTH])
    blue = [(frame.image[:, :WIDTH] == ImageColor.getrgb(BLUE)).all(axis=-1) for frame in shown]
    at = [np.argwhere(spot)[:, 1].mean() for spot in blue]
    per_step = (at[1] - at[0]) / 20
    np.testing.assert_allclose(at[3] - at[0], early.last * per_step, atol=1.5)  # step 35, and not 60


def test_bodies_are_shown_at_every_second_step_and_points_at_every_one():
    assert [Look().stride_for(make_env(name)) for name in ("ant_u_maze", "point_u_maze")] == [2, 1]
    assert Look(stride=5).stride_for(make_env("ant_u_maze")) == 5


def shades(count: int, shape=(48, 64)) -> list[Frame]:
    """Grey that grows lighter; a small spot in the goal's colour."""
    found = []
    for k in range(count):
        image = np.full((*shape, 3), 10 + 200 * k // count, np.uint8)
        image[2:6, 2:6] = ImageColor.getrgb(GOAL_COLOUR)
        found.append(Frame(image))
    return found


def write(writer, shown):
    with writing([writer]) as write_frame:
        for frame in shown:
            write_frame(frame)
    return writer.path


@pytest.mark.parametrize("ending", ["gif", pytest.param("mp4", marks=needs_av)])
def test_a_link_in_place_of_a_videos_draft_is_not_followed(ending: str, tmp_path):
    (victim := tmp_path / "victim").write_text("mine")
    (tmp_path / f".walk.{os.getpid()}.{ending}").symlink_to(victim)
    path = tmp_path / f"walk.{ending}"
    write(GifWriter(path, 3) if ending == "gif" else Mp4Writer(path), shades(3))
    assert victim.read_text() == "mine" and path.stat().st_size > 100


@needs_av
def test_a_video_opens_with_a_standard_decoder_and_has_every_frame(tmp_path):
    import av

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


@needs_av
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


@needs_av
def test_after_an_error_no_half_file_is_left(tmp_path):
    files = writing([Mp4Writer(tmp_path / "a.mp4"), GifWriter(tmp_path / "a.gif", 2)])
    with pytest.raises(KeyboardInterrupt), files as write_frame:
        write_frame(shades(1)[0])
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_without_pyav_the_other_files_are_written_and_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    subjects = [ShownPolicy("dcp", None, [point_walk(steps=4)])]
    look = Look(width=64, height=64)
    written, problems = write_files(make_env("point_u_maze"), subjects, tmp_path, "a", ("mp4", "gif", "html"), look)
    assert [path.name for path in written] == ["a.gif", "a.html"]
    assert len(problems) == 1 and "pip install '.[video]'" in problems[0]
    with pytest.raises(UserError, match=r"'\.\[video\]'"):
        Mp4Writer(tmp_path / "b.mp4")


def test_without_a_renderer_the_page_is_written_all_the_same(tmp_path, monkeypatch):
    def nothing(*_):
        raise UserError("no off-screen renderer works: apt install libegl1")

    monkeypatch.setattr("dcp.lab.render.body_pictures.make_renderer", nothing)
    subjects = [ShownPolicy("dcp", None, [ant_walk()])]
    written, problems = write_files(make_env("ant_u_maze"), subjects, tmp_path, "a", ("mp4", "gif", "html"), Look())
    assert [path.name for path in written] == ["a.html"]
    assert problems == ["no off-screen renderer works: apt install libegl1"]
