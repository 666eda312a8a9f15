"""MuJoCo's off-screen rendering, really tried."""

from collections.abc import Iterator

from dcp.cli.doctor.check import Check
from dcp.render.offscreen import advice, find_backend


def rendering() -> Iterator[Check]:
    """The first backend that works; pictures of simulated bodies need one, training does not."""
    backend, failures = find_backend()
    if backend is None:
        yield Check("rendering", "missing", "; ".join(failures) or "no backend is known here", advice())
    else:
        yield Check("rendering", "ok", "; ".join([f"off-screen with MUJOCO_GL={backend}", *failures]))
