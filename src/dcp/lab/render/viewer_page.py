"""Make an interactive page: one file that holds the episodes as numbers. The browser draws them without a network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dcp.envs.base import Environment
from dcp.envs.point_tasks import things_of
from dcp.lab.episodes import Episode
from dcp.lab.pages import asset, pack, theme, whole_page
from dcp.lab.render.pictures import COLOURS, FLOOR, FLOOR_TILE
from dcp.lab.render.shown_episodes import ShownPolicy
from dcp.lab.render.video import FPS
from dcp.lab.style import BLUE, BORDER, FREE, INK, ORANGE, WALL
from dcp.policies.policy_file import write_whole
from dcp.types import MazeLayout

TINTS = (BLUE, INK, "#B8860B", "#7F7F7F")  # of the policies, when they are overlaid and in the chart


def save_page(path: Path, env: Environment, policies: Sequence[ShownPolicy], stride: int) -> Path:
    write_whole(path, page(page_data(env, policies, stride)).encode())
    return path


def page(data: dict[str, Any]) -> str:
    return whole_page("viewer", data, title=data["title"], style=theme() + asset("viewer/style.css"))


def page_data(env: Environment, policies: Sequence[ShownPolicy], stride: int) -> dict[str, Any]:
    """Return the page's data, ready for JSON."""
    spec, bodies = env.spec, {"body": BLUE, "pushed": ORANGE}
    if spec.physics == "none":
        assert spec.maze is not None
        things = [{"shape": t.shape, "size": t.size, "acts": t.acts} for t in things_of(env)]
        scene, kind = None, {"kind": "maze", "plane": maze_plane(spec.maze), "things": things}
    else:
        from dcp.lab.render.body_pictures import PageScene

        scene = PageScene(env)
        kind = {"kind": "bodies", "scene": scene.description()}
    return {
        "title": f"{spec.name}: {', '.join(shown.title for shown in policies)}",
        "threshold": spec.threshold,
        "stride": stride,
        "steps_per_second": FPS * stride,
        "colours": {**COLOURS, "wall": WALL, "free": FREE, **bodies, "floor": FLOOR, "tile": FLOOR_TILE},
        "tints": list(TINTS),
        **kind,
        "subjects": [
            {"title": s.title, "rate": s.rate, "episodes": [packed_episode(e, stride, scene) for e in s.episodes]}
            for s in policies
        ],
    }


def maze_plane(maze: MazeLayout) -> dict[str, Any]:
    """Describe the view of a maze: up to the inner edge of its outer walls."""
    near, far = 0.5 - BORDER, 1.5 - BORDER
    high = [(n - far) * maze.scale for n in maze.walls.shape]
    rows = ["".join("#" if cell == "#" else "." for cell in row) for row in maze.rows]
    return {"low": [near * maze.scale] * 2, "high": high, "maze": {"rows": rows, "scale": maze.scale}}


def packed_episode(episode: Episode, stride: int, scene: Any) -> dict[str, Any]:
    """Pack every `stride`-th step and the last. That is enough for subgoals too, because they change rarely.

    Poses are those of every body of the scene; in a plane, where each thing is, [K, things, 2].
    """
    steps = [*range(0, episode.last, stride), episode.last]

    def packed(values: np.ndarray | None) -> dict[str, Any] | None:
        return None if values is None else pack(values[steps])

    poses = None
    if episode.q is not None:
        q = episode.q[steps]
        poses = pack(q.reshape(len(steps), -1, 2) if scene is None else scene.poses(q))
    return {
        "steps": steps,
        "goal": np.asarray(episode.goal, np.float64).tolist(),
        "reached": episode.reached,
        "achieved": packed(episode.achieved),
        "directions": packed(episode.directions),
        "subgoals": packed(episode.subgoals),
        "poses": poses,
    }
