"""Make the page of `dcp explore` from the plane and each policy's networks, pool and episodes.

The page itself computes psi-distances, directions and, for point tasks, actions and steps.
"""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import matplotlib
import numpy as np

from dcp.critics.contrastive import Contrastive
from dcp.critics.quasimetric import Quasimetric
from dcp.critics.survival import ChronoSRL
from dcp.envs import mazes, point_tasks
from dcp.envs.base import Environment
from dcp.envs.mazes import PointMaze
from dcp.envs.point_tasks import PointPushing, things_of
from dcp.errors import UserError
from dcp.lab.episodes import Episode, ShownPolicy, pooled_command, sees_direction, visited_pool
from dcp.lab.landscape_figure import COLOURS as RAMP
from dcp.lab.pages import asset, exact, theme, whole_page
from dcp.lab.paths import TruePaths
from dcp.lab.render import COLOURS
from dcp.lab.render.video import FPS, maze_plane, packed_episode
from dcp.lab.style import BLUE, ON_DARK, ORANGE, colours, human_count
from dcp.lab.targets import Target, require_psi
from dcp.methods.conditions import Direction
from dcp.methods.scores import SCORES
from dcp.methods.table import CONDITIONS
from dcp.policies.exports import Layer, foreign_part, norm_epsilon, own_networks
from dcp.policies.policy import DeployedPolicy
from dcp.policies.policy_file import write_whole
from dcp.types import EnvSpec

LARGEST = 5_000_000  # bytes of a page
KNOWN = ("raw_goal", "direction", "direction_and_goal")  # conditions: see `pages/explore/policy.js`
STRIDE = 2  # environment steps between two recorded poses
MARGIN = 0.15  # around everything that happens, if no maze bounds the plane


@dataclass(frozen=True)
class Panel:
    """One policy in the page."""

    name: str
    target: Target
    episodes: list[Episode]  # recorded ones; none if the page steps the task itself
    pool: np.ndarray | None  # [P, G]
    pool_of: str = ""  # where the pool comes from, in words


def save_explore_page(path: Path, env: Environment, panels: Sequence[Panel]) -> Path:
    data = page_data(env, panels)
    style = theme() + asset("explore/style.css").replace("/*night*/", asset("explore/night.css"))
    licences = asset("vendor/LICENSES.txt")
    write_whole(path, whole_page("explore", data, title=data["title"], style=style, licences=licences).encode())
    return path


def runs_in_page(env: Environment, policy: DeployedPolicy) -> bool:
    """Return whether the page can step the task and run the policy. Otherwise it shows recorded episodes."""
    known = foreign_part(policy) is None and CONDITIONS.name_of(type(policy.condition)) in KNOWN
    return known and _task(env) is not None and policy.action_chunk == 1


def require_explorable(target: Target) -> DeployedPolicy:
    """Return the target's policy, if the page can compute its psi_g."""
    policy = require_psi(target)
    # The parts of an exported policy that sees a direction: psi_g is one of them.
    foreign = foreign_part(replace(policy, condition=Direction()))
    if foreign or _metric(policy) is None:
        raise UserError(
            f"{target.label} has {foreign}, which the page cannot compute: explore a run of dcp's own parts"
        )
    return policy


def _metric(policy: DeployedPolicy) -> dict[str, Any] | None:
    """Describe the critic's distance; return None if the page does not know it."""
    critic: Any = policy.critic
    if type(critic) in (Contrastive, ChronoSRL):
        return {"kind": "norm"}
    if isinstance(critic, Quasimetric):
        mix = float(np.asarray(policy.critic_params["mix"]))
        return {"kind": critic.quasimetric, "components": critic.components, "mix": mix}
    return None


def pool_of(
    target: Target,
    env: Environment,
    policy: DeployedPolicy,
    length: int,
    read_pool: Callable[[Path], np.ndarray | None],  # of a run folder's newest checkpoint
) -> tuple[np.ndarray | None, str]:
    """Return the run's pool [P, G] from its newest checkpoint, else states that the policy visits, else None."""
    command = None if target.config is None else pooled_command(target, env.spec)
    if command is None:
        return None, ""
    if target.folder is not None and (pool := read_pool(target.folder)) is not None:
        return pool, "the run's newest checkpoint"
    if env.spec.physics != "none":
        return None, ""
    return visited_pool(env, policy, command, 0, length), "states that this policy visits"


def page_data(env: Environment, panels: Sequence[Panel]) -> dict[str, Any]:
    """Return the page's data, ready for JSON."""
    spec, task = env.spec, _task(env)
    policies_of = [require_explorable(s.target) for s in panels]
    live = task is not None and all(runs_in_page(env, policy) for policy in policies_of)
    state, goal = _first(env, panels)
    tints = colours([s.name for s in panels])
    bodies = None
    if not live and spec.physics != "none":
        from dcp.lab.render.body_pictures import PageScene

        bodies = PageScene(env)
    scene = None if bodies is None else bodies.description()
    episodes = [[packed_episode(e._replace(directions=None), STRIDE, bodies) for e in s.episodes] for s in panels]
    policies = [
        {
            "name": s.name,
            "title": ShownPolicy(s.name, s.target.about.get("env_steps"), []).title,
            "colour": tints[s.name],
            "on_dark": ON_DARK.get(tints[s.name], tints[s.name]),
            "sees_direction": sees_direction(s.target.policy),
            "label": "" if (steps := s.target.about.get("env_steps")) is None else human_count(steps),
            "policy": _policy(policies_of[i], live),
            "pool": _pool(s, spec),
            "episodes": episodes[i],
        }
        for i, s in enumerate(panels)
    ]
    near_to_far = matplotlib.colormaps[RAMP](np.linspace(0.0, 1.0, 256))[:, :3]
    paths = None if spec.maze is None else TruePaths(spec.maze)
    return {
        "title": f"{spec.name}: {', '.join(s.name for s in panels)}",
        "env": spec.name,
        "threshold": spec.threshold,
        "episode_length": spec.episode_length,
        "steps_per_second": FPS,
        "goal_dims": list(spec.goal_dims),
        "plane": _plane(env, panels),
        "paths": paths
        and {
            "boxes": paths.boxes.tolist(),
            "corners": paths.corners.tolist(),
            "between": np.where(np.isfinite(paths.corner_lengths), paths.corner_lengths, -1.0).tolist(),  # -1: no path
        },
        "task": task if live else None,
        "scene": None if scene is None else {name: scene[name] for name in ("geoms", "tracked", "width")},
        "state": state.tolist(),
        "goal": goal.tolist(),
        "colours": {**COLOURS, "body": BLUE, "pushed": ORANGE},
        "ramp": base64.b64encode(np.round(255 * near_to_far).astype(np.uint8).tobytes()).decode(),  # 256 x 3 bytes
        "policies": policies,
    }


def _plane(env: Environment, panels: Sequence[Panel]) -> dict[str, Any]:
    """Describe the view: a maze up to the inner edge of its outer walls, or the area where something happens."""
    if env.spec.maze is not None:
        return maze_plane(env.spec.maze)
    episodes = [episode for s in panels for episode in s.episodes]
    points = np.concatenate([*(e.achieved[:, :2] for e in episodes), *(e.goal[None, :2] for e in episodes)])
    low, high = points.min(axis=0), points.max(axis=0)
    middle, half = (low + high) / 2, (0.5 + MARGIN) * float((high - low).max())
    return {"low": (middle - half).tolist(), "high": (middle + half).tolist(), "maze": None}


def _first(env: Environment, panels: Sequence[Panel]) -> tuple[np.ndarray, np.ndarray]:
    """Return the state [S] and goal [G] that the page opens with: in a maze, the farthest goal."""
    spec = env.spec
    if spec.physics != "none":
        episode = panels[0].episodes[0]
        return np.zeros(spec.state_size), np.asarray(episode.goal, np.float64)
    state, goal = (np.asarray(x, np.float64) for x in spec.split(jax.jit(env.reset)(jax.random.key(0)).obs))
    if isinstance(env, PointMaze):
        state[:2], goal = env.layout.cells("r")[0], env.layout.farthest_goal()
    return state, np.asarray(goal, np.float64)


def _task(env: Environment) -> dict[str, Any] | None:
    """Describe a point task whose steps the page can compute; else return None."""
    if type(env) is PointMaze:
        module, constants = mazes, ("RADIUS", "SPEED", "FRICTION", "FORCE")
        own: dict[str, Any] = {"kind": "maze", "inertia": env.inertia}
    elif isinstance(env, PointPushing):
        module, constants = point_tasks, ("POINT_RADIUS", "SPEED", "SUBSTEPS", "TOLERANCE", "REACH")
        things = [dict(thing._asdict(), dims=list(thing.dims)) for thing in things_of(env)]
        own = {"kind": "pushing", "shape": env.shape, "size": env.size, "sticks": env.sticks, "things": things}
    else:
        return None
    return {**own, **{name.removeprefix("POINT_").lower(): getattr(module, name) for name in constants}}


def _policy(policy: DeployedPolicy, live: bool) -> dict[str, Any]:
    networks = own_networks(policy)
    return {
        "epsilon": norm_epsilon(),
        "metric": _metric(policy),
        "condition": CONDITIONS.name_of(type(policy.condition)),
        "networks": {"psi_g": _network(networks["psi_g"]), "actor": _network(networks["actor"]) if live else None},
    }


def _network(layers: list[Layer]) -> dict[str, Any]:
    names = ("kernel", "bias", "scale", "shift")
    parts = [layer.arrays[name].ravel() for layer in layers for name in names if name in layer.arrays]
    described = [
        {
            "inputs": layer.arrays["kernel"].shape[0],
            "outputs": layer.arrays["kernel"].shape[1],
            "norm": "scale" in layer.arrays,
            "activation": layer.activation,
            "residual": layer.residual,
        }
        for layer in layers
    ]
    return {"layers": described, "weights": exact(np.concatenate(parts))}


def _pool(panel: Panel, spec: EnvSpec) -> dict[str, Any] | None:
    command = pooled_command(panel.target, spec)
    if panel.pool is None or command is None or command.score not in SCORES:
        return None
    return {
        "states": np.round(np.asarray(panel.pool, np.float64), 4).tolist(),
        "score": command.score,
        "candidates": command.num_candidates,
        "of": panel.pool_of,
    }
