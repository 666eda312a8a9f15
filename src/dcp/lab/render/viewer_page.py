"""Make an interactive page: one file that holds the episodes as numbers. The browser draws them without a network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dcp.envs.base import Environment
from dcp.envs.point_tasks import things_of
from dcp.lab.pages.packing import pack
from dcp.lab.pages.whole_page import asset, theme, whole_page
from dcp.lab.render.pictures import COLOURS, FLOOR, FLOOR_TILE
from dcp.lab.render.shown_episodes import Episode, Subject
from dcp.lab.render.video import FPS
from dcp.lab.style import BLUE, BORDER, FREE, INK, ORANGE, WALL
from dcp.policies.policy_file import write_whole
from dcp.types import MazeLayout

TINTS = (BLUE, INK, "#B8860B", "#7F7F7F")  # of the policies, when they are overlaid and in the chart


def save_page(path: Path, env: Environment, subjects: Sequence[Subject], stride: int) -> Path:
    write_whole(path, page(page_data(env, subjects, stride)).encode())
    return path


def page(data: dict[str, Any]) -> str:
    style = theme() + asset("viewer/style.css")
    return whole_page("viewer", data, title=data["title"], style=style)


def page_data(env: Environment, subjects: Sequence[Subject], stride: int) -> dict[str, Any]:
    """Return the page's data, ready for JSON."""
    spec, bodies = env.spec, {"body": BLUE, "pushed": ORANGE}
    data = {
        "title": f"{spec.name}: {', '.join(subject.title for subject in subjects)}",
        "threshold": spec.threshold,
        "stride": stride,
        "steps_per_second": FPS * stride,
        "colours": {**COLOURS, "wall": WALL, "free": FREE, **bodies, "floor": FLOOR, "tile": FLOOR_TILE},
        "tints": list(TINTS),
    }
    if spec.physics == "none":
        assert spec.maze is not None
        plane = maze_plane(spec.maze)
        things = [{"shape": t.shape, "size": t.size, "acts": t.acts} for t in things_of(env)]
        return {**data, "kind": "maze", "plane": plane, "things": things, "subjects": _subjects(subjects, stride, None)}
    from dcp.lab.render.body_pictures import PageScene

    scene = PageScene(env)
    shown = _subjects(subjects, stride, scene)
    return {**data, "kind": "bodies", "scene": scene.description(), "subjects": shown}


def maze_plane(maze: MazeLayout) -> dict[str, Any]:
    """Describe the view of a maze: up to the inner edge of its outer walls."""
    near, far = 0.5 - BORDER, 1.5 - BORDER
    high = [(n - far) * maze.scale for n in maze.walls.shape]
    rows = ["".join("#" if cell == "#" else "." for cell in row) for row in maze.rows]
    return {"low": [near * maze.scale] * 2, "high": high, "maze": {"rows": rows, "scale": maze.scale}}


def _subjects(subjects: Sequence[Subject], stride: int, scene: Any) -> list[dict[str, Any]]:
    return [
        {"title": s.title, "rate": s.rate, "episodes": [_episode(e, stride, scene) for e in s.episodes]}
        for s in subjects
    ]


def _episode(episode: Episode, stride: int, scene: Any) -> dict[str, Any]:
    """Pack every `stride`-th step and the last. That is enough for subgoals too, because they change rarely."""
    steps = [*range(0, episode.last, stride), episode.last]

    def packed(values: np.ndarray | None) -> dict[str, Any] | None:
        return None if values is None else pack(values[steps])

    return {
        "steps": steps,
        "goal": episode.goal.tolist(),
        "reached": episode.reached,
        "achieved": packed(episode.achieved),
        "directions": packed(episode.directions),
        "subgoals": packed(episode.subgoals),
        "poses": _poses(episode, steps, scene),
    }


def _poses(episode: Episode, steps: list[int], scene: Any) -> dict[str, Any] | None:
    """Pack the pose of every body; in a plane, where each thing is, [K, things, 2]."""
    if episode.q is None:
        return None
    q = episode.q[steps]
    return pack(q.reshape(len(steps), -1, 2) if scene is None else scene.poses(q))
