"""`dcp diagnose` and `dcp landscape`: compare an agent's representation with the truth, in numbers or over a maze.

The first writes JSON and figures to the run's folder; the second draws psi-distances next to the true ones.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from dcp.cli.flags import POSITIONAL, parse
from dcp.cli.main import COMMANDS
from dcp.cli.working import beside, print_table, require_picture, save_both, working
from dcp.errors import UserError


@dataclass(frozen=True)
class DiagnoseOptions:
    runs: Annotated[tuple[str, ...], POSITIONAL] = ()
    """Run folders, policy files, or zoo/<env>/<method>."""
    only: tuple[str, ...] = ()
    """Measure only these: gaps, alignment, controllability, calibration, regime. Under simulated physics the
    episodes and controllability compile for about half a minute each."""
    skip: tuple[str, ...] = ()
    """Measure all but these."""
    env: str | None = None
    """Study the agent on this environment. Default: the one that the run was evaluated on."""
    episodes: int | None = None
    """Episodes that are played. Default: 64, and 16 under simulated physics."""
    states: int = 256
    """Number of visited states at which to measure."""
    seed: int = 0
    """Seed of the episodes, samples and subgoals."""
    figures: bool = True
    """Also draw the figures."""
    out: Path | None = None
    """Write into this folder instead of <run>/diagnosis."""


def main(argv: list[str]) -> int:
    options = parse(DiagnoseOptions(), argv, "dcp diagnose", COMMANDS["diagnose"])
    if not options.runs:
        raise UserError("nothing to diagnose: name run folders, policy files or zoo/<env>/<method>")
    if options.only and options.skip:
        raise UserError("--only names what to measure and --skip what not: give one of them")
    if options.out and len(options.runs) > 1:
        raise UserError("--out is one folder, but several runs would write into it: leave it out, or name one run")
    from dcp.lab.diagnose import PARTS, diagnose, require_parts
    from dcp.lab.diagnose.results import COLUMNS, FOLDER, findings, write_diagnosis
    from dcp.lab.result_tables import Row, Table, require_writable
    from dcp.lab.targets import environment_of, open_target, require_psi
    from dcp.machine import compiling

    require_parts([*options.only, *options.skip])
    parts = [name for name in PARTS if name not in options.skip and (not options.only or name in options.only)]
    compiling.enable_cache()
    targets = [open_target(run) for run in options.runs]
    folders = [options.out or target.results_dir(FOLDER) for target in targets]
    for target, folder in zip(targets, folders, strict=True):  # report every mistake before the slow work starts
        require_psi(target)
        environment_of(target, options.env)
        require_writable(folder)
    sizes = {"episodes": options.episodes, "states": options.states, "seed": options.seed}
    for target, folder in zip(targets, folders, strict=True):
        with working(f"{target.label}: ") as say:
            content = diagnose(target, options.env, parts=parts, tell=say, **sizes)
            say("figures" if options.figures else "files")
            files = write_diagnosis(folder, content, options.figures)
        title = f"{content['policy']} on {content['env']}, {content['states']} states of {content['episodes']} episodes"
        rows = tuple(Row(finding.cells) for finding in findings(content))
        notes = tuple(f"Note: {note}." for note in content["notes"])
        print_table(Table("diagnosis", title, COLUMNS, rows, notes))
        print(f"Wrote {', '.join(map(str, files))}.")
    return 0


# `dcp landscape`


@dataclass(frozen=True)
class LandscapeOptions:
    runs: Annotated[tuple[str, ...], POSITIONAL] = ()
    """Run folders, policy files, or zoo/<env>/<method>."""
    goal: tuple[float, ...] = ()
    """X Y: distances to this point. Default: the goal cell that is farthest from the start by path."""
    range: Literal["panel", "paper", "common", "space"] = "panel"
    """Colours from the 1st to the 99th percentile of the distances along each run's own episodes (panel; of one that
    hardly moved over its free space; paper: not even then), along all runs' (common), or over free space (space)."""
    env: str | None = None
    """Draw this environment's maze. Default: the one that each run was evaluated on."""
    rollouts: int | None = None
    """Episodes drawn into each panel. Default: 6, or 0 under simulated physics, which compiles for a minute."""
    directions: bool = True
    """Also draw which way each field points."""
    out: Path | None = None
    """The picture's file; a PDF of the same name is written next to it. Default: landscape.png in the first folder."""


def landscape(argv: list[str]) -> int:
    options = parse(LandscapeOptions(), argv, "dcp landscape", COMMANDS["landscape"])
    if not options.runs:
        raise UserError("nothing to draw: name run folders, policy files or zoo/<env>/<method>")
    out = options.out or beside(options.runs[0], "landscape.png")
    require_picture(out)
    from dcp.lab.landscape_figure import BELOW_STRAIGHT, landscape_table, landscapes_figure
    from dcp.lab.psi_landscape import goal_of, hardly_moved, maze_env, rollouts_for, view, with_paths_in_labels
    from dcp.lab.targets import open_target
    from dcp.machine import compiling

    compiling.enable_cache()
    targets = [open_target(run) for run in options.runs]
    envs = [maze_env(target, options.env) for target in targets]
    for env in envs:  # report every mistake before the slow work starts
        rollouts_for(env.spec, options.rollouts)
    goals = {env.spec.name: goal_of(env, options.goal or None) for env in {e.spec.name: e for e in envs}.values()}
    views = [view(t, e, goals[e.spec.name], options.rollouts) for t, e in zip(targets, envs, strict=True)]
    views = with_paths_in_labels(views, targets)
    files = save_both(landscapes_figure(views, options.range, options.directions), out)
    print_table(landscape_table([("", each) for each in views]))
    if options.rollouts is None and any(env.spec.physics != "none" for env in envs):
        print("No episodes under simulated physics, which compiles for about a minute: --rollouts 6 draws them.")
    if any(each.is_below_straight_line for each in views):
        print(f"{BELOW_STRAIGHT}.")
    for each in (each for each in views if options.range == "panel" and hardly_moved(each)):
        print(f"{each.label}: its episodes cover few distances, so its colours span those of the free space.")
    print(f"Wrote {' and '.join(map(str, files))}.")
    return 0
