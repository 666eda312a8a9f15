"""Run jobs as tasks of a Ray cluster. Ray decides where and when.

If a task's worker is killed or its node is lost, Ray runs the task elsewhere and the run resumes from its checkpoint.
"""

import logging
import os
import secrets
import socket
import subprocess
import sys
import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dcp.errors import EXIT_INTERRUPTED, EXIT_MISTAKE, EXIT_REQUEUE, UserError, install_hint, one_line
from dcp.grid.jobs import Job, JobStatus, open_log
from dcp.grid.launcher import JobQueue
from dcp.grid.resources import FreeResources, require_fit
from dcp.grid.worker import read_report, run_job, write_report

RETRIES = 5  # by Ray, of a task whose worker or node is lost; the driver retries runs that fail by themselves
CONNECT = 5.0  # seconds in which somebody must listen at a cluster's address
STATUS = 30.0  # seconds in which `ray status` must answer; it imports Ray first
OBJECT_STORE = 80 * 2**20  # bytes: only small messages pass through it; Ray's minimum is 75 MiB
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}


@dataclass(frozen=True)
class RayOptions:
    """The launcher's flags: the field `ray_address` becomes `--ray-address`."""

    ray_address: str | None = None
    """Ray: the head node of a running cluster, as host:port, or auto. Default: one on this machine, for this grid."""


class RayLauncher(JobQueue):
    def __init__(self, jobs: Sequence[Job], options: RayOptions, free: FreeResources):
        """Run `jobs`. `free`: of this machine, for a cluster that is started here; `free.jobs`: jobs at once."""
        super().__init__()
        self._planned, self._address, self._free = list(jobs), options.ray_address, free
        self._ray: Any = None
        self._marker: Path | None = None
        self._tasks: dict[Any, Job] = {}  # by Ray's reference
        self._tickets: dict[str, str] = {}  # of each job's latest attempt

    def require(self) -> None:
        try:
            if self._address is None:
                ray_package()
                require_fit([self._free], self._planned)
                self._ray = start_cluster(self._free)
            else:
                self._ray = join_cluster(self._address)
                require_fit(free_nodes(self._ray.nodes()), self._planned)
            self._mark()
        except UserError:
            self.close()
            raise

    def submit(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            job.save()
        super().submit(jobs)
        self._start_tasks()

    def poll(self) -> dict[str, JobStatus]:
        for reference in self._ended_tasks(timeout=0):
            job = self._tasks.pop(reference)
            self._statuses[job.name] = self._outcome(reference)
        self._start_tasks()
        for job in self._tasks.values():
            if report := read_report(job, self._tickets[job.name]):  # else no worker has begun it
                self._statuses[job.name] = JobStatus("running", where=f"{report.host}, process {report.process}")
        return dict(self._statuses)

    def close(self) -> None:
        if self._marker is not None:
            with suppress(OSError):
                self._marker.unlink()
        if self._ray is not None:
            self._ray.shutdown()
            self._ray = None

    def _mark(self) -> None:
        # A worker that finds it sees the same storage. The name is new, so that no network file cache answers.
        self._marker = self._planned[0].grid_dir / "ray" / f"marker_{uuid.uuid4().hex}"
        try:
            self._marker.parent.mkdir(parents=True, exist_ok=True)
            self._marker.touch()
        except OSError as error:
            folder = self._marker.parent
            raise UserError(f"{folder} cannot be written ({error.strerror}): choose another --runs-dir") from error

    def _start_tasks(self) -> None:
        """Put waiting jobs into Ray's queue; with --max-runs, no more than that at once."""
        most = self._free.jobs
        while self._waiting and (most is None or len(self._tasks) < most):
            job = self._waiting.pop(0)
            ticket = self._tickets[job.name] = uuid.uuid4().hex
            needs = node_resources(job)
            task = self._ray.remote(max_calls=1)(run_task)  # one worker per task: JAX starts with the run's threads
            task = task.options(
                name=job.name,
                num_cpus=needs["CPU"],
                num_gpus=needs.get("GPU", 0),
                memory=needs.get("memory"),
                max_retries=RETRIES,
                retry_exceptions=[StoppedError],
                scheduling_strategy="SPREAD",
            )
            self._tasks[task.remote(job.to_json(), str(self._marker), ticket)] = job

    def _ended_tasks(self, timeout: float | None) -> list[Any]:
        if not self._tasks:
            return []
        references = list(self._tasks)
        return self._ray.wait(references, num_returns=len(references), timeout=timeout, fetch_local=False)[0]

    def _end(self, at_once: bool) -> None:
        """Cancel the tasks: Ray interrupts a worker's main thread, and its run writes a checkpoint as after SIGINT."""
        for reference in self._tasks:
            self._ray.cancel(reference, force=at_once)
        self._ended_tasks(timeout=None)

    def _outcome(self, reference: Any) -> JobStatus:
        errors = self._ray.exceptions
        try:
            code, why = self._ray.get(reference)
        except errors.TaskCancelledError:
            return JobStatus("stopped", "cancelled", code=EXIT_REQUEUE)
        except errors.RayTaskError as error:
            if isinstance(error, StoppedError):
                return JobStatus("stopped", str(error.args[0]), code=EXIT_REQUEUE)
            if isinstance(error, ImportError):
                why = f"a node cannot load dcp ({_last_line(error)}): install the same version of it on every node"
                return JobStatus("failed", why, code=EXIT_MISTAKE)
            return JobStatus("failed", _last_line(error))
        except errors.WorkerCrashedError:
            return JobStatus("failed", f"its worker was killed, {RETRIES + 1} times")
        except errors.RayError as error:
            return JobStatus("failed", _last_line(error))
        return JobStatus("failed" if code else "finished", why, code=code)


class StoppedError(Exception):
    """Report that a signal stopped the worker after a checkpoint, so that Ray may run the task elsewhere."""


def run_task(text: str, marker: str, ticket: str) -> tuple[int, str]:
    """Run a job in a Ray worker. `marker`: a file that the grid wrote. -> the exit code, and why it is not 0"""
    job = Job.from_json(text)
    if not Path(marker).exists():
        return EXIT_MISTAKE, (
            f"the node {socket.gethostname()} does not see {job.runs_dir}: "
            "name a --runs-dir on storage that all nodes share"
        )
    write_report(job, ticket)
    os.environ.update(job.variables)
    if job.code is not None:
        with suppress(OSError):  # the run will say what is missing
            os.chdir(job.code)  # files that its settings name are looked for there; no other task uses this worker
    with _printing_to(job.log):
        outcome = run_job(job)
        if outcome.why:
            print(outcome.why, flush=True)
    if outcome.code in (EXIT_REQUEUE, EXIT_INTERRUPTED):
        raise StoppedError(outcome.why)
    return outcome.code, outcome.why


@contextmanager
def _printing_to(log: Path) -> Iterator[None]:
    """Redirect what Python and C++ print, so that XLA's messages do not end up in Ray's folder on another machine."""
    before = {number: os.dup(number) for number in (1, 2)}
    with open_log(log) as file:
        for number in before:
            os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, old in before.items():
            os.dup2(old, number)
            os.close(old)


def ray_package() -> Any:
    """Import Ray; raise UserError if it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise UserError(f"--launcher ray needs the package ray ({error}): {install_hint('ray')}") from error
    return ray


def start_cluster(free: FreeResources) -> Any:
    """Start a cluster of only this machine, on the loopback interface, that ends with this process."""
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # as there, bind only to the loopback interface
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # Ray would leave one in the home folder
    ray = ray_package()
    memory = {} if free.memory_bytes is None else {"_memory": free.memory_bytes}
    sizes = {"num_cpus": free.cores, "num_gpus": len(free.gpus), "object_store_memory": OBJECT_STORE, **memory}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called")  # by Ray, which replaces the child at once
            ray.init(address="local", include_dashboard=False, **sizes, **_QUIET)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise UserError(f"Ray does not start on this machine ({one_line(error)}): use --launcher local") from error
    return ray


def join_cluster(address: str) -> Any:
    """Join the cluster at host:port, or with "auto" the one that this machine belongs to."""
    ray = ray_package()
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", "auto")
    if address != "auto":
        _require_listener(address)
    _require_ray(address)
    try:
        ray.init(address=address, **_QUIET)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise UserError(
            f"cannot join the Ray cluster at {address} ({one_line(error)}): "
            "run dcp grid on one of its nodes, with the same versions of Python and Ray"
        ) from error
    return ray


def _require_listener(address: str) -> None:
    """Raise UserError within seconds if nothing listens there: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise UserError(f"--ray-address {address} is not an address: name host:port of the head node, or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT).close()
    except (OSError, OverflowError) as error:
        raise UserError(_no_cluster(address, one_line(error))) from error


def _require_ray(address: str) -> None:
    """Raise UserError if the listener is not Ray, by `ray status`: `ray.init` would end our own process."""
    command = [sys.executable, "-P", "-m", "ray.scripts.scripts", "status", "--address", address]
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=STATUS, check=True)
    except subprocess.SubprocessError as error:
        if address == "auto":
            raise UserError("--ray-address auto finds no Ray cluster here: start one with `ray start`") from error
        raise UserError(_no_cluster(address, "what listens there is not Ray")) from error


def _no_cluster(address: str, why: str) -> str:
    advice = "start one with `ray start --head`, or leave --ray-address out for one on this machine"
    return f"no Ray cluster answers at {address} ({why}): {advice}"


def free_nodes(nodes: Sequence[dict[str, Any]]) -> list[FreeResources]:
    """Return what each node of a cluster has. `nodes`: as Ray lists them."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    return [
        FreeResources(int(n.get("CPU", 0)), int(n.get("memory", 0)), [str(i) for i in range(int(n.get("GPU", 0)))])
        for n in alive
    ]


def node_resources(job: Job) -> dict[str, float]:
    """Return what a job takes of a node, by Ray's names."""
    needed = job.resources
    amounts = {"CPU": needed.cores, "GPU": needed.gpus, "memory": needed.memory_bytes}
    return {name: amount for name, amount in amounts.items() if amount}


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
