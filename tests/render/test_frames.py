import numpy as np
from PIL import Image, ImageColor

from dcp.analysis.style import BLUE, WALL
from dcp.envs.registry import make_env
from dcp.render.frames import GAP, HOLD_SECONDS, LEGEND, STATUS, TITLE, Subject, count_frames, frames, status, steadied
from dcp.render.picture import make_drawing
from tests.render.conftest import ant_walk, point_walk

WIDTH = HEIGHT = 140
FAST, SLOW = point_walk(steps=4, reached=2), point_walk(steps=10)
PAIR = [Subject("dcp", 3_000_000, [FAST]), Subject("crl", 2_500_000, [SLOW])]


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
    twice = [Subject("dcp", None, [FAST, SLOW])]
    shown = drawn(twice, stride=4)
    assert [frame.seconds for frame in shown] == [None, HOLD_SECONDS, None, None, None, HOLD_SECONDS]


def test_sizes_are_even():
    shown = list(frames([PAIR[0]], make_drawing(make_env("point_u_maze"), 141, 141), 2))
    assert [side % 2 for side in shown[0].image.shape[:2]] == [0, 0]


def test_titles_and_status_say_who_and_how():
    assert PAIR[0].title == "dcp, 3M steps"
    assert Subject("mine", None, []).title == "mine"
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


def test_a_policy_that_reached_stands_still_shortly_after_while_the_other_goes_on():
    early, late = point_walk(steps=60, reached=5), point_walk(steps=60)
    shown = drawn([Subject("dcp", None, [early]), Subject("crl", None, [late])], stride=20)  # 0, 20, 40, 60
    np.testing.assert_array_equal(shown[2].image[:, :WIDTH], shown[3].image[:, :WIDTH])
    blue = [(frame.image[:, :WIDTH] == ImageColor.getrgb(BLUE)).all(axis=-1) for frame in shown]
    at = [np.argwhere(spot)[:, 1].mean() for spot in blue]
    per_step = (at[1] - at[0]) / 20
    np.testing.assert_allclose(at[3] - at[0], early.last * per_step, atol=1.5)  # step 35, and not 60
