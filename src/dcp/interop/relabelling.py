"""What a hindsight buffer asks of an environment: the reward and the end of a step under another goal."""

from typing import Any

import numpy as np

from dcp.interop.task import GoalTask


class Relabelling:
    """gymnasium-robotics' three questions. Goals are [G], or [..., G] for many."""

    task: GoalTask

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """[..., G], [..., G] -> float32 [...]: the reward of a step that leads to `achieved_goal`."""
        return self.task.reward(achieved_goal, desired_goal)

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Reaching a goal ends nothing, so another goal would change nothing: `info` decides."""
        ended = terminated(info)
        return bool(ended) if np.ndim(achieved_goal) == 1 else np.broadcast_to(ended, np.shape(achieved_goal)[:-1])

    def compute_truncated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Never: time limits are TimeLimit's affair."""
        return False if np.ndim(achieved_goal) == 1 else np.zeros(np.shape(achieved_goal)[:-1], bool)


def terminated(info: Any) -> Any:
    """What an info says of an episode's end: of one, of a vector environment's, or of a sequence of infos."""
    if isinstance(info, dict):
        return np.logical_or(info.get("done", False), info.get("diverged", False))
    return np.array([bool(terminated(one)) for one in info], bool)
