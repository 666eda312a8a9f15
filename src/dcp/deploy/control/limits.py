"""What may be sent: finite, within the limits, and not too far from what was sent before."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dcp.deploy.control.faults import Fault
from dcp.deploy.control.inputs import finite, vector
from dcp.errors import UserError

Safe = Callable[[np.ndarray | None], np.ndarray]  # from the last action that was sent


@dataclass(frozen=True)
class Limits:
    low: np.ndarray  # [A]
    high: np.ndarray  # [A]
    max_change: np.ndarray | None = None  # [A]: between two steps

    def clip(self, action: np.ndarray) -> np.ndarray:
        return np.clip(action, self.low, self.high)

    def apply(self, action: np.ndarray, last: np.ndarray | None) -> tuple[np.ndarray, bool, bool]:
        """The action to send; whether the limits, and whether the limit of change, altered it."""
        clipped = allowed = self.clip(action)
        if self.max_change is not None and last is not None:
            with np.errstate(over="ignore"):  # an infinite bound bounds nothing
                allowed = np.clip(clipped, last - self.max_change, last + self.max_change)
            allowed = self.clip(allowed)  # the limits have the last word
        return allowed, bool((clipped != action).any()), bool((allowed != clipped).any())


def per_joint(name: str, value: Any, size: int) -> np.ndarray:
    """A number for all joints, or one each -> [A]"""
    try:
        numbers = np.array(value, float)
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{name} is no number nor a list of numbers: give one, or one a joint") from error
    if numbers.shape not in ((), (size,)):
        raise UserError(f"{name} has shape {numbers.shape}: give one number, or {size}, one a joint")
    if not np.isfinite(numbers).all():
        raise UserError(f"{name} must be finite, not {shown(np.atleast_1d(numbers))}")
    return np.broadcast_to(numbers, (size,)).copy()


def shown(numbers: np.ndarray) -> str:
    """In one line, however many."""
    return f"[{', '.join(f'{x:g}' for x in numbers)}]"


def make_limits(size: int, low: Any, high: Any, max_change: Any) -> Limits:
    low, high = per_joint("action_low", low, size), per_joint("action_high", high, size)
    if (low > high).any():
        raise UserError(f"action_low {shown(low)} exceeds action_high {shown(high)}: exchange them")
    if max_change is None:
        return Limits(low, high)
    max_change = per_joint("max_change", max_change, size)
    if (max_change <= 0).any():
        raise UserError(f"max_change must be positive, not {shown(max_change)}: leave it out for no limit")
    return Limits(low, high, max_change)


def make_safe(safe_action: Any, limits: Limits) -> Safe:
    """A fixed action, "hold" (the last one once more), or a user's function of the last one."""
    size = len(limits.low)
    if isinstance(safe_action, str):
        if safe_action != "hold":
            raise UserError(f"safe_action is {safe_action!r}: give an array, a function of the last action, or 'hold'")
        return lambda last: _known(last)
    if callable(safe_action):
        return lambda last: limits.clip(
            finite("safe_action", vector("safe_action", safe_action(_known(last).copy()), size))
        )
    fixed = within("safe_action", per_joint("safe_action", safe_action, size), limits)
    return lambda last: fixed


def needs_last(safe_action: Any) -> bool:
    return callable(safe_action) or (isinstance(safe_action, str) and safe_action == "hold")


def within(name: str, action: np.ndarray, limits: Limits) -> np.ndarray:
    if (limits.clip(action) != action).any():
        limit = f"{shown(limits.low)} to {shown(limits.high)}"
        raise UserError(f"{name} {shown(action)} is outside the limits {limit}: bring it inside first")
    return action


def _known(last: np.ndarray | None) -> np.ndarray:
    if last is None:
        raise Fault("there is no last action: start_action was not known yet")
    return last
