"""Our models as Brax loads them, to compare with its own physics."""

import copy
import warnings
from typing import Any

import mujoco


def brax_system(model: mujoco.MjModel) -> Any:
    """Return a `brax.base.System`. The model stays as it is."""
    from brax.io import mjcf

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Brax warns at each load that MJX is its successor
        return mjcf.load_model(copy.copy(model))
