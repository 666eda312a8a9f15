"""Pictures of a point in a maze and of what it pushes, in two dimensions."""

from typing import Any

import numpy as np
from PIL import Image

from dcp.analysis.maze_drawing import MazeCanvas
from dcp.analysis.style import WALL
from dcp.envs.pushing import things_of
from dcp.render.moment import Moment


class MazePicture:
    """The plan, centred; beside it the walls go on."""

    def __init__(self, env: Any, width: int, height: int):
        self.width, self.height, self.things = width, height, things_of(env)
        self.canvas = MazeCanvas(env.spec.maze, env.spec.threshold, width, height)

    def draw(self, moment: Moment) -> np.ndarray:
        """-> uint8 [H, W, 3]"""
        trail = moment.achieved[None] if moment.trail is None else moment.trail
        shown = [] if moment.q is None else list(zip(self.things, moment.q.reshape(-1, 2), strict=True))
        plan = self.canvas.picture(moment.goal, trail, moment.subgoal, moment.direction, shown)
        image = Image.new("RGB", (self.width, self.height), WALL)
        image.paste(plan, ((self.width - plan.width) // 2, (self.height - plan.height) // 2))
        return np.array(image)

    def close(self) -> None:
        pass
