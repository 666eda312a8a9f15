"""Connect the hosts before JAX joins them: either all arrive, or each learns in one sentence what was wrong.

The hosts share a secret, and every message carries an HMAC made with it, so that nobody else can pose as a host.
JAX's own service, which takes over the port once all have arrived, uses no secret: see SECURITY.md.
"""

import hmac
import json
import math
import os
import re
import secrets
import selectors
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta, Struct

from dcp.errors import UserError
from dcp.validation import FormatError, checked, parse_json, read_text

PATIENCE = 300.0  # seconds for all hosts to arrive, as in JAX
SECRET, SECRET_FILE = "DCP_HOSTS_SECRET", "DCP_HOSTS_SECRET_FILE"  # environment variables
MOST_HOSTS = 4_096
_RETRY = 0.2
_LINE = 2_000  # bytes, the longest message
_CALLER = 5.0  # seconds for a caller to identify itself
_CALLERS = 64  # callers at once; beyond that the oldest is dropped


@dataclass(frozen=True)
class Cluster:
    """Describe the hosts: how many, host 0's address, and this host's index. Host 0 listens there; the others call."""

    coordinator: str
    count: int
    index: int
    patience: float = PATIENCE
    secret: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_HOSTS or not 0 <= self.index < self.count:
            raise UserError(f"--host-id {self.index} of --num-hosts {self.count}: number the hosts from 0")
        if not math.isfinite(self.patience) or not 0 < self.patience <= 10**6:
            raise UserError(f"--join-seconds is {self.patience:g}: give seconds from above 0 to a million")
        host, _, port = self.coordinator.rpartition(":")
        is_port = port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 2**16
        labels = [] if host.startswith("[") else host.split(".")
        if not is_port or not _HOST.fullmatch(host) or not all(0 < len(label) < 64 for label in labels):
            raise UserError(f"--coordinator {self.coordinator[:100]!r} is not HOST:PORT, such as 10.0.0.1:12355")

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.coordinator.rpartition(":")
        return host.strip("[]"), int(port)


# A name, an IPv4 address, or an IPv6 address in brackets.
_HOST = re.compile(r"[A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")


def shared_secret() -> str | None:
    """Return the hosts' secret from the environment or from the file that it names; None if neither is set."""
    told = os.environ.get(SECRET)
    if told is None and (file := os.environ.get(SECRET_FILE)):
        try:
            told = read_text(file, most=10_000).strip()
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read {SECRET_FILE} {file} ({error}): name a file with the secret") from error
    if told is not None and len(told) < 16:
        raise UserError(
            f"the hosts' secret has {len(told)} characters: give {SECRET} 16 or more, the same on every host"
        )
    return told


def new_secret() -> str:
    return secrets.token_hex(16)


# A message is a line of JSON with an HMAC. A caller answers a challenge, so nobody can replay an earlier call.


class _Challenge(Struct):
    challenge: Annotated[str, Meta(max_length=64)]


class _Hello(Struct):
    hosts: Annotated[int, Meta(ge=1, le=MOST_HOSTS)]
    host: Annotated[int, Meta(ge=0, lt=MOST_HOSTS)]
    challenge: Annotated[str, Meta(max_length=64)]
    nonce: Annotated[str, Meta(max_length=64)]


class _Answer(Struct):
    nonce: Annotated[str, Meta(max_length=64)]
    problem: Annotated[str, Meta(max_length=1_000)] | None


def signed(value: Any, key: str) -> str:
    text = json.dumps(value)
    return json.dumps({"said": text, "hmac": hmac.new(key.encode(), text.encode(), "sha256").hexdigest()})


def verified(message: str, key: str) -> Any:
    """Return the message's value if its sender knows the secret, else raise FormatError."""
    envelope = checked(parse_json(message), _Envelope)
    wanted = hmac.new(key.encode(), envelope.said.encode(), "sha256").hexdigest()
    if not hmac.compare_digest(wanted.encode(), envelope.hmac.encode()):
        raise FormatError("it has not the hosts' secret")
    return parse_json(envelope.said)


class _Envelope(Struct):
    said: str
    hmac: str


def wait_for_all(cluster: Cluster) -> None:
    (_wait_for_callers if cluster.index == 0 else _call)(cluster)


def _wait_for_callers(cluster: Cluster) -> None:
    """Wait, as host 0, until every other host has called; then let all start."""
    callers: dict[int, tuple[socket.socket, _Hello]] = {}
    try:
        with _listening(cluster) as door:
            for caller, hello in _greetings(door, cluster):
                if hello is None:
                    _answer(callers, _missing(cluster, callers), cluster)
                    raise UserError(_missing(cluster, callers))
                problem = _refusal(cluster, callers, hello)
                callers[-1 if problem else hello.host] = caller, hello
                if problem:
                    _answer(callers, problem, cluster)
                    raise UserError(problem)
                if len(callers) == cluster.count - 1:
                    break
        _answer(callers, None, cluster)  # from here on JAX uses the port
    finally:
        for caller, _ in callers.values():
            caller.close()


def _greetings(door: socket.socket, cluster: Cluster) -> Iterator[tuple[socket.socket, _Hello | None]]:
    """Yield each caller that knows the secret with its hello, and (door, None) when the time is over. All callers are
    served at once, so that a silent or slow one delays nobody. A caller without the secret is disconnected."""
    deadline = time.monotonic() + cluster.patience
    waiting: dict[socket.socket, tuple[bytearray, str, float]] = {}  # received bytes, challenge, deadline
    with selectors.DefaultSelector() as selector:

        def hang_up(caller: socket.socket, close: bool = True) -> None:
            selector.unregister(caller)
            del waiting[caller]
            if close:
                caller.close()

        try:
            door.setblocking(False)
            selector.register(door, selectors.EVENT_READ)
            while (now := time.monotonic()) < deadline:
                for late in [caller for caller, (_, _, until) in waiting.items() if now > until]:
                    hang_up(late)
                for ready, _ in selector.select(min(deadline - now, 1.0)):
                    one = ready.fileobj
                    assert isinstance(one, socket.socket)
                    if one is door:
                        if len(waiting) >= _CALLERS:
                            hang_up(next(iter(waiting)))
                        if caller := _accepted(door):
                            waiting[caller[0]] = bytearray(), caller[1], time.monotonic() + _CALLER
                            selector.register(caller[0], selectors.EVENT_READ)
                    elif one in waiting and (whole := _heard(one, waiting[one][0])) is not None:
                        hello = _hello(whole, waiting[one][1], cluster)
                        hang_up(one, close=hello is None)
                        if hello is not None:
                            yield one, hello
            yield door, None
        finally:
            for caller in list(waiting):
                hang_up(caller)


def _accepted(door: socket.socket) -> tuple[socket.socket, str] | None:
    """Accept a call and send it a challenge."""
    try:
        caller = door.accept()[0]
    except OSError:
        return None
    challenge = secrets.token_hex(16)
    try:
        caller.setblocking(False)
        caller.sendall(json.dumps({"challenge": challenge}).encode() + b"\n")
    except OSError:
        caller.close()
        return None
    return caller, challenge


def _heard(caller: socket.socket, said: bytearray) -> bytes | None:
    """Read what has arrived. -> the whole line; empty if it is too long or the caller hung up; None if incomplete"""
    try:
        piece = caller.recv(_LINE)
    except BlockingIOError:
        return None
    except OSError:
        return b""
    said += piece
    line, end, _ = said.partition(b"\n")
    return bytes(line) if end and len(line) <= _LINE else (None if piece and len(said) <= _LINE else b"")


def _hello(line: bytes, challenge: str, cluster: Cluster) -> _Hello | None:
    try:
        hello = checked(verified(line.decode("utf-8"), cluster.secret), _Hello)
    except (FormatError, UnicodeDecodeError):
        return None
    return hello if hmac.compare_digest(hello.challenge.encode(), challenge.encode()) else None


def _listening(cluster: Cluster) -> socket.socket:
    """Listen at the coordinator's address only."""
    try:
        family, _, _, _, address = socket.getaddrinfo(*cluster.address, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except (OSError, UnicodeError) as error:
        errno = getattr(error, "errno", None)
        reason = os.strerror(errno) if errno and errno > 0 else str(error)
    raise UserError(f"host 0 cannot listen at {cluster.coordinator} ({reason}): choose another --coordinator, its own")


def _missing(cluster: Cluster, callers: dict[int, Any]) -> str:
    absent = [str(host) for host in range(1, cluster.count) if host not in callers]
    absent = [*absent[:10], "..."] if len(absent) > 10 else absent
    return (
        f"host {', '.join(absent)} of {cluster.count} did not come to {cluster.coordinator} within "
        f"{cluster.patience:g} s: start the same command on each, with its own --host-id and the same {SECRET}"
    )


def _refusal(cluster: Cluster, callers: dict[int, Any], hello: _Hello) -> str | None:
    if hello.hosts != cluster.count:
        return f"host {hello.host} has --num-hosts {hello.hosts}, host 0 {cluster.count}: give all the same"
    if hello.host in callers or not 0 < hello.host < cluster.count:
        return f"two hosts have --host-id {hello.host}: number them from 0 to {cluster.count - 1}"
    return None


def _call(cluster: Cluster) -> None:
    """Call host 0, as any other host, until it answers that all have arrived."""
    deadline = time.monotonic() + cluster.patience
    reason = "no answer"
    while (left := deadline - time.monotonic()) > 0:
        answer = None
        try:
            with socket.create_connection(cluster.address, timeout=left) as line:
                answer = _asked(line, cluster, deadline + 10)  # extra time for host 0 to say that it waited in vain
        except (FormatError, UnicodeError) as error:
            reason = str(error)
        except OSError as error:
            reason = error.strerror or str(error)
        if answer is not None:
            if answer.problem:
                raise UserError(" ".join(answer.problem.split()))
            return
        time.sleep(min(_RETRY, max(deadline - time.monotonic(), 0.0)))
    raise UserError(
        f"host 0 did not answer at {cluster.coordinator} within {cluster.patience:g} s ({reason}): "
        f"check --coordinator, that host 0 runs, and that {SECRET} is the same there"
    )


def _asked(line: socket.socket, cluster: Cluster, deadline: float) -> _Answer | None:
    """Answer the listener's challenge with this host's hello; return the reply if it comes from host 0."""
    challenge = checked(parse_json(_line(line, deadline)), _Challenge).challenge
    nonce = secrets.token_hex(16)
    hello = {"hosts": cluster.count, "host": cluster.index, "challenge": challenge, "nonce": nonce}
    line.sendall(signed(hello, cluster.secret).encode() + b"\n")
    answer = checked(verified(_line(line, deadline), cluster.secret), _Answer)
    return answer if hmac.compare_digest(answer.nonce.encode(), nonce.encode()) else None


def _line(line: socket.socket, deadline: float) -> str:
    """Read one line of at most `_LINE` bytes, and give up at the deadline even if bytes keep arriving."""
    said = bytearray()
    while not said.endswith(b"\n"):
        line.settimeout(max(deadline - time.monotonic(), 0.01))
        piece = line.recv(1)
        if not piece or len(said) >= _LINE:
            raise FormatError("it hung up" if not piece else "it says too much")
        said += piece
    try:
        return said.decode("utf-8")
    except UnicodeDecodeError:
        raise FormatError("it is not a dcp host") from None


def _answer(callers: dict[int, tuple[socket.socket, _Hello]], problem: str | None, cluster: Cluster) -> None:
    for caller, hello in callers.values():
        try:
            caller.settimeout(5.0)
            caller.sendall(signed({"nonce": hello.nonce, "problem": problem}, cluster.secret).encode() + b"\n")
            caller.recv(1)  # the caller hangs up first, so that the port is free at once
        except OSError:
            continue  # JAX notices if it matters
