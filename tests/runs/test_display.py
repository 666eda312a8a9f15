"""What a person sees of several seeds."""

import io
from pathlib import Path

from rich.console import Console

from dcp.runs.display import Display, Panel, Progress, seed_names
from dcp.runs.seeds import train_seeds
from tests.support.tiny import tiny_config

ROW = {"success_once": 0.25, "time_near_goal": 3.0, "critic_loss": 4.0, "actor_loss": 1.0, "diverged_episodes": 0}


def losses(*seeds: tuple[float, float]) -> list[dict[str, float]]:
    return [{"critic_loss": critic, "actor_loss": actor} for critic, actor in seeds]


def test_seeds_are_named():
    assert seed_names([4]) == "seed 4"
    assert seed_names([0, 2, 1]) == "seeds 0, 2 and 1 as one program"


def test_a_terminal_has_one_line_a_seed():
    console = Console(file=io.StringIO(), force_terminal=True, width=150)
    with Panel(tiny_config(), Path("runs/seed_0"), console, several=True) as board:
        board.joined([0, 7], 0, 0)
        board.progress(Progress(3, losses((4.5, 1.5), (5.5, 2.5))))
        board.evaluated([ROW, {**ROW, "success_once": 0.75}])
        board.progress(Progress(4, losses((4.25, 1.0), (5.25, 2.0))))
        shown = Console(file=io.StringIO(), width=150)
        shown.print(board._render())
    lines = [line.split() for line in shown.file.getvalue().splitlines()]  # pyright: ignore[reportAttributeAccessIssue]
    assert "seeds 0 and 7 as one program, each:" in " ".join(lines[0])
    assert ["0", "0.250", "3.000", "4.250", "1.000", "0.000"] in lines
    assert ["7", "0.750", "3.000", "5.250", "2.000", "0.000"] in lines


def test_your_own_display_hears_of_every_seed(tmp_path):
    seen = []

    class Seen(Display):
        def joined(self, seeds, unrolls, evaluations):
            seen.append(("joined", *seeds))

        def progress(self, progress):
            seen.append((progress.unrolls, progress.metrics and len(progress.metrics)))

        def evaluated(self, rows):
            seen.append(tuple(row["env_steps"] for row in rows))

    train_seeds(tiny_config(), (0, 7), runs_dir=tmp_path, display=lambda config, folder: Seen())
    assert seen[:4] == [("joined", 0, 7), (1, None), (2, None), (3, 2)]
    assert (2_400, 2_400) in seen and seen[-1] == (4_000, 4_000)
