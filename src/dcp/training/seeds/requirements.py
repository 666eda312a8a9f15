"""What seeds that train as one program ask for; each refusal is one sentence."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import jax

from dcp.checks import available_memory, memory_parts
from dcp.config import Config, Settings
from dcp.envs.registry import env_of
from dcp.errors import UserError
from dcp.training.seeds.programs import devices_for

S = TypeVar("S", bound=Settings)
ALONE = "use --seeds-as processes"


def require_seeds(seeds: Sequence[int]) -> None:
    """Also for seeds as processes."""
    if not seeds:
        raise UserError("--seeds needs at least one seed, such as --seeds 0 1 2")
    for seed in seeds:
        if not 0 <= seed < 2**32:
            raise UserError(f"--seeds has {seed}: use numbers from 0, below 2**32")
    if repeated := sorted({seed for seed in seeds if list(seeds).count(seed) > 1}):
        raise UserError(f"--seeds has {repeated[0]} twice: name each seed once")


def in_one_program(settings: S, count: int) -> S:
    """The settings of each of `count` seeds: whole, on one device."""
    if jax.process_count() > 1:
        raise UserError(f"seeds as one program run in one process, not in {jax.process_count()}: {ALONE}")
    if settings.devices not in (None, 1):
        raise UserError(
            f"devices {settings.devices} would split each of {count} seeds' environments, but in one program a seed "
            f"is kept whole: leave --devices out, or {ALONE}"
        )
    return replace(settings, devices=1)


def require_whole(path: Path, stored: Config) -> None:
    """Of a run that is to go on in one program with others."""
    if stored.devices not in (None, 1):
        raise UserError(f"{path} was begun on {stored.devices} devices, and goes on so alone: {ALONE}")


def require_memory(settings: Settings, count: int) -> None:
    """For `count` seeds of settings that have passed their own checks."""
    env = env_of(settings)
    if jax.default_backend() != "cpu":
        count //= devices_for(count)  # an accelerator's memory is its own
    needed = count * sum(memory_parts(settings.resolve(env.spec.episode_length), env.spec).values())
    there = available_memory()
    if there is not None and needed > there:
        raise UserError(
            f"{count} seeds as one program need about {needed / 1e9:.1f} GB but {there / 1e9:.1f} GB are available: "
            "give fewer seeds at once, or lower replay_rows or num_envs"
        )
