"""Every check of a run that needs the tables and the environment; those that need neither are in config.py."""

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp import devices, hosts
from dcp.components import TABLES, shown
from dcp.config import Config, Settings, type_violations
from dcp.critics.contrastive import Contrastive, loss_of_chunks
from dcp.critics.quasimetric import Quasimetric
from dcp.critics.survival import SRL
from dcp.critics.td_infonce import TDInfoNCE
from dcp.critics.value import GCBC
from dcp.envs.base import Environment, EnvState
from dcp.envs.registry import env_of, is_ours
from dcp.errors import UserError
from dcp.hindsight import ENVS_AT_ONCE
from dcp.interfaces import Agent, hindsight_of
from dcp.learner import Learner
from dcp.methods import pool_seed
from dcp.methods.table import COMMANDS, METHODS, make_agent, make_part, needs
from dcp.networks import MLP, Residual
from dcp.replay import OF_OUTCOMES, reads_falls, relabel
from dcp.types import EnvSpec, Transition

if TYPE_CHECKING:
    from dcp.algorithm import Algorithm

_NAMES = ("method", "critic", "command", "condition", "network", "score", "energy", "contrastive_loss", "activation")
_FLOAT = 4  # bytes


def check(config: Settings) -> None:
    """Raise one sentence with everything that is wrong."""
    problems = violations(config)
    if problems:
        raise UserError("; ".join(problems))


def check_algorithm(algorithm: "Algorithm") -> None:
    """Check what an algorithm of objects could not check by its config: its environments, and this machine's memory."""
    env, eval_env, config = algorithm.env, algorithm.eval_env, algorithm.config
    problems = [] if is_ours(env) else contract_violations(env.spec.name if hasattr(env, "spec") else "the env", env)
    problems = problems or _misfit(config.env, env.spec, config.eval_env, eval_env.spec)
    problems = problems or _device_violations(config, env.spec)
    with suppress(UserError):  # parts without a name are not counted
        problems = problems or _memory_violations(config, env.spec)
    if problems:
        raise UserError("; ".join(problems))


def violations(settings: Settings, *, memory: bool = True) -> list[str]:
    """Return every broken constraint, each with the fix. `memory`: this machine's too, for a run that is to be here."""
    if problems := type_violations(settings):
        return problems
    names = _unknown_names(settings)
    envs, broken = _environments(settings)
    if not envs or _broken_length(settings):  # nothing can be resolved
        return list(dict.fromkeys([*broken, *names, *settings.violations()]))  # the environment may say the same
    settings = settings.resolve(envs[0].spec.episode_length)
    problems = [*broken, *names, *settings.violations(), *_device_violations(settings, envs[0].spec)]
    problems += [] if names else _agent_violations(settings, envs[0].spec)
    problems += _seed_violations(settings, envs[0].spec)
    return problems or (_memory_violations(settings, envs[0].spec) if memory else [])


def _device_violations(settings: Settings, spec: EnvSpec) -> list[str]:
    s = settings
    problems = [devices.shortage(s.devices or hosts.count()), devices.unfit_for_hosts(s.devices, s.num_envs)]
    count = devices.count_devices(s.devices, s.num_envs, spec)
    if s.split_batches == "on" and s.devices is None and s.batch_size % count:
        problems.append(
            f"{count} devices cannot share out batch_size {s.batch_size} evenly: "
            f"use split_batches off, or batch_size a multiple of {count}"
        )
    return [problem for problem in problems if problem]


def _seed_violations(settings: Settings, spec: EnvSpec) -> list[str]:
    if settings.pool_seed is None or _unknown_names(settings):
        return []
    if not make_part("command", settings).has_pool:
        pooled = ", ".join(name for name, method in METHODS.items() if COMMANDS.find(method.command).has_pool)
        return [f"{settings.method} has no pool to seed: leave pool_seed out, or choose one of {pooled}"]
    try:
        found = pool_seed.read(settings.pool_seed, spec)
    except UserError as error:
        return [str(error)]
    if settings.pool_seed_sha256 not in (None, found.sha256):
        return [
            f"pool_seed {shown(settings.pool_seed)} is not the file that this run began with: "
            "restore it, or start another run"
        ]
    if settings.pool_seed_in_critic and found.states is None:
        return [
            f"pool_seed {shown(settings.pool_seed)} holds only goals, and pool_seed_in_critic needs whole states "
            f"[K, {spec.state_size}]: give these, or leave it out"
        ]
    return []


def _broken_length(settings: Settings) -> bool:
    return settings.episode_length is not None and settings.episode_length < 2


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
        critic = make_agent(settings, spec).critic
        if settings.action_chunk > 1 and isinstance(critic, Contrastive | Quasimetric):
            loss_of_chunks(critic.contrastive_loss)
    except UserError as error:
        return [str(error)]
    return []


def _environments(settings: Settings) -> tuple[list[Environment], list[str]]:
    """env and eval_env as far as they can be made, and what is wrong with them."""
    envs: list[Environment] = []
    problems: list[str] = []
    for name in dict.fromkeys([settings.env, settings.env if settings.eval_env is None else settings.eval_env]):
        try:
            env = env_of(settings, name)
            if isinstance(env.spec, EnvSpec):
                devices.prepare(settings.devices, env.spec)  # before JAX starts, as it does with the first array
            # Physics takes seconds to trace, and training will trace it anyway.
            own = [] if is_ours(env) else contract_violations(name, env)
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


def contract_violations(name: str, env: Environment) -> list[str]:
    """Check a user's own environment by its shapes, without computing anything."""
    spec = env.spec
    if not isinstance(spec, EnvSpec):
        return [f"the spec of {name} is a {type(spec).__name__}: make it a dcp.types.EnvSpec"]
    if len(spec.goal_dims) != spec.goal_size or not all(0 <= dim < spec.state_size for dim in spec.goal_dims):
        return [f"goal_dims {spec.goal_dims} of {name} must be {spec.goal_size} indices below {spec.state_size}"]
    try:
        state = jax.eval_shape(lambda: env.reset(jax.random.key(0)))
    except Exception as error:  # a user's code may fail in any way
        return [f"reset of {name} fails ({_first_line(error)}): repair it"]
    if not isinstance(state, EnvState):
        return [f"reset of {name} returns a {type(state).__name__}: make it a dcp.envs.base.EnvState"]
    wanted = (spec.state_size + spec.goal_size,)
    if state.obs.shape != wanted:
        return [f"obs of {name} has shape {state.obs.shape}: by its spec, [state, goal] has shape {wanted}"]
    if not jnp.issubdtype(state.obs.dtype, jnp.floating):
        return [f"obs of {name} is {state.obs.dtype}: make it float32"]
    for flag in ("done", "near_goal"):
        leaf = getattr(state, flag)
        if leaf.shape != () or leaf.dtype != bool:
            return [f"{flag} of {name} is {leaf.dtype}{list(leaf.shape)}: make it a single bool"]
    action = jax.ShapeDtypeStruct((spec.action_size,), jax.numpy.float32)
    try:
        after = jax.eval_shape(env.step, state, action)
    except Exception as error:
        return [f"step of {name} fails ({_first_line(error)}): repair it"]
    if jax.tree.structure(after) != jax.tree.structure(state):
        return [f"step of {name} returns another structure than reset: give both the same fields"]
    for (path, was), now in zip(jax.tree.leaves_with_path(state), jax.tree.leaves(after), strict=True):
        if (was.shape, was.dtype) != (now.shape, now.dtype):
            field = jax.tree_util.keystr(path)
            return [f"{field} of {name} is {was.dtype}{list(was.shape)} after reset but {now.dtype}{list(now.shape)} "
                    "after step: make them the same"]  # fmt: skip
    return []


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def memory_parts(settings: Settings, spec: EnvSpec) -> dict[str, int]:
    """Return bytes of the large parts of a run, by arithmetic. The settings must be resolved and otherwise valid."""
    s = settings
    numbers = spec.state_size + spec.action_size + spec.goal_size  # in a stored row, besides the episode's number
    chunk = s.action_chunk * spec.action_size
    agent = make_agent(s, spec.in_chunks(s.action_chunk))
    learner = _learner_size(s, spec.in_chunks(s.action_chunk), agent)
    steps = s.eval_episodes * ((s.episode_length or 0) + 1)
    return {
        "replay": s.replay_rows * s.num_envs * (numbers + 1) * _FLOAT,
        "learner and its optimizer": learner.numbers * _FLOAT,
        # windows, pairs, their order, the actor's noise; where a critic asks when goals are near, tables of distances
        "one iteration's pairs": s.num_envs * (s.window or 0) * (numbers + 2 + chunk) * _FLOAT
        + _pair_bytes(s, spec, agent),
        "one evaluation": steps * (spec.state_size + spec.goal_size + 1) * _FLOAT,
        "one unroll": s.unroll_length * s.num_envs * (numbers + 1) * _FLOAT,
        "one update": _update_numbers(s, agent, learner) * _FLOAT,
        # the pool; a lot for each of its states, and the candidates' psi, for each environment
        "the pool": (s.pool_size * (spec.goal_size + s.num_envs) + s.num_envs * s.num_candidates * s.repr_dim) * _FLOAT,
    }


def _pair_bytes(s: Settings, spec: EnvSpec, agent: Agent) -> int:
    """Count what relabelling makes of an iteration's windows."""
    length, num_envs = s.window or 0, s.num_envs
    if isinstance(agent.critic, Contrastive):
        row = spec.state_size + s.action_chunk * spec.action_size + 2 * spec.goal_size
        return num_envs * length * row * _FLOAT
    wanted, hindsight = needs(agent), hindsight_of(agent.critic)

    def of(kind: Any, *shape: int) -> Any:
        return jax.ShapeDtypeStruct((length, num_envs, *shape), kind)

    state, action, goal = (of(jnp.float32, size) for size in (spec.state_size, spec.action_size, spec.goal_size))
    windows = Transition(state, action, goal, of(jnp.int32), of(bool) if reads_falls(wanted, hindsight) else None)
    pairs = jax.eval_shape(
        lambda windows: relabel(windows, spec, s.discount, jax.random.key(0), wanted, hindsight, s.action_chunk),
        windows,
    )
    # By XLA's own account, for each pair of a window's rows: two numbers for the occupancy, a bit in a byte for hits.
    table = 2 * _FLOAT if "occupancy" in wanted else 1 if wanted & OF_OUTCOMES else 0
    tables = min(ENVS_AT_ONCE, num_envs) * length**2 * table
    return tables + sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(pairs))


class _LearnerSize(NamedTuple):
    parameters: int  # of actor, critic and temperature
    numbers: int  # of the whole state: these, Adam's moments, target networks, counters
    networks: int  # of the critic


def _learner_size(settings: Settings, spec: EnvSpec, agent: Agent) -> _LearnerSize:
    """Count a learner's state; the paper's by arithmetic, so that sizes beyond memory are counted too."""
    critic, network, size = agent.critic, agent.network, agent.condition.size(spec, agent.critic.repr_dim)
    if isinstance(critic, Contrastive) and isinstance(network, MLP | Residual):
        actor = network.num_parameters(spec.state_size + size, 2 * spec.action_size)
        psi_sa = network.num_parameters(spec.state_size + spec.action_size, critic.repr_dim)
        parameters = 1 + actor + psi_sa + network.num_parameters(spec.goal_size, critic.repr_dim)
        return _LearnerSize(parameters, 3 * parameters + 3, networks=2)  # Adam's two moments, and what it counts
    learner = Learner(Config(**vars(settings)), spec, agent)
    state = jax.eval_shape(lambda: learner.init(jax.random.key(0)))
    parts = state.params.critic.values() if isinstance(state.params.critic, dict) else ()
    networks = sum(isinstance(part, dict) and "out" in part for part in parts)
    return _LearnerSize(_count(state.params), _count(state), networks)


def _count(tree: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def _update_numbers(s: Settings, agent: Agent, learner: _LearnerSize) -> int:
    """Estimate what one update keeps: the critic's tables, and what the gradient needs of each layer of each pass.

    The factors are by XLA's own account. With n networks in the critic there are 2 n passes with a gradient: n in the
    critic's loss, n - 1 in the actor's (all but the goal's), and the actor itself.
    """
    network, passes = make_part("network", s), 2 * max(learner.networks, 1)
    if isinstance(network, Residual):  # at depths 16 and 64; of the parameters the gradient and the step
        of_layers = 6 * passes * network.width * network.layers
        return s.batch_size * (_table_numbers(s, agent.critic) + of_layers) + 2 * learner.parameters
    of_layers = (2 if s.layer_norm else 0.75) * passes * s.width * s.depth
    return int(s.batch_size * (_table_numbers(s, agent.critic) + of_layers))


def _table_numbers(s: Settings, critic: Any) -> int:
    """Estimate how many numbers of [B, B] and [B, W] each row of a batch has, with their gradients."""
    match critic:
        case Quasimetric():
            return 6 * critic.components * s.batch_size
        case SRL():
            return 8 * (s.batch_size + (critic.horizon or 0))
        case TDInfoNCE():
            return 4 * 8 * s.batch_size  # two members, against the next states and against random goals
        case GCBC():
            return 0
    return 8 * s.batch_size


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


def _memory_violations(settings: Settings, spec: EnvSpec) -> list[str]:
    parts, there = resident_parts(settings, spec), available_memory()
    needed = sum(parts.values())
    if there is None or needed <= there:
        return []
    fields = _REMEDIES[max(parts, key=lambda part: parts[part])]
    remedy = " or ".join(f"{name} ({getattr(settings, name)})" for name in fields)
    return [f"the run needs about {needed / 1e9:.1f} GB but {there / 1e9:.1f} GB are available: lower {remedy}"]


def available_memory() -> int | None:
    """Bytes that a run may take: the accelerator's if there is one, else the machine's. None where nobody tells."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return (device.memory_stats() or {}).get("bytes_limit")
    return machine_memory()


def machine_memory() -> int | None:
    """Return bytes that programs may still take; where nobody tells, all that there are. Does not start JAX."""
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
