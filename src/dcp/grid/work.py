"""A job in the present process. Every launcher runs this: `python -m dcp.grid.work JOB.json PARENT` in a new one.

What the folder holds decides: nothing, and the run begins; a run that was stopped or killed, and it goes on from its
checkpoint to the same bits; a finished run, and there is nothing to do.
"""

import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from dcp.config import Config
from dcp.errors import EXIT_FAULT, EXIT_INTERRUPTED, EXIT_MISTAKE, EXIT_REQUEUE, RunError, UserError
from dcp.grid.cores import pin
from dcp.grid.jobs import Job
from dcp.grid.parent import end_with
from dcp.grid.standing import agreed_steps, standing
from dcp.named_code import looked_for_in
from dcp.runs.folder import owner

WAIT = 2.0  # seconds between two looks at a folder that another process writes to


class Outcome(NamedTuple):
    code: int  # as `dcp train` exits
    why: str = ""  # one sentence, unless it is 0


def retriable(code: int | None) -> bool:
    """Whether another attempt may end otherwise: not after success, nor after a mistake, which would be made again."""
    return code not in (0, EXIT_MISTAKE)


def run_job(job: Job, say: Callable[[str], None] = print) -> Outcome:
    """Train, or go on. SIGTERM and SIGINT make a checkpoint; then the code is 75. Raises nothing but `SystemExit`."""
    from dcp.runs.stopping import Interrupted

    try:
        with looked_for_in(job.code):
            _when_free(job, say)
        return Outcome(0)
    except Interrupted as stop:
        if stop.env_steps is None:
            return Outcome(EXIT_INTERRUPTED, "stopped before its first checkpoint")
        return Outcome(EXIT_REQUEUE, f"stopped with a checkpoint at {stop.env_steps:,} environment steps")
    except KeyboardInterrupt:
        return Outcome(EXIT_INTERRUPTED, "stopped before training began")
    except UserError as error:
        return Outcome(EXIT_MISTAKE, _line(error))
    except RunError as error:
        return Outcome(EXIT_FAULT, _line(error))
    except Exception as error:
        traceback.print_exc()
        return Outcome(EXIT_FAULT, f"{type(error).__name__}: {_line(error)}")


def _train(job: Job) -> None:
    from dcp.grid.heartbeat import heartbeat
    from dcp.runs.train import resume, train, train_seeds

    settings, folder, display = job.settings, job.folders[0], heartbeat(job.progress)
    if len(job.seeds) > 1:
        train_seeds(Config(**asdict(settings)), job.seeds, runs_dir=job.root, resume=True, display=display)
        return
    found = standing(folder, settings)
    if found.kind == "finished":
        return
    if found.kind == "new":
        train(Config(**asdict(settings)), runs_dir=job.root, display=display)
        return
    named = {"env": settings.env, "eval_env": settings.eval_env}
    resume(folder, steps=agreed_steps(folder, settings), **named, display=display)


def _when_free(job: Job, say: Callable[[str], None]) -> None:
    while True:
        _wait_for_others(job, say)
        try:
            return _train(job)
        except UserError:
            if not _holders(job):
                raise  # else another process was quicker, and it is its lock that stood in the way


def _holders(job: Job) -> list[str]:
    return [found for folder in job.folders if (found := owner(folder)) is not None]


def _wait_for_others(job: Job, say: Callable[[str], None]) -> None:
    """A process that an earlier grid started may be at this very run, or about to stop: it goes first."""
    told = None
    while holders := _holders(job):
        if holders[0] != told:
            told = holders[0]
            say(f"{job.name}: waiting for {told}, which writes to its folder")
        time.sleep(WAIT)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def main(argv: list[str]) -> int:
    """The local launcher's child: JOB.json, and the process that it must not outlive."""
    file, parent = argv
    if not end_with(int(parent)):
        return EXIT_REQUEUE
    job = Job.from_json(Path(file).read_text(encoding="utf-8"))
    pin(job.resources.cores)
    outcome = run_job(job)
    if outcome.why:
        print(outcome.why, file=sys.stderr, flush=True)
    return outcome.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
