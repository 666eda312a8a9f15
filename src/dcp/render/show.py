"""From policies to files: their episodes, what is drawn into them, and then every format that was asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax

from dcp.config import Config
from dcp.envs.base import Environment
from dcp.errors import UserError
from dcp.evaluation.targets import Target, environment_of
from dcp.evaluation.trial import variant
from dcp.methods.table import METHODS
from dcp.render.cameras import Camera
from dcp.render.episodes import Episode, shown_episodes
from dcp.render.frames import Subject, count_frames, frames
from dcp.render.guides import directions, has_representation, make_scorer, sees_direction
from dcp.render.picture import HEIGHT, WIDTH, make_drawing
from dcp.render.video import NO_AV, GifWriter, Mp4Writer, Writer, Writers, load_av

Format = Literal["mp4", "gif", "html"]
FORMATS: tuple[Format, ...] = ("mp4", "gif", "html")
STRIDE_BODIES, STRIDE_POINT = 2, 1


@dataclass(frozen=True)
class Shown:
    """Which episodes, and what is drawn of them."""

    seed: int = 0
    first: int = 0  # of the seed's episodes
    num_episodes: int = 1
    steps: int | None = None
    burst: tuple[int, int] | None = None
    direction: Literal["auto", "on", "off"] = "auto"
    subgoal: bool = False


@dataclass(frozen=True)
class Look:
    camera: Camera = "fixed"
    width: int = WIDTH
    height: int = HEIGHT
    stride: int | None = None

    def stride_for(self, env: Environment) -> int:
        return self.stride or (STRIDE_POINT if env.spec.physics == "none" else STRIDE_BODIES)


def common_env(
    targets: Sequence[Target], env: str | None, eval_layout: bool, physics: str | None = None
) -> Environment:
    """The first target's, or the one that is named; refused where another does not fit into it."""
    made = environment_of(targets[0], env, eval_layout, physics=physics)
    for other in targets[1:]:
        environment_of(other, env or targets[0].env, eval_layout, targets[0].fidelity, physics or targets[0].physics)
    return made


def names_of(targets: Sequence[Target]) -> list[str]:
    """The methods; with seeds, or with paths, where these do not tell the policies apart."""
    methods = [str(target.about.get("method") or Path(target.label).stem) for target in targets]
    seeded = [f"{name} seed {target.about.get('seed')}" for name, target in zip(methods, targets, strict=True)]
    for names in (methods, seeded):
        if len(set(names)) == len(names):
            return names
    return [target.label for target in targets]


def make_subject(target: Target, name: str, env: Environment, shown: Shown) -> Subject:
    """Its episodes are played here: with simulated physics, most of a minute the first time."""
    length = shown.steps or (target.config.episode_length if target.config else None) or env.spec.episode_length
    policy, acting = target.policy, variant(target.policy, shown.burst)
    if shown.direction == "on" and not has_representation(policy):
        raise UserError(f"{target.label} has no representation to show a direction of: leave out --direction")
    episodes = shown_episodes(env, acting, shown.seed, shown.first, shown.num_episodes, length)
    if shown.direction == "on" or (shown.direction == "auto" and sees_direction(policy)):
        episodes = [episode._replace(directions=directions(policy, episode)) for episode in episodes]  # pyright: ignore[reportArgumentType]
    if shown.subgoal:
        episodes = _with_subgoals(target, acting, env, shown, episodes, length)
    return Subject(name, target.about.get("env_steps"), episodes)


def _with_subgoals(
    target: Target, acting: Any, env: Environment, shown: Shown, episodes: list[Episode], length: int
) -> list[Episode]:
    """A policy file without its run's config is scored with the paper's settings."""
    config = target.config
    if config is None and target.about.get("method") in METHODS:
        config = Config(env=env.spec.name, method=target.about["method"])
    scorer = make_scorer(env, target.policy, acting, config, shown.seed, length) if config else None
    if scorer is None:
        return episodes
    keys = jax.random.split(jax.random.key(shown.seed), len(episodes))
    return [e._replace(subgoals=scorer.subgoals(e, key)) for e, key in zip(episodes, keys, strict=True)]


def write_files(
    env: Environment,
    subjects: Sequence[Subject],
    folder: Path,
    name: str,
    formats: Sequence[Format],
    look: Look,
    on_frame: Callable[[int, int], object] = lambda done, total: None,
) -> tuple[list[Path], list[str]]:
    """-> the files, and what could not be written and why. `on_frame` hears how many frames are done, of how many."""
    stride, problems = look.stride_for(env), []
    written: list[Path] = []
    if "html" in formats:
        from dcp.render.viewer import save_page

        written.append(save_page(folder / f"{name}.html", env, subjects, stride))
    moving: list[Format] = [kind for kind in formats if kind != "html"]
    if "mp4" in moving:
        try:
            load_av()
        except UserError:
            problems.append(NO_AV)
            moving.remove("mp4")
    if moving:
        try:
            written += _draw_all(env, subjects, folder / name, moving, look, stride, on_frame)
        except UserError as error:  # no renderer: the page needs none
            problems.append(str(error))
    return sorted(written), problems


def _draw_all(
    env: Environment,
    subjects: Sequence[Subject],
    stem: Path,
    formats: Sequence[Format],
    look: Look,
    stride: int,
    on_frame: Callable[[int, int], object],
) -> list[Path]:
    drawing = make_drawing(env, look.width, look.height, look.camera)
    total = count_frames(subjects, stride)
    try:
        writers: list[Writer] = []
        if "mp4" in formats:
            writers.append(Mp4Writer(stem.with_name(f"{stem.name}.mp4")))
        if "gif" in formats:
            writers.append(GifWriter(stem.with_name(f"{stem.name}.gif"), total))
        with Writers(writers) as files:
            for done, frame in enumerate(frames(subjects, drawing, stride), 1):
                files.write(frame)
                on_frame(done, total)
    finally:
        drawing.close()
    return [writer.path for writer in writers]
