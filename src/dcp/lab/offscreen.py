"""Find the OpenGL backend that MuJoCo can draw with off-screen, by trying each: an installed library may still fail."""

import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dcp.errors import UserError

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


class ProbeError(Exception):
    """Report that a child process failed; the message says why in one line."""


def first_line(error: Exception) -> str:
    """Return an exception as one line; for our own, only the message."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return text if text and type(error).__module__.startswith("dcp.") else f"{type(error).__name__}: {text}"


# The last line is the function's result or its failure: packages print other lines before it.
_CHILD = """
import importlib, json, sys
from dcp.lab.offscreen import first_line
try:
    answer = {"result": getattr(importlib.import_module(sys.argv[1]), sys.argv[2])(*sys.argv[3:])}
except Exception as error:
    answer = {"error": first_line(error)}
print("\\n" + json.dumps(answer))
"""


def in_a_process(function: Callable[..., Any], *args: str, timeout: float, env: dict[str, str] | None = None) -> Any:
    """Call the function in its own Python process, because native code may crash or hang. The result passes as JSON."""
    command = [sys.executable, "-P", "-c", _CHILD, function.__module__, function.__name__, *args]
    streams: dict[str, Any] = {"capture_output": True, "stdin": subprocess.DEVNULL, "text": True, "errors": "replace"}
    try:
        child = subprocess.run(command, env={**os.environ, **(env or {})}, timeout=timeout, **streams)
    except subprocess.TimeoutExpired:
        raise ProbeError(f"no answer within {timeout:.0f} s") from None
    if child.returncode < 0:
        raise ProbeError(f"the process was ended by {signal.Signals(-child.returncode).name}")
    try:
        answer = json.loads(child.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        lines = [line for line in child.stderr.splitlines() if line.strip()]
        raise ProbeError(lines[-1].strip() if lines else f"the process ended with code {child.returncode}") from None
    if "error" in answer:
        raise ProbeError(answer["error"])
    return answer["result"]


def find_backend() -> tuple[str | None, list[str]]:
    """Return the first backend that draws, and each one before it with its reason. Each is tried in its own process: a
    failed attempt can leave OpenGL's loader unusable."""
    failures: list[str] = []
    for backend in BACKENDS.get(platform.system(), ()):
        try:
            in_a_process(draw, timeout=120, env={"MUJOCO_GL": backend})
        except ProbeError as error:
            failures.append(f"{backend} fails ({error})")
        else:
            return backend, failures
    return None, failures


def draw() -> None:
    """Draw a red ball that fills the picture, and check the middle pixel."""
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
    """Return what to do if no backend works."""
    if chosen := os.environ.get("PYOPENGL_PLATFORM"):
        return f"PYOPENGL_PLATFORM is {chosen!r}: unset it. Debian, Ubuntu: apt install libegl1 libgl1, or libosmesa6"
    if platform.system() == "Linux":
        return "For pictures of simulated bodies: apt install libegl1 libgl1, or libosmesa6 (Debian, Ubuntu)"
    return "For pictures of simulated bodies, log in at the machine's own screen: MuJoCo draws there only."


def require_renderer() -> None:
    """Raise UserError before slow work if there is no renderer. A backend that MUJOCO_GL names is not tried."""
    chosen = os.environ.get("MUJOCO_GL", "").strip().lower()
    if not chosen:
        _working_backend()
    elif chosen not in NAMES:
        raise UserError(f"MUJOCO_GL is {chosen!r}: unset it, or choose one of {', '.join(NAMES)}")


def make_renderer(model: "mujoco.MjModel", height: int, width: int) -> "mujoco.Renderer":
    """Return a renderer with the backend of MUJOCO_GL if that is set, else with the first that works here."""
    import mujoco

    chosen = os.environ.get("MUJOCO_GL", "").strip()
    if not chosen and (backend := _working_backend()) and platform.system() == "Linux":
        renderer = sys.modules[mujoco.Renderer.__module__]  # MuJoCo reads MUJOCO_GL only when it is imported
        renderer.gl_context.GLContext = import_module(f"mujoco.{backend}").GLContext
    try:
        return mujoco.Renderer(model, height, width)
    except Exception as error:  # each backend has its own exceptions
        reason = " ".join(str(error).split())[:200]
        blame = f"MUJOCO_GL is {chosen!r}, which draws nothing here" if chosen else "MuJoCo draws nothing here"
        raise UserError(f"{blame} ({reason}): {'unset it. ' if chosen else ''}{advice()}") from error


@cache
def _working_backend() -> str:
    backend, failures = find_backend()
    if backend is None:
        raise UserError(f"no off-screen renderer works ({'; '.join(failures)}): {advice()}")
    return backend
