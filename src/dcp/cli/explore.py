"""`dcp explore`: write a page on which you drag the goal, and the direction field and the policies follow it."""

import os
import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dcp.cli.flags import POSITIONAL, parse
from dcp.cli.main import COMMANDS
from dcp.cli.working import require_least, require_panels
from dcp.config import Physics
from dcp.errors import UserError

if TYPE_CHECKING:
    from dcp.envs.base import Environment
    from dcp.lab.render.explore_page import Panel
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
    options = parse(ExploreOptions(), argv, "dcp explore", COMMANDS["explore"])
    _require_sense(options)
    from dcp.lab.episodes import common_env, names_of
    from dcp.lab.render import require_drawable
    from dcp.lab.render.explore_page import LARGEST, require_explorable, save_explore_page
    from dcp.lab.targets import open_target
    from dcp.machine import compiling

    compiling.enable_cache()
    targets = [open_target(run) for run in options.runs]
    for target in targets:
        require_explorable(target)
    env = common_env(targets, options.env, False, options.physics)
    require_drawable(env)
    panels = [_panel(target, name, env, options) for target, name in zip(targets, names_of(targets), strict=True)]
    try:
        path = save_explore_page(options.out, env, panels)
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
    require_panels(options.runs, MOST)
    if options.out.suffix not in (".html", ".htm"):
        raise UserError(f"--out {options.out} is not a page: let its name end in .html")
    if options.out.is_dir():
        raise UserError(f"--out {options.out} is a folder: name a file in it")
    require_least(options, seed=0, episodes=1, steps=1)


def _panel(target: "Target", name: str, env: "Environment", options: ExploreOptions) -> "Panel":
    from dcp.lab.episodes import Shown, show_policy
    from dcp.lab.render.explore_page import Panel, pool_of, require_explorable, runs_in_page
    from dcp.runs.run_status import read_pool

    policy, episodes = require_explorable(target), []
    if not runs_in_page(env, policy):
        print(f"recording {name} on {env.spec.name}", file=sys.stderr, flush=True)
        shown = Shown(options.seed, 0, options.episodes, options.steps, subgoal=True)
        episodes = show_policy(target, name, env, shown).episodes
    length = (target.config.episode_length if target.config else None) or env.spec.episode_length
    return Panel(name, target, episodes, *pool_of(target, env, policy, length, read_pool))
