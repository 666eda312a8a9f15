"""Check a run before it starts: by the tables of parts, its environment and this machine's memory."""

import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from dcp.components import TABLES
from dcp.config import MAY_BE_CODE, Config, Settings, type_violations
from dcp.envs.base import Environment, is_exact
from dcp.envs.registry import env_of, is_ours
from dcp.errors import UserError, shown
from dcp.interfaces import goals_of
from dcp.learner import Learner, LearnerState
from dcp.machine import devices
from dcp.methods.table import make_agent
from dcp.outcomes import ENVS_AT_ONCE
from dcp.replay import OF_OUTCOMES, reads_falls, relabel
from dcp.types import Array, EnvSpec, Transition

if TYPE_CHECKING:
    from dcp.algorithm import Algorithm

_NAMES = tuple(name for name in MAY_BE_CODE if name in TABLES)


def check(config: Settings) -> None:
    """Raise one sentence with everything that is wrong."""
    problems = violations(config)
    if problems:
        raise UserError("; ".join(problems))


def check_algorithm(algorithm: "Algorithm") -> None:
    """Check what an algorithm of objects could not check by its config: its environments, and this machine's memory."""
    env, eval_env, config = algorithm.env, algorithm.eval_env, algorithm.config
    problems = _contract_violations(env.spec.name if hasattr(env, "spec") else "the env", env)
    problems = problems or _misfit(config.env, env.spec, config.eval_env, eval_env.spec)
    problems = problems or _device_violations(config, env.spec)
    with suppress(UserError):  # parts without a name are not counted
        problems = problems or memory_violations(config, env.spec)
    if problems:
        raise UserError("; ".join(problems))


def violations(settings: Settings, *, memory: bool = True) -> list[str]:
    """Return every broken constraint, each with the fix. `memory`: also check that the run fits into this machine."""
    if problems := type_violations(settings):
        return problems
    names = _unknown_names(settings)
    envs, broken = _environments(settings)
    broken_length = settings.episode_length is not None and settings.episode_length < 2
    if not envs or broken_length:  # nothing can be resolved
        return list(dict.fromkeys([*broken, *names, *settings.violations()]))  # the environment may say the same
    settings = settings.resolve(envs[0].spec.episode_length)
    problems = [*broken, *names, *settings.violations(), *_device_violations(settings, envs[0].spec)]
    problems += [] if names else _agent_violations(settings, envs[0].spec)
    if (settings.devices or 1) > 1 and not is_exact(envs[0]):
        problems.append(f"{settings.env} is stepped in worker processes, not on devices: leave out devices")
    if settings.pool_seed is not None and not names:
        from dcp.methods.pool_seed import seed_violations

        problems += seed_violations(settings, envs[0].spec)
    if settings.data is not None:
        problems += _data_violations(settings, envs[0].spec)
    return problems or (memory_violations(settings, envs[0].spec) if memory else [])


def _data_violations(settings: Settings, spec: EnvSpec) -> list[str]:
    assert settings.data is not None
    try:
        sha256 = _data(settings.data, spec).sha256
    except UserError as error:
        return [str(error)]
    if settings.data_sha256 not in (None, sha256):
        return [f"the data {shown(settings.data)} are not those that this run began with: restore them, or begin anew"]
    return []


def _data(path: str, spec: EnvSpec) -> Any:
    from dcp.files.experience import read_experience

    return read_experience(path, spec)


def _device_violations(settings: Settings, spec: EnvSpec) -> list[str]:
    s = settings
    problems = [devices.shortage(s.devices or 1)]
    count = devices.count_devices(s.devices, s.num_envs, spec)
    if s.split_batches == "on" and s.devices is None and s.batch_size % count:
        problems.append(
            f"{count} devices cannot share out batch_size {s.batch_size} evenly: "
            f"use split_batches off, or batch_size a multiple of {count}"
        )
    return [problem for problem in problems if problem]


def _unknown_names(settings: Settings) -> list[str]:
    problems = []
    for kind in _NAMES:
        name = getattr(settings, kind)
        is_label = kind == "method" and None not in (settings.critic, settings.command, settings.condition)
        if name is None or is_label:
            continue
        try:
            TABLES[kind].find(name)
        except UserError as error:
            problems.append(str(error))
    return problems


def _agent_violations(settings: Settings, spec: EnvSpec) -> list[str]:
    try:
        critic: Any = make_agent(settings, spec).critic
        if settings.action_chunk > 1 and hasattr(critic, "contrastive_loss"):
            from dcp.critics.energies import loss_of_chunks

            loss_of_chunks(critic.contrastive_loss)
    except UserError as error:
        return [str(error)]
    return []


def _environments(settings: Settings) -> tuple[list[Environment], list[str]]:
    """Return env and eval_env as far as they can be made, and what is wrong with them."""
    envs: list[Environment] = []
    problems: list[str] = []
    for name in dict.fromkeys([settings.env, settings.env if settings.eval_env is None else settings.eval_env]):
        try:
            env = env_of(settings, name)
            if isinstance(env.spec, EnvSpec):
                devices.prepare(settings.devices, env.spec)  # before JAX starts, as it does with the first array
            # Physics takes seconds to trace, and training will trace it anyway.
            own = _contract_violations(name, env)
        except UserError as error:
            own, env = [str(error)], None
        problems += own
        if env is not None and not own:
            envs.append(env)
    if problems:
        return [], problems
    return envs, _misfit(settings.env, envs[0].spec, settings.eval_env, envs[-1].spec)


def _misfit(name: str, spec: EnvSpec, eval_name: str | None, eval_spec: EnvSpec) -> list[str]:
    """Compare the sizes and walls of eval_env with those of env."""
    if _sizes(spec) != _sizes(eval_spec):
        return [
            f"eval_env {eval_name!r} has sizes (S, G, A, goal dims) {_sizes(eval_spec)}, but env {name!r} has "
            f"{_sizes(spec)}: evaluate on an environment of the same sizes"
        ]
    if spec.maze and eval_spec.maze and not np.array_equal(spec.maze.walls, eval_spec.maze.walls):
        return [f"eval_env {eval_name!r} has other walls than env {name!r}: set eval_env to a layout of the same maze"]
    return []


def _sizes(spec: EnvSpec) -> tuple[int, int, int, tuple[int, ...]]:
    return spec.state_size, spec.goal_size, spec.action_size, spec.goal_dims


def _contract_violations(name: str, env: Environment) -> list[str]:
    if is_ours(env):
        return []
    from dcp.envs.contract import contract_violations

    return contract_violations(name, env)


# Memory: a run's large parts by the shapes of its arrays, and what this machine has.

_FLOAT = 4  # bytes
MOST_TRACED = 64  # layers of a network whose memory is counted by tracing all of it
STATE = ("replay", "learner and its optimizer", "the pool")  # what a checkpoint copies
_SPLIT = ("replay", "one unroll")  # each of several devices holds its own environments' part
# What to lower where a part of the run is the largest.
_REMEDIES = {
    "replay": ("replay_rows", "num_envs"),
    "learner and its optimizer": ("width", "depth", "repr_dim"),
    "one iteration's pairs": ("window", "num_envs"),
    "one evaluation": ("eval_episodes", "episode_length"),
    "one unroll": ("unroll_length", "num_envs"),
    "one update": ("batch_size", "width", "depth"),
    "the pool": ("pool_size", "num_candidates", "num_envs", "repr_dim"),
    "the data": ("data",),
}


def memory_parts(settings: Settings, spec: EnvSpec) -> dict[str, int]:
    """Return bytes of the large parts of a run. The settings must be resolved and otherwise valid."""
    config = Config(**vars(settings))
    chunked, num_envs, length = spec.in_chunks(config.action_chunk), config.num_envs, config.window or 0
    agent = make_agent(config, chunked)
    learner = Learner(config, chunked, agent)
    fields, hindsight = learner.needs, goals_of(agent)

    def rows(number: int) -> Transition:
        shape = (number, num_envs)
        sizes = (spec.state_size, spec.action_size, spec.goal_size)
        arrays: list[Any] = [jax.ShapeDtypeStruct((*shape, size), jnp.float32) for size in sizes]
        arrays.append(jax.ShapeDtypeStruct(shape, jnp.int32))
        arrays.append(jax.ShapeDtypeStruct(shape, bool) if reads_falls(fields, hindsight) else None)
        return Transition(*arrays)

    def pairs(windows: Transition, key: Array) -> Any:
        return relabel(windows, spec, config.discount, key, fields, hindsight, config.action_chunk)

    key = jax.eval_shape(lambda: jax.random.key(0))
    shapes, learner_bytes = _learner(learner, config, chunked)
    goals = jax.ShapeDtypeStruct((num_envs, spec.goal_size), jnp.float32)
    # XLA's temporaries, by its own account. For each pair of a window's rows two numbers for the occupancy, or a byte
    # for hits; an update keeps tables of [B, B] and what the gradient needs of each layer of each network's passes.
    table = 2 * _FLOAT if "occupancy" in fields else 1 if fields & OF_OUTCOMES else 0
    noise = num_envs * length * (chunked.action_size + 1)  # the actor's, and the order of the pairs
    networks = len(shapes.params.critic) if isinstance(shapes.params.critic, dict) else 1
    update = config.batch_size * (8 * config.batch_size + 4 * (networks + 1) * config.width * (config.depth + 1))
    choice = num_envs * (config.pool_size + config.num_candidates * config.repr_dim)  # random scores, candidates' psi
    steps = config.eval_episodes * ((config.episode_length or 0) + 1)
    windows = _bytes([rows(length), jax.eval_shape(pairs, rows(length), key)])
    data = None if config.data is None else _data(config.data, spec).rows
    of_data = -(-config.num_data_pairs * num_envs // config.batch_size)  # windows of the data beside the N of the run
    return {
        "replay": _bytes(rows(config.replay_rows)),
        "learner and its optimizer": learner_bytes,
        "one iteration's pairs": windows * (num_envs + of_data) // num_envs + _FLOAT * noise
        + min(ENVS_AT_ONCE, num_envs) * length**2 * table,
        "one evaluation": _FLOAT * steps * (spec.state_size + spec.goal_size + 1),
        "one unroll": _bytes(rows(config.unroll_length)),
        "one update": _FLOAT * update,
        "the pool": _bytes(jax.eval_shape(agent.command.init, goals, goals)) + _FLOAT * choice,
        "the data": _bytes(data),
    }  # fmt: skip


def _learner(learner: Learner, config: Config, spec: EnvSpec) -> tuple[LearnerState, int]:
    """Return a learner's shapes and its bytes. Of deep networks of ours two shallow ones are traced, since every four
    layers more take as much: tracing thousands of layers takes minutes."""

    def shapes(learner: Learner) -> LearnerState:
        return jax.eval_shape(learner.init, jax.eval_shape(lambda: jax.random.key(0)))

    def shallow(depth: int) -> LearnerState:
        settings = replace(config, depth=depth, residual_every=0)
        return shapes(Learner(settings, spec, make_agent(settings, spec)))

    if config.depth <= MOST_TRACED or config.network not in ("mlp", "residual"):
        state = shapes(learner)
        return state, _bytes(state)
    least = 4 + config.depth % 4
    state = shallow(least)
    more = _bytes(shallow(least + 4)) - _bytes(state)
    return state, _bytes(state) + (config.depth - least) // 4 * more


def _bytes(shapes: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def resident_parts(settings: Settings, spec: EnvSpec) -> dict[str, int]:
    """Return the bytes of each part in the memory that `available_memory` counts: on a CPU with the copy that a
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
