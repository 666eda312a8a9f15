"""The paper as a table: which command, which condition, which actor goal."""

from dataclasses import dataclass

import pytest

from dcp.algorithm import Algorithm
from dcp.config import Config
from dcp.critics.contrastive import Contrastive
from dcp.critics.quasimetric import TMD
from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.interfaces import Agent, Hindsight
from dcp.methods.commands import FinalGoal, PooledSubgoal
from dcp.methods.conditions import Direction, RawGoal
from dcp.methods.table import COMMANDS, CONDITIONS, METHODS, PAPER, Method, checked_agent, make_agent, make_part

SPEC = make_env("point_u_maze").spec


def test_the_table_is_the_papers():
    papers = {
        "crl": (Contrastive, FinalGoal, RawGoal, "future"),
        "ssgc": (Contrastive, PooledSubgoal, RawGoal, "commanded"),
        "dcp": (Contrastive, PooledSubgoal, Direction, "commanded"),
        "dcp_no_pool": (Contrastive, FinalGoal, Direction, "commanded"),
    }
    assert papers == {name: METHODS[name] for name in PAPER}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("actor_goal", [None, "future", "commanded"])
def test_an_agent_is_its_row_unless_the_actor_goal_is_overridden(method: str, actor_goal):
    if (method, actor_goal) == ("gcbc", "commanded"):
        with pytest.raises(UserError, match="gcbc cannot teach the actor the commanded goal: use actor_goal future"):
            make_agent(Config(method=method, actor_goal=actor_goal), SPEC)
        return
    agent = make_agent(Config(method=method, actor_goal=actor_goal), SPEC)
    row = METHODS[method]
    assert type(agent.command) is COMMANDS.find(row.command)
    assert type(agent.condition) is CONDITIONS.find(row.condition)
    assert agent.actor_goal == (actor_goal or row.actor_goal)


def test_the_pools_settings_come_from_the_config_and_the_environment():
    config = Config(pool_size=9, num_candidates=4, subgoal_period=7, score="cosine", final_goal_share=0.5)
    assert make_agent(config, SPEC).command == PooledSubgoal(
        pool_size=9,
        num_candidates=4,
        subgoal_period=7,
        pool_refresh_steps=250,  # the environment's episode
        score="cosine",
        final_goal_share=0.5,
        threshold=0.125,
    )


@pytest.mark.parametrize(
    ("settings", "steps"), [({"episode_length": 40}, 40), ({"episode_length": 40, "pool_refresh_steps": 90}, 90)]
)
def test_the_pools_memory_is_one_episode_unless_it_is_given(settings: dict, steps: int):
    command = make_agent(Config(**settings), SPEC).command
    assert isinstance(command, PooledSubgoal)
    assert command.pool_refresh_steps == steps


def test_a_new_command_needs_only_its_row(monkeypatch):
    class Nearest(FinalGoal):
        pass

    monkeypatch.setitem(METHODS, "nearest", Method(Contrastive, Nearest, RawGoal, "future"))
    assert type(make_agent(Config(method="nearest"), SPEC).command) is Nearest


def test_a_condition_is_found_by_name():
    assert isinstance(make_part("condition", Config(condition="raw_goal")), RawGoal)
    assert isinstance(make_part("condition", Config(condition="direction")), Direction)
    with pytest.raises(UserError, match="unknown condition 'compass': choose one of raw_goal, direction"):
        make_part("condition", Config(condition="compass"))


@dataclass(frozen=True)
class OwnGoals(Contrastive):
    """A user's critic that draws its goals in another way."""

    hindsight: Hindsight = Hindsight()  # noqa: RUF009


@pytest.mark.parametrize(
    ("hindsight", "words"),
    [
        ({"draws": "last"}, "has draws 'last': use future or final"),
        ({"discount": 0.0}, "has discount 0.0: use a number above 0 and up to 1"),
        ({"discount": 1.01}, "has discount 1.01"),
        ({"current_share": -0.1}, "has current_share -0.1: use shares from 0"),
        ({"current_share": 0.6, "random_share": 0.5}, "whose sum is at most 1"),
        ({"draws": "final", "goal_steps": 2}, "has goal_steps 2: use 1: nothing follows a final goal"),
        ({"goal_steps": 0}, "has goal_steps 0: use 1 or more"),
    ],
)
def test_goals_that_cannot_be_drawn_are_refused_in_one_sentence(hindsight: dict, words: str):
    with pytest.raises(UserError, match=words):
        checked_agent(Agent(OwnGoals(hindsight=Hindsight(**hindsight)), FinalGoal(), RawGoal()))


@pytest.mark.parametrize("hindsight", [{}, {"draws": "final"}, {"discount": 1.0, "random_share": 1.0, "goal_steps": 2}])
def test_goals_that_can_be_drawn_are_accepted(hindsight: dict):
    agent = Agent(OwnGoals(hindsight=Hindsight(**hindsight)), FinalGoal(), RawGoal())
    assert checked_agent(agent) is agent


@pytest.mark.parametrize(
    ("method", "setting", "value"),
    [
        ("dcp", "command.pool_size", 16),
        ("dcp", "command.num_candidates", 8),
        ("dcp", "command.subgoal_period", 0),
        ("crl", "critic.repr_dim", 0),
        ("crl", "network.depth", 0),
        ("tmd", "critic.discount", 0.9),
    ],
)
def test_a_parts_setting_that_is_the_configs_is_refused(method: str, setting: str, value: float):
    """It would go round the config's checks: a subgoal_period of 0 divides by zero."""
    name = setting.partition(".")[2]
    with pytest.raises(UserError, match=f"{setting} is the config's {name}: set that instead"):
        make_agent(Config(method=method, component_settings={setting: value}), SPEC)


def test_a_parts_setting_that_only_looks_like_the_configs_is_its_own():
    """TMD has a contrastive loss of its own, and the pool a threshold."""
    config = Config(method="tmd", component_settings={"critic.contrastive_loss": "forward"})
    assert make_part("critic", config) == TMD(contrastive_loss="forward")
    assert make_part("command", Config(component_settings={"command.threshold": 0.3})).threshold == 0.3


@dataclass(frozen=True)
class Short:
    """A condition that forgets to count the distance."""

    def size(self, spec, repr_dim):
        return repr_dim

    def __call__(self, representation, achieved, commanded):
        return Direction()(representation, achieved, commanded)


def test_a_condition_that_gives_more_than_its_size_is_refused_when_the_agent_is_composed():
    """D = 64 and the distance: 65 numbers for each of the two goals that are tried."""
    agent = Agent(Contrastive(), FinalGoal(), Short(), "commanded")
    with pytest.raises(UserError, match=r"Short gives \[2, 65\] for goals \[2, 2\], but its size is 64"):
        Algorithm("point_u_maze", agent, Config())
