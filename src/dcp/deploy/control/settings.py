"""A controller's settings, refused at construction with the numbers in the sentence: nothing has moved yet."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dcp.deploy.control.clock import Clock
from dcp.deploy.control.limits import Limits, Safe, make_limits, make_safe, needs_last
from dcp.errors import UserError


@dataclass(frozen=True)
class Settings:
    """As checked by `Controller`'s arguments, which say what they mean."""

    rate_hz: float
    limits: Limits
    safe: Safe
    start_action: Any
    stale_after: float
    max_overruns: int | None
    hold_seconds: float
    warm_up: int
    start_timeout: float
    state_size: int | None
    goal_size: int | None
    action_size: int
    history: int
    black_box: Path | None
    black_box_steps: int
    clock: Clock

    @property
    def period(self) -> float:
        return 1.0 / self.rate_hz


def make_settings(policy: Any, calls: dict[str, Callable[..., Any]], given: dict[str, Any]) -> Settings:
    for name, function in {"policy": policy, **calls}.items():
        if not callable(function):
            how = "policy(observation, goal)" if name == "policy" else f"{name}()"
            hint = "; give dcp.deploy.stepper.Stepper(policy)" if hasattr(function, "act") else ""
            raise UserError(f"{name} is a {type(function).__name__}, which cannot be called: it is used as {how}{hint}")
    rate_hz = _positive("rate_hz", given["rate_hz"])
    stale_after = given["stale_after"]
    stale_after = max(0.2, 5 / rate_hz) if stale_after is None else _positive("stale_after", stale_after)
    if stale_after < 2 / rate_hz:
        raise UserError(
            f"stale_after {stale_after:g} s is less than two periods of {rate_hz:g} Hz: raise it to {2 / rate_hz:g}"
        )
    action_size = _action_size(policy, given)
    limits = make_limits(action_size, given["action_low"], given["action_high"], given["max_change"])
    if given["start_action"] is None and (limits.max_change is not None or needs_last(given["safe_action"])):
        raise UserError(
            "max_change and a safe_action that follows the last action need start_action: what the actuators do"
            " before the first step, as an array or as a function that reads it"
        )
    return Settings(
        rate_hz=rate_hz,
        limits=limits,
        safe=make_safe(given["safe_action"], limits),
        start_action=given["start_action"],
        stale_after=stale_after,
        max_overruns=None if given["max_overruns"] is None else _count("max_overruns", given["max_overruns"], 1),
        hold_seconds=_positive("hold_seconds", given["hold_seconds"], zero=True),
        warm_up=_count("warm_up", given["warm_up"], 0),
        start_timeout=_positive("start_timeout", given["start_timeout"]),
        state_size=_size(policy, given, "state_size"),
        goal_size=_size(policy, given, "goal_size"),
        action_size=action_size,
        history=_count("history", given["history"], 1),
        black_box=None if given["black_box"] is None else Path(given["black_box"]),
        black_box_steps=_count("black_box_steps", given["black_box_steps"], 1),
        clock=given["clock"] or Clock(),
    )


def _size(policy: Any, given: dict[str, Any], name: str) -> int | None:
    """The user's word, else the policy's own: an exported policy has sizes, one of dcp.load_policy has a spec."""
    if given[name] is not None:
        return _count(name, given[name], 1)
    size = getattr(policy, name, getattr(getattr(policy, "spec", None), name, None))
    return size if isinstance(size, int) else None


def _action_size(policy: Any, given: dict[str, Any]) -> int:
    """It must be known beforehand: the safe action may have to be sent before there is any other."""
    size = _size(policy, given, "action_size")
    if size is not None:
        return size
    for name in ("safe_action", "action_low", "action_high", "start_action", "max_change"):
        value = given[name]
        if value is not None and not callable(value) and not isinstance(value, str) and np.ndim(value) == 1:
            return len(value)
    raise UserError("the number of joints is not known: give action_size, or safe_action as an array")


def _positive(name: str, value: Any, zero: bool = False) -> float:
    number = _number(name, value)
    if number < 0 or (number == 0 and not zero):
        raise UserError(f"{name} must be {'0 or more' if zero else 'positive'}, not {value}")
    return number


def _count(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise UserError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return int(value)


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name} must be a number, not {value!r}") from error
    if not math.isfinite(number):
        raise UserError(f"{name} must be finite, not {value}")
    return number
