"""Pictures of simulated bodies, by MuJoCo's renderer."""

from typing import Any

import numpy as np

from dcp.render.backend import make_renderer
from dcp.render.cameras import Camera, make_camera, view_of
from dcp.render.model import drawn_model, tile_of
from dcp.render.moment import Moment
from dcp.render.overlays import add_overlays


class BodyPicture:
    """A camera before one task. Brax's q is MuJoCo's qpos: the models are one, joints and quaternions in one order."""

    def __init__(self, env: Any, width: int, height: int, camera: Camera = "fixed"):
        import mujoco

        self.spec, self.aspect = env.spec, width / height
        self.camera: Camera = camera
        own = env.model()
        self.view = view_of(env.spec, own)
        self.model = drawn_model(own, self.view, tile_of(env.spec), width, height)
        self.data = mujoco.MjData(self.model)
        self.renderer = make_renderer(self.model, height, width)

    def draw(self, moment: Moment) -> np.ndarray:
        """-> uint8 [H, W, 3]"""
        self.pose(moment)
        watched = moment.watched if moment.watched is not None else self.body(moment)
        self.renderer.update_scene(self.data, make_camera(self.view, self.camera, self.aspect, watched))
        add_overlays(self.renderer.scene, moment, self.spec.threshold, self.view)
        return self.renderer.render()

    def pose(self, moment: Moment) -> None:
        import mujoco

        self.data.qpos[:] = moment.q
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)

    def body(self, moment: Moment) -> np.ndarray:
        """[3]: the body that moves freely, or where there is none what achieves the goal"""
        import mujoco

        if self.model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE:
            return np.array(self.data.qpos[:3])
        return np.append(moment.achieved[:2], self.view.floor)

    def close(self) -> None:
        self.renderer.close()
