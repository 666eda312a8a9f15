"""Where several hosts meet before JAX makes one machine of them.

Where a host waits in vain, `jax.distributed` ends the process with a stack trace of C++. So the hosts meet by plain
sockets first, where a mistake gets its sentence, and are handed to JAX once all are there.
"""

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dcp.errors import UserError

PATIENCE = 300.0  # seconds until all have come, as in JAX
_RETRY = 0.2
_LINE = 1_000  # bytes at most


@dataclass(frozen=True)
class Meeting:
    """Where `count` hosts meet, and which of them this one is. Host 0 listens there, the others call."""

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


def meet(meeting: Meeting) -> None:
    (_receive if meeting.index == 0 else _call)(meeting)


def _receive(meeting: Meeting) -> None:
    """Host 0: wait until every other host has called, then let all go on."""
    port, deadline = meeting.address[1], time.monotonic() + meeting.patience
    callers: dict[int, socket.socket] = {}
    try:
        with _listening(port) as door:
            while len(callers) < meeting.count - 1:
                door.settimeout(max(deadline - time.monotonic(), 0.01))
                try:
                    caller = door.accept()[0]
                except TimeoutError:
                    _answer(callers, _missing(meeting, callers))
                    raise UserError(_missing(meeting, callers)) from None
                hello = _read(caller)
                if hello is None:  # a stranger
                    caller.close()
                    continue
                problem = _refusal(meeting, callers, hello)
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


def _missing(meeting: Meeting, callers: dict[int, socket.socket]) -> str:
    absent = ", ".join(str(host) for host in range(1, meeting.count) if host not in callers)
    return (
        f"host {absent} of {meeting.count} did not come to {meeting.coordinator} within {meeting.patience:g} s: "
        "start the same command on each, with its own --host-id"
    )


def _refusal(meeting: Meeting, callers: dict[int, socket.socket], hello: dict[str, int]) -> str | None:
    if hello["hosts"] != meeting.count:
        return f"host {hello['host']} has --num-hosts {hello['hosts']}, host 0 {meeting.count}: give all the same"
    if hello["host"] in callers or hello["host"] == 0:
        return f"two hosts have --host-id {hello['host']}: number them from 0 to {meeting.count - 1}"
    return None


def _call(meeting: Meeting) -> None:
    """Any other host: call until host 0 answers that all are there."""
    deadline = time.monotonic() + meeting.patience
    hello = json.dumps({"hosts": meeting.count, "host": meeting.index}) + "\n"
    reason = "no answer"
    while (left := deadline - time.monotonic()) > 0:
        try:
            with socket.create_connection(meeting.address, timeout=left) as line:
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
        f"host 0 did not answer at {meeting.coordinator} within {meeting.patience:g} s ({reason}): "
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
    """One line of JSON; None for what is none of ours."""
    try:
        if line.gettimeout() is None:
            line.settimeout(5.0)  # a stranger may say nothing
        with line.makefile("rb") as file:
            message = json.loads(file.readline(_LINE))
        return message if known(message) else None
    except (OSError, ValueError):
        return None
