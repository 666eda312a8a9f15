import mujoco
import pytest

from dcp.errors import UserError
from dcp.lab import offscreen

BALL = mujoco.MjModel.from_xml_string(offscreen.SCENE)


@pytest.fixture(autouse=True)
def forgotten():
    offscreen._working_backend.cache_clear()
    yield
    offscreen._working_backend.cache_clear()


def test_a_backend_that_fails_is_reported_and_the_next_one_draws(renderer, monkeypatch):
    monkeypatch.setattr(offscreen, "BACKENDS", dict.fromkeys(offscreen.BACKENDS, ("abacus", renderer)))
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    found = offscreen.find_backend()
    assert found[0] == renderer
    assert len(found[1]) == 1 and found[1][0].startswith("abacus fails (")
    monkeypatch.setattr(offscreen, "find_backend", lambda: found)
    with offscreen.make_renderer(BALL, 8, 8) as drawn:  # in this process, where MuJoCo was imported without MUJOCO_GL
        data = mujoco.MjData(BALL)
        mujoco.mj_forward(BALL, data)
        drawn.update_scene(data, camera=0)
        red, green, blue = (int(value) for value in drawn.render()[4, 4])
    assert red > 2 * max(green, blue)


def test_where_nothing_draws_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.delenv("PYOPENGL_PLATFORM", raising=False)
    monkeypatch.setattr(offscreen.platform, "system", lambda: "Linux")
    monkeypatch.setattr(offscreen, "find_backend", lambda: (None, ["egl fails (no display)"]))
    with pytest.raises(UserError, match=r"egl fails \(no display\).*libegl1.*libosmesa6"):
        offscreen.make_renderer(BALL, 8, 8)


def test_mujoco_gl_is_obeyed_and_blamed(monkeypatch):
    def refuse(*_):
        raise RuntimeError("no such library")

    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    monkeypatch.setattr(offscreen, "find_backend", lambda: pytest.fail("asked for another"))
    monkeypatch.setattr(mujoco, "Renderer", refuse)
    with pytest.raises(UserError, match=r"MUJOCO_GL is 'osmesa'.*no such library.*unset it"):
        offscreen.make_renderer(BALL, 8, 8)


def test_a_backend_that_does_not_exist_is_reported_before_any_work(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "abacus")
    with pytest.raises(UserError, match="MUJOCO_GL is 'abacus': unset it, or choose one of egl, osmesa"):
        offscreen.require_renderer()
