"""The page: what is inside is the episode, it needs no network, and a browser shows it."""

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from PIL import Image, ImageColor

from dcp.envs.registry import make_env
from dcp.lab.episodes import Episode, ShownPolicy
from dcp.lab.pages import LEVELS, pack
from dcp.lab.render.body_pictures import PageScene
from dcp.lab.render.video import page, page_data, save_page
from dcp.lab.style import GOAL_COLOUR, WALL
from tests.lab.render.conftest import YAW, ant_pose, ant_walk, point_walk
from tests.support.browser import Browser

POINT, ANT = make_env("point_u_maze"), make_env("ant_u_maze")
GUIDED = point_walk(steps=9, directions=np.tile([0.6, 0.8], (10, 1)), subgoals=np.tile([1.0, 2.0], (10, 1)))


def inside(html: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def unpack(packed: dict[str, Any]) -> np.ndarray:
    """What the page reads."""
    low, high = np.array(packed["low"]), np.array(packed["high"])
    levels = np.frombuffer(base64.b64decode(packed["data"]), "<u2").reshape(packed["shape"])
    return low + levels / LEVELS * (high - low)


def test_packed_numbers_come_back_within_half_a_level():
    values = np.random.default_rng(0).normal(size=(50, 3, 2)) * [1.0, 100.0]
    there = unpack(pack(values))
    assert there.shape == values.shape
    error, span = np.abs(there - values).reshape(-1, 2).max(axis=0), np.ptp(values.reshape(-1, 2), axis=0)
    assert (error <= span / 131070 * 1.001).all()
    np.testing.assert_array_equal(unpack(pack(np.full((4, 2), 7.5))), np.full((4, 2), 7.5))  # nothing moves


def test_the_page_holds_the_episodes_as_they_were_played(tmp_path):
    subjects = [ShownPolicy("dcp", 3_000_000, [GUIDED]), ShownPolicy("crl", None, [point_walk(steps=20, reached=5)])]
    data = inside(save_page(tmp_path / "a.html", POINT, subjects, stride=2).read_text())
    assert data["kind"] == "maze" and data["plane"]["maze"]["rows"] == ["#####", "#...#", "###.#", "#...#", "#####"]
    assert (data["threshold"], data["colours"]["goal"]) == (0.125, GOAL_COLOUR)
    assert [policy["title"] for policy in data["policies"]] == ["dcp, 3M steps", "crl"]
    first, second = (policy["episodes"][0] for policy in data["policies"])
    assert first["steps"] == [0, 2, 4, 6, 8, 9] and first["reached"] is None and second["reached"] == 5
    assert first["goal"] == [3.0, 3.0] and second["steps"][-1] == 20
    for name in ("achieved", "directions", "subgoals"):
        np.testing.assert_allclose(unpack(first[name]), getattr(GUIDED, name)[first["steps"]], atol=2e-5)
    assert second["directions"] is second["subgoals"] is second["poses"] is None


def test_the_page_has_what_is_pushed_and_where_it_is():
    env = make_env("point_soccer")
    q = np.linspace([3.0, 3.0, 2.0, 2.0], [4.0, 3.0, 3.0, 2.0], 5)  # the ball, then the point
    data = page_data(env, [ShownPolicy("dcp", None, [Episode(q[:, :2], np.array([4.0, 4.0]), q, None)])], stride=2)
    assert data["kind"] == "maze"
    assert [(thing["shape"], thing["acts"]) for thing in data["things"]] == [("disc", False), ("disc", True)]
    places = unpack(data["policies"][0]["episodes"][0]["poses"])  # [steps, things, 2]
    np.testing.assert_allclose(places, q[::2].reshape(3, 2, 2), atol=1e-4)
    assert page_data(POINT, [ShownPolicy("dcp", None, [GUIDED])], stride=1)["things"] == []


def test_the_page_of_bodies_places_every_geom_where_mujoco_does():
    episode = ant_walk(steps=4)
    data = page_data(ANT, [ShownPolicy("dcp", None, [episode])], stride=1)
    poses = unpack(data["policies"][0]["episodes"][0]["poses"])  # [5, bodies, 7]
    geoms = data["scene"]["geoms"]
    assert {geom["type"] for geom in geoms} == {"sphere", "capsule", "box"}
    assert sum(geom["body"] < 0 for geom in geoms) == int(ANT.spec.maze.walls.sum())
    model = ANT.model().compile()
    state = mujoco.MjData(model)
    state.qpos[:] = episode.q[3]
    mujoco.mj_kinematics(model, state)
    wanted = {name: state.geom(name).xpos for name in ("torso_geom", "shin_1", "foot_4")}
    moving = [geom for geom in geoms if geom["body"] >= 0]
    places = np.array([place(geom, poses[3]) for geom in moving])
    for name, xpos in wanted.items():
        assert np.linalg.norm(places - xpos, axis=1).min() < 1e-3, name
    assert data["scene"]["tracked"] == 0  # the torso, which moves freely


def place(geom: dict, poses: np.ndarray) -> np.ndarray:
    """As the page does: the body's place, and the geom's in it, turned by the body's quaternion."""
    pose, turned = poses[geom["body"]], np.zeros(3)
    mujoco.mju_rotVecQuat(turned, np.array(geom["pos"]), pose[3:] / np.linalg.norm(pose[3:]))
    return pose[:3] + turned


def test_quaternions_never_jump_to_their_negative():
    turns = [(1.0, 0.0, 0.0, 0.0), YAW, tuple(-x for x in YAW), YAW]
    poses = PageScene(ANT).poses(np.stack([ant_pose(4.0, 4.0, turn) for turn in turns]))
    assert (np.sum(poses[1:, :, 3:] * poses[:-1, :, 3:], axis=-1) > 0.0).all()


def test_the_page_needs_no_network_and_no_other_file():
    html = page(page_data(ANT, [ShownPolicy("dcp", None, [ant_walk()])], 1))
    assert not re.search(r"https?://|src=|@import|url\(|fetch\(|import\(", html)
    assert "{{" not in html
    assert len(html) < 80_000


def test_a_title_cannot_end_the_script():
    html = page(page_data(POINT, [ShownPolicy("</script><b>x", None, [point_walk(steps=2)])], 1))
    assert inside(html)["policies"][0]["title"] == "</script><b>x"
    assert html.count("</script>") == 2


CHROMIUM = [
    *("chromium", "--headless", "--no-sandbox", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--use-angle=swiftshader"),
    *("--enable-unsafe-swiftshader", "--window-size=1000,700", "--enable-logging=stderr"),
]
in_a_browser = pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")


def browse(tmp_path: Path, page_file: Path, place: str, *flags: str) -> str:
    """-> what it printed. Neither an error nor a warning may come from the page."""
    command = [*CHROMIUM, f"--user-data-dir={tmp_path / 'profile'}", *flags, f"{page_file.as_uri()}{place}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in result.stderr, result.stderr
    return result.stdout


@pytest.mark.slow
@in_a_browser
@pytest.mark.parametrize("env, episode", [(POINT, GUIDED), (ANT, ant_walk(steps=20))])
def test_a_browser_draws_goal_and_walls(env, episode, tmp_path):
    page_file = save_page(tmp_path / "a.html", env, [ShownPolicy("dcp", None, [episode])] * 2, 1)
    browse(tmp_path, page_file, "#step=4", "--virtual-time-budget=2000", f"--screenshot={tmp_path / 'a.png'}")
    image = np.asarray(Image.open(tmp_path / "a.png").convert("RGB"), float)[60:500]
    for colour in (GOAL_COLOUR, WALL):
        off = np.abs(image - ImageColor.getrgb(colour)).max(axis=-1)
        for half in (off[:, :500], off[:, 500:]):
            assert (half < 45).sum() > 60, colour


@pytest.mark.slow
@in_a_browser
def test_a_page_plays_by_itself_to_the_end(tmp_path):
    """Nine steps at 30 a second; one that reached says so in its label, with its distance at the end."""
    episode = point_walk(steps=9, reached=7)
    page_file = save_page(tmp_path / "a.html", POINT, [ShownPolicy("dcp", 2000, [episode])], 1)
    browser = Browser()
    try:
        browser.call("Page.navigate", url=page_file.as_uri())
        browser.wait("document.getElementById('time')?.textContent === 'step 9 of 9'")
        shown = browser.run("document.body.innerHTML")
    finally:
        browser.close()
    assert "dcp, 2k steps" in shown and "reached at step 7" in shown
    assert f"distance {episode.distance[-1]:.2f}" in shown
