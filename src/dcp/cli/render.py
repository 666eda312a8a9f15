"""`dcp render`: show one to four policies on the same episodes, as MP4, GIF and an interactive page."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from dcp.cli.flags import POSITIONAL, Burst, parse
from dcp.cli.main import COMMANDS
from dcp.config import Physics
from dcp.errors import UserError

if TYPE_CHECKING:
    from dcp.envs.base import Environment
    from dcp.lab.render.shown_episodes import Subject
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
    eval_layout: bool = False
    """On the environment's evaluation layout, which keeps only far goals."""
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
    return _main(parse(RenderOptions(), argv, "dcp render", COMMANDS["render"]))


def _main(options: RenderOptions) -> int:
    _require_sense(options)
    from dcp.lab.render.offscreen import require_renderer
    from dcp.lab.render.pictures import require_drawable
    from dcp.lab.render.shown_episodes import common_env, names_of
    from dcp.lab.render.video import FORMATS, NO_AV, Look, write_files
    from dcp.lab.targets import open_target
    from dcp.machine import compiling

    compiling.enable_cache()
    targets = [open_target(run) for run in options.runs]
    env = common_env(targets, options.env, options.eval_layout, options.physics)
    require_drawable(env, options.width, options.height)
    formats = FORMATS if options.format is None else options.format
    if env.spec.physics != "none" and "html" not in formats:  # the page needs no renderer
        require_renderer()
    folder = writable(options.out or targets[0].room(VIDEOS_DIR))
    names = names_of(targets)
    look = Look(options.camera, options.width, options.height, options.stride)
    with _progress() as progress:
        subjects = _play(targets, names, env, options, progress)
        bar = progress.add_task("drawing", total=None)
        _say(progress, "drawing")

        def on_frame(done: int, total: int) -> None:
            progress.update(bar, completed=done, total=total)

        stem = _stem(names, env, targets[0].physics, options)
        try:
            written, problems = write_files(env, subjects, folder, stem, formats, look, on_frame)
        except OSError as error:
            raise UserError(f"cannot write to {folder} ({error}): make room, or name another with --out") from error
    _tell(subjects, written)
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


def _require_sense(options: RenderOptions) -> None:
    if not options.runs:
        raise UserError("nothing to show: name a run's folder, a policy file or one of the zoo")
    if len(options.runs) > MOST:
        raise UserError(f"{len(options.runs)} policies do not fit side by side: name {MOST} at most")
    if options.format == ():
        raise UserError("--format needs at least one of mp4, gif and html")
    for name, least in (("seed", 0), ("episode", 0), ("episodes", 1), ("steps", 1), ("stride", 1)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise UserError(f"--{name} is {value}: use {least} or more")


def _play(
    targets: "list[Target]", names: list[str], env: "Environment", options: RenderOptions, progress: Progress
) -> "list[Subject]":
    from dcp.lab.render.shown_episodes import Shown, make_subject, side_by_side

    choose = len(targets) == 1 and options.episode is None and options.episodes == 1
    shown = Shown(
        options.seed,
        None if choose else options.episode or 0,
        options.episodes,
        options.steps,
        options.burst,
        options.direction,
        options.subgoal,
    )
    subjects = []
    for target, name in zip(targets, names, strict=True):
        what = f"playing {name} on {env.spec.name}"
        task = progress.add_task(what, total=1)
        _say(progress, what)

        def tell(doing: str, what: str = what, task: TaskID = task) -> None:
            progress.update(task, description=f"{what}: {doing}")
            _say(progress, f"{what}: {doing}")

        subjects.append(make_subject(target, name, env, shown, tell))
        progress.update(task, description=what, completed=1)
    return side_by_side(subjects[0]) if choose else subjects


def _stem(names: list[str], env: "Environment", own_physics: str, options: RenderOptions) -> str:
    """Return a file name that says what the files show, so that another view does not overwrite them."""
    parts = [env.spec.name, "_vs_".join(names), f"seed_{options.seed}"]
    parts += [f"episode_{options.episode}"] if options.episode else []
    parts += [f"physics_{env.spec.stepped_by}"] if env.spec.stepped_by != own_physics else []
    parts += [options.camera] if options.camera != "fixed" and env.spec.physics != "none" else []
    parts += ["burst_{}_{}".format(*options.burst)] if options.burst else []
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in "_".join(parts))


def writable(folder: Path) -> Path:
    """Create the folder if it is missing and return it; refuse one that cannot be written, before the slow work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise UserError(f"cannot write to {folder} ({error.strerror}): name another folder with --out") from error


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show progress bars on stderr if it is a terminal."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = TimeElapsedColumn(), TimeRemainingColumn()
    with Progress(*columns, *times, console=console, disable=not console.is_terminal) as progress:
        yield progress


def _say(progress: Progress, line: str) -> None:
    if not progress.console.is_terminal:
        print(line, file=sys.stderr, flush=True)


def _tell(subjects: "list[Subject]", written: list[Path]) -> None:
    for subject in subjects:
        reached = [f"reached at step {e.reached}" if e.reached else "not reached" for e in subject.episodes]
        print(f"{subject.title}: {', '.join(reached)}")
    for line in dict.fromkeys(f"{subject.name}: {subject.rate}" for subject in subjects):
        print(line)
    for path in written:
        print(f"  {path}  ({os.path.getsize(path) / 1e6:.2f} MB)")
