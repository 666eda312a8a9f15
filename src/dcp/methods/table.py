"""The paper as a table. Everything that is not in a row is one and the same for every method."""

from typing import NamedTuple

from dcp.config import Config
from dcp.errors import UserError
from dcp.methods.direction import Direction
from dcp.methods.final_goal import FinalGoal
from dcp.methods.interface import ActorGoal, Agent, Command, Condition
from dcp.methods.pooled_subgoal import PooledSubgoal
from dcp.methods.raw_goal import RawGoal
from dcp.types import EnvSpec


class Method(NamedTuple):
    command: type[FinalGoal] | type[PooledSubgoal]
    condition: type[RawGoal] | type[Direction]
    actor_goal: ActorGoal


METHODS = {
    #                     rollout commands  actor sees  actor's loss aims at
    "crl": Method(FinalGoal, RawGoal, "future"),  # the hindsight goal
    "ssgc": Method(PooledSubgoal, RawGoal, "commanded"),  # z, as stored
    "dcp": Method(PooledSubgoal, Direction, "commanded"),
    "dcp_no_pool": Method(FinalGoal, Direction, "commanded"),  # the fourth cell: an ablation for free
}

CONDITIONS: dict[str, type[RawGoal] | type[Direction]] = {row.name: row for row in (RawGoal, Direction)}


def make_condition(name: str) -> Condition:
    if name not in CONDITIONS:
        raise UserError(f"unknown condition {name!r}: choose one of {', '.join(CONDITIONS)}")
    return CONDITIONS[name]()


def make_agent(config: Config, spec: EnvSpec) -> Agent:
    """The configured method, for this environment."""
    method = METHODS[config.method]
    command: Command = FinalGoal()
    if method.command is PooledSubgoal:
        command = PooledSubgoal(
            pool_size=config.pool_size,
            num_candidates=config.num_candidates,
            period=config.subgoal_period,
            refresh_steps=config.pool_refresh_steps or config.episode_length or spec.episode_length,
            score=config.score,
            final_goal_share=config.final_goal_share,
            threshold=spec.threshold,
        )
    return Agent(command, method.condition(), config.actor_goal or method.actor_goal)
