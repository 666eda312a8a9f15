"""All environments by name. Users register their own from Python, or name them as `module:factory`."""

import inspect
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import Any

from dcp.components import Table
from dcp.config import CONTROLS, PHYSICS, RENAMED_ENVS, Settings
from dcp.envs.base import Environment
from dcp.envs.mazes import EVAL_LAYOUTS, LAYOUTS, parse_layout
from dcp.errors import QUOTED, UserError, did_you_mean, shown
from dcp.named_code import GYM, is_code

Factory = Callable[..., Environment]  # called with `fidelity` if it takes one, else without arguments


def _task(path: str, name: str, *settings: Any) -> Factory:
    """Import a task when it is first made: the list of names needs none, and point mazes no physics."""

    def make(fidelity: str = "paper") -> Environment:
        module, _, task = path.rpartition(".")
        return call_factory(partial(getattr(import_module(f"dcp.envs.{module}"), task), name, *settings), fidelity)

    return make


def _arm(name: str) -> Factory:
    return lambda: import_module("dcp.robots.so101_tasks").TASKS[name](name)  # by name: a robot is no part of the core


def _mazes() -> dict[str, Factory]:
    """Return each body in each maze: point_<maze>[_inertia][_eval], ant_<maze>[_eval], humanoid_<maze>[_eval]."""
    points: dict[str, Factory] = {}
    bodies: dict[str, Factory] = {}
    for ending, layouts in (("", LAYOUTS), ("_eval", EVAL_LAYOUTS)):
        for maze, text in layouts.items():
            for kind, inertia in (("", False), ("_inertia", True)):
                name = f"point_{maze}{kind}{ending}"
                points[name] = _task("mazes.PointMaze", name, parse_layout(text, scale=1.0), inertia)
        for body, task, scale in (("ant", "ant_tasks.AntMaze", 4.0), ("humanoid", "humanoid.HumanoidMaze", 2.0)):
            for maze, text in layouts.items():
                name = f"{body}_{maze}{ending}"
                bodies[name] = _task(task, name, parse_layout(text, scale))
    return points | bodies


PUSHERS = ("pusher_easy", "pusher_hard", "pusher_hard_far", "pusher_hard_far_any", "pusher_hard_near")
OURS: dict[str, Factory] = _mazes() | {
    "point_soccer": _task("point_tasks.PointSoccer", "point_soccer"),
    "point_soccer_slick": _task("point_tasks.PointSoccer", "point_soccer_slick", False),
    "point_push": _task("point_tasks.PointPush", "point_push"),
    "humanoid": _task("humanoid.Humanoid", "humanoid"),
    "ant_push": _task("ant_tasks.AntPush", "ant_push"),
    "ant_soccer": _task("ant_tasks.AntSoccer", "ant_soccer"),
    **{name: _task("pusher.Pusher", name) for name in PUSHERS},
    **{f"so101_{task}": _arm(f"so101_{task}") for task in ("reach", "reach_pose", "push", "lift")},
    **{f"fetch_{task}": _task("fetch.Fetch", f"fetch_{task}") for task in ("reach", "push", "slide", "pick_and_place")},
}
ENVIRONMENTS = Table(
    "environment", OURS
)  # open: it is read whenever a name is looked up, so an added row counts at once


def register_env(name: str, factory: Factory) -> None:
    """Register an environment under a name, for `make_env` and every command."""
    if name in ENVIRONMENTS:
        raise UserError(f"an environment named {name!r} exists already: choose another name")
    ENVIRONMENTS[name] = factory


def make_env(
    name: str, fidelity: str = "paper", physics: str = "brax", randomize: str | None = None, control: str = "joints"
) -> Environment:
    """Make an environment by its registered name, as `module:factory`, or as `gym:ID`.

    `fidelity`: with JaxGCRL's oddities (paper) or without (fixed). `physics`: the engine of a simulated body, the
    paper's (brax) or MuJoCo's own (mujoco). `randomize`: what an arm's episodes draw, such as gains,delay, or all.
    `control`: what an arm's action moves, its joints or its tool point (tool).
    """
    name = RENAMED_ENVS.get(name, name)
    if control != "joints":
        return _by_tool(name, fidelity, physics, randomize, control)
    if randomize not in (None, "none"):
        return _randomized(name, fidelity, physics, randomize)
    if name.startswith(GYM):
        from dcp.envs.gym_task import GymTask

        return _with_physics(GymTask(name), name, physics)
    if is_code(name):
        from dcp.envs.contract import env_from_module

        return _with_physics(env_from_module(name, fidelity), name, physics)
    factory = ENVIRONMENTS.get(name)
    if factory is None:
        otherwise = "name it as module:factory" if ":" in name else "`dcp envs` lists them."
        raise UserError(f"unknown environment {shown(name)}: {did_you_mean(name, ENVIRONMENTS, otherwise, QUOTED)}")
    if OURS.get(name) is factory:
        return _make_ours(name, fidelity, physics)
    return _with_physics(call_factory(factory, fidelity), name, physics)


def env_of(settings: Settings, name: str | None = None) -> Environment:
    """Make the environment that the settings name, or another one with their fidelity, physics and control."""
    name = settings.env if name is None else name
    return make_env(name, settings.fidelity, settings.physics, settings.randomize, settings.control)


@cache
def _make_ours(name: str, fidelity: str, physics: str) -> Environment:
    """Make each environment once: it never changes, its engine is slow to build, and equal ones share programs."""
    return _with_physics(call_factory(OURS[name], fidelity), name, physics)


@cache
def _randomized(name: str, fidelity: str, physics: str, kinds: str) -> Environment:
    env = make_env(name, fidelity, physics)
    randomized = getattr(env, "randomized", None)
    if randomized is None:
        raise UserError(f"{shown(name)} has nothing to randomize: leave out --randomize, which is for so101 tasks")
    return randomized(kinds)


@cache
def _by_tool(name: str, fidelity: str, physics: str, randomize: str | None, control: str) -> Environment:
    if control not in CONTROLS:
        raise UserError(f"unknown control {shown(control)}: choose one of {', '.join(CONTROLS)}")
    by_tool = getattr(make_env(name, fidelity, physics, randomize), "by_tool", None)
    if by_tool is None:
        raise UserError(f"{shown(name)} is not steered by a tool: leave out --control, for so101_push and so101_lift")
    return by_tool()


def _with_physics(env: Environment, name: str, physics: str) -> Environment:
    if physics not in PHYSICS:
        raise UserError(f"unknown physics {shown(physics)}: choose one of {', '.join(PHYSICS)}")
    if physics == "brax":
        return env
    by_mujoco = getattr(env, "by_mujoco", None)  # ours have it, and users' tasks may
    if by_mujoco is None:
        raise UserError(f"{shown(name)} is not a model that MuJoCo could step: use physics brax")
    return by_mujoco()


def require_stepped_by(env: Environment, physics: str | None) -> None:
    """Refuse a requested physics that differs from the one of an environment that exists already."""
    if physics not in (None, env.spec.stepped_by):
        raise UserError(
            f"{env.spec.name} is stepped by {env.spec.stepped_by}, not by {physics}: leave out physics, or name the "
            "environment instead of making it"
        )


def require_control(env: Environment, control: str | None) -> None:
    """Refuse a requested control that differs from the one of an environment that exists already."""
    if control not in (None, env.spec.control):
        raise UserError(
            f"{env.spec.name} is steered by its {env.spec.control}, not by its {control}: leave out control, or name "
            "the environment instead of making it"
        )


def is_ours(env: Environment) -> bool:
    """Return whether an environment is ours: tests check that ours keep the contract and never change. A `MujocoTask`
    `GymTask` or `BraxTask` is its user's."""
    module = type(env).__module__
    users = ("dcp.envs.mujoco_task", "dcp.envs.gym_task", "dcp.envs.brax_task")
    return module.startswith(("dcp.envs.", "dcp.robots.")) and module not in users


def call_factory(factory: Factory, fidelity: str) -> Environment:
    """Make an environment, with its fidelity if the factory takes one."""
    try:
        takes_fidelity = "fidelity" in inspect.signature(factory).parameters
    except ValueError:  # a callable without a signature
        takes_fidelity = False
    return factory(fidelity=fidelity) if takes_fidelity else factory()
