"""A Brax system as the numbers that a spring frame needs, by link."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import numpy as np

from dcp.physics.joints import Joints, joints_of

if TYPE_CHECKING:
    from brax.base import System


@dataclass(frozen=True)
class SpringModel:
    timestep: float
    gravity: np.ndarray  # [3]
    keep_vel: float  # share of the velocity that damping leaves after a frame
    keep_ang: float
    erp_rate: float  # share of a penetration that a contact takes back in a second
    mass: np.ndarray  # [L, 1]
    contact_inertia: np.ndarray  # [L, 1]
    centre: np.ndarray  # [L, 3]: centre of mass in the link's frame
    joint: np.ndarray  # [L, 3]: joint in the link's frame
    anchor: np.ndarray  # [L, 3]: joint in the parent's frame
    anchor_rot: np.ndarray  # [L, 4]
    parents: np.ndarray  # [L]: -1 for the world
    groups: list[Joints]

    @property
    def jointed(self) -> np.ndarray:
        """[J]: the links that have a joint, in the order of the groups"""
        return np.concatenate([group.links for group in self.groups])


def spring_model(sys: "System") -> SpringModel:
    if sys.enable_fluid or sys.spring_inertia_scale != 1.0:
        raise ValueError("the spring engine has no fluid, and every link's inertia of rotation is 1")
    if np.any(sys.actuator.bias_q) or np.any(sys.actuator.bias_qd):
        raise ValueError("the spring engine takes motors only: others read joint coordinates at every frame")
    with jax.ensure_compile_time_eval():
        anchor = sys.link.transform.vmap().do(sys.link.joint)
        groups = joints_of(sys)
    size, dt = sys.num_links(), float(sys.opt.timestep)
    mass = np.asarray(sys.link.inertia.mass) ** (1.0 - float(sys.spring_mass_scale))
    # Brax's contact solver reads a single number of inverse inertia for a link: entry `link` of all inverse matrices
    # laid end to end, here unit matrices. An oversight, surely; the paper's physics all the same.
    inertia = np.tile(np.eye(3, dtype=np.float32).ravel(), size)[:size, None]
    return SpringModel(
        timestep=dt,
        gravity=np.asarray(sys.gravity, np.float32),
        keep_vel=float(np.exp(sys.vel_damping * dt)),
        keep_ang=float(np.exp(sys.ang_damping * dt)),
        erp_rate=float(sys.baumgarte_erp) / dt,
        mass=mass[:, None].astype(np.float32),
        contact_inertia=inertia,
        centre=np.asarray(sys.link.inertia.transform.pos),
        joint=np.asarray(sys.link.joint.pos),
        anchor=np.asarray(anchor.pos),
        anchor_rot=np.asarray(anchor.rot),
        parents=np.asarray(sys.link_parents),
        groups=groups,
    )
