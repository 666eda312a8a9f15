"""Real grids on a real Ray cluster of two nodes: Ray's own retry is a resumption."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dcp.cli.main import main
from dcp.config import cores
from dcp.errors import UserError
from dcp.grid import ray_launcher
from dcp.grid.jobs import Job
from dcp.grid.launcher import Driver, LocalLauncher
from dcp.grid.ray_launcher import RayLauncher, RayOptions, free_nodes, join_cluster, ray_package, run_task
from dcp.grid.resources import FreeResources, Resources, require_fit
from dcp.runs.run_status import how_far
from dcp.runs.training import TrainedRun
from tests.support.same_run import assert_same_run, metrics
from tests.support.small_grids import Killer, as_toml, files, planned, with_cores

pytestmark = pytest.mark.filterwarnings(r"ignore:os\.fork")  # by Ray, and another program follows at once
TAG = "DCP_TEST_CLUSTER"  # in the environment of every process that a test's cluster starts
NODE = {"num_cpus": cores(), "object_store_memory": ray_launcher.OBJECT_STORE, "memory": 8 * 2**30}
SEED_0 = "point_u_maze/dcp/seed_0"


def tagged(tag: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{TAG}={tag}".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def end_all(tag: str) -> list[int]:
    """Workers leave by themselves a moment after their node; none may stay, whatever has happened. -> who did not"""
    limit = time.monotonic() + 20
    while tagged(tag) and time.monotonic() < limit:
        time.sleep(0.1)
    left = tagged(tag)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    os.environ[TAG] = uuid.uuid4().hex
    # The loopback, as in start_cluster; and workers as nice as other tests' processes: Ray's 15 is next to nothing.
    os.environ.update({"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_worker_niceness": "0"})
    ray = ray_package()
    from ray.cluster_utils import Cluster

    made = Cluster()
    try:
        made.add_node(include_dashboard=False, **NODE)
        made.add_node(**NODE)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()
        end_all(os.environ.pop(TAG))


def drive(jobs: Sequence[Job], entries: Sequence[Any], shown: Any, cluster: Any, most: int | None = None) -> list[Any]:
    launcher = RayLauncher(jobs, RayOptions(cluster.address), FreeResources(1, jobs=most))
    launcher.require()
    return Driver(launcher, entries, jobs, shown, retries=0, poll=0.05).run()


def test_a_killed_workers_run_ends_bit_identical_and_a_restart_runs_nothing_again(
    tmp_path: Path, longer_run: TrainedRun, cluster: Any, capsys: pytest.CaptureFixture
):
    entries, jobs = planned(tmp_path, seed=[0, 1])
    killer = Killer(SEED_0)
    lines = drive(jobs, entries, killer, cluster)
    assert [(line.state, line.attempt) for line in lines] == [("finished", 1), ("finished", 1)]  # the retry was Ray's
    assert killer.name is None and not killer.notes
    assert_same_run(tmp_path / SEED_0, longer_run.folder)
    assert metrics(tmp_path / "point_u_maze/dcp/seed_1") != metrics(longer_run.folder)  # it is another seed

    before = files(tmp_path)
    grid = as_toml(tmp_path.with_suffix(".toml"), seed=[0, 1])
    command = ["grid", str(grid), "--runs-dir", str(tmp_path), "--no-report", "--launcher", "ray"]
    assert main([*command, "--ray-address", cluster.address]) == 0
    assert files(tmp_path) == before
    assert "2 of 2 runs were finished before" in capsys.readouterr().out


def test_what_no_node_has_is_refused_with_the_numbers(tmp_path: Path, cluster: Any):
    (job,) = planned(tmp_path, seed=[0])[1]
    nodes = [{"Alive": True, "Resources": {"CPU": 8.0, "memory": 32e9}}, {"Alive": True, "Resources": {"CPU": 2.0}}]
    nodes.append({"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0, "memory": 512e9}})
    for resources, sentence in [
        (Resources(9), "to have 9 cores, but the largest node of the cluster has 8: lower --cores-per-run"),
        (Resources(1, 40 * 10**9), "needs about 40.0 GB, but the largest node of the cluster has 32 GB"),
        (Resources(1, 0, 1), "to have 1 GPUs, but the largest node of the cluster has 0"),
    ]:
        with pytest.raises(UserError, match=sentence):
            require_fit(free_nodes(nodes), [replace(job, resources=resources)])
    apart = [{"Alive": True, "Resources": {"CPU": 8.0}}, {"Alive": True, "Resources": {"CPU": 1.0, "memory": 32e9}}]
    with pytest.raises(UserError, match="that no single node has together"):
        require_fit(free_nodes(apart), [replace(job, resources=Resources(2, 10**9))])
    require_fit(free_nodes(nodes), [replace(job, resources=Resources(8, 32 * 10**9))])

    launcher = RayLauncher(with_cores([job], 10_000), RayOptions(cluster.address), FreeResources(1))
    with pytest.raises(UserError, match=f"to have 10000 cores, but the largest node of the cluster has {cores()}:"):
        launcher.require()
    assert not ray_package().is_initialized() and not (tmp_path / "grid").exists()


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """Somebody listens, and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.fixture
def web_port() -> Iterator[int]:
    """A web server: it speaks HTTP/2, as Ray does, and knows no page that it is asked for (404)."""

    def answer() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]) + bytes([0, 0, 1, 1, 5, 0, 0, 0, 1, 0x8D]))

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        threading.Thread(target=answer, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def test_a_dead_address_gets_one_sentence(
    tmp_path: Path,
    closed_port: int,
    deaf_port: int,
    web_port: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
):
    grid = as_toml(tmp_path / "grid.toml", seed=[0])
    command = ["grid", str(grid), "--runs-dir", str(tmp_path / "runs"), "--launcher", "ray", "--ray-address"]
    monkeypatch.setattr(ray_launcher, "CONNECT", 0.2)
    monkeypatch.setattr(ray_launcher, "STATUS", 3.0)
    for address, told in [
        (f"127.0.0.1:{closed_port}", "Connection refused"),
        (f"127.0.0.1:{deaf_port}", "what listens there is not Ray"),
        (f"127.0.0.1:{web_port}", "what listens there is not Ray"),
        ("no.such.host.invalid:6379", "no Ray cluster answers at no.such.host.invalid:6379"),
        ("ray://localhost:10001", "is not an address: name host:port of the head node, or auto"),
        ("localhost", "is not an address"),
        ("localhost:99999", "no Ray cluster answers"),
    ]:
        assert main([*command, address]) == 2
        said = capsys.readouterr().err
        assert told in said and said.count("\n") == 1 and address in said
    assert not (tmp_path / "runs").exists()


def test_a_cluster_that_has_ended_is_not_found_by_auto(closed_port: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{closed_port}")
    with pytest.raises(UserError, match=f"no Ray cluster answers at .*:{closed_port} "):
        join_cluster("auto")


def test_a_node_that_does_not_see_the_runs_says_so(tmp_path: Path):
    (job,) = planned(tmp_path / "runs", seed=[0])[1]
    code, why = run_task(job.to_json(), str(tmp_path / "marker"), "ticket")
    assert code == 2 and why.endswith(
        f"does not see {tmp_path}/runs: name a --runs-dir on storage that all nodes share"
    )
    assert not (tmp_path / "runs").exists()


def test_without_the_package_its_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"needs the package ray .*: pip install '\.\[ray\]'"):
        ray_package()


class NodeRemover(Killer):
    """Takes a whole node away once a run on it has some evaluations; which of the runs lived there is Ray's choice."""

    def __init__(self, cluster: Any, node: Any):
        super().__init__()
        self.cluster, self.node = cluster, node

    def update(self, lines: Sequence[Any]) -> None:
        self.seen |= {line.where for line in lines if line.where}
        if self.node is not None and sum(bool(line.row and line.row["evaluation"] >= 3) for line in lines) >= 3:
            self.cluster.remove_node(self.node, allow_graceful=False)
            self.node = None


@pytest.mark.slow
def test_eight_runs_finish_though_a_node_is_lost(tmp_path: Path, cluster: Any):
    """One core each, two at once on a node: as many threads as on this machine with one core of its own."""
    node = cluster.add_node(**{**NODE, "num_cpus": 2})
    entries, jobs = planned(tmp_path / "ray", method=["crl", "dcp"], seed=[0, 1, 2, 3])
    remover = NodeRemover(cluster, node)
    lines = drive(with_cores(jobs, 1), entries, remover, cluster)
    assert remover.node is None
    assert [line.state for line in lines] == ["finished"] * 8
    assert len(remover.seen) > 8  # a process each, and another for those that lost theirs
    here, alone = planned(tmp_path / "local", method=["crl", "dcp"], seed=[0, 1, 2, 3])
    Driver(LocalLauncher(FreeResources(2), with_cores(alone, 1)), here, with_cores(alone, 1), Killer()).run()
    for entry in here:
        assert_same_run(tmp_path / "ray" / entry.run.path, entry.folder)


@pytest.mark.slow
def test_a_stopped_grid_leaves_checkpoints_and_goes_on(tmp_path: Path, longer_run: TrainedRun, cluster: Any):
    for attempt in range(4):  # on a busy machine the first run may end before it is stopped
        folder = tmp_path / str(attempt)
        entries, jobs = planned(folder, seed=[0, 1])
        launcher = RayLauncher(jobs, RayOptions(cluster.address), FreeResources(1, jobs=1))
        launcher.require()
        launcher.submit(jobs)
        limit = time.monotonic() + 300
        while not (folder / SEED_0 / "metrics.csv").exists() or not metrics(folder / SEED_0):
            assert time.monotonic() < limit and launcher.poll()[jobs[1].name].state == "waiting"  # one at once
            time.sleep(0.05)
        launcher.stop()
        told = launcher.poll()
        launcher.close()
        if told[jobs[0].name].state != "finished":
            break
    assert {status.state for status in told.values()} == {"stopped"}
    assert told[jobs[1].name].why == "it had not begun"
    assert 0 < how_far(folder / SEED_0)[0] < 12_000
    lines = drive(jobs, entries, Killer(), cluster, most=1)
    assert [line.state for line in lines] == ["finished", "finished"]
    assert_same_run(folder / SEED_0, longer_run.folder)


@pytest.mark.slow
@pytest.mark.parametrize(("retries", "state"), [(5, "finished"), (0, "stopped")])
def test_a_worker_that_is_asked_to_end_leaves_a_checkpoint_and_ray_tries_again(
    retries: int, state: str, tmp_path: Path, longer_run: TrainedRun, cluster: Any, monkeypatch: pytest.MonkeyPatch
):
    """As when its node is drained: SIGTERM."""
    monkeypatch.setattr("dcp.grid.ray_launcher.RETRIES", retries)
    entries, jobs = planned(tmp_path, seed=[0])
    (line,) = drive(jobs, entries, Killer(SEED_0, number=signal.SIGTERM), cluster)
    assert (line.state, line.attempt) == (state, 1)
    assert "stopped with a checkpoint at" in jobs[0].log.read_text()
    if state == "finished":
        assert_same_run(tmp_path / SEED_0, longer_run.folder)
    else:
        assert line.why.startswith("stopped with a checkpoint at")


@pytest.mark.slow
def test_without_an_address_the_command_starts_a_cluster_and_ends_it(tmp_path: Path, longer_run: TrainedRun):
    """With an empty home, which stays so."""
    grid, home, tag = as_toml(tmp_path / "grid.toml", seed=[0]), tmp_path / "home", uuid.uuid4().hex
    home.mkdir()
    command = [sys.executable, "-m", "dcp.cli.main", "grid", str(grid), "--runs-dir", str(tmp_path / "runs")]
    command += ["--launcher", "ray", "--cores-per-run", str(cores()), "--no-report"]
    environment = os.environ | {"HOME": str(home), TAG: tag}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == ""
    finally:
        left = end_all(tag)
    assert left == []
    assert_same_run(tmp_path / "runs" / SEED_0, longer_run.folder)
    assert list(home.iterdir()) == []
