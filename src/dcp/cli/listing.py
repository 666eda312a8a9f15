"""`dcp envs` and `dcp methods`: print the two tables that a run chooses from."""

from textwrap import fill

from rich.table import Table

from dcp.cli.flag_help import no_arguments
from dcp.cli.main import COMMANDS
from dcp.cli.working import show

WIDTH = 100  # of the text below the table
NUMBERS = ("S", "G", "A", "goal dims", "threshold", "steps")
# What each entry of a column means; the methods themselves are rows of dcp.methods.table and are not named here.
_MEANINGS = {
    "Contrastive": "tells reached goals from other rows' (InfoNCE)",
    "Quasimetric": "a contrastive quasimetric, whose way back may be longer (CMD-1)",
    "TMD": "the same distance, held to one step between neighbours",
    "SRL": "survival: when, if ever, the goal is reached",
    "ChronoSRL": "survival, and a distance in steps",
    "SAC": "a value of hindsight rewards (SAC with HER)",
    "TD3": "a value of hindsight rewards (TD3 with HER)",
    "Pair": "one critic's value, another's psi",
    "TDInfoNCE": "InfoNCE of what is visited later, by bootstrapping",
    "GCBC": "imitates the replay's actions",
    "FinalGoal": "asks for the goal g",
    "PooledSubgoal": "asks for a visited state z on the way to g",
    "Frontier": "asks for a rare visited state z within reach",
    "SingleGoal": "always asks for the goal that is farthest from the start",
    "RawGoal": "the actor reads its coordinates",
    "Direction": "the actor sees its direction and distance in psi-space",
    "Gradient": "the actor sees the way down its distance, in the goal's coordinates",
    "DirectionAndGoal": "the actor sees its direction, distance and coordinates",
    "Steps": "the actor sees its direction and the steps to it",
    "TwoStep": "the actor sees its direction and distance now and one step on",
    "Curvature": "the actor sees its direction, distance and how the direction turns",
    "future": "and learns from the replay's goals",
    "commanded": "and learns from what was asked for",
}

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

    table = Table("method", "critic", "rollout commands", "actor sees", "actor's loss aims at", "meaning")
    for name, method in METHODS.items():
        kinds = (CRITICS.find(method.critic), COMMAND_ROWS.find(method.command), CONDITIONS.find(method.condition))
        columns = [*(kind.__name__ for kind in kinds), method.actor_goal]
        table.add_row(name, *columns, "; ".join(_MEANINGS.get(column, str(column)) for column in columns))
    show(table)
    critics = Table("critic", "gives besides the value of an action", "actor sees")
    for name, critic in CRITICS.items():
        outputs = [str(_CRITIC_OUTPUTS.get(output, output)) for output in sorted(critic.gives)]
        seen = "any condition" if "steps" in critic.gives else "any condition but steps"
        seen = seen if "embedding" in critic.gives else "raw_goal: it has no psi"
        critics.add_row(name, ", ".join(outputs) or "nothing", seen)
    show(critics)
    conditions = Table("condition", "meaning", "needs of the critic")
    for name, condition in CONDITIONS.items():
        needed = "steps to the goal" if getattr(condition, "needs_steps", False) else "embedding psi"
        needed = needed if needs_embedding(condition) else "nothing"
        conditions.add_row(name, _MEANINGS.get(condition.__name__, ""), needed)
    show(conditions)
    print(f"--score: {', '.join(SCORES)}: which visited state z replaces the goal.")
    print("Any critic with an embedding works with any method: dcp train --method dcp --critic NAME.")
    print("The others work with raw_goal and final_goal.")
    return 0
