"""How much memory a run needs, from the shapes of its arrays, and how much this machine has."""

import os
from typing import Any

import jax
import jax.numpy as jnp

from dcp.config import Config, Settings
from dcp.interfaces import goals_of
from dcp.learner import Learner
from dcp.machine import devices
from dcp.methods.table import make_agent, needs
from dcp.outcomes import ENVS_AT_ONCE
from dcp.replay import OF_OUTCOMES, reads_falls, relabel
from dcp.types import EnvSpec, Transition

_FLOAT = 4  # bytes


def memory_parts(settings: Settings, spec: EnvSpec) -> dict[str, int]:
    """Return bytes of the large parts of a run. The settings must be resolved and otherwise valid."""
    config = Config(**vars(settings))
    chunked = spec.in_chunks(config.action_chunk)
    agent = make_agent(config, chunked)
    wanted, hindsight = needs(agent), goals_of(agent)
    fell = reads_falls(wanted, hindsight)
    length, num_envs = config.window or 0, config.num_envs

    def rows(number: int) -> Transition:
        def of(kind: Any, *shape: int) -> Any:
            return jax.ShapeDtypeStruct((number, num_envs, *shape), kind)

        state, action, goal = (of(jnp.float32, size) for size in (spec.state_size, spec.action_size, spec.goal_size))
        return Transition(state, action, goal, of(jnp.int32), of(bool) if fell else None)

    def pairs(windows: Transition) -> Any:
        key = jax.random.key(0)
        return relabel(windows, spec, config.discount, key, wanted, hindsight, config.action_chunk)

    learner = jax.eval_shape(Learner(config, chunked, agent).init, jax.eval_shape(lambda: jax.random.key(0)))
    goals = jax.ShapeDtypeStruct((num_envs, spec.goal_size), jnp.float32)
    # By XLA's own account, for each pair of a window's rows: two numbers for the occupancy, a bit in a byte for hits.
    table = 2 * _FLOAT if "occupancy" in wanted else 1 if wanted & OF_OUTCOMES else 0
    noise = num_envs * length * (chunked.action_size + 1) * _FLOAT  # the actor's, and the order of the pairs
    steps = config.eval_episodes * ((config.episode_length or 0) + 1)
    networks = len(learner.params.critic) if isinstance(learner.params.critic, dict) else 1
    # An update keeps tables of [B, B] and what the gradient needs of each layer of each network's passes.
    update = config.batch_size * (8 * config.batch_size + 4 * (networks + 1) * config.width * (config.depth + 1))
    choice = num_envs * (config.pool_size + config.num_candidates * config.repr_dim)  # random scores, candidates' psi
    return {
        "replay": _bytes(rows(config.replay_rows)),
        "learner and its optimizer": _bytes(learner),
        "one iteration's pairs": _bytes(rows(length)) + _bytes(jax.eval_shape(pairs, rows(length))) + noise
        + min(ENVS_AT_ONCE, num_envs) * length**2 * table,
        "one evaluation": steps * (spec.state_size + spec.goal_size + 1) * _FLOAT,
        "one unroll": _bytes(rows(config.unroll_length)),
        "one update": update * _FLOAT,
        "the pool": _bytes(jax.eval_shape(agent.command.init, goals, goals)) + choice * _FLOAT,
    }  # fmt: skip


def _bytes(tree: Any) -> int:
    return sum(leaf.size * _itemsize(leaf) for leaf in jax.tree.leaves(tree))


def _itemsize(leaf: Any) -> int:
    return 8 if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf.dtype.itemsize


# What to lower where a part of the run is the largest.
_REMEDIES = {
    "replay": ("replay_rows", "num_envs"),
    "learner and its optimizer": ("width", "depth", "repr_dim"),
    "one iteration's pairs": ("window", "num_envs"),
    "one evaluation": ("eval_episodes", "episode_length"),
    "one unroll": ("unroll_length", "num_envs"),
    "one update": ("batch_size", "width", "depth"),
    "the pool": ("pool_size", "num_candidates", "num_envs", "repr_dim"),
}


STATE = ("replay", "learner and its optimizer", "the pool")  # what a checkpoint copies
_SPLIT = ("replay", "one unroll")  # each of several devices holds its own environments' part


def resident_parts(settings: Settings, spec: EnvSpec) -> dict[str, int]:
    """Return the bytes of each part of a run in the memory that `available_memory` tells: on a CPU with the copy that a
    checkpoint is written from, with accelerators on one of them (there the copy is in the machine's memory)."""
    parts = memory_parts(settings, spec)
    if jax.default_backend() == "cpu":
        return {name: size * (2 if name in STATE else 1) for name, size in parts.items()}
    count = devices.count_devices(settings.devices, settings.num_envs, spec)
    return {name: size // count if name in _SPLIT else size for name, size in parts.items()}


def memory_violations(settings: Settings, spec: EnvSpec) -> list[str]:
    """Return in one sentence that a run does not fit into memory, and what to lower."""
    parts, available = resident_parts(settings, spec), available_memory()
    needed = sum(parts.values())
    if available is None or needed <= available:
        return []
    fields = _REMEDIES[max(parts, key=lambda part: parts[part])]
    remedy = " or ".join(f"{name} ({getattr(settings, name)})" for name in fields)
    return [f"the run needs about {needed / 1e9:.1f} GB but {available / 1e9:.1f} GB are available: lower {remedy}"]


def available_memory() -> int | None:
    """Return bytes that a run may take: the accelerator's or else the machine's; None where the system does not say."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return (device.memory_stats() or {}).get("bytes_limit")
    return machine_memory()


def machine_memory() -> int | None:
    """Return bytes that programs may still take, or all that there are, without starting JAX."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            amounts = dict(line.split(":", 1) for line in file)
        return int(amounts["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
