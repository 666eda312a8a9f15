"""Several hosts as one machine: join them, find out which host this process is, and exchange messages."""

import itertools
import os
import sys
import threading
import time
from contextlib import suppress
from typing import Annotated, Any, NoReturn

import jax
from msgspec import Meta, Struct

from dcp.errors import UserError
from dcp.host_handshake import MOST_HOSTS, SECRET, Cluster, shared_secret, signed, verified, wait_for_all
from dcp.validation import FormatError, checked

_HEARTBEAT = 100  # seconds without an answer after which a host counts as lost, as in JAX
_GRACE = 10.0  # seconds
_END = "dcp/end"
_sent, _received = itertools.count(), itertools.count()  # messages of host 0, in order
_key = ""  # the secret of the hosts that this process has joined


def count() -> int:
    """Return the number of hosts that train together; 1 unless this process has joined others. Starts no devices."""
    return _jax_state().num_processes if jax.distributed.is_initialized() else 1


def index() -> int:
    return _jax_state().process_id if jax.distributed.is_initialized() else 0


def is_first() -> bool:
    """Return whether this is host 0, the only one that writes files and prints."""
    return index() == 0


def join(cluster: Cluster) -> None:
    """Join the other hosts before JAX starts. With one host, do nothing."""
    global _key
    _require_fresh()
    if cluster.count == 1:
        return
    if not cluster.secret:
        raise UserError(f"several hosts need a secret that they share: set {SECRET} to the same on each")
    wait_for_all(cluster)
    _key = cluster.secret
    jax.distributed.initialize(
        cluster.coordinator,
        cluster.count,
        cluster.index,
        coordinator_bind_address=cluster.coordinator,  # by default it would listen at every address of host 0
        initialization_timeout=round(max(cluster.patience, 30)),
        heartbeat_timeout_seconds=_HEARTBEAT,
        cluster_detection_method="deactivate",
    )
    _listen_for_the_end()


def join_detected() -> None:
    """Join the hosts of a SLURM job, of Open MPI or of another cluster that JAX detects."""
    global _key
    _require_fresh()
    _key = shared_secret() or ""
    try:
        jax.distributed.initialize(heartbeat_timeout_seconds=_HEARTBEAT)
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"--hosts auto found no cluster here ({reason}): start it by srun or mpirun, or give --coordinator"
        ) from error
    if count() > 1:
        _listen_for_the_end()


def disconnect() -> None:
    """Disconnect all hosts together, after the last shared program."""
    jax.distributed.shutdown()


def send(value: Any) -> None:
    """Send a value from host 0 to all others through JAX's coordinator. Works before JAX has devices."""
    number = next(_sent)
    _jax_state().client.key_value_set(f"dcp/{number}", signed([number, value], _key))


def receive() -> Any:
    """Wait as long as needed for host 0's next message, and return it."""
    client, number = _jax_state().client, next(_received)
    while True:
        with suppress(jax.errors.JaxRuntimeError):  # no message yet; if host 0 is gone, JAX ends this process
            message = client.blocking_key_value_get(f"dcp/{number}", 1_000)
            try:
                stated, value = verified(message, _key)
            except (FormatError, ValueError, TypeError) as error:
                raise UserError(
                    f"a message in host 0's name is not host 0's ({error}): somebody else is there"
                ) from None
            if stated != number:
                raise UserError("a message of host 0's was repeated: somebody else is there")
            return value


def end_all(sentence: str, code: int) -> None:
    """Tell every other host to end now, because it may be waiting for this one."""
    message = signed({"host": index(), "sentence": " ".join(sentence.split())[:2_000], "code": code}, _key)
    with suppress(jax.errors.JaxRuntimeError):  # another host has said so already
        _jax_state().client.key_value_set(_END, message)


def leave(code: int) -> NoReturn:
    """End the process at once. In an orderly exit JAX would wait for all hosts."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class _Ended(Struct):
    host: Annotated[int, Meta(ge=0, lt=MOST_HOSTS)]
    sentence: str
    code: Annotated[int, Meta(ge=0, le=255)]


def _listen_for_the_end() -> None:
    threading.Thread(target=_await_end, args=(_jax_state().client, index()), name="dcp-hosts", daemon=True).start()


def _await_end(client: Any, here: int) -> None:
    while jax.distributed.is_initialized():
        with suppress(jax.errors.JaxRuntimeError):
            message = client.blocking_key_value_get(_END, 1_000)
            try:
                end = checked(verified(message, _key), _Ended)
            except FormatError:  # not a host's message; JAX's heartbeat notices hosts that are gone
                return
            if end.host == here:
                return
            if end.sentence:
                print(f"dcp: host {end.host} has stopped: {end.sentence}", file=sys.stderr)
            if here == 0:  # host 0 notices in the next exchange, and must tidy the run folder first
                time.sleep(_GRACE)
            leave(end.code)


def _jax_state() -> Any:
    """Return JAX's private distributed state, because `jax.process_count` would start the devices."""
    from jax._src import distributed

    return distributed.global_state


def _require_fresh() -> None:
    if jax.distributed.is_initialized():
        raise UserError("this process has joined other hosts already: start a new one for another run")
    jax.config.update("jax_enable_preemption_service", False)  # it would catch SIGTERM, which `StopRequest` handles
