"""Write arrays as short text for a page: exact (float32), or two bytes per number. `shared/packing.js` reads it."""

import base64
from typing import Any

import numpy as np

LEVELS = 65535  # of a number in two bytes


def exact(values: np.ndarray) -> str:
    """Return float32 numbers, low byte first, in base64."""
    return base64.b64encode(np.asarray(values, "<f4").tobytes()).decode()


def pack(values: np.ndarray) -> dict[str, Any]:
    """Pack numbers in two bytes each, every channel of the last axis within its own range.

    The error is at most half a level: a 131,070th of the channel's range.
    """
    values = np.asarray(values, np.float64)
    flat = values.reshape(-1, values.shape[-1])
    low, high = flat.min(axis=0), flat.max(axis=0)
    levels = np.round((flat - low) / np.where(high > low, high - low, 1.0) * LEVELS).astype("<u2")
    text = base64.b64encode(levels.tobytes()).decode()
    return {"shape": list(values.shape), "low": low.tolist(), "high": high.tolist(), "data": text}
