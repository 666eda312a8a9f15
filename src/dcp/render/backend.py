"""Which OpenGL MuJoCo draws with, off-screen. Really tried: whether a library is there says little about it."""

import os
import platform
import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from dcp.errors import UserError
from dcp.render.child_process import ProbeError, in_a_process

if TYPE_CHECKING:
    import mujoco

BACKENDS = {"Linux": ("egl", "osmesa"), "Darwin": ("cgl",), "Windows": ("wgl",)}
NAMES = ("egl", "osmesa", "glfw", "cgl", "wgl")
SIDE = 8  # pixels
SCENE = """
<mujoco>
  <worldbody>
    <camera pos="0 0 3"/>
    <light pos="0 0 3"/>
    <geom type="sphere" size="1" rgba="1 0 0 1"/>
  </worldbody>
</mujoco>
"""


class Found(NamedTuple):
    backend: str | None  # the first that draws
    failures: tuple[str, ...]  # of those before it, each with its reason


def find_backend() -> Found:
    """Each is tried in a process of its own: a failed try can leave OpenGL's loader unusable."""
    failures: list[str] = []
    for backend in BACKENDS.get(platform.system(), ()):
        try:
            in_a_process(draw, timeout=120, env={"MUJOCO_GL": backend})
        except ProbeError as error:
            failures.append(f"{backend} fails ({error})")
        else:
            return Found(backend, tuple(failures))
    return Found(None, tuple(failures))


def draw() -> None:
    """A red ball that fills the picture."""
    import mujoco

    model = mujoco.MjModel.from_xml_string(SCENE)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    with mujoco.Renderer(model, SIDE, SIDE) as renderer:
        renderer.update_scene(data, camera=0)
        red, green, blue = (int(value) for value in renderer.render()[SIDE // 2, SIDE // 2])
    if red <= max(green, blue):
        raise ProbeError(f"a red ball came out as {red, green, blue}")


def advice() -> str:
    """What to do where nothing draws."""
    if chosen := os.environ.get("PYOPENGL_PLATFORM"):
        return f"PYOPENGL_PLATFORM is {chosen!r}: unset it. Debian, Ubuntu: apt install libegl1 libgl1, or libosmesa6"
    if platform.system() == "Linux":
        return "For pictures of simulated bodies: apt install libegl1 libgl1, or libosmesa6 (Debian, Ubuntu)"
    return "For pictures of simulated bodies, log in at the machine's own screen: MuJoCo draws there only."


def require_renderer() -> None:
    """Before the work that would be for nothing without one. What MUJOCO_GL names is taken at its word."""
    chosen = os.environ.get("MUJOCO_GL", "").strip().lower()
    if not chosen:
        _working_backend()
    elif chosen not in NAMES:
        raise UserError(f"MUJOCO_GL is {chosen!r}: unset it, or choose one of {', '.join(NAMES)}")


def make_renderer(model: "mujoco.MjModel", height: int, width: int) -> "mujoco.Renderer":
    """With the backend of MUJOCO_GL if that is set, else with the first that works here."""
    import mujoco

    chosen = os.environ.get("MUJOCO_GL", "").strip()
    if not chosen:
        _use(_working_backend())
    try:
        return mujoco.Renderer(model, height, width)
    except Exception as error:  # each backend has exceptions of its own
        reason = " ".join(str(error).split())[:200]
        blame = f"MUJOCO_GL is {chosen!r}, which draws nothing here" if chosen else "MuJoCo draws nothing here"
        raise UserError(f"{blame} ({reason}): {'unset it. ' if chosen else ''}{advice()}") from error


@cache
def _working_backend() -> str:
    found = find_backend()
    if found.backend is None:
        raise UserError(f"no off-screen renderer works ({'; '.join(found.failures)}): {advice()}")
    return found.backend


def _use(backend: str) -> None:
    """MuJoCo reads MUJOCO_GL while it is imported, long before anyone wants a picture: so it is told here."""
    import mujoco

    if platform.system() == "Linux":
        renderer = sys.modules[mujoco.Renderer.__module__]
        renderer.gl_context.GLContext = import_module(f"mujoco.{backend}").GLContext
