"""What this machine has, asked without JAX: a grid's own process must not take the memory of a GPU."""

import os
import re
import subprocess
from functools import cache
from typing import NamedTuple

from dcp.errors import UserError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


class Gpu(NamedTuple):
    index: str
    memory_bytes: int


@cache
def gpus() -> tuple[Gpu, ...]:
    """NVIDIA's, those of CUDA_VISIBLE_DEVICES where it is set."""
    query = ["nvidia-smi", "--query-gpu=index,memory.total", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    found = [line.split(",") for line in text.splitlines() if line.count(",") == 1]
    there = tuple(Gpu(index.strip(), int(float(mib)) * 2**20) for index, mib in found)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return there if visible is None else tuple(gpu for gpu in there if gpu.index in visible.split(","))


def memory_bytes(text: str) -> int:
    """12GB, 500M or bytes -> bytes"""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)B?\s*", text, re.IGNORECASE)
    if not found or float(found[1]) <= 0:
        raise UserError(f"--memory takes an amount such as 12GB, not {text!r}")
    return int(float(found[1]) * _UNITS[found[2].upper()])
