"""Load many mutated files and watch: python -m tests.fuzz.many_files policy 100000
python -m tests.fuzz.many_files --count 100000    # config, grid and ledger, one after another

Prints one line of JSON per kind: how many were loaded and refused, the longest time, the most memory, every offence:
an exception that is no UserError, a sentence of several lines, more than two seconds, code run, a file written.
"""

import faulthandler
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.mutations import HOSTILE_MODULES

_REPOSITORY = str(Path(__file__).parents[2])
EVIL = "open('EVIL_RAN', 'a').write('import ')\ndef make(*_): open('EVIL_RAN', 'a').write('call ')\n"
LIMIT = 2.0  # seconds of CPU for one file
BATCH = 100  # files between two looks at the memory
# Audit events that no reading of a file may raise; `open` is judged by its mode.
FORBIDDEN = (
    "exec", "compile", "import", "pickle.find_class", "marshal.loads",
    "os.system", "os.exec", "os.posix_spawn", "os.fork",
    "subprocess.Popen", "socket.", "ctypes.dlopen", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link",
    "os.symlink", "os.truncate", "os.chmod", "shutil.", "urllib.Request", "webbrowser.open",
)  # fmt: skip
seen: list[str] = []
has_hook: list[bool] = []  # a hook cannot be taken away: one per process
watching = False


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook, for good: it says what happened while `watching`."""
    if not watching:
        return
    if event == "open":
        path, mode, flags = arguments
        if (mode and set(mode) & set("wax+")) or (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            seen.append(f"open {path} for writing")
    elif event.startswith(FORBIDDEN) and not _is_harmless(event, arguments):
        seen.append(f"{event} {str(arguments)[:200]}")


def _is_harmless(event: str, arguments: tuple[Any, ...]) -> bool:
    """Tell what a load may do: import an installed library for the first time, but none that only a file names; open
    the pipe of an event loop, which Orbax starts; parse a library's line in a traceback, to underline it."""
    if event == "import":
        top = arguments[0].partition(".")[0]
        return arguments[0] in sys.modules or (top in _libraries() and top not in HOSTILE_MODULES)
    if event == "exec":  # the code of a module, or what a library's module makes when it is imported
        return _is_importing() or getattr(arguments[0], "co_filename", "<string>").startswith(
            (sys.base_prefix, sys.prefix, _REPOSITORY)
        )
    if event == "socket.__new__":
        return arguments[1] == socket.AF_UNIX
    if event in ("compile", "marshal.loads") and _is_importing():  # judged by the event "import"
        return True
    return event == "compile" and str(arguments[1]).startswith((sys.base_prefix, sys.prefix, "<unknown>"))  # ast.parse


def _is_importing() -> bool:
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") != "importlib._bootstrap_external":
        frame = frame.f_back
    return frame is not None


@cache
def _libraries() -> frozenset[str]:
    return frozenset({"dcp", "tools", "tests", *sys.stdlib_module_names, *packages_distributions()})


_libraries()


class Watched:
    """Counts what loading did."""

    def __init__(self) -> None:
        self.counts, self.offences = Counter[str](), list[str]()
        self.slowest = 0.0

    def one(self, load: Any, number: int) -> None:
        global watching
        from dcp.errors import UserError

        seen.clear()
        started = time.process_time()
        watching = True
        try:
            load()
            outcome, said = "loaded", ""
        except UserError as error:
            outcome, said = "refused", str(error)
        except BaseException as error:
            outcome, said = "offence", f"{type(error).__name__}: {str(error)[:300]}"
        finally:
            watching = False
        spent = time.process_time() - started
        self.counts[outcome] += 1
        self.slowest = max(self.slowest, spent)
        if outcome == "offence":
            self._offend(number, said)
        elif len(said.splitlines()) > 1 or len(said) > 2_000:
            self._offend(number, f"a sentence of {len(said.splitlines())} lines, {len(said)} characters: {said[:100]}")
        if spent > LIMIT:
            self._offend(number, f"{spent:.1f} s")
        for event in seen:
            self._offend(number, event)

    def _offend(self, number: int, what: str) -> None:
        self.offences.append(f"{number}: {what}")


def fuzz(loader: Any, count: int, seed: int = 0) -> dict[str, Any]:
    """Load `count` mutated files. A file's number makes it again: `Random(seed * 10**9 + number)`."""
    watched, grown = Watched(), 0
    loader.write_good()
    loader.load()  # imports, and traces once
    for number in range(20):  # the libraries' first errors import, too
        loader.write(Random(-1 - number))
        try:
            loader.load()
        except Exception:  # seen again below
            continue
    faulthandler.register(signal.SIGALRM, chain=True)  # a hang says where it is
    start_peak()
    before = memory("VmRSS")
    for number in range(count):
        if number % BATCH == 0:
            grown = max(grown, memory("VmHWM") - before)
            start_peak()
            before = memory("VmRSS")
        loader.write(Random(seed * 10**9 + number))
        signal.alarm(120)  # a hang ends the process
        watched.one(loader.load, number)
        signal.alarm(0)
    grown = max(grown, memory("VmHWM") - before)
    loader.write_good()
    loader.load()
    return {
        "files": count,
        **watched.counts,
        "slowest_cpu_seconds": round(watched.slowest, 3),
        "most_megabytes_in_a_batch": round(grown / 1024, 1),
        "offences": watched.offences[:50],
        "number_of_offences": len(watched.offences),
    }


def memory(name: str) -> int:
    """In kB, of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def start_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def main(argv: list[str]) -> int:
    if argv[:1] == ["--count"]:
        seed = argv[2:] or ["0"]
        return max(main([kind, argv[1], *seed]) for kind in ("config", "grid", "ledger"))
    kind, count, seed = argv[0], int(argv[1]), int(argv[2]) if len(argv) > 2 else 0
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from dcp.runs.training import train
    from tests.fuzz.loaders import KINDS
    from tests.support.tiny import tiny_config

    if not has_hook:
        sys.addaudithook(watch)
        has_hook.append(True)
    scratch = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=scratch, prefix=f"dcp-fuzz-{kind}-") as folder:
        os.chdir(folder)
        Path("evil.py").write_text(EVIL)
        run = train(tiny_config(), runs_dir=Path(folder) / "runs", display="none").folder
        assert run is not None
        started = time.perf_counter()
        result = fuzz(KINDS[kind](Path(folder) / kind, run), count, seed)
        if Path("EVIL_RAN").exists():
            result["offences"].append("evil.py ran: " + Path("EVIL_RAN").read_text()[:100])
            result["number_of_offences"] += 1
        os.chdir(_REPOSITORY)
    seconds = round(time.perf_counter() - started, 1)
    print(json.dumps({"kind": kind, "seed": seed, "seconds": seconds, **result}), flush=True)
    return 1 if result["number_of_offences"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
