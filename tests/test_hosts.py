"""Hosts find each other before JAX joins them: all come, or each is told in one sentence what was wrong."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from dcp.errors import UserError
from dcp.host_handshake import Cluster, shared_secret, signed, verified, wait_for_all
from dcp.validation import FormatError

KEY = "a secret of these tests"


@pytest.fixture
def coordinator() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def outcome(cluster: Cluster) -> str:
    try:
        wait_for_all(cluster)
    except UserError as error:
        return str(error)
    return "met"


def outcomes(*clusters: Cluster) -> list[str]:
    with ThreadPoolExecutor(len(clusters)) as threads:
        return list(threads.map(outcome, clusters))


def test_all_hosts_meet_in_any_order_and_leave_the_port_to_jax(coordinator: str):
    assert outcomes(*(Cluster(coordinator, 3, host, 10.0, KEY) for host in (2, 0, 1))) == ["met"] * 3
    with socket.create_server(("127.0.0.1", Cluster(coordinator, 3, 0).address[1])):
        pass


def test_a_stranger_who_calls_is_not_taken_for_a_host(coordinator: str):
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(outcome, Cluster(coordinator, 2, 0, 10.0, KEY))
        stranger = called(coordinator)
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        other = threads.submit(outcome, Cluster(coordinator, 2, 1, 10.0, KEY))
        assert (first.result(), other.result()) == ("met", "met")
        stranger.close()


def called(coordinator: str) -> socket.socket:
    while True:
        try:
            return socket.create_connection(Cluster(coordinator, 2, 1).address, timeout=1.0)
        except ConnectionRefusedError:
            continue


def test_hosts_that_do_not_come_are_named_to_those_who_have(coordinator: str):
    seen = outcomes(Cluster(coordinator, 4, 0, 0.5, KEY), Cluster(coordinator, 4, 2, 0.5, KEY))
    assert set(seen) == {
        f"host 1, 3 of 4 did not come to {coordinator} within 0.5 s: "
        "start the same command on each, with its own --host-id and the same DCP_HOSTS_SECRET"
    }


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
def test_a_coordinator_that_nobody_answers_at_gives_one_sentence(host: str, coordinator: str):
    address = f"{host}:{coordinator.split(':')[1]}"
    assert outcome(Cluster(address, 2, 1, 0.3, KEY)).startswith(f"host 0 did not answer at {address} within 0.3 s (")


def test_a_port_that_is_taken_gives_one_sentence():
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        sentence = outcome(Cluster(f"127.0.0.1:{port}", 2, 0, 1.0, KEY))
    assert (
        sentence
        == f"host 0 cannot listen at 127.0.0.1:{port} (Address already in use): choose another --coordinator, its own"
    )


def test_hosts_that_disagree_on_their_number_or_share_a_number_get_a_sentence(coordinator: str):
    seen = outcomes(Cluster(coordinator, 2, 0, 10.0, KEY), Cluster(coordinator, 3, 1, 10.0, KEY))
    assert seen == ["host 1 has --num-hosts 3, host 0 2: give all the same"] * 2
    seen = outcomes(*(Cluster(coordinator, 3, host, 10.0, KEY) for host in (0, 1, 1)))
    assert seen == ["two hosts have --host-id 1: number them from 0 to 2"] * 3


@pytest.mark.parametrize(
    "text",
    [
        "", "localhost", "10.0.0.1:", "10.0.0.1:port", ":12355", "a:0", "a:70000", "a:-1", "a:\u00b2", "a:\u0661\u0662",
        "a..b:1",         "a b:1", "a\x00:1", "\udcff:1", "a" * 64 + ":1", "a." * 200 + "a:1", "::1:12355", "[::1:5",
        "a:" + "1" * 900, "http://a:1",
    ],
)  # fmt: skip
def test_a_coordinator_must_be_host_and_port(text: str):
    with pytest.raises(UserError, match="is not HOST:PORT, such as"):
        Cluster(text, 2, 0)


@pytest.mark.parametrize(("count", "index"), [(2, 2), (2, -1), (0, 0)])
def test_hosts_are_numbered_from_0(count: int, index: int):
    with pytest.raises(UserError, match="number the hosts from 0"):
        Cluster("a:1", count, index)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), 1e30])
def test_odd_times_to_wait_are_refused(seconds: float):
    with pytest.raises(UserError, match=r"--join-seconds is .*: give seconds"):
        Cluster("a:1", 2, 0, seconds)


def hello(**changes) -> bytes:
    return json.dumps({"hosts": 2, "host": 1, "challenge": "x", "nonce": "y", **changes}).encode() + b"\n"


# What a stranger may say. Some of these ended host 0 with a RecursionError, or JAX's C++ with an abort.
STRANGERS = {
    "brackets": b"[" * 1_000 + b"\n",
    "a flood": b"x" * 1_000_000,
    "no text": b"\xff\xfe\n",
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "no secret": hello(),
    "host 57": hello(host=57),
    "host true": hello(host=True),
    "host of 900 digits": b'{"hosts": 2, "host": ' + b"9" * 900 + b"}\n",
    "the old hello": b'{"hosts": 2, "host": 1}\n',
    "another's secret": signed({"hosts": 2, "host": 1, "challenge": "x", "nonce": "y"}, "another").encode() + b"\n",
    "a repeated call": signed({"hosts": 2, "host": 1, "challenge": "x", "nonce": "y"}, KEY).encode() + b"\n",
    "nothing": b"",
}


def test_no_stranger_ends_host_0_or_keeps_the_others_waiting(coordinator: str):
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(outcome, Cluster(coordinator, 2, 0, 20.0, KEY))
        callers = []
        for said in STRANGERS.values():
            callers.append(called(coordinator))
            try:
                callers[-1].sendall(said)
            except OSError:
                continue  # it has hung up already
        other = threads.submit(outcome, Cluster(coordinator, 2, 1, 20.0, KEY))
        assert (first.result(30), other.result(30)) == ("met", "met")
        for caller in callers:
            caller.close()


def test_one_who_says_a_byte_at_a_time_does_not_hold_host_0_beyond_its_time(coordinator: str):
    """A byte every two seconds held it for ever."""
    over = threading.Event()

    def trickle() -> None:
        caller = called(coordinator)
        while not over.wait(0.1):
            try:
                caller.sendall(b"[")
            except OSError:
                return

    stranger = threading.Thread(target=trickle, daemon=True)
    stranger.start()
    started = time.monotonic()
    assert outcome(Cluster(coordinator, 2, 0, 1.0, KEY)).startswith("host 1 of 2 did not come")
    assert time.monotonic() - started < 5.0
    over.set()


def test_many_strangers_at_once_do_not_keep_a_host_out(coordinator: str):
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(outcome, Cluster(coordinator, 2, 0, 30.0, KEY))
        callers = [called(coordinator) for _ in range(100)]
        assert outcome(Cluster(coordinator, 2, 1, 30.0, KEY)) == "met"
        assert first.result(30) == "met"
        for caller in callers:
            caller.close()


def test_a_host_without_the_secret_is_kept_out_with_a_sentence(coordinator: str):
    seen = outcomes(Cluster(coordinator, 2, 0, 1.0, KEY), Cluster(coordinator, 2, 1, 1.0, "another secret than theirs"))
    assert seen[0].startswith("host 1 of 2 did not come")
    assert seen[1].startswith("host 0 did not answer") and "DCP_HOSTS_SECRET is the same" in seen[1]


def test_a_process_that_poses_as_host_0_without_the_secret_is_not_believed(coordinator: str):
    address = Cluster(coordinator, 2, 1).address

    def pose() -> None:
        with socket.create_server(address) as door:
            door.settimeout(5.0)
            while True:
                try:
                    caller = door.accept()[0]
                    caller.sendall(b'{"challenge": "x"}\n')
                    caller.recv(2_000)
                    caller.sendall(signed({"nonce": "x", "problem": None}, "guessed").encode() + b"\n")
                except OSError:
                    return

    impostor = threading.Thread(target=pose, daemon=True)
    impostor.start()
    assert outcome(Cluster(coordinator, 2, 1, 1.0, KEY)).startswith("host 0 did not answer")


def test_host_0_listens_only_at_the_coordinator_s_address(coordinator: str):
    """127.0.0.2 is this machine too, and nobody may call there."""
    port = Cluster(coordinator, 2, 0).address[1]
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(outcome, Cluster(coordinator, 2, 0, 2.0, KEY))
        called(coordinator).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=1.0)
        first.result(10)


def test_a_message_that_was_changed_is_not_believed():
    message = signed([0, {"env": "mine:make"}], KEY)
    assert verified(message, KEY) == [0, {"env": "mine:make"}]
    for changed in (
        message.replace("mine", "evil"),
        signed([0], "another"),
        "{}",
        "[" * 10_000,
        '{"said": 1, "hmac": 2}',
    ):
        with pytest.raises(FormatError):
            verified(changed, KEY)


def test_the_secret_comes_from_the_environment_or_a_file(tmp_path, monkeypatch):
    monkeypatch.delenv("DCP_HOSTS_SECRET", raising=False)
    assert shared_secret() is None
    (tmp_path / "secret").write_text("0123456789abcdef\n")
    monkeypatch.setenv("DCP_HOSTS_SECRET_FILE", str(tmp_path / "secret"))
    assert shared_secret() == "0123456789abcdef"
    monkeypatch.setenv("DCP_HOSTS_SECRET_FILE", str(tmp_path / "none"))
    with pytest.raises(UserError, match="cannot read"):
        shared_secret()
    monkeypatch.setenv("DCP_HOSTS_SECRET", "short")
    with pytest.raises(UserError, match="16 or more"):
        shared_secret()
