"""The figures of a diagnosis."""

from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure


def figures(content: dict[str, Any]) -> dict[str, Callable[[], Figure]]:
    return {}
