"""MuJoCo's off-screen rendering, really tried: whether a library is there says little about whether it works."""

import os
import platform
from collections.abc import Iterator

from dcp.cli.doctor.check import Check, ProbeError, in_a_process

BACKENDS = {"Linux": ("egl", "osmesa"), "Darwin": ("cgl",), "Windows": ("wgl",)}
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


def rendering() -> Iterator[Check]:
    """The first backend that works; pictures of simulated bodies need one, training does not."""
    failures: list[str] = []
    for backend in BACKENDS.get(platform.system(), ()):
        try:
            in_a_process(draw, timeout=120, env={"MUJOCO_GL": backend})
        except ProbeError as error:
            failures.append(f"{backend} fails ({error})")
        else:
            yield Check("rendering", "ok", "; ".join([f"off-screen with MUJOCO_GL={backend}", *failures]))
            return
    yield Check("rendering", "missing", "; ".join(failures) or "no backend is known here", _advice())


def _advice() -> str:
    if chosen := os.environ.get("PYOPENGL_PLATFORM"):
        return f"PYOPENGL_PLATFORM is {chosen!r}: unset it. Debian, Ubuntu: apt install libegl1 libgl1, or libosmesa6"
    if platform.system() == "Linux":
        return "For pictures of simulated bodies: apt install libegl1 libgl1, or libosmesa6 (Debian, Ubuntu)"
    return "For pictures of simulated bodies, log in at the machine's own screen: MuJoCo draws there only."


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
