"""Several hosts as one machine: how this process joins the others, which of them it is, and what host 0 tells them."""

import json
import os
import sys
from typing import Any, NoReturn

import jax

from dcp.envs.meeting import Meeting, meet
from dcp.errors import UserError

_HEARTBEAT = 100  # seconds after which a host that does not answer is given up, as in JAX


def count() -> int:
    """Hosts that train together; 1 unless this process has joined others. Known before JAX has its devices."""
    return _jax_state().num_processes if jax.distributed.is_initialized() else 1


def index() -> int:
    return _jax_state().process_id if jax.distributed.is_initialized() else 0


def is_first() -> bool:
    """Host 0 alone writes and speaks."""
    return index() == 0


def join(meeting: Meeting) -> None:
    """Before JAX starts."""
    _require_fresh()
    if meeting.count == 1:
        return
    meet(meeting)
    jax.distributed.initialize(
        meeting.coordinator,
        meeting.count,
        meeting.index,
        initialization_timeout=round(max(meeting.patience, 30)),
        heartbeat_timeout_seconds=_HEARTBEAT,
        cluster_detection_method="deactivate",
    )


def join_detected() -> None:
    """The hosts of a SLURM job, of Open MPI or of whatever else JAX can see for itself."""
    _require_fresh()
    try:
        jax.distributed.initialize(heartbeat_timeout_seconds=_HEARTBEAT)
    except ValueError as error:
        raise UserError(
            f"--hosts auto found no cluster here ({error}): start it by srun or mpirun, or use --coordinator HOST:PORT"
        ) from error


def leave(code: int) -> NoReturn:
    """End at once, after a fault: in an orderly exit JAX waits for all hosts, and they may be waiting for this one."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def tell(name: str, value: Any) -> None:
    """From host 0 to all others, by way of JAX's coordinator: works before JAX has its devices."""
    _jax_state().client.key_value_set(f"dcp/{name}", json.dumps(value))


def hear(name: str) -> Any:
    """What host 0 told, once it has: it may be busy. Should it be gone, JAX ends this process."""
    client = _jax_state().client
    while True:
        try:
            return json.loads(client.blocking_key_value_get(f"dcp/{name}", 1_000))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise


def _jax_state() -> Any:
    """JAX keeps to itself what it was told; `jax.process_count` would start the devices."""
    from jax._src import distributed

    return distributed.global_state


def _require_fresh() -> None:
    if jax.distributed.is_initialized():
        raise UserError("this process has joined other hosts already: start a new one for another run")
