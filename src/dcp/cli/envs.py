"""`dcp envs`: the registry as a table."""

from rich.table import Table

from dcp.cli.flags import no_arguments
from dcp.cli.main import COMMANDS
from dcp.cli.tables import show


def main(argv: list[str]) -> int:
    if not no_arguments(argv, "dcp envs", COMMANDS["envs"]):
        return 0
    from dcp.envs.registry import ENVIRONMENTS, make_env

    table = Table("environment", caption="Your own: dcp train --env module:factory")
    for column in ("S", "G", "A", "goal dims", "threshold", "episode length"):
        table.add_column(column, justify="right")
    for name in ENVIRONMENTS:
        s = make_env(name).spec
        numbers = (s.state_size, s.goal_size, s.action_size, _short(s.goal_dims), s.threshold, s.episode_length)
        table.add_row(name, *(str(number) for number in numbers))
    show(table)
    return 0


def _short(dims: tuple[int, ...]) -> str:
    """(0, 1) -> 0, 1; a long run of neighbours as first-last"""
    if len(dims) > 3 and dims == tuple(range(dims[0], dims[0] + len(dims))):
        return f"{dims[0]}-{dims[-1]}"
    return ", ".join(str(dim) for dim in dims)
