"""Joins a Ray cluster, or starts one on this machine: quietly, on the loopback, with a sentence where it fails."""

import logging
import os
import secrets
import warnings
from collections.abc import Sequence
from typing import Any

from dcp.errors import UserError
from dcp.grid.jobs import Job
from dcp.grid.launchers.grpc_answer import require_grpc
from dcp.grid.room import Room

ANSWER = 5.0  # seconds in which a cluster must answer
OBJECT_STORE = 80 * 2**20  # bytes: nothing but small messages passes through it. Ray's least is 75 MiB
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}


def package() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise UserError(f"--launcher ray needs the package ray ({error}): pip install 'dcp[ray]'") from error
    return ray


def start(room: Room) -> Any:
    """A cluster of this machine alone, which ends with this process."""
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # as on those: bind to the loopback only
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # Ray would leave one in the home folder
    ray = package()
    memory = {} if room.memory_bytes is None else {"_memory": room.memory_bytes}
    sizes = {"num_cpus": room.cores, "num_gpus": len(room.gpus), "object_store_memory": OBJECT_STORE, **memory}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called")  # by Ray, and another program follows at once
            ray.init(address="local", include_dashboard=False, **sizes, **_QUIET)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise UserError(f"Ray does not start on this machine ({_line(error)}): use --launcher local") from error
    return ray


def join(address: str) -> Any:
    """The cluster at host:port, or with "auto" the one that this machine belongs to."""
    if address == "auto":
        address = _of_this_machine()
    require_answer(address)
    ray = package()
    try:
        ray.init(address=address, **_QUIET)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise UserError(
            f"cannot join the Ray cluster at {address} ({_line(error)}): "
            "run dcp grid on one of its nodes, with the same versions of Python and Ray"
        ) from error
    return ray


def require_answer(address: str) -> None:
    """Ray itself asks a dead address for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise UserError(f"--ray-address {address} is no address: name host:port of the head node, or auto")
    try:
        require_grpc(host.strip("[]"), int(port), ANSWER, tls=os.environ.get("RAY_USE_TLS", "0") == "1")
    except (OSError, OverflowError) as error:
        raise UserError(
            f"no Ray cluster answers at {address} ({_line(error)}): "
            "start one with `ray start --head`, or leave --ray-address out for one on this machine"
        ) from error


def _of_this_machine() -> str:
    """As Ray finds it: RAY_ADDRESS, or what `ray start` left behind, which may have ended since."""
    package()
    from ray._private import services

    try:
        return services.canonicalize_bootstrap_address("auto") or "auto"
    except ConnectionError as error:
        raise UserError("--ray-address auto finds no Ray cluster here: start one with `ray start`") from error


def require_nodes(nodes: Sequence[dict[str, Any]], jobs: Sequence[Job]) -> None:
    """Every job must fit onto one of the nodes that there are, or Ray would wait for ever."""
    there = [node["Resources"] for node in nodes if node["Alive"]]
    for job in jobs:
        wanted = options(job)
        if any(all(node.get(name, 0.0) >= amount for name, amount in wanted.items()) for node in there):
            continue
        best = {name: max((node.get(name, 0.0) for node in there), default=0.0) for name in wanted}
        told = [_amount(name, amount, best[name]) for name, amount in wanted.items() if amount > best[name]]
        lacking = " and ".join(told) or "cores, memory and GPUs that no single node has together"
        raise UserError(
            f"{job.name} needs {lacking}: ask for less (--cores-per-run, --gpus-per-run, a smaller replay), "
            "or add a node"
        )


def options(job: Job) -> dict[str, float]:
    """What a job takes of a node, by Ray's names."""
    needed = job.resources
    amounts = {"CPU": needed.cores, "GPU": needed.gpus, "memory": needed.memory_bytes}
    return {name: amount for name, amount in amounts.items() if amount}


def _amount(name: str, wanted: float, best: float) -> str:
    if name == "memory":
        return f"about {wanted / 1e9:.1f} GB of memory where the largest node of the cluster has {best / 1e9:.1f}"
    kind = {"CPU": "cores", "GPU": "GPUs"}[name]
    return f"{wanted:g} {kind} where the largest node of the cluster has {best:g}"


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
