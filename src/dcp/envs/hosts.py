"""Several hosts as one machine: how this process joins the others, which of them it is, and what they tell each other.

Every host runs the same programs. Host 0 leads: it alone reads the command, writes the run folder and speaks.
"""

import itertools
import json
import os
import sys
import threading
import time
from contextlib import suppress
from typing import Any, NoReturn

import jax

from dcp.envs.meeting import Meeting, meet
from dcp.errors import UserError

_HEARTBEAT = 100  # seconds after which a host that does not answer is given up, as in JAX
_GRACE = 10.0  # seconds
_END = "dcp/end"
_told, _heard = itertools.count(), itertools.count()  # messages of host 0, in order


def count() -> int:
    """Hosts that train together; 1 unless this process has joined others. Known before JAX has its devices."""
    return _jax_state().num_processes if jax.distributed.is_initialized() else 1


def index() -> int:
    return _jax_state().process_id if jax.distributed.is_initialized() else 0


def is_first() -> bool:
    """Host 0 alone writes and speaks."""
    return index() == 0


def join(meeting: Meeting) -> None:
    """Before JAX starts. With one host there is nobody to join."""
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
    _listen_for_the_end()


def join_detected() -> None:
    """The hosts of a SLURM job, of Open MPI or of whatever else JAX can see for itself."""
    _require_fresh()
    try:
        jax.distributed.initialize(heartbeat_timeout_seconds=_HEARTBEAT)
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"--hosts auto found no cluster here ({reason}): start it by srun or mpirun, or give --coordinator"
        ) from error
    if count() > 1:
        _listen_for_the_end()


def part() -> None:
    """All hosts at once, after the last program: what follows is nobody else's affair."""
    jax.distributed.shutdown()


def tell(value: Any) -> None:
    """From host 0 to all others, by way of JAX's coordinator: works before JAX has its devices."""
    _jax_state().client.key_value_set(f"dcp/{next(_told)}", json.dumps(value))


def hear() -> Any:
    """Host 0's next message, once it has come: host 0 may be busy."""
    client, name = _jax_state().client, f"dcp/{next(_heard)}"
    while True:
        with suppress(jax.errors.JaxRuntimeError):  # not yet; should host 0 be gone, JAX ends this process
            return json.loads(client.blocking_key_value_get(name, 1_000))


def end_all(sentence: str, code: int) -> None:
    """Tell every other host to end now, wherever it is: it may be waiting for this one."""
    message = json.dumps({"host": index(), "sentence": " ".join(sentence.split()), "code": code})
    with suppress(jax.errors.JaxRuntimeError):  # another was faster
        _jax_state().client.key_value_set(_END, message)


def leave(code: int) -> NoReturn:
    """End at once: in an orderly exit JAX waits for all hosts."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _listen_for_the_end() -> None:
    threading.Thread(target=_await_end, args=(_jax_state().client, index()), name="dcp-hosts", daemon=True).start()


def _await_end(client: Any, here: int) -> None:
    while jax.distributed.is_initialized():
        with suppress(jax.errors.JaxRuntimeError):
            end = json.loads(client.blocking_key_value_get(_END, 1_000))
            if end["host"] == here:
                return
            if end["sentence"]:
                print(f"dcp: host {end['host']} has stopped: {end['sentence']}", file=sys.stderr)
            if here == 0:  # it will notice in the next exchange, and has a folder to put in order
                time.sleep(_GRACE)
            leave(end["code"])


def _jax_state() -> Any:
    """JAX keeps to itself what it was told; `jax.process_count` would start the devices."""
    from jax._src import distributed

    return distributed.global_state


def _require_fresh() -> None:
    if jax.distributed.is_initialized():
        raise UserError("this process has joined other hosts already: start a new one for another run")
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM, which `StopRequest` hears
