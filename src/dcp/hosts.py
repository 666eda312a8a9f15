"""Several hosts as one machine: how this process joins them, which of them it is, and what they tell each other."""

import itertools
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import jax

from dcp.errors import UserError

PATIENCE = 300.0  # seconds until all have come, as in JAX
_RETRY = 0.2
_LINE = 1_000  # bytes at most
_HEARTBEAT = 100  # seconds after which a host that does not answer is given up, as in JAX
_GRACE = 10.0  # seconds
_END = "dcp/end"
_sent, _received = itertools.count(), itertools.count()  # messages of host 0, in order


@dataclass(frozen=True)
class Cluster:
    """`count` hosts, the address of host 0, and which of them this one is. Host 0 listens there, the others call."""

    coordinator: str
    count: int
    index: int
    patience: float = PATIENCE

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 <= self.index < self.count:
            raise UserError(f"--host-id {self.index} of --num-hosts {self.count}: number the hosts from 0")
        host, _, port = self.coordinator.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 2**16:
            raise UserError(f"--coordinator {self.coordinator!r} is not HOST:PORT, such as 10.0.0.1:12355")

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.coordinator.rpartition(":")
        return host.strip("[]"), int(port)


def wait_for_all(cluster: Cluster) -> None:
    (_wait_for_callers if cluster.index == 0 else _call)(cluster)


def _wait_for_callers(cluster: Cluster) -> None:
    """Host 0: wait until every other host has called, then let all start."""
    port, deadline = cluster.address[1], time.monotonic() + cluster.patience
    callers: dict[int, socket.socket] = {}
    try:
        with _listening(port) as door:
            while len(callers) < cluster.count - 1:
                door.settimeout(max(deadline - time.monotonic(), 0.01))
                try:
                    caller = door.accept()[0]
                except TimeoutError:
                    _answer(callers, _missing(cluster, callers))
                    raise UserError(_missing(cluster, callers)) from None
                hello = _read(caller)
                if hello is None:  # a stranger
                    caller.close()
                    continue
                problem = _refusal(cluster, callers, hello)
                callers[-1 if problem else hello["host"]] = caller
                if problem:
                    _answer(callers, problem)
                    raise UserError(problem)
        _answer(callers, None)  # the port is JAX's now
    finally:
        for caller in callers.values():
            caller.close()


def _listening(port: int) -> socket.socket:
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    try:
        return socket.create_server(("", port), family=family, dualstack_ipv6=family == socket.AF_INET6)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
    raise UserError(f"host 0 cannot listen at port {port} ({reason}): choose another --coordinator")


def _missing(cluster: Cluster, callers: dict[int, socket.socket]) -> str:
    absent = ", ".join(str(host) for host in range(1, cluster.count) if host not in callers)
    return (
        f"host {absent} of {cluster.count} did not come to {cluster.coordinator} within {cluster.patience:g} s: "
        "start the same command on each, with its own --host-id"
    )


def _refusal(cluster: Cluster, callers: dict[int, socket.socket], hello: dict[str, int]) -> str | None:
    if hello["hosts"] != cluster.count:
        return f"host {hello['host']} has --num-hosts {hello['hosts']}, host 0 {cluster.count}: give all the same"
    if hello["host"] in callers or hello["host"] == 0:
        return f"two hosts have --host-id {hello['host']}: number them from 0 to {cluster.count - 1}"
    return None


def _call(cluster: Cluster) -> None:
    """Any other host: call until host 0 answers that all are there."""
    deadline = time.monotonic() + cluster.patience
    hello = json.dumps({"hosts": cluster.count, "host": cluster.index}) + "\n"
    reason = "no answer"
    while (left := deadline - time.monotonic()) > 0:
        try:
            with socket.create_connection(cluster.address, timeout=left) as line:
                line.sendall(hello.encode())
                line.settimeout(left + 10)  # it may be host 0 that has waited in vain, and says so
                answer = _read(line, _is_answer)
        except OSError as error:
            reason, answer = error.strerror or str(error), None
        if answer is not None:
            if answer["problem"]:
                raise UserError(answer["problem"])
            return
        time.sleep(_RETRY)
    raise UserError(
        f"host 0 did not answer at {cluster.coordinator} within {cluster.patience:g} s ({reason}): "
        "check --coordinator, and that host 0 runs"
    )


def _answer(callers: dict[int, socket.socket], problem: str | None) -> None:
    for caller in callers.values():
        try:
            caller.sendall(json.dumps({"problem": problem}).encode() + b"\n")
            caller.settimeout(5.0)
            caller.recv(1)  # it hangs up first: then the port is free at once
        except OSError:
            continue  # JAX will notice, if it matters


def _is_hello(message: Any) -> bool:
    return isinstance(message, dict) and all(isinstance(message.get(name), int) for name in ("hosts", "host"))


def _is_answer(message: Any) -> bool:
    return isinstance(message, dict) and "problem" in message


def _read(line: socket.socket, known: Callable[[Any], bool] = _is_hello) -> Any:
    """Read one line of JSON; None for what is not ours."""
    try:
        if line.gettimeout() is None:
            line.settimeout(5.0)  # a stranger may say nothing
        with line.makefile("rb") as file:
            message = json.loads(file.readline(_LINE))
        return message if known(message) else None
    except (OSError, ValueError):
        return None


def count() -> int:
    """Count the hosts that train together; 1 unless this process has joined others. Known before JAX has devices."""
    return _jax_state().num_processes if jax.distributed.is_initialized() else 1


def index() -> int:
    return _jax_state().process_id if jax.distributed.is_initialized() else 0


def is_first() -> bool:
    """Whether this is host 0, which alone writes and speaks."""
    return index() == 0


def join(cluster: Cluster) -> None:
    """Join the other hosts, before JAX starts. With one host there is nobody to join."""
    _require_fresh()
    if cluster.count == 1:
        return
    wait_for_all(cluster)
    jax.distributed.initialize(
        cluster.coordinator,
        cluster.count,
        cluster.index,
        initialization_timeout=round(max(cluster.patience, 30)),
        heartbeat_timeout_seconds=_HEARTBEAT,
        cluster_detection_method="deactivate",
    )
    _listen_for_the_end()


def join_detected() -> None:
    """Join the hosts of a SLURM job, of Open MPI or of whatever else JAX can see for itself."""
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


def disconnect() -> None:
    """All hosts at once, after the last program: what follows concerns no other host."""
    jax.distributed.shutdown()


def send(value: Any) -> None:
    """Send from host 0 to all others, by way of JAX's coordinator: works before JAX has its devices."""
    _jax_state().client.key_value_set(f"dcp/{next(_sent)}", json.dumps(value))


def receive() -> Any:
    """Wait for host 0's next message: host 0 may be busy."""
    client, name = _jax_state().client, f"dcp/{next(_received)}"
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
