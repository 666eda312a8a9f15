"""Draw the figure of docs/the_method.md: what the actor sees under CRL, SSGC and DCP, by a trained policy's own psi.

python -m tools.docs.conditioning_figure      # writes docs/images/conditioning.png
"""

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import dcp
from dcp.lab.style import draw_maze, house_style, save
from dcp.methods.more_conditions import pulled_back
from tools.docs.pages import IMAGES

OUT = IMAGES / "conditioning.png"
POLICY, ENV = "zoo/point_u_maze/dcp", "point_u_maze"
STATE, SUBGOAL, GOAL = (1.0, 1.0), (2.0, 3.0), (3.0, 1.0)  # (x, y): row and column
BLUE, ORANGE, GREEN = "#0072b2", "#e69f00", "#009e73"
PANELS = {
    "CRL: the goal g": "the actor sees\ng = (3, 1)",
    "SSGC: a visited state z": "the actor sees\nz = (2, 3)",
    "DCP: direction and distance to z": "the actor sees the unit\ndirection in psi-space\nand the distance {:.1f}",
}


def place(axes: Axes, at: tuple[float, float], name: str, colour: str) -> None:
    axes.plot(*at[::-1], marker="o", markersize=11, color=colour, zorder=5)
    axes.annotate(
        name, (at[1], at[0]), xytext=(8, -15), textcoords="offset points", fontsize=13, color=colour, zorder=6
    )


def main() -> None:
    layout = dcp.make_env(ENV).spec.maze
    assert layout is not None
    psi = dcp.load_policy(POLICY).representation
    state, subgoal = jnp.array(STATE), jnp.array(SUBGOAL)
    distance = float(psi.distance(psi.encode_goal(state), psi.encode_goal(subgoal)))
    way = np.asarray(pulled_back(psi, state, subgoal))
    way = 0.7 * way / np.linalg.norm(way)
    with house_style():
        figure = Figure(figsize=(9.2, 3.6), layout="constrained")
        for axes, (title, seen) in zip(figure.subplots(1, 3), PANELS.items(), strict=True):
            draw_maze(axes, layout)
            axes.set_title(title)
            place(axes, STATE, "s", BLUE)
            place(axes, GOAL, "g", ORANGE)
            if not title.startswith("CRL"):
                place(axes, SUBGOAL, "z", GREEN)
            if title.startswith("DCP"):
                look = {"arrowstyle": "-|>", "lw": 2.5, "color": BLUE}
                axes.annotate("", np.add(STATE, way)[::-1], STATE[::-1], arrowprops=look)
            axes.set_xlabel(seen.format(distance))
        save(figure, OUT)


if __name__ == "__main__":
    main()
