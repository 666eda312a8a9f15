"""`dcp render`: show one to four policies on the same episodes, as MP4, GIF and an interactive page. `dcp explore`: a
page on which you drag the goal, and the direction field and the policies follow it."""

import os
import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from dcp.cli.flags import POSITIONAL, Burst, parse
from dcp.cli.main import COMMANDS
from dcp.cli.working import Say, beside, require_least, working
from dcp.config import Physics
from dcp.errors import UserError

if TYPE_CHECKING:
    from dcp.envs.base import Environment
    from dcp.lab.episodes import ShownPolicy
    from dcp.lab.render.explore_page import Panel
    from dcp.lab.targets import Target

VIDEOS_DIR = "videos"
MOST = 4  # panels in a row


@dataclass(frozen=True)
class RenderOptions:
    runs: Annotated[tuple[str, ...], POSITIONAL] = ()
    """Run folders, policy files or zoo/<env>/<method>; two to four are shown side by side, on the same episodes."""
    seed: int = 0
    """Names a frozen set of starts and goals: those of `dcp eval --seeds`."""
    episode: int | None = None
    """The first episode to show. Default: for one policy, one that arrives next to one that does not; else 0."""
    episodes: int = 1
    """How many episodes to show, one after another."""
    steps: int | None = None
    """Steps of an episode, at most. Default: the run's own."""
    env: str | None = None
    """Show them on this environment. Default: the one that the first run was evaluated on."""
    physics: Physics | None = None
    """What steps simulated bodies. Default: what the first run was trained with."""
    burst: Burst = None
    """P L: random actions in the last L of every P steps. Without values: 100 10."""
    camera: Literal["fixed", "tracking", "top"] = "fixed"
    """The camera's view of simulated bodies. Points in mazes are always seen from above."""
    direction: Literal["auto", "on", "off"] = "auto"
    """The arrow of what the actor sees: auto draws it for policies that see a direction."""
    subgoal: bool = False
    """Draw the subgoal that training would command now, chosen from states that this policy visits."""
    stride: int | None = None
    """Environment steps per frame. Default: 2 for simulated bodies, 1 for points."""
    format: tuple[Literal["mp4", "gif", "html"], ...] | None = None
    """What to write. Default: all three, but no MP4 if PyAV is not installed."""
    width: int = 480
    """Pixels of one policy's picture."""
    height: int = 400
    """Pixels of one policy's picture."""
    out: Path | None = None
    """Folder for the files. Default: videos/ in the first run's folder."""


def main(argv: list[str]) -> int:
    options = parse(RenderOptions(), argv, "dcp render", COMMANDS["render"])
    if not options.runs:
        raise UserError("nothing to show: name a run's folder, a policy file or one of the zoo")
    _require_panels(options.runs)
    if options.format == ():
        raise UserError("--format needs at least one of mp4, gif and html")
    require_least(options, seed=0, episode=0, episodes=1, steps=1, stride=1)
    from dcp.lab.episodes import common_env, names_of
    from dcp.lab.offscreen import require_renderer
    from dcp.lab.render import require_drawable
    from dcp.lab.render.video import FORMATS, NO_AV, Look, write_files
    from dcp.lab.result_tables import require_writable
    from dcp.lab.targets import open_target
    from dcp.machine import compiling

    compiling.enable_cache()
    targets = [open_target(run) for run in options.runs]
    env = common_env(targets, options.env, options.physics)
    require_drawable(env, options.width, options.height)
    formats = FORMATS if options.format is None else options.format
    if env.spec.physics != "none" and "html" not in formats:  # the page needs no renderer
        require_renderer()
    folder = options.out or targets[0].results_dir(VIDEOS_DIR)
    require_writable(folder)
    names = names_of(targets)
    look = Look(options.camera, options.width, options.height, options.stride)
    with working() as say:
        policies = _play(targets, names, env, options, say)
        say("drawing")
        stem = _stem(names, env, targets[0].physics, options)
        try:
            written, problems = write_files(
                env, policies, folder, stem, formats, look, lambda done, total: say("drawing", done, total)
            )
        except OSError as error:
            raise UserError(f"cannot write to {folder} ({error}): make room, or name another with --out") from error
    for shown in policies:
        reached = [f"reached at step {e.reached}" if e.reached else "not reached" for e in shown.episodes]
        print(f"{shown.title}: {', '.join(reached)}")
    for line in dict.fromkeys(f"{shown.name}: {shown.rate}" for shown in policies):
        print(line)
    for path in written:
        print(f"  {path}  ({os.path.getsize(path) / 1e6:.2f} MB)")
    if problems == [NO_AV] and options.format is None:  # nobody asked for MP4 by name
        print(f"No MP4: {NO_AV}", file=sys.stderr)
    elif problems:
        raise UserError(" ".join(problems))
    return 0


def clean_up() -> None:
    """Remove the files that a Ctrl-C leaves half written."""
    video = sys.modules.get("dcp.lab.render.video")
    for draft in list(video.DRAFTS) if video else ():
        draft.unlink(missing_ok=True)


def _play(
    targets: "list[Target]", names: list[str], env: "Environment", options: RenderOptions, say: Say
) -> "list[ShownPolicy]":
    from dcp.lab.episodes import Shown, show_policy, side_by_side

    choose = len(targets) == 1 and options.episode is None and options.episodes == 1
    first = None if choose else options.episode or 0
    guides = options.burst, options.direction, options.subgoal
    shown = Shown(options.seed, first, options.episodes, options.steps, *guides)
    policies = []
    for target, name in zip(targets, names, strict=True):
        what = f"playing {name} on {env.spec.name}"
        say(what)
        policies.append(show_policy(target, name, env, shown, lambda doing, what=what: say(f"{what}: {doing}")))
    return side_by_side(policies[0]) if choose else policies


def _stem(names: list[str], env: "Environment", own_physics: str, options: RenderOptions) -> str:
    """Return a file name that says what the files show, so that another view does not overwrite them."""
    parts = [env.spec.name, "_vs_".join(names), f"seed_{options.seed}"]
    parts += [f"episode_{options.episode}"] if options.episode else []
    parts += [f"physics_{env.spec.stepped_by}"] if env.spec.stepped_by != own_physics else []
    parts += [options.camera] if options.camera != "fixed" and env.spec.physics != "none" else []
    parts += ["burst_{}_{}".format(*options.burst)] if options.burst else []
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in "_".join(parts))


def _require_panels(runs: tuple[str, ...]) -> None:
    if len(runs) > MOST:
        raise UserError(f"{len(runs)} policies do not fit side by side: name {MOST} at most")


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
    out: Path | None = None
    """The page to write: one file that needs neither a network nor dcp. Default: explore.html in the first folder."""
    open: bool = True
    """Open the page in a browser, if the command runs on a terminal."""


def explore(argv: list[str]) -> int:
    options = parse(ExploreOptions(), argv, "dcp explore", COMMANDS["explore"])
    _require_page(options)
    out = options.out or beside(options.runs[0], "explore.html")
    from dcp.lab.episodes import common_env, names_of
    from dcp.lab.render import require_drawable
    from dcp.lab.render.explore_page import LARGEST, require_explorable, save_explore_page
    from dcp.lab.targets import open_target
    from dcp.machine import compiling

    compiling.enable_cache()
    targets = [open_target(run) for run in options.runs]
    for target in targets:
        require_explorable(target)
    env = common_env(targets, options.env, options.physics)
    require_drawable(env)
    panels = [_panel(target, name, env, options) for target, name in zip(targets, names_of(targets), strict=True)]
    try:
        path = save_explore_page(out, env, panels)
    except OSError as error:
        raise UserError(f"cannot write {out} ({error.strerror}): name another file with --out") from error
    size = os.path.getsize(path)
    print(f"{path}  ({size / 1e6:.2f} MB): open it in a browser, and drag the goal.")
    if size > LARGEST:
        print(f"It is larger than {LARGEST / 1e6:.0f} MB: record fewer --episodes.", file=sys.stderr)
    if options.open and sys.stdout.isatty():
        webbrowser.open(path.resolve().as_uri())
    return 0


def _require_page(options: ExploreOptions) -> None:
    if not options.runs:
        raise UserError("nothing to explore: name a run's folder, a policy file or one of the zoo")
    _require_panels(options.runs)
    if options.out is not None and options.out.suffix not in (".html", ".htm"):
        raise UserError(f"--out {options.out} is not a page: let its name end in .html")
    if options.out is not None and options.out.is_dir():
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
