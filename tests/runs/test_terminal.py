"""The panel that a terminal shows while seeds train."""

import io
from pathlib import Path

from rich.console import Console

from dcp.runs.display import Progress
from dcp.runs.terminal import LivePanel
from tests.runs.test_plain_display import ROW, losses
from tests.support.tiny import tiny_config


def test_a_terminal_has_one_line_a_seed():
    console = Console(file=io.StringIO(), force_terminal=True, width=150)
    with LivePanel(tiny_config(), Path("runs/seed_0"), several=True, console=console) as board:
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
