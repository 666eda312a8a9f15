"""`dcp train` on several hosts: run the same command on each. Host 0 leads, and the others follow it."""

import atexit
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dcp.errors import EXIT_FAULT, EXIT_INTERRUPTED, EXIT_MISTAKE, EXIT_REQUEUE, UserError

_FLAGS = ("coordinator", "num_hosts", "host_id")
AUTO = "auto"


def named_hosts(given: dict[str, Any]) -> bool:
    """Return whether the command names several hosts. `given`: the values that argv sets."""
    return any(given.get(name) is not None for name in ("hosts", *_FLAGS))


def among_hosts(given: dict[str, Any], lead: Callable[[], int]) -> int:
    """Join the hosts; call `lead` on host 0, follow host 0 elsewhere. -> the exit code"""
    _refuse(given)
    _join(given)
    return _joined(given, lead) if several() else lead()


def several() -> bool:
    """Return whether this process has joined other hosts."""
    from dcp import hosts

    return hosts.count() > 1


def disconnect() -> None:
    """Leave the other hosts after the last shared program: only host 0 has work left."""
    from dcp import hosts

    hosts.disconnect()


def _refuse(given: dict[str, Any]) -> None:
    flags = {name: f"--{name.replace('_', '-')}" for name in _FLAGS}
    missing = [flag for name, flag in flags.items() if given.get(name) is None]
    if given.get("hosts") and len(missing) < len(_FLAGS):
        raise UserError(f"--hosts takes only {AUTO}: give either --hosts {AUTO} or {', '.join(flags.values())}")
    if not given.get("hosts") and missing:
        raise UserError(f"several hosts need {', '.join(flags.values())}: add {', '.join(missing)}")
    if "seeds" in given:
        raise UserError("--seeds trains several seeds on one host: leave the hosts' flags out, or give --seed")
    if given.get("dry_run"):
        raise UserError("--dry-run looks at one host: leave the hosts' flags out")


def _join(given: dict[str, Any]) -> None:
    from dcp import hosts
    from dcp.host_handshake import PATIENCE, SECRET, Cluster, new_secret, shared_secret

    if given.get("hosts"):
        return hosts.join_detected()
    coordinator, count, index = (given[name] for name in _FLAGS)
    cluster = Cluster(coordinator, count, index, given.get("join_seconds", PATIENCE), shared_secret() or "")
    if cluster.count > 1 and not cluster.secret:
        if index != 0:
            raise UserError(
                f"host {index} needs the hosts' secret: set {SECRET} to what host 0 printed, or to your own"
            )
        cluster = replace(cluster, secret=new_secret())
        print(f"dcp: start each other host, with its own --host-id, as {SECRET}={cluster.secret} {_command(1)}",
              file=sys.stderr, flush=True)  # fmt: skip
    hosts.join(cluster)


def _command(host: int) -> str:
    """Return this command as another host has to run it."""
    words = ["dcp", *sys.argv[1:]]
    for at, word in enumerate(words):
        if word == "--host-id" and at + 1 < len(words):
            words[at + 1] = str(host)
        elif word.startswith("--host-id="):
            words[at] = f"--host-id={host}"
    return shlex.join(words)


def _joined(given: dict[str, Any], lead: Callable[[], int]) -> int:
    """Run this host's part, and tell the other hosts however it ends, so that none waits for a host that is gone."""
    from dcp import hosts

    try:
        code = lead() if hosts.is_first() else _follow(given)
    except BaseException as error:
        code = _code(error)
        hosts.end_all(str(error) or type(error).__name__, code)
        atexit.register(hosts.leave, code)  # after main has printed its sentence, before JAX waits for all hosts
        raise
    if several():  # still connected, so there was nothing to train
        hosts.end_all("", code)
        atexit.register(hosts.leave, code)
    return code


def _follow(given: dict[str, Any]) -> int:
    from dcp.runs.stopping import Interrupted
    from dcp.runs.training import follow

    try:
        follow(given.get("cache"), code=[value for value in given.values() if isinstance(value, str)])
    except Interrupted as stop:
        disconnect()
        return EXIT_INTERRUPTED if stop.env_steps is None else EXIT_REQUEUE
    disconnect()
    return 0


def _code(error: BaseException) -> int:
    if isinstance(error, SystemExit):  # --help
        return error.code if isinstance(error.code, int) else 0
    if isinstance(error, UserError):
        return EXIT_MISTAKE
    return EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else EXIT_FAULT
