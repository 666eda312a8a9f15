"""The paper as a table. Everything that is not in a row is one and the same for every method."""

from typing import NamedTuple

from dcp.config import Config
from dcp.errors import UserError
from dcp.methods.commands import FinalGoal, PooledSubgoal
from dcp.methods.conditions import Direction, RawGoal
from dcp.methods.interface import ActorGoal, Agent, Command, Condition
from dcp.types import EnvSpec


class Method(NamedTuple):
    command: type[Command]
    condition: type[Condition]
    actor_goal: ActorGoal


METHODS = {
    #                     rollout commands  actor sees  actor's loss aims at
    "crl": Method(FinalGoal, RawGoal, "future"),  # the hindsight goal
    "ssgc": Method(PooledSubgoal, RawGoal, "commanded"),  # z, as stored
    "dcp": Method(PooledSubgoal, Direction, "commanded"),
    "dcp_no_pool": Method(FinalGoal, Direction, "commanded"),  # the fourth cell: an ablation for free
}

CONDITIONS: dict[str, type[Condition]] = {row.condition.name: row.condition for row in METHODS.values()}


def make_condition(name: str) -> Condition:
    if name not in CONDITIONS:
        raise UserError(f"unknown condition {name!r}: choose one of {', '.join(CONDITIONS)}")
    return CONDITIONS[name]()


def make_agent(config: Config, spec: EnvSpec) -> Agent:
    """The configured method, for this environment."""
    method = METHODS[config.method]
    return Agent(method.command.make(config, spec), method.condition(), config.actor_goal or method.actor_goal)
