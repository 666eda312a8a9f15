"""`dcp envs` and `dcp methods`: print the two tables that a run chooses from."""

from inspect import getdoc
from textwrap import fill
from typing import Any

from rich.markup import escape
from rich.table import Table

from dcp.cli.flag_help import no_arguments
from dcp.cli.main import COMMANDS
from dcp.cli.working import show

WIDTH = 100  # of the text below the table
NUMBERS = ("S", "G", "A", "goal dims", "threshold", "steps")
_CRITIC_OUTPUTS = {  # what a critic may provide, in words
    "embedding": "embedding psi",
    "distance": "distance in psi-space",
    "steps": "steps to the goal",
    "survival": "chances not to have arrived before each step",
}


def envs(argv: list[str]) -> int:
    if not no_arguments(argv, "dcp envs", COMMANDS["envs"]):
        return 0
    from dcp.envs.registry import ENVIRONMENTS, make_env
    from dcp.errors import UserError

    table = Table("environment", "physics")
    for column in NUMBERS:
        table.add_column(column, justify="right")
    table.add_column("fixed")
    fixes: dict[str, int] = {}  # what is repaired -> its number below the table
    missing: dict[str, None] = {}  # sentences
    for name in ENVIRONMENTS:
        try:
            s = make_env(name).spec
        except UserError as error:  # an extra is not installed
            table.add_row(name, "not installed")
            missing[str(error)] = None
            continue
        for fix in s.fixes:
            fixes.setdefault(fix, len(fixes) + 1)
        numbers = (s.state_size, s.goal_size, s.action_size, _short(s.goal_dims), s.threshold, s.episode_length)
        marks = ", ".join(str(fixes[fix]) for fix in s.fixes)
        table.add_row(name, s.physics, *(str(number) for number in numbers), marks)
    show(table)
    _explain(fixes)
    print("\n".join(missing), end="\n" if missing else "")
    return 0


def _explain(fixes: dict[str, int]) -> None:
    print("physics: the paper's; --physics mujoco steps all but the points with MuJoCo's own engine instead.")
    print("--control tool: so101_push and so101_lift move the tool point, not the joints; sizes differ.")
    print("steps: per episode. fixed: with --fidelity fixed every episode draws a new start and goal, and:")
    for fix, number in fixes.items():
        print(fill(fix, WIDTH, initial_indent=f"  {number}  ", subsequent_indent=" " * 5))
    print("Your own: dcp train --env module:factory, or --env gym:ID for one that Gymnasium knows")


def _short(dims: tuple[int, ...]) -> str:
    """Write dimensions as text: (0, 1) -> 0, 1; three or more consecutive ones as first-last."""
    if len(dims) > 2 and dims == tuple(range(dims[0], dims[0] + len(dims))):
        return f"{dims[0]}-{dims[-1]}"
    return ", ".join(str(dim) for dim in dims)


def methods(argv: list[str]) -> int:
    if not no_arguments(argv, "dcp methods", COMMANDS["methods"]):
        return 0
    from dcp.methods.table import COMMANDS as COMMAND_ROWS
    from dcp.methods.table import CONDITIONS, CRITICS, METHODS, SCORES, needs_embedding

    table = Table("method", "critic", "rollout commands", "actor sees", "actor's loss aims at")
    for name, method in METHODS.items():
        kinds = (CRITICS.find(method.critic), COMMAND_ROWS.find(method.command), CONDITIONS.find(method.condition))
        table.add_row(name, *(kind.__name__ for kind in kinds), method.actor_goal)
    show(table)
    critics = Table("critic", "gives besides the value of an action", "actor sees")
    for name, critic in CRITICS.items():
        outputs = [str(_CRITIC_OUTPUTS.get(output, output)) for output in sorted(critic.gives)]
        sees = "any condition" if "steps" in critic.gives else "any condition but steps"
        sees = sees if "embedding" in critic.gives else "raw_goal: it has no psi"
        critics.add_row(name, ", ".join(outputs) or "nothing", sees)
    show(critics)
    conditions = Table("condition", "needs of the critic")
    for name, condition in CONDITIONS.items():
        needed = "steps to the goal" if getattr(condition, "needs_steps", False) else "embedding psi"
        needed = needed if needs_embedding(condition) else "nothing"
        conditions.add_row(name, needed)
    show(conditions)
    meanings = Table("part", "meaning")
    for name, part in [*CRITICS.items(), *COMMAND_ROWS.items(), *CONDITIONS.items()]:
        meanings.add_row(name, escape(_meaning(part)))
    show(meanings)
    print(f"--score: {', '.join(SCORES)}: which visited state z replaces the goal.")
    print("Any critic with an embedding works with any method: dcp train --method dcp --critic NAME.")
    print("The others work with raw_goal and final_goal.")
    return 0


def _meaning(part: Any) -> str:
    """Return the first sentence of a part's docstring."""
    return " ".join((getdoc(part) or "").split()).partition(". ")[0].rstrip(".")
