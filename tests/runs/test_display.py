"""What a person sees of several seeds."""

import io
from pathlib import Path

import jax.numpy as jnp
from rich.console import Console

from dcp.runs.display import Board, Progress, Silent, Through, together
from tests.tiny import tiny_config

ROW = {"success_once": 0.25, "time_near_goal": 3.0, "critic_loss": 4.0, "actor_loss": 1.0, "diverged_episodes": 0}


def test_seeds_are_named():
    assert together([4]) == "seed 4"
    assert together([0, 2, 1]) == "seeds 0, 2 and 1 as one program"


def test_a_terminal_has_one_line_a_seed():
    console = Console(file=io.StringIO(), force_terminal=True, width=150)
    with Board(tiny_config(), Path("runs/seed_<n>"), console) as board:
        board.joined([0, 7], 0, 0)
        board.progress(Progress(3, {"critic_loss": jnp.array([4.5, 5.5]), "actor_loss": jnp.array([1.5, 2.5])}))
        board.evaluated([ROW, {**ROW, "success_once": 0.75}])
        board.progress(Progress(4, {"critic_loss": jnp.array([4.25, 5.25]), "actor_loss": jnp.array([1.0, 2.0])}))
        shown = Console(file=io.StringIO(), width=150)
        shown.print(board._render())
    lines = [line.split() for line in shown.file.getvalue().splitlines()]  # pyright: ignore[reportAttributeAccessIssue]
    assert "seeds 0 and 7 as one program, each:" in " ".join(lines[0])
    assert ["0", "0.250", "3.000", "4.250", "1.000", "0.000"] in lines
    assert ["7", "0.750", "3.000", "5.250", "2.000", "0.000"] in lines


def test_a_display_of_one_run_is_shown_the_mean():
    class Seen(Silent):
        rows, losses, places = [], [], []

        def evaluation(self, row):
            self.rows.append(row["success_once"])

        def progress(self, progress):
            self.losses.append(progress.metrics and progress.metrics["critic_loss"])

        def resumed(self, unrolls, evaluations):
            self.places.append((unrolls, evaluations))

    with Through(tiny_config(), seen := Seen()) as display:
        display.joined([0, 7], 0, 0)
        display.joined([0, 7], 5, 1)
        display.progress(Progress(6, None))
        display.progress(Progress(7, {"critic_loss": jnp.array([4.0, 5.0])}))
        display.evaluated([ROW, {**ROW, "success_once": 0.75}])
    assert (seen.rows, seen.losses, seen.places) == ([0.5], [None, 4.5], [(5, 1)])
