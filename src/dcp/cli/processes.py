"""Seeds as processes: each is a `dcp train` of its own on its own cores, and what they say is told in one place.

`python -m dcp.cli.processes PARENT CORES train ...` is such a process.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from signal import SIGTERM

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dcp.cli.main import main as dcp
from dcp.config import Settings
from dcp.devices import cores
from dcp.errors import EXIT_FAULT, EXIT_INTERRUPTED, EXIT_REQUEUE, RunError

_OURSELVES = "dcp.cli.processes"
_OURS = ("--seeds", "--seeds-as", "--display")  # flags that a single seed is not given, with their values


def train_in_processes(seeds: Sequence[int], argv: list[str], settings: Settings) -> int:
    """As many at a time as there are cores, which they share out evenly; fewer where memory is short. -> exit code"""
    from dcp.cli.flags import read
    from dcp.cli.train import TrainOptions
    from dcp.runs.stopping import StopRequest

    display = read(TrainOptions(), argv, "dcp train").get("display", "auto")
    board = _Board(seeds, live=display in ("auto", "live") and (display == "live" or Console().is_terminal))
    by_cores = min(len(seeds), cores())
    share = cores() // by_cores  # whatever memory there is: it decides the bits of a run
    crew = _Crew([str(share), "train", *single(argv), "--display", "none" if display == "none" else "plain"])
    with board.shown(), StopRequest(crew.stop):
        codes = crew.run(seeds, min(by_cores, room_in_memory(settings)), board)
    return _told(seeds, codes, board, crew.stopped)


def room_in_memory(settings: Settings) -> int:
    """How many of these runs (they have passed their own checks) the machine's memory holds at once; at least one."""
    from dcp.checks import machine_memory
    from dcp.envs.registry import env_of
    from dcp.grid.memory import run_memory

    there = machine_memory()
    length = env_of(settings).spec.episode_length
    return sys.maxsize if there is None else max(1, there // run_memory(settings.resolve(length)))


def single(argv: Sequence[str]) -> list[str]:
    """The flags of one seed: --preset smoke --seeds 0 1 2 --steps 9 -> --preset smoke --steps 9"""
    kept, ours = [], False
    for arg in argv:
        if arg.startswith("--"):
            ours = arg.split("=")[0].replace("_", "-") in _OURS
        if not ours:
            kept.append(arg)
    return kept


def joint_code(codes: Sequence[int | None], stopped: bool) -> int:
    """Of seeds that ended so (None: never begun): to be requeued if any is, else a fault if there was any."""
    if EXIT_REQUEUE in codes:
        return EXIT_REQUEUE
    if (stopped and any(codes)) or None in codes:
        return EXIT_INTERRUPTED
    bad = {code for code in codes if code}
    return 0 if not bad else bad.pop() if len(bad) == 1 and min(bad) > 0 else EXIT_FAULT


class _Crew:
    """Processes, their lines and their ends. A signal to this process is passed on to all of them."""

    def __init__(self, flags: list[str]):
        self._flags, self.stopped = flags, False
        self._running: dict[int, subprocess.Popen[str]] = {}  # by seed
        self._events: SimpleQueue[tuple[int, str | int]] = SimpleQueue()  # seed; a line, or at its end the code
        self._starting = threading.Lock()  # no process is started behind a signal's back

    def run(self, seeds: Sequence[int], at_once: int, board: "_Board") -> list[int | None]:
        codes: dict[int, int] = {}
        waiting = list(seeds)
        while True:
            while waiting and len(self._running) < at_once and self._start(waiting[0]):
                board.say(waiting.pop(0), "starting")
            if not self._running:
                return [codes.get(seed) for seed in seeds]
            seed, event = self._events.get()
            if isinstance(event, str):
                board.say(seed, event)
            else:
                codes[seed] = event
                del self._running[seed]
                board.ended(seed, event)

    def stop(self, signal: str) -> None:
        with self._starting:
            self.stopped = True
            for process in list(self._running.values()):  # the other thread may take one away meanwhile
                process.send_signal(SIGTERM)

    def _start(self, seed: int) -> bool:
        with self._starting:
            if self.stopped:
                return False
            command = [sys.executable, "-P", "-m", _OURSELVES, str(os.getpid()), *self._flags, "--seed", str(seed)]
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,  # a terminal's Ctrl-C comes to us alone
            )
            self._running[seed] = process
        threading.Thread(target=self._listen, args=(seed, process), name=f"dcp-seed-{seed}", daemon=True).start()
        return True

    def _listen(self, seed: int, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._events.put((seed, line.rstrip()))
        self._events.put((seed, process.wait()))


class _Board:
    """Lines with the seed before them; on a terminal a table with each seed's last line."""

    def __init__(self, seeds: Sequence[int], live: bool):
        self.last = {seed: "" for seed in seeds}  # a line of each
        self._state = {seed: "waiting" for seed in seeds}
        self._live = Live(self._table(), refresh_per_second=4) if live else None

    def shown(self) -> AbstractContextManager[object]:
        return self._live or nullcontext()

    def say(self, seed: int, line: str) -> None:
        if line.strip():
            self.last[seed] = line
        self._state[seed] = "training"
        if self._live is not None:
            self._live.update(self._table())
        else:
            print(f"seed {seed}: {line}", flush=True)

    def ended(self, seed: int, code: int) -> None:
        self._state[seed] = {0: "done", EXIT_REQUEUE: "stopped"}.get(code, "failed")
        if self._live is not None:
            self._live.update(self._table())

    def _table(self) -> Table:
        table = Table("seed", "", "", box=None, header_style="dim")
        for seed, line in self.last.items():
            # Text: rich would read [brackets] as markup
            table.add_row(str(seed), self._state[seed], Text(line.strip(), no_wrap=True, overflow="ellipsis"))
        return table


def _told(seeds: Sequence[int], codes: Sequence[int | None], board: _Board, stopped: bool) -> int:
    from dcp.cli.seeds import AGAIN

    code = joint_code(codes, stopped)
    failed = [seed for seed, own in zip(seeds, codes, strict=True) if own not in (0, None, EXIT_REQUEUE)]
    if code == EXIT_REQUEUE:
        print(f"Stopped with checkpoints: {AGAIN}.")
    elif stopped:
        print("Stopped before there was a checkpoint.")
    elif failed:
        said = "; ".join(f"seed {seed}: {board.last[seed].removeprefix('dcp: ')}" for seed in failed)
        sentence = f"{len(failed)} of {len(seeds)} seeds failed: {said}"
        if code == EXIT_FAULT:
            raise RunError(sentence)
        print(f"dcp: {sentence}", file=sys.stderr)
    return code


def _child(argv: list[str]) -> int:
    from dcp.grid.cores import pin
    from dcp.grid.parent import end_with

    parent, share, *rest = argv
    if not end_with(int(parent)):
        return EXIT_REQUEUE
    pin(int(share))
    return dcp(rest)


if __name__ == "__main__":
    sys.exit(_child(sys.argv[1:]))
