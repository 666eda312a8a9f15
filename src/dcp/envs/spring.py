"""The spring engine for a task's model."""

import mujoco
import numpy as np

from dcp.physics import models
from dcp.physics.engine import Engine
from dcp.types import MazeLayout


def spring_engine(spec: mujoco.MjSpec, timestep: float, frames: int, layout: MazeLayout | None = None) -> Engine:
    from dcp.physics.contacts import ContactFinder
    from dcp.physics.spring import SpringEngine

    sys = models.system(spec, timestep)
    return SpringEngine(sys, frames, ContactFinder(sys.mj_model, np.asarray(sys.elasticity), layout))
