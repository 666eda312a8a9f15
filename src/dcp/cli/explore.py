"""`dcp explore`: write a page on which you drag the goal, and the direction field and the policies follow it."""

import os
import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dcp.cli.flags import POSITIONAL, parse
from dcp.cli.main import COMMANDS
from dcp.config import Physics
from dcp.errors import UserError

if TYPE_CHECKING:
    from dcp.envs.base import Environment
    from dcp.lab.render.explore_page import Subject
    from dcp.lab.targets import Target

MOST = 4  # panels


@dataclass(frozen=True)
class ExploreOptions:
    runs: Annotated[tuple[str, ...], POSITIONAL] = ()
    """Run folders, policy files or zoo/<env>/<method>; up to four, side by side on the same goal."""
    env: str | None = None
    """Show them on this environment. Default: the one that the first run was evaluated on."""
    physics: Physics | None = None
    """What steps simulated bodies. Default: what the first run was trained with."""
    seed: int = 0
    """For simulated bodies: names the frozen set of episodes to record, as in `dcp eval --seeds`."""
    episodes: int = 4
    """How many episodes to record."""
    steps: int | None = None
    """Steps of a recorded episode, at most. Default: the run's own."""
    out: Path = Path("explore.html")
    """The page to write: one file that needs neither a network nor dcp."""
    open: bool = True
    """Open the page in a browser, if the command runs on a terminal."""


def main(argv: list[str]) -> int:
    return _main(parse(ExploreOptions(), argv, "dcp explore", COMMANDS["explore"]))


def _main(options: ExploreOptions) -> int:
    _require_sense(options)
    from dcp.lab.render.explore_page import LARGEST, require_psi, save_explore_page
    from dcp.lab.render.pictures import require_drawable
    from dcp.lab.render.shown_episodes import common_env, names_of
    from dcp.lab.targets import open_target
    from dcp.machine import compiling

    compiling.enable_cache()
    targets = [open_target(run) for run in options.runs]
    for target in targets:
        require_psi(target)
    env = common_env(targets, options.env, False, options.physics)
    require_drawable(env)
    subjects = [_subject(target, name, env, options) for target, name in zip(targets, names_of(targets), strict=True)]
    try:
        path = save_explore_page(options.out, env, subjects)
    except OSError as error:
        raise UserError(f"cannot write {options.out} ({error.strerror}): name another file with --out") from error
    size = os.path.getsize(path)
    print(f"{path}  ({size / 1e6:.2f} MB): open it in a browser, and drag the goal.")
    if size > LARGEST:
        print(f"It is larger than {LARGEST / 1e6:.0f} MB: record fewer --episodes.", file=sys.stderr)
    if options.open and sys.stdout.isatty():
        webbrowser.open(path.resolve().as_uri())
    return 0


def _require_sense(options: ExploreOptions) -> None:
    if not options.runs:
        raise UserError("nothing to explore: name a run's folder, a policy file or one of the zoo")
    if len(options.runs) > MOST:
        raise UserError(f"{len(options.runs)} policies do not fit side by side: name {MOST} at most")
    if options.out.suffix not in (".html", ".htm"):
        raise UserError(f"--out {options.out} is not a page: let its name end in .html")
    if options.out.is_dir():
        raise UserError(f"--out {options.out} is a folder: name a file in it")
    for name, least in (("seed", 0), ("episodes", 1), ("steps", 1)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise UserError(f"--{name} is {value}: use {least} or more")


def _subject(target: "Target", name: str, env: "Environment", options: ExploreOptions) -> "Subject":
    from dcp.lab.render.explore_page import Subject, pool_of, require_psi, runs_in_page
    from dcp.lab.render.shown_episodes import Shown, make_subject

    policy = require_psi(target)
    episodes = []
    if not runs_in_page(env, policy):
        print(f"recording {name} on {env.spec.name}", file=sys.stderr, flush=True)
        shown = Shown(options.seed, 0, options.episodes, options.steps, subgoal=True)
        episodes = make_subject(target, name, env, shown).episodes
    length = (target.config.episode_length if target.config else None) or env.spec.episode_length
    return Subject(name, target, episodes, *pool_of(target, env, policy, length))
