"""The longer tiny run, killed again and again: `python -m tests.support.lives RUNS_DIR KILLS SEED [SETTINGS]`.

Settings, as JSON, are on top of its own. Every life is a fork of this process, which has imported everything and
started nothing. A life ends by SIGKILL: at a random moment since its start, or since it was first seen to train, or
while a checkpoint is being written. Prints one line of JSON for test_resuming.py.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from dcp.config import Config
from dcp.runs.resuming import resume
from dcp.runs.training import train
from tests.support.tiny import LONGER, tiny_config

KINDS = ("in writing", "from the start", "in writing", "in training")


def live(runs_dir: Path, folder: Path, config: Config) -> int:
    """-> the pid of a child that trains on from wherever the last one died"""
    pid = os.fork()
    if pid:
        return pid
    try:
        if (folder / "config.json").exists():
            resume(folder, display="none")
        else:
            train(config, runs_dir=runs_dir, display="none")
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def ended(pid: int) -> bool:
    """Whether the child has ended by itself, and well."""
    done, status = os.waitpid(pid, os.WNOHANG)
    if done and status:
        raise SystemExit(f"a life ended with status {status}")
    return bool(done)


def wait_for_the_moment(pid: int, folder: Path, chance: random.Random, kind: str) -> bool:
    """-> False where the child ended before its moment came"""
    rows = _rows(folder)
    moment = time.monotonic() + chance.uniform(0.0, 4.0) if kind == "from the start" else None
    while moment is None or time.monotonic() < moment:
        if ended(pid):
            return False
        if kind == "in writing" and any(folder.glob("checkpoints/*.draft")):
            moment = time.monotonic() + chance.choice([0.0, 0.005, 0.02])
            kind = ""
        if kind == "in training" and _rows(folder) > rows:
            moment = time.monotonic() + chance.uniform(0.0, 1.0)
            kind = ""
        time.sleep(0.001)
    return not ended(pid)


def _rows(folder: Path) -> int:
    try:
        return (folder / "metrics.csv").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def main(runs_dir: Path, kills: int, seed: int, settings: dict[str, Any]) -> None:
    config = tiny_config(**{**LONGER, **settings})
    chance = random.Random(seed)
    killed = in_writing = finished = 0
    while True:
        runs = runs_dir / str(finished)
        folder = runs / config.run_path
        pid = live(runs, folder, config)
        if killed < kills and wait_for_the_moment(pid, folder, chance, KINDS[killed % len(KINDS)]):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            killed += 1
            in_writing += any(folder.glob("checkpoints/*.draft"))
            continue
        if killed == kills:
            _, status = os.waitpid(pid, 0)
            assert status == 0, status
        finished += 1
        if killed == kills:
            break
    print(json.dumps({"killed": killed, "in_writing": in_writing, "finished": finished}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads("".join(sys.argv[4:]) or "{}"))
