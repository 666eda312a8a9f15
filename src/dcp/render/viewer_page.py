"""A page to look around in: one file, no network. The episodes are inside, as numbers; the browser draws them."""

import base64
import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from dcp.analysis.style import BLUE, BORDER, FREE, INK, ORANGE, WALL
from dcp.envs.base import Environment
from dcp.envs.point_tasks import things_of
from dcp.policies.policy_file import write_whole
from dcp.render.pictures import COLOURS, FLOOR, FLOOR_TILE
from dcp.render.shown_episodes import Episode, Subject
from dcp.render.video import FPS

TINTS = (BLUE, INK, "#B8860B", "#7F7F7F")  # of the policies, where they are overlaid and in the chart
SCRIPTS = ("viewer.js", "shapes.js", "bodies.js", "maze.js")
LEVELS = 65535  # of a packed number


def save_page(path: Path, env: Environment, subjects: Sequence[Subject], stride: int) -> Path:
    write_whole(path, page(page_data(env, subjects, stride)).encode())
    return path


def page(data: dict[str, Any]) -> str:
    folder = files("dcp.render") / "page"
    parts = {name: (folder / name).read_text(encoding="utf-8") for name in ("page.html", "style.css", *SCRIPTS)}
    content = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")  # a title must not end the script
    filled = parts["page.html"].replace("{{style}}", parts["style.css"])
    filled = filled.replace("{{script}}", "\n".join(parts[name] for name in SCRIPTS))
    return filled.replace("{{title}}", escape(data["title"], quote=False)).replace("{{data}}", content)


def page_data(env: Environment, subjects: Sequence[Subject], stride: int) -> dict[str, Any]:
    """Return what the page knows, as JSON carries it."""
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
        maze = {"rows": list(spec.maze.rows), "scale": spec.maze.scale, "border": BORDER}
        things = [{"shape": t.shape, "size": t.size, "acts": t.acts} for t in things_of(env)]
        return {**data, "kind": "maze", "maze": maze, "things": things, "subjects": _subjects(subjects, stride, None)}
    from dcp.render.body_pictures import PageScene

    scene = PageScene(env)
    shown = _subjects(subjects, stride, scene)
    return {**data, "kind": "bodies", "scene": scene.description(), "subjects": shown}


def _subjects(subjects: Sequence[Subject], stride: int, scene: Any) -> list[dict[str, Any]]:
    return [
        {"title": s.title, "rate": s.rate, "episodes": [_episode(e, stride, scene) for e in s.episodes]}
        for s in subjects
    ]


def _episode(episode: Episode, stride: int, scene: Any) -> dict[str, Any]:
    """Pack every `stride`-th step and the last; a subgoal stays until the next is chosen, so that is enough."""
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


# Arrays as short text: uint16, low byte first, in base64, each channel of the last axis within its own range.


def pack(values: np.ndarray) -> dict[str, Any]:
    """Pack numbers; the error is at most half a level: a 131,070th of the channel's range."""
    values = np.asarray(values, np.float64)
    flat = values.reshape(-1, values.shape[-1])
    low, high = flat.min(axis=0), flat.max(axis=0)
    levels = np.round((flat - low) / np.where(high > low, high - low, 1.0) * LEVELS).astype("<u2")
    text = base64.b64encode(levels.tobytes()).decode()
    return {"shape": list(values.shape), "low": low.tolist(), "high": high.tolist(), "data": text}
