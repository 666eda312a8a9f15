"""Show a run, or several seeds, while they train: a panel on a terminal."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dcp.config import Config
from dcp.loop import Row
from dcp.runs.display import Progress
from dcp.runs.plain_display import COLUMNS, STOPPING, PacedDisplay

COMPILING = "compiling (once: the next run of this kind finds it on disk)"


class LivePanel(PacedDisplay):
    """Draw a panel on a terminal: one bar for all seeds and one line per seed, updated on every event."""

    def __init__(self, config: Config, folder: Path | None, several: bool = False, console: Console | None = None):
        super().__init__(config, folder, several)
        self._rows: dict[int, Row] = {}  # by seed: the last evaluation's row with the current losses
        self._phase = COMPILING
        console = console or Console(markup=False, emoji=False)  # [brackets] in a name are no markup
        self._live = Live(self._render(), console=console, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._phase = "done" if exception[0] is None else "stopped"
        self._live.update(self._render(), refresh=True)
        self._live.__exit__(None, None, None)

    def joined(self, seeds: Sequence[int], unrolls: int, evaluations: int) -> None:
        super().joined(seeds, unrolls, evaluations)
        self._phase = COMPILING
        self._live.update(self._render())

    def progress(self, progress: Progress) -> None:
        super().progress(progress)
        filling = progress.unrolls < self._config.num_prefill_unrolls
        self._phase = "training" if progress.metrics is not None else "filling the replay" if filling else COMPILING
        for seed, metrics in zip(self._seeds, progress.metrics or (), strict=False):
            losses = {name: metrics[name] for name in ("critic_loss", "actor_loss")}
            self._rows[seed] = {**self._rows.get(seed, {}), **losses}
        self._live.update(self._render())

    def evaluated(self, rows: Sequence[Row]) -> None:
        super().evaluated(rows)
        self._rows.update(zip(self._seeds, rows, strict=True))
        self._live.update(self._render())

    def stopping(self, signal: str) -> None:
        self._live.console.show_cursor(True)  # a second signal ends the process at once
        self.note(STOPPING.format(signal))

    def note(self, sentence: str) -> None:
        self._live.console.print(sentence)

    def _render(self) -> RenderableType:
        pace, bar = self._pace, Table.grid(padding=(0, 2))
        speed, phase = pace.text(len(self._seeds)), Text(self._phase, "dim")
        bar.add_row(ProgressBar(pace.total, pace.steps, width=30), self._share.strip(), speed, phase)
        numbers = Table("seed", *(name.replace("_", " ") for name in COLUMNS), box=None, header_style="dim")
        for seed, row in sorted(self._rows.items()):
            numbers.add_row(str(seed), *(f"{row[name]:.3f}" if name in row else "-" for name in COLUMNS))
        return Group(self._headline(sorted({*self._rows, *self._seeds})), bar, numbers)
