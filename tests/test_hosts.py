"""Hosts meet before JAX joins them: all come, or each is told in one sentence what was wrong."""

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from dcp.errors import UserError
from dcp.hosts import Cluster, wait_for_all


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
    assert outcomes(*(Cluster(coordinator, 3, host, 10.0) for host in (2, 0, 1))) == ["met"] * 3
    with socket.create_server(("127.0.0.1", Cluster(coordinator, 3, 0).address[1])):
        pass


def test_a_stranger_who_calls_is_not_taken_for_a_host(coordinator: str):
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(outcome, Cluster(coordinator, 2, 0, 10.0))
        stranger = called(coordinator)
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        other = threads.submit(outcome, Cluster(coordinator, 2, 1, 10.0))
        assert (first.result(), other.result()) == ("met", "met")
        stranger.close()


def called(coordinator: str) -> socket.socket:
    while True:
        try:
            return socket.create_connection(Cluster(coordinator, 2, 1).address, timeout=1.0)
        except ConnectionRefusedError:
            continue


def test_hosts_that_do_not_come_are_named_to_those_who_have(coordinator: str):
    seen = outcomes(Cluster(coordinator, 4, 0, 0.5), Cluster(coordinator, 4, 2, 0.5))
    assert set(seen) == {
        f"host 1, 3 of 4 did not come to {coordinator} within 0.5 s: "
        "start the same command on each, with its own --host-id"
    }


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
def test_a_coordinator_that_nobody_answers_at_gives_one_sentence(host: str, coordinator: str):
    address = f"{host}:{coordinator.split(':')[1]}"
    assert outcome(Cluster(address, 2, 1, 0.3)).startswith(f"host 0 did not answer at {address} within 0.3 s (")


def test_a_port_that_is_taken_gives_one_sentence():
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        sentence = outcome(Cluster(f"127.0.0.1:{port}", 2, 0, 1.0))
    assert sentence == f"host 0 cannot listen at port {port} (Address already in use): choose another --coordinator"


def test_hosts_that_disagree_on_their_number_or_have_one_number_are_told(coordinator: str):
    seen = outcomes(Cluster(coordinator, 2, 0, 10.0), Cluster(coordinator, 3, 1, 10.0))
    assert seen == ["host 1 has --num-hosts 3, host 0 2: give all the same"] * 2
    seen = outcomes(*(Cluster(coordinator, 3, host, 10.0) for host in (0, 1, 1)))
    assert seen == ["two hosts have --host-id 1: number them from 0 to 2"] * 3


@pytest.mark.parametrize("text", ["", "localhost", "10.0.0.1:", "10.0.0.1:port", ":12355", "a:0", "a:70000", "a:-1"])
def test_a_coordinator_must_be_host_and_port(text: str):
    with pytest.raises(UserError, match="is not HOST:PORT, such as"):
        Cluster(text, 2, 0)


@pytest.mark.parametrize(("count", "index"), [(2, 2), (2, -1), (0, 0)])
def test_hosts_are_numbered_from_0(count: int, index: int):
    with pytest.raises(UserError, match="number the hosts from 0"):
        Cluster("a:1", count, index)
