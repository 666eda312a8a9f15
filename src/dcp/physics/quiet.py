"""Imports MJX without its remarks: it prints to stdout that an optional backend of its own is missing."""

import contextlib
import io

with contextlib.redirect_stdout(io.StringIO()):
    import mujoco.mjx  # noqa: F401
