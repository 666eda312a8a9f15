"""Draw the pictures of docs/environments.md and so101.md: each task from above, with its starts and goals.

    python -m tools.docs.environment_pictures [NAME ...]    these alone, or all and the sheet of the nine with a model

`pushing` is point_soccer and point_push, `so101` the arm's tasks. Body, walls and things are the compiled model's, at
one draw of the task's reset. What is drawn over them is to scale. Green: start. Vermilion: goals. Blue: what acts.
Orange: what is pushed.
"""

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Annulus, Circle, Rectangle
from PIL import Image

from dcp import make_env
from dcp.envs import ant_tasks, pusher
from dcp.envs.point_tasks import BALL_DISTANCE, CENTRE, PointPush, PointSoccer
from dcp.envs.point_tasks import TARGET_DISTANCE as POINT_TARGET_DISTANCE
from dcp.lab.render import make_picture
from dcp.lab.style import BLUE, GOAL_COLOUR, INK, ORANGE, START_COLOUR, WALL, house_style, save
from dcp.robots.so101_tasks import TASKS
from tools.docs.pages import DOCS
from tools.docs.scene import DRAWS, Scene

FOLDER = DOCS / "environments"
NAMES = (
    *("ant_u_maze", "ant_big_maze", "ant_hardest_maze"),
    *("humanoid_u_maze", "ant_push", "ant_soccer"),
    *("pusher_easy", "pusher_hard", "pusher_hard_far"),
)

ARM_SIZE = (400, 300)
ARM_KEY = 7  # its poses show the arm from the side


def mark(axes: Axes, scene: Scene) -> None:
    if scene.maze:
        _mark_maze(axes, scene)
    elif scene.name == "ant_push":
        _mark_push(axes, scene)
    elif scene.name == "ant_soccer":
        _mark_soccer(axes, scene)
    else:
        _mark_pusher(axes, scene)


def _ring(axes: Axes, centre: Any, radius: float, label: str | None = "start") -> None:
    for colour, width in (("white", 3.2), (START_COLOUR, 1.8)):
        axes.add_patch(Circle(centre, radius, fill=False, edgecolor=colour, linewidth=width, zorder=4))
    axes.plot([], [], "o", color="none", markeredgecolor=START_COLOUR, markeredgewidth=1.8, markersize=7, label=label)


def _discs(axes: Axes, centres: np.ndarray, radius: float, label: str, alpha: float = 1.0) -> None:
    for centre in centres:
        axes.add_patch(Circle(tuple(centre), radius, facecolor=GOAL_COLOUR, linewidth=0, alpha=alpha, zorder=3))
    axes.plot([], [], "o", color=GOAL_COLOUR, markeredgewidth=0, alpha=alpha, markersize=7, label=label)


def _dots(axes: Axes, points: np.ndarray, colour: str, label: str) -> None:
    style = {"color": colour, "markeredgewidth": 0, "linestyle": "none", "marker": "o"}
    axes.plot(*points.T, markersize=2.5, alpha=0.4, zorder=3, **style)
    axes.plot([], [], markersize=4, alpha=0.7, label=label, **style)


def _mark_maze(axes: Axes, scene: Scene) -> None:
    layout, threshold = scene.env.spec.maze, scene.env.spec.threshold
    assert layout is not None
    body = 1.45 if scene.name.startswith("ant") else 0.6
    for start in scene.on_page(layout.cells("r")):
        _ring(axes, start, body)
    _discs(axes, scene.on_page(layout.cells("g")), threshold, f"goals, one a cell: within {threshold} of its centre")


def _mark_push(axes: Axes, scene: Scene) -> None:
    _ring(axes, scene.draws[0, :2], 1.45)
    side = ant_tasks.GOAL_NOISE
    x, y = ant_tasks.GOAL
    for corner, label in (((x, y), "goal: a point of either square"), ((y, x), None)):
        axes.add_patch(Rectangle(corner, side, side, facecolor=GOAL_COLOUR, linewidth=0, zorder=3, label=label))
    axes.annotate("movable\nbox", ant_tasks.BOX[:2], ha="center", va="center", color=INK, fontsize=6, zorder=5)


def _mark_soccer(axes: Axes, scene: Scene) -> None:
    _ring(axes, scene.draws[0, :2], 1.45)
    threshold = scene.env.spec.threshold
    band = Annulus(
        (0, 0), ant_tasks.TARGET_DISTANCE + threshold, 2 * threshold, facecolor=GOAL_COLOUR, alpha=0.2, zorder=2
    )
    circle = Circle((0, 0), ant_tasks.TARGET_DISTANCE, fill=False, edgecolor=GOAL_COLOUR, linewidth=1.5, zorder=3)
    for patch in (band, circle):
        axes.add_patch(patch)
    axes.plot([], [], color=GOAL_COLOUR, label="goals for the ball")
    _dots(axes, scene.places("ball"), ORANGE, f"{DRAWS} drawn balls")
    _discs(axes, scene.places("target")[:1], threshold, "the goal of the ball shown")


def _mark_pusher(axes: Axes, scene: Scene) -> None:
    objects, goals = scene.places("object"), scene.places("goal")
    _ring(axes, objects[0], 0.085, "the object's start")
    _dots(axes, objects, ORANGE, f"{DRAWS} drawn objects")
    _dots(axes, goals, GOAL_COLOUR, "their goals")
    _discs(axes, goals[:1], scene.env.spec.threshold, "the goal of the object shown", alpha=0.7)
    if scene.name == "pusher_hard_far":
        base = scene.data.body("r_shoulder_pan_link").xpos[:2]
        near = float(np.linalg.norm(objects[0] - base))
        far = near + pusher.MIN_DISTANCE
        shown = ((near, ORANGE, "the object's distance from the base"), (far, GOAL_COLOUR, "its goals lie beyond"))
        for radius, colour, label in shown:
            line = {"linewidth": 1.3, "linestyle": "--", "zorder": 4}
            axes.add_patch(Circle(base, radius, fill=False, edgecolor=colour, **line))
            axes.plot([], [], color=colour, label=label, **line)


def draw(axes: Axes, scene: Scene) -> None:
    low, high = scene.view.low, scene.view.high
    image = np.round(255 * scene.image).astype(np.uint8)  # as floats, flat colours get noise that fills the file
    if scene.maze:
        axes.imshow(image, extent=(low[1], high[1], high[0], low[0]), zorder=1)
    else:
        axes.imshow(image.swapaxes(0, 1), origin="lower", extent=(low[0], high[0], low[1], high[1]), zorder=1)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    limits = axes.get_xlim(), axes.get_ylim()
    mark(axes, scene)
    axes.set(xlim=limits[0], ylim=limits[1])


def figure_of(scene: Scene) -> Figure:
    with house_style():
        height, width = scene.view.high - scene.view.low
        figure = Figure(figsize=(5.0, 0.9 + 4.1 * height / width), layout="constrained")
        axes = figure.add_subplot()
        draw(axes, scene)
        axes.set_title(scene.name)
        axes.set_xlabel("y (column)" if scene.maze else "x")
        axes.set_ylabel("x (row, downwards)" if scene.maze else "y")
        figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    return figure


def sheet_of(scenes: list[Scene]) -> Figure:
    with house_style():
        figure = Figure(figsize=(5.6, 5.8), layout="constrained")
        for axes, scene in zip(figure.subplots(3, 3).flat, scenes, strict=True):
            draw(axes, scene)
            axes.set_title(scene.name, fontsize=8)
            axes.set(xticks=[], yticks=[])
    return figure


def save_small(figure: Figure, path: Path) -> Path:
    """With a palette: half of the bytes."""
    Image.open(save(figure, path)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    return path


# The point's tasks, which have no model.


def plan(axes: Axes, env: PointSoccer | PointPush) -> None:
    """x (row) downwards, y (column) to the right, as mazes lie."""
    name = env.spec.name
    body, goal = env.spec.split(np.asarray(env.reset(jax.random.key(3)).obs))
    rows, columns = env.layout.walls.shape
    for i, j in np.argwhere(env.layout.walls):
        axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=WALL, linewidth=0))
    if name == "point_soccer":
        _mark_point_soccer(axes, env.spec.threshold)
    else:
        for centre in env.layout.cells("g"):
            axes.add_patch(Circle(centre[::-1], env.spec.threshold, facecolor=GOAL_COLOUR, linewidth=0))
    for thing in env.things:
        x, y = body[list(thing.dims)]
        colour = BLUE if thing.acts else ORANGE
        if thing.shape == "disc":
            axes.add_patch(Circle((y, x), thing.size, facecolor=colour, linewidth=0, zorder=4))
        else:
            corner = (y - thing.size, x - thing.size)
            axes.add_patch(Rectangle(corner, 2 * thing.size, 2 * thing.size, facecolor=colour, linewidth=0, zorder=4))
    axes.add_patch(Circle(body[:2][::-1], 0.3, fill=False, edgecolor=START_COLOUR, linewidth=1.8, zorder=5))
    if name == "point_soccer":
        axes.add_patch(Circle(goal[::-1], env.spec.threshold, facecolor=GOAL_COLOUR, linewidth=0, zorder=3))
    axes.set(xlim=(0.25, columns - 1.25), ylim=(rows - 1.25, 0.25), aspect="equal", title=name, xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.grid(False)


def _mark_point_soccer(axes: Axes, threshold: float) -> None:
    band = {"facecolor": GOAL_COLOUR, "alpha": 0.2, "zorder": 2}
    axes.add_patch(Annulus(CENTRE, POINT_TARGET_DISTANCE + threshold, 2 * threshold, **band))
    for radius, colour in ((POINT_TARGET_DISTANCE, GOAL_COLOUR), (BALL_DISTANCE, ORANGE)):
        axes.add_patch(Circle(CENTRE, radius, fill=False, edgecolor=colour, linewidth=1.2, zorder=2))


def figure_of_both() -> Figure:
    with house_style():
        figure = Figure(figsize=(6.4, 3.0), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[5.5, 6.5])
        plan(left, PointSoccer())
        plan(right, PointPush())
    return figure


# The arm.


def draw_arm(path: Path) -> Path:
    """Draw a start of each of the arm's tasks with its goal, by MuJoCo's renderer."""
    shots = []
    for name in TASKS:
        env = make_env(name)
        picture = make_picture(env, *ARM_SIZE)
        shots.append(picture(env.reset(jax.random.key(ARM_KEY))))
        picture.close()
    rows = [np.concatenate(shots[i : i + 2], axis=1) for i in (0, 2)]
    sheet = Image.fromarray(np.concatenate(rows, axis=0))
    sheet.save(path, optimize=True)
    return path


def main(names: list[str], folder: Path = FOLDER, pixels: int = 300) -> None:
    scenes = []
    for name in names or (*NAMES, "pushing", "so101"):
        if name == "pushing":
            print(save(figure_of_both(), folder / "pushing.png"))
        elif name == "so101":
            print(draw_arm(folder / "so101.png"))
        else:
            scenes.append(Scene(name, pixels))
            print(save_small(figure_of(scenes[-1]), folder / f"{name}.png"))
    if not names:
        print(save_small(sheet_of(scenes), folder / "all.png"))


if __name__ == "__main__":
    main(sys.argv[1:])
