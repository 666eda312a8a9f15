"""`dcp methods`: the table of methods, its three columns spelled out."""

from rich.table import Table

from dcp.cli.flags import no_arguments
from dcp.cli.main import COMMANDS
from dcp.cli.tables import show

# What each entry of a column means; the methods themselves are rows of dcp.methods.table and are not named here.
_MEANINGS = {
    "FinalGoal": "asks for the goal g",
    "PooledSubgoal": "asks for a visited state z on the way to g",
    "RawGoal": "the actor reads its coordinates",
    "Direction": "the actor sees its direction and distance in psi-space",
    "future": "and learns from hindsight goals",
    "commanded": "and learns from what was asked for",
}


def main(argv: list[str]) -> int:
    if not no_arguments(argv, "dcp methods", COMMANDS["methods"]):
        return 0
    from dcp.methods.table import METHODS

    table = Table("method", "rollout commands", "actor sees", "actor's loss aims at", "meaning")
    for name, method in METHODS.items():
        columns = (method.command.__name__, method.condition.__name__, method.actor_goal)
        table.add_row(name, *columns, ", ".join(_MEANINGS.get(column, column) for column in columns))
    show(table)
    return 0
