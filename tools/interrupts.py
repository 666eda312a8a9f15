"""Start `dcp train --preset demo` many times, press Ctrl-C once in each, and count how the starts end.

`python -m tools.interrupts --starts 300 --within 3` sends each SIGINT at a moment drawn uniformly from the first three
seconds and prints one line of JSON. It exits with 1 if a start swallowed the signal or ended by another one.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter

PATIENCE = 60.0  # seconds until a start that goes on counts as one that swallowed the signal
STOPPED = (130, 75)


def one_start(delay: float, folder: str) -> tuple[int | None, float, str]:
    """Return a start's exit code (None: it had to be killed), the seconds from the signal to its end, and stderr."""
    command = [sys.executable, "-P", "-m", "dcp", "train", "--preset", "demo", "--runs-dir", folder]
    command += ["--no-plots", "--display", "plain"]
    with open(os.path.join(folder, "stderr"), "w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, preexec_fn=_as_at_a_terminal)
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = None
        errors.seek(0)
        return code, time.monotonic() - sent, errors.read()


def _as_at_a_terminal() -> None:
    """Undo what a shell's background does: it has SIGINT ignored, which Python then leaves so."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _before_dcp(code: int | None, errors: str) -> bool:
    """Return whether Python itself ended, at the signal, before it had read dcp's first lines.

    It then exits by the signal, which a shell shows as 130, or with 1 if it was still reading its own site module.
    """
    return code == -signal.SIGINT or (code == 1 and "KeyboardInterrupt" in errors and "/dcp/" not in errors)


def measure(starts: int, within: float, seed: int) -> dict[str, object]:
    """Return how the starts ended: codes with their counts, the slowest end, and what was not allowed."""
    draw, codes, slowest, wrong = random.Random(seed), Counter[str](), 0.0, []
    for _ in range(starts):
        delay = draw.uniform(0.0, within)
        with tempfile.TemporaryDirectory() as folder:
            code, seconds, errors = one_start(delay, folder)
        codes[str(code)] += 1
        slowest = max(slowest, seconds)
        if code not in STOPPED and not _before_dcp(code, errors):
            wrong.append({"after": round(delay, 3), "code": code, "stderr": errors[-500:]})
    return {"starts": starts, "within": within, "codes": dict(codes), "slowest_end": round(slowest, 1), "wrong": wrong}


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--starts", type=int, default=300)
    flags.add_argument("--within", type=float, default=3.0, help="seconds")
    flags.add_argument("--seed", type=int, default=0)
    measured = measure(**vars(flags.parse_args()))
    print(json.dumps(measured))
    return 1 if measured["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
