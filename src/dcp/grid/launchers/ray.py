"""Jobs as tasks of a Ray cluster. Where and when they run is Ray's decision; a task whose worker was killed, or whose
node is gone, Ray runs again elsewhere, and there it goes on from its checkpoint.
"""

import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dcp.errors import EXIT_MISTAKE, EXIT_REQUEUE, UserError
from dcp.grid.jobs import GRID_DIR, Job
from dcp.grid.launchers import ray_cluster
from dcp.grid.launchers.interface import Status
from dcp.grid.launchers.notes import read_note
from dcp.grid.launchers.options import RayOptions
from dcp.grid.launchers.ray_task import StoppedError, run_task, started_file
from dcp.grid.room import Room, require_room

RETRIES = 5  # by Ray, of one task whose worker or node is lost; what fails by itself the driver tries again


class RayLauncher:
    def __init__(self, jobs: Sequence[Job], options: RayOptions, room: Room):
        """`room`: of this machine, for a cluster that is started here; its `most` bounds what runs at once anywhere."""
        self._planned, self._address, self._room = list(jobs), options.ray_address, room
        self._ray: Any = None
        self._marker: Path | None = None
        self._waiting: list[Job] = []
        self._tasks: dict[Any, Job] = {}  # by Ray's reference
        self._tickets: dict[str, str] = {}  # of each job's latest attempt
        self._statuses: dict[str, Status] = {}

    def require(self) -> None:
        try:
            self._connect()
            self._mark()
        except UserError:
            self.close()
            raise

    def submit(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            job.save()
            self._waiting.append(job)
            self._statuses[job.name] = Status("waiting")
        self._hand_over()

    def poll(self) -> dict[str, Status]:
        for reference in self._ended(timeout=0):
            job = self._tasks.pop(reference)
            self._statuses[job.name] = self._outcome(reference)
        self._hand_over()
        for job in self._tasks.values():
            if (where := self._where(job)) is not None:
                self._statuses[job.name] = Status("running", where=where)
        return dict(self._statuses)

    def stop(self) -> None:
        """Another KeyboardInterrupt meanwhile ends the workers at once: their checkpoints are whole at any moment."""
        for job in self._waiting:
            self._statuses[job.name] = Status("stopped", "it had not begun")
        self._waiting.clear()
        try:
            self._cancel(force=False)
        except KeyboardInterrupt:
            self._cancel(force=True)
        self.poll()

    def close(self) -> None:
        if self._marker is not None:
            with suppress(OSError):
                self._marker.unlink()
        if self._ray is not None:
            self._ray.shutdown()
            self._ray = None

    def _connect(self) -> None:
        if self._address is None:
            ray_cluster.package()
            require_room(self._room, self._planned)
            self._ray = ray_cluster.start(self._room)
        else:
            self._ray = ray_cluster.join(self._address)
            ray_cluster.require_nodes(self._ray.nodes(), self._planned)

    def _mark(self) -> None:
        # A worker that finds it sees the same storage; the name is new, so no cache of a network's files is asked.
        self._marker = self._planned[0].runs_dir / GRID_DIR / "ray" / f"marker_{uuid.uuid4().hex}"
        try:
            self._marker.parent.mkdir(parents=True, exist_ok=True)
            self._marker.touch()
        except OSError as error:
            folder = self._marker.parent
            raise UserError(f"{folder} cannot be written ({error.strerror}): choose another --runs-dir") from error

    def _hand_over(self) -> None:
        """To Ray's queue; with --max-runs, so many at once."""
        most = self._room.most
        while self._waiting and (most is None or len(self._tasks) < most):
            job = self._waiting.pop(0)
            ticket = self._tickets[job.name] = uuid.uuid4().hex
            self._tasks[self._task(job).remote(job.to_json(), str(self._marker), ticket)] = job

    def _task(self, job: Job) -> Any:
        wanted = ray_cluster.options(job)
        task = self._ray.remote(max_calls=1)(run_task)  # a worker each: JAX starts once, with the run's threads
        return task.options(
            name=job.name,
            num_cpus=wanted["CPU"],
            num_gpus=wanted.get("GPU", 0),
            memory=wanted.get("memory"),
            max_retries=RETRIES,
            retry_exceptions=[StoppedError],
            scheduling_strategy="SPREAD",
        )

    def _ended(self, timeout: float | None) -> list[Any]:
        if not self._tasks:
            return []
        references = list(self._tasks)
        return self._ray.wait(references, num_returns=len(references), timeout=timeout, fetch_local=False)[0]

    def _cancel(self, force: bool) -> None:
        """Ray interrupts the worker's main thread: for the run that is SIGINT, so it leaves a checkpoint first."""
        for reference in self._tasks:
            self._ray.cancel(reference, force=force)
        self._ended(timeout=None)

    def _outcome(self, reference: Any) -> Status:
        errors = self._ray.exceptions
        try:
            code, why = self._ray.get(reference)
        except errors.TaskCancelledError:
            return Status("stopped", "cancelled", code=EXIT_REQUEUE)
        except errors.RayTaskError as error:
            if isinstance(error, StoppedError):
                return Status("stopped", str(error.args[0]), code=EXIT_REQUEUE)
            if isinstance(error, ImportError):
                why = f"a node cannot load dcp ({_last_line(error)}): install the same version of it on every node"
                return Status("failed", why, code=EXIT_MISTAKE)
            return Status("failed", _last_line(error))
        except errors.WorkerCrashedError:
            return Status("failed", f"its worker was killed, {RETRIES + 1} times")
        except errors.RayError as error:
            return Status("failed", _last_line(error))
        return Status("failed" if code else "finished", why, code=code)

    def _where(self, job: Job) -> str | None:
        """-> None where no worker has begun it"""
        told = read_note(started_file(job))
        return f"{told['host']}, process {told['process']}" if told.get("ticket") == self._tickets[job.name] else None


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
