"""A page to look around in: one file, no network. The episodes are inside, as numbers; the browser draws them."""

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from dcp.analysis.style import BLUE, BORDER, FREE, INK, ORANGE, WALL
from dcp.envs.base import Environment
from dcp.envs.pushing import things_of
from dcp.policies.policy_file import write_whole
from dcp.render.episodes import Episode
from dcp.render.frames import Subject
from dcp.render.model import FLOOR, FLOOR_TILE
from dcp.render.moment import COLOURS
from dcp.render.packing import pack
from dcp.render.video import FPS

TINTS = (BLUE, INK, "#B8860B", "#7F7F7F")  # of the policies, where they are overlaid and in the chart
SCRIPTS = ("viewer.js", "shapes.js", "bodies.js", "maze.js")


def save_page(path: Path, env: Environment, subjects: Sequence[Subject], stride: int) -> Path:
    write_whole(path, page(page_data(env, subjects, stride)).encode())
    return path


def page(data: dict[str, Any]) -> str:
    folder = files("dcp.render") / "page"
    parts = {name: (folder / name).read_text(encoding="utf-8") for name in ("page.html", "style.css", *SCRIPTS)}
    content = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")  # a title must not end the script
    filled = parts["page.html"].replace("{{style}}", parts["style.css"])
    filled = filled.replace("{{script}}", "\n".join(parts[name] for name in SCRIPTS))
    return filled.replace("{{title}}", _escaped(data["title"])).replace("{{data}}", content)


def page_data(env: Environment, subjects: Sequence[Subject], stride: int) -> dict[str, Any]:
    spec = env.spec
    data = {
        "title": f"{spec.name}: {', '.join(subject.title for subject in subjects)}",
        "threshold": spec.threshold,
        "stride": stride,
        "steps_per_second": FPS * stride,
        "colours": {
            **COLOURS,
            "wall": WALL,
            "free": FREE,
            "body": BLUE,
            "pushed": ORANGE,
            "floor": FLOOR,
            "tile": FLOOR_TILE,
        },
        "tints": list(TINTS),
    }
    if spec.physics == "none":
        assert spec.maze is not None
        maze = {"rows": list(spec.maze.rows), "scale": spec.maze.scale, "border": BORDER}
        things = [{"shape": t.shape, "size": t.size, "acts": t.acts} for t in things_of(env)]
        shown = [_subject(s, stride, None) for s in subjects]
        return {**data, "kind": "maze", "maze": maze, "things": things, "subjects": shown}
    from dcp.render.scene import Scene

    scene = Scene(env)
    return {
        **data,
        "kind": "bodies",
        "scene": scene.description(),
        "subjects": [_subject(s, stride, scene) for s in subjects],
    }


def _subject(subject: Subject, stride: int, scene: Any) -> dict[str, Any]:
    return {"title": subject.title, "episodes": [_episode(episode, stride, scene) for episode in subject.episodes]}


def _episode(episode: Episode, stride: int, scene: Any) -> dict[str, Any]:
    """Every `stride`-th step and the last; a subgoal stands until the next is chosen, so it needs no more either."""
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
    """Of every body; in a plane, where each thing is, [K, things, 2]."""
    if episode.q is None:
        return None
    q = episode.q[steps]
    return pack(q.reshape(len(steps), -1, 2) if scene is None else scene.poses(q))


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
