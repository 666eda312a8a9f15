"""Every environment by name. A user's own is registered from Python, or named as `module:factory`."""

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache, partial
from typing import cast

from dcp.config import PHYSICS, Settings, shown
from dcp.envs.base import Environment
from dcp.envs.layouts import EVAL_LAYOUTS, LAYOUTS
from dcp.envs.maze import parse_layout
from dcp.envs.point_maze import PointMaze
from dcp.envs.point_push import PointPush
from dcp.envs.point_soccer import PointSoccer
from dcp.errors import UserError
from dcp.named_code import import_named

Factory = Callable[..., Environment]  # called with `fidelity` if it takes one, else without arguments


def _point_maze(name: str, layout: str, inertia: bool) -> Environment:
    return PointMaze(name, parse_layout(layout, scale=1.0), inertia)


# Physics is imported when it is asked for: a point maze, or the list of names, needs none.
def _pusher(name: str, fidelity: str = "paper") -> Environment:
    from dcp.envs.pusher import Pusher

    return Pusher(name, fidelity)


def _ant_push(name: str, fidelity: str = "paper") -> Environment:
    from dcp.envs.ant_push import AntPush

    return AntPush(name, fidelity)


def _ant_soccer(name: str, fidelity: str = "paper") -> Environment:
    from dcp.envs.ant_soccer import AntSoccer

    return AntSoccer(name, fidelity)


def _ant_maze(name: str, layout: str) -> Environment:
    from dcp.envs.ant_maze import SCALE, AntMaze

    return AntMaze(name, parse_layout(layout, SCALE))


def _humanoid_maze(name: str, layout: str, fidelity: str = "paper") -> Environment:
    from dcp.envs.humanoid_maze import SCALE, HumanoidMaze

    return HumanoidMaze(name, parse_layout(layout, SCALE), fidelity)


BODIES: dict[str, Callable[..., Environment]] = {"ant": _ant_maze, "humanoid": _humanoid_maze}


def _body_mazes() -> dict[str, Factory]:
    """<body>_<maze>[_eval]: any body in any maze"""
    rows: dict[str, Factory] = {}
    for ending, layouts in (("", LAYOUTS), ("_eval", EVAL_LAYOUTS)):
        for body, factory in BODIES.items():
            for maze, layout in layouts.items():
                name = f"{body}_{maze}{ending}"
                rows[name] = partial(factory, name, layout)
    return rows


def _point_mazes() -> dict[str, Factory]:
    """point_<maze>[_inertia][_eval]"""
    rows: dict[str, Factory] = {}
    for ending, layouts in (("", LAYOUTS), ("_eval", EVAL_LAYOUTS)):
        for maze, layout in layouts.items():
            for body, inertia in (("", False), ("_inertia", True)):
                name = f"point_{maze}{body}{ending}"
                rows[name] = partial(_point_maze, name, layout, inertia)
    return rows


def _manipulation() -> dict[str, Factory]:
    rows: dict[str, Factory] = {
        "point_soccer": PointSoccer,
        "point_soccer_slick": partial(PointSoccer, "point_soccer_slick", sticks=False),
        "point_push": PointPush,
        "ant_push": partial(_ant_push, "ant_push"),
        "ant_soccer": partial(_ant_soccer, "ant_soccer"),
    }
    for name in ("pusher_easy", "pusher_hard", "pusher_hard_far"):
        rows[name] = partial(_pusher, name)
    return rows


OURS: dict[str, Factory] = _point_mazes() | _body_mazes() | _manipulation()
ENVIRONMENTS = dict(OURS)  # and those that are registered


def register_env(name: str, factory: Factory) -> None:
    """Make an environment known under a name, for `make_env` and every command."""
    if name in ENVIRONMENTS:
        raise UserError(f"an environment named {name!r} exists already: choose another name")
    ENVIRONMENTS[name] = factory


def make_env(name: str, fidelity: str = "paper", physics: str = "brax") -> Environment:
    """By registered name, or `module:factory`. `fidelity`: with the peer's oddities (paper) or without (fixed).

    `physics`: what steps a simulated body, the paper's engine (brax) or MuJoCo's own (mujoco).
    """
    if ":" in name:
        return _with_physics(_from_module(name, fidelity), name, physics)
    if name not in ENVIRONMENTS:
        close = get_close_matches(name[:100], ENVIRONMENTS, 1)
        hint = f"did you mean {close[0]!r}?" if close else "`dcp envs` lists them."
        raise UserError(f"unknown environment {shown(name)}: {hint}")
    if name in OURS:
        return _ours(name, fidelity, physics)
    return _with_physics(_call(ENVIRONMENTS[name], fidelity), name, physics)


def env_of(settings: Settings, name: str | None = None) -> Environment:
    """The environment that the settings name, or another one on their terms."""
    return make_env(settings.env if name is None else name, settings.fidelity, settings.physics)


@cache
def _ours(name: str, fidelity: str, physics: str) -> Environment:
    """Made once: they never change, a physics engine takes seconds to build, and equal ones share their programs."""
    return _with_physics(_call(OURS[name], fidelity), name, physics)


def _with_physics(env: Environment, name: str, physics: str) -> Environment:
    if physics not in PHYSICS:
        raise UserError(f"unknown physics {shown(physics)}: choose one of {', '.join(PHYSICS)}")
    if physics == "brax":
        return env
    by_mujoco = getattr(env, "by_mujoco", None)  # a task of ours, or of one's own that is written like them
    if by_mujoco is None:
        raise UserError(f"{shown(name)} is not a model that MuJoCo could step: use physics brax")
    return by_mujoco()


def require_stepped_by(env: Environment, physics: str | None) -> None:
    """Of an environment that is made already, where someone asks for a physics too."""
    if physics not in (None, env.spec.stepped_by):
        raise UserError(
            f"{env.spec.name} is stepped by {env.spec.stepped_by}, not by {physics}: leave out physics, or name the "
            "environment instead of making it"
        )


def is_ours(env: Environment) -> bool:
    """Ours keep the contract by test, and never change once they are made."""
    return type(env).__module__.startswith("dcp.envs.")


def _call(factory: Factory, fidelity: str) -> Environment:
    try:
        takes_fidelity = "fidelity" in inspect.signature(factory).parameters
    except ValueError:  # a callable without a signature
        takes_fidelity = False
    return factory(fidelity=fidelity) if takes_fidelity else factory()


def _from_module(name: str, fidelity: str) -> Environment:
    try:
        factory = import_named(name)
    except (Exception, SystemExit) as error:  # a user's module may fail in any way
        raise UserError(f"cannot load environment {shown(name)} ({_line(error)}): name it as module:factory") from error
    if not callable(factory):
        raise UserError(f"{shown(name)} is no function that makes an environment: name it as module:factory")
    try:
        env = _call(cast(Factory, factory), fidelity)
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {_line(error)}"
        raise UserError(f"{name}() fails ({reason}): make it work without arguments") from error
    if not isinstance(env, Environment):
        raise UserError(f"{name} made a {type(env).__name__}, which is no environment: it needs spec, reset and step")
    return env


def _line(error: BaseException) -> str:
    """What an error says, in one line."""
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else f"{text[:200]}..."
