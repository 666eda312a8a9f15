"""The paper's methods as a table. Everything that is not in a row is the same for every method."""

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from dcp.components import TABLES, Table, build, describe, require_part
from dcp.config import PARTS, WITH_SETTINGS, Config, Settings
from dcp.critics.contrastive import Contrastive
from dcp.errors import UserError, shown
from dcp.interfaces import (
    ActorGoal,
    Agent,
    Command,
    Condition,
    Critic,
    Hindsight,
    Problem,
    goals_of,
    needs,
    needs_embedding,
    part_for_task,
    representation_of,
)
from dcp.methods.commands import FinalGoal, PooledSubgoal
from dcp.methods.conditions import Direction, RawGoal
from dcp.methods.scores import SCORES
from dcp.networks import MLP, NETWORKS
from dcp.types import Array, Batch, EnvSpec


class Method(NamedTuple):
    critic: type[Critic] | str
    command: type[Command] | str
    condition: type[Condition] | str
    actor_goal: ActorGoal


PAPER = ("crl", "ssgc", "dcp", "dcp_no_pool")  # the paper's rows, which share its critic
METHODS = Table(
    "method",
    {
        #                     critic      rollout commands  actor sees  actor's loss aims at
        "crl": Method(Contrastive, FinalGoal, RawGoal, "future"),  # the hindsight goal
        "ssgc": Method(Contrastive, PooledSubgoal, RawGoal, "commanded"),  # z, as stored
        "dcp": Method(Contrastive, PooledSubgoal, Direction, "commanded"),
        "dcp_no_pool": Method(Contrastive, FinalGoal, Direction, "commanded"),  # an ablation: the fourth combination
        # Other critics: docs/critics.md
        "cmd": Method("quasimetric", FinalGoal, RawGoal, "future"),
        "tmd": Method("tmd", FinalGoal, RawGoal, "future"),
        "srl": Method("srl", FinalGoal, RawGoal, "future"),
        "chronosrl": Method("chronosrl", FinalGoal, RawGoal, "future"),
        "chronosrl_direction": Method("chronosrl", FinalGoal, Direction, "future"),  # another actor's input
        "sac_her": Method("sac", FinalGoal, RawGoal, "future"),
        "sac_direction": Method("sac+contrastive", FinalGoal, Direction, "future"),  # the paper's third direction
        "td3_her": Method("td3", FinalGoal, RawGoal, "future"),
        "td_infonce": Method("td_infonce", FinalGoal, RawGoal, "future"),
        "gcbc": Method("gcbc", FinalGoal, RawGoal, "future"),
        # Another command: docs/the_method.md
        "sgcrl": Method(Contrastive, "single_goal", RawGoal, "future"),  # one hard goal, always
    },
)
OUR_METHODS = frozenset(METHODS)  # without what users register
CRITICS = Table(
    "critic",
    {
        "contrastive": Contrastive,
        "quasimetric": "dcp.critics.quasimetric:Quasimetric",  # imported when it is first used
        "tmd": "dcp.critics.quasimetric:TMD",
        "srl": "dcp.critics.survival:SRL",
        "chronosrl": "dcp.critics.survival:ChronoSRL",
        "sac": "dcp.critics.value:SAC",
        "td3": "dcp.critics.value:TD3",
        "td_infonce": "dcp.critics.value:TDInfoNCE",
        "gcbc": "dcp.critics.value:GCBC",
    },
    joined="dcp.critics.pair:Pair",  # sac+contrastive: one values actions, the other embeds goals
)
COMMANDS = Table(
    "command",
    {
        "final_goal": FinalGoal,
        "pooled_subgoal": PooledSubgoal,
        "frontier": "dcp.methods.more_commands:Frontier",
        "single_goal": "dcp.methods.more_commands:SingleGoal",
    },
)
CONDITIONS = Table(
    "condition",
    {
        "raw_goal": RawGoal,
        "direction": Direction,
        "gradient": "dcp.methods.more_conditions:Gradient",
        "direction_and_goal": "dcp.methods.more_conditions:DirectionAndGoal",
        "steps": "dcp.methods.more_conditions:Steps",
        "two_step": "dcp.methods.more_conditions:TwoStep",
        "curvature": "dcp.methods.more_conditions:Curvature",
    },
)


@dataclass(frozen=True)
class Uniform(Hindsight):
    """Draw goals uniformly from the rest of the episode."""

    discount: float | None = 1.0


@dataclass(frozen=True)
class Final(Hindsight):
    """Take the episode's last achieved goal, as JaxGCRL's SAC and TD3 with HER do."""

    draws: Literal["future", "final"] = "final"


@dataclass(frozen=True)
class HER(Hindsight):
    """Draw goals from the future, and a share of them from any row of any environment."""

    others_share: float = 0.2


HINDSIGHTS = Table("hindsight", {"future": Hindsight, "uniform": Uniform, "final": Final, "her": HER})
assert [table.kind for table in (CRITICS, COMMANDS, CONDITIONS, NETWORKS)] == list(PARTS)


def named_parts(settings: Settings) -> dict[str, Any]:
    """Return the row or class of each part of the agent: the config's, else its method's."""
    parts = {kind: getattr(settings, kind) for kind in (*PARTS, "actor_goal")}
    if all(parts[kind] is not None for kind in PARTS) and settings.method not in METHODS:
        return {**parts, "actor_goal": parts["actor_goal"] or "commanded"}  # the method's name is only a label
    method = METHODS.find(settings.method)
    return {kind: getattr(method, kind) if parts[kind] is None else parts[kind] for kind in parts}


def make_part(kind: str, settings: Settings) -> Any:
    """Build the configured critic, command, condition or network with its settings."""
    name = named_parts(settings)[kind]
    row = TABLES[kind].find(name)
    shared = _from_config(row, settings)
    if kind == "critic" and isinstance(name, str) and "+" in name:
        halves = zip(("value", "embedding"), name.split("+"), strict=True)
        shared = {
            f"{of}.{field}": x for of, half in halves for field, x in _from_config(CRITICS[half], settings).items()
        }
    own = settings.settings_of(kind)
    if shadow := sorted(shared.keys() & own.keys()):  # the config's field has the checks
        raise UserError(f"{kind}.{shadow[0]} is the config's {shadow[0]}: set that instead")
    return build(kind, name, {**shared, **own})


def _from_config(row: Any, settings: Settings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in getattr(row, "from_config", ())}


def make_agent(settings: Settings, spec: EnvSpec) -> Agent:
    """Build the configured method for this environment, or refuse parts that do not fit together."""
    parts = {kind: make_part(kind, settings) for kind in PARTS}
    agent = Agent(actor_goal=named_parts(settings)["actor_goal"], **parts)
    own = settings.settings_of("hindsight")
    if own and settings.hindsight is None:
        raise UserError(f"hindsight.{next(iter(own))} is a setting without its row: name a --hindsight, such as her")
    if settings.hindsight is not None:
        agent = agent._replace(hindsight=build("hindsight", settings.hindsight, own))
    return for_task(checked_agent(agent), spec, settings.episode_length)


def for_task(agent: Agent, spec: EnvSpec, episode_length: int | None = None) -> Agent:
    """Return the agent whose critic, command and condition have filled in defaults that depend on the task."""
    length = episode_length or spec.episode_length
    parts = {kind: part_for_task(getattr(agent, kind), spec, length) for kind in ("critic", "command", "condition")}
    return _of_its_size(agent._replace(**parts), spec)


def _of_its_size(agent: Agent, spec: EnvSpec) -> Agent:
    """Return the agent if its condition gives as many numbers as its size says. Ours are tested, a user's is traced."""
    condition = agent.condition
    if type(condition).__module__.startswith("dcp."):
        return agent
    problem = Problem(spec, agent.network or MLP())

    def condition_of(keys: Array, goal: Array) -> Array:
        params = agent.critic.init(keys, problem).params
        return condition(representation_of(agent.critic, problem, params), goal, goal)

    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0)))
    shape = jax.eval_shape(condition_of, keys, jax.ShapeDtypeStruct((2, spec.goal_size), jnp.float32)).shape
    size = condition.size(spec, agent.critic.repr_dim)
    if shape != (2, size):
        name = CONDITIONS.name_of(type(condition))
        raise UserError(
            f"the condition {name} gives [{', '.join(map(str, shape))}] for goals [2, {spec.goal_size}], but its size "
            f"is {size}: make it give [..., {size}], or let size return what it gives"
        )
    return agent


def checked_agent(agent: Agent) -> Agent:
    """Return the agent if its parts fit together; refuse missing replay data, or a need for psi without one."""
    for kind in PARTS:
        if (part := getattr(agent, kind)) is not None:
            require_part(kind, type(part), TABLES[kind].name_of(type(part)))
    unknown = sorted(needs(agent) - set(Batch._fields[3:]))
    if unknown:
        name, known = CRITICS.name_of(type(agent.critic)), ", ".join(Batch._fields[3:])
        raise UserError(f"the critic {name} needs {unknown[0]!r}, which the replay does not give: it gives {known}")
    critic = CRITICS.name_of(type(agent.critic))
    if broken := _broken_hindsight(goals_of(agent)):
        raise UserError(f"the hindsight of the critic {critic} has {broken}")
    if getattr(agent.condition, "needs_steps", False) and "steps" not in agent.critic.gives:
        able = ", ".join(name for name, row in CRITICS.items() if "steps" in row.gives)
        condition = CONDITIONS.name_of(type(agent.condition))
        raise UserError(
            f"the condition {condition} reads steps to the goal, which the critic {critic} does not give: "
            f"use direction, or one of the critics {able}"
        )
    fits = getattr(agent.critic, "actor_goals", (agent.actor_goal,))
    if agent.actor_goal not in fits:
        raise UserError(
            f"the critic {critic} cannot teach the actor the {agent.actor_goal} goal: use actor_goal {fits[0]}"
        )
    if "embedding" in agent.critic.gives:
        return agent
    if needs_embedding(agent.condition):
        condition = CONDITIONS.name_of(type(agent.condition))
        raise UserError(f"the condition {condition} reads psi, and the critic {critic} has none: use raw_goal")
    if getattr(agent.command, "needs_embedding", False):
        command = COMMANDS.name_of(type(agent.command))
        raise UserError(f"the command {command} reads psi, and the critic {critic} has none: use final_goal")
    if (score := getattr(agent.command, "score", None)) is not None and needs_embedding(SCORES.find(score)):
        raise UserError(
            f"the score {SCORES.name_of(score)} reads psi, and the critic {critic} has none: use final_goal"
        )
    return agent


def _broken_hindsight(hindsight: Hindsight) -> str | None:
    """Return what is wrong with how a critic draws its goals, or None."""
    h = hindsight
    shares = {name: x for name, x in vars(h).items() if name.endswith("_share")}
    if h.draws not in ("future", "final"):
        return f"draws {shown(h.draws)}: use future or final"
    if h.discount is not None and not 0.0 < h.discount <= 1.0:
        return f"discount {h.discount}: use a number above 0 and up to 1"
    if not 0.0 <= shares.pop("moving_share") <= 1.0:
        return f"moving_share {h.moving_share}: use a share from 0 to 1"
    if not (min(shares.values()) >= 0.0 and sum(shares.values()) <= 1.0):
        listed = " and ".join(f"{name} {x}" for name, x in shares.items() if x)
        return f"{listed}: use shares from 0 whose sum is at most 1"
    if h.goal_steps < 1 or (h.draws == "final" and h.goal_steps > 1):
        most = "1: nothing follows a final goal" if h.draws == "final" else "1 or more"
        return f"goal_steps {h.goal_steps}: use {most}"
    return None


def config_of(agent: Agent, config: Config) -> Config:
    """Return the config with an agent's parts and settings, from which `make_agent` builds this agent again."""
    fields: dict[str, Any] = {"actor_goal": agent.actor_goal}
    settings: dict[str, Any] = {}
    for kind in WITH_SETTINGS:
        part = getattr(agent, kind)
        if part is None:
            continue
        fields[kind], values = describe(kind, part).values()
        shared = _shared_fields(part)
        fields |= {field: values[path] for path, field in shared.items()}
        settings |= {f"{kind}.{path}": value for path, value in values.items() if path not in shared}
    method = config.method  # keep a name that the user chose
    if method in METHODS:
        method = next((name for name, row in METHODS.items() if _is_row(agent, row)), "own")
    return replace(config, method=method, component_settings=settings, **fields)


def _shared_fields(part: Any) -> dict[str, str]:
    """Return the config's fields among a part's settings, by the setting's path: a pair's begin with the half."""
    if hasattr(part, "halves"):
        halves = part.halves().items()
        return {f"{half}.{path}": field for half, of in halves for path, field in _shared_fields(of).items()}
    return {field: field for field in getattr(type(part), "from_config", ())}


def _is_row(agent: Agent, method: Method) -> bool:
    parts = zip(("critic", "command", "condition"), method[:3], strict=True)
    names = [(describe(kind, getattr(agent, kind))["name"], TABLES[kind].name_of(row)) for kind, row in parts]
    return all(own == of_row for own, of_row in names) and agent.actor_goal == method.actor_goal
