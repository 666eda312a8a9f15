"""Milliseconds in which a page of `dcp explore` recomputes and draws its fields for a new goal, in headless Chromium.

The goal moves at each frame, as when it is dragged. `cpu_ms` is the main thread's own time, whatever else the machine
does; `median_ms` is the clock's.
"""

import json
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.browser import CHROMIUM, Browser  # noqa: E402

PAGE = ROOT / "docs" / "explore" / "big_maze.html"  # two policies, 128 x 128
FRAMES, CALLS = 30, 4
DRAG = """(() => { const app = dcpExplore, times = []; app.dragging = true;
for (let i = 0; i < %d; i++) { app.setGoal([5.6 + 0.7 * Math.sin(i / 9), 5.6 + 0.7 * Math.cos(i / 9)]);
const since = performance.now(); app.advance(0); times.push(performance.now() - since); }
app.dragging = false; return times; })()"""


def main() -> None:
    if CHROMIUM is None:
        print(json.dumps({"name": "explore_frames", "skipped": "no Chromium here: apt-get install chromium"}))
        return
    page = Browser()
    page.open(PAGE, "#step=40")
    page.wait("!dcpExplore.waiting && !dcpExplore.stale")
    page.run(DRAG % FRAMES)  # the first calls are compiled
    page.call("Performance.enable", timeDomain="threadTicks")
    before = thread_seconds(page)
    times = np.concatenate([page.run(DRAG % FRAMES) for _ in range(CALLS)])
    cpu = 1000.0 * (thread_seconds(page) - before) / len(times)
    page.close()
    median = float(np.median(times))
    print(json.dumps({"name": "explore_frames", "cpu_ms": round(cpu, 1), "median_ms": round(median, 1)}))


def thread_seconds(page: Browser) -> float:
    """Read the processor time of the page's main thread."""
    return next(m["value"] for m in page.call("Performance.getMetrics")["metrics"] if m["name"] == "ThreadTime")


if __name__ == "__main__":
    main()
