"""`dcp envs`: the registry as a table, and below it what fidelity `fixed` repairs."""

from textwrap import fill

from rich.table import Table

from dcp.cli.flags import no_arguments
from dcp.cli.main import COMMANDS
from dcp.cli.tables import show

WIDTH = 100  # of what stands below the table
NUMBERS = ("S", "G", "A", "goal dims", "threshold", "steps")


def main(argv: list[str]) -> int:
    if not no_arguments(argv, "dcp envs", COMMANDS["envs"]):
        return 0
    from dcp.envs.registry import ENVIRONMENTS, make_env

    table = Table("environment", "physics")
    for column in NUMBERS:
        table.add_column(column, justify="right")
    table.add_column("fixed")
    fixes: dict[str, int] = {}  # what is repaired -> its number below the table
    for name in ENVIRONMENTS:
        s = make_env(name).spec
        for fix in s.fixes:
            fixes.setdefault(fix, len(fixes) + 1)
        numbers = (s.state_size, s.goal_size, s.action_size, _short(s.goal_dims), s.threshold, s.episode_length)
        marks = ", ".join(str(fixes[fix]) for fix in s.fixes)
        table.add_row(name, s.physics, *(str(number) for number in numbers), marks)
    show(table)
    _explain(fixes)
    return 0


def _explain(fixes: dict[str, int]) -> None:
    print("physics: the paper's; --physics mujoco steps all but the points by MuJoCo's own engine instead.")
    print("steps: of an episode. fixed: with --fidelity fixed every episode draws a new start and goal, and:")
    for fix, number in fixes.items():
        print(fill(fix, WIDTH, initial_indent=f"  {number}  ", subsequent_indent=" " * 5))
    print("Your own: dcp train --env module:factory")


def _short(dims: tuple[int, ...]) -> str:
    """(0, 1) -> 0, 1; a longer run of neighbours as first-last"""
    if len(dims) > 2 and dims == tuple(range(dims[0], dims[0] + len(dims))):
        return f"{dims[0]}-{dims[-1]}"
    return ", ".join(str(dim) for dim in dims)
