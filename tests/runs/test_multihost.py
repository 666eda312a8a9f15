"""Two hosts over loopback, each a process of its own: they train what one trains, stop together and go on together."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from numpy.testing import assert_allclose

from dcp import devices, hosts
from dcp.checks import violations
from dcp.envs.registry import make_env
from dcp.runs.sinks import TrainedRun
from tests.runs.same_run import assert_same_run, final_arrays, metrics
from tests.tiny import LONGER_FLAGS, tiny_config

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def started(command: list[str], **changes: str) -> subprocess.Popen[str]:
    env, pipe = {**os.environ, "DCP_HOSTS_SECRET": "between these two", **changes}, subprocess.PIPE
    return subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, env=env, stdout=pipe, stderr=pipe, text=True)


def ended(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """-> exit code, stdout, stderr of each; none outlives its test"""
    try:
        outputs = [process.communicate(timeout=500) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *output) for process, output in zip(processes, outputs, strict=True)]


@cache
def pair() -> list[dict[str, Any]]:
    coordinator = f"127.0.0.1:{free_port()}"
    both = ended([started(["tests.runs.two_hosts", coordinator, str(host)]) for host in (0, 1)])
    assert [code for code, _, _ in both] == [0, 0], both
    return [json.loads(out.splitlines()[-1]) for _, out, _ in both]


def test_two_hosts_learn_what_one_learns(tiny_run: TrainedRun):
    """The metrics of the first evaluation's iterations, unrolls and updates alike."""
    one, (host_0, host_1) = tiny_run.rows[0], pair()
    assert host_0["means"] == host_1["means"]
    for name, mean in host_0["means"].items():
        assert_allclose(mean, one[name], rtol=1e-3, atol=1e-4, err_msg=name)


def test_two_hosts_share_out_environments_and_batches_and_hold_the_same_learner():
    for host, seen in enumerate(pair()):
        assert (seen["host"], seen["devices"], seen["split_batches"]) == (host, 2, "on")
        assert seen["own"] == [8]  # of 16 environments
    assert pair()[0]["parameters"] == pair()[1]["parameters"]


def test_hosts_agree_on_the_highest_wish_and_pass_whole_arrays_on():
    host_0, host_1 = pair()
    assert host_0["agreed"] == host_1["agreed"] == [1, 5]
    assert host_0["spread"] == host_1["spread"] == [6.0, 3.0, 8192.0]
    assert host_0["replay"] == host_1["replay"] > 0.0
    assert host_0["own_part"] and host_1["own_part"]


class TestChecks:
    """As they are on each of two hosts with two devices; the count is JAX's, which a test cannot have twice."""

    @pytest.fixture(autouse=True)
    def two_hosts(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(hosts, "count", lambda: 2)
        monkeypatch.setattr(devices, "_on_every_host", lambda: 2)

    def test_a_point_maze_takes_one_device_a_host_and_physics_all(self):
        assert devices.count_devices(None, 512, make_env("point_u_maze").spec) == 2
        assert devices.count_devices(None, 512, make_env("ant_u_maze").spec) == 4
        assert devices.count_devices(None, 6, make_env("ant_u_maze").spec) == 2  # 6 = 2 * 3: one each

    def test_batches_are_split_over_hosts_unless_they_cannot_be(self):
        assert devices.splitting_pays(256, 2)
        assert not devices.splitting_pays(255, 2)

    @pytest.mark.parametrize(
        ("settings", "sentence"),
        [
            ({"num_envs": 15, "batch_size": 5}, "2 hosts cannot share out num_envs 15 evenly: try num_envs 16"),
            ({"devices": 1}, "devices 1 cannot be shared out evenly over 2 hosts: use a multiple of 2"),
            ({"devices": 8}, "devices is 8, but JAX has 4: use at most 4, or set JAX_NUM_CPU_DEVICES=4"),
            (
                {"batch_size": 3, "num_envs": 6, "split_batches": "on"},
                "2 devices cannot share out batch_size 3 evenly: use split_batches off, or batch_size a multiple of 2",
            ),
        ],
    )
    def test_what_hosts_cannot_share_out_gives_one_sentence(self, settings: dict[str, Any], sentence: str):
        (problem,) = violations(tiny_config(**settings))
        assert sentence in problem


def trained(runs: Path, *flags: str) -> list[subprocess.Popen[str]]:
    command = ["dcp.cli.main", "train", *LONGER_FLAGS, "--runs-dir", str(runs), "--join-seconds", "120", *flags]
    coordinator = ["--coordinator", f"127.0.0.1:{free_port()}", "--num-hosts", "2"]
    return [started([*command, *coordinator, "--host-id", host]) for host in ("0", "1")]


@pytest.mark.slow
class TestWholeRuns:
    @pytest.fixture(scope="class")
    def whole(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """The longer run on two hosts, never interrupted."""
        runs = tmp_path_factory.mktemp("whole")
        (code, out, _), (code_1, out_1, _) = ended(trained(runs))
        assert (code, code_1, out_1) == (0, 0, "")  # host 1 says nothing
        assert "Trained for 12,000 environment steps" in out
        return runs / tiny_config().run_path

    def test_two_hosts_end_where_one_ends(self, whole: Path, longer_run: TrainedRun):
        stored = json.loads((whole / "config.json").read_text())
        assert (stored["config"]["devices"], stored["config"]["split_batches"]) == (2, "on")
        assert stored["machine"]["hosts"] == "2"
        ours, theirs = metrics(whole), metrics(longer_run.folder)
        assert len(ours) == len(theirs) == 14
        for name in ("critic_loss", "actor_loss", "alpha", "pool_spread", "final_distance"):
            assert_allclose([float(row[name]) for row in ours], [float(row[name]) for row in theirs], rtol=0.02)

    def test_a_signal_to_one_stops_both_and_both_go_on_bit_by_bit(self, whole: Path, tmp_path: Path):
        both = trained(tmp_path)
        folder = tmp_path / tiny_config().run_path
        wait_for(lambda: len(rows(folder)) > 2)
        both[1].send_signal(signal.SIGTERM)
        (code, out, _), (code_1, _, _) = ended(both)
        assert (code, code_1) == (75, 75)
        assert "Stopped with a checkpoint" in out
        assert 2 < len(rows(folder)) < 14
        assert [code for code, _, _ in ended(trained(tmp_path, "--resume", str(folder)))] == [0, 0]
        assert_same_run(folder, whole)

    def test_a_run_of_two_hosts_goes_on_with_one(self, whole: Path, tmp_path: Path):
        both = trained(tmp_path)
        folder = tmp_path / tiny_config().run_path
        wait_for(lambda: len(rows(folder)) > 2)
        both[0].send_signal(signal.SIGTERM)
        assert [code for code, _, _ in ended(both)] == [75, 75]
        alone = started(["dcp.cli.main", "train", "--resume", str(folder), "--no-plots"], JAX_NUM_CPU_DEVICES="2")
        ((code, out, err),) = ended([alone])
        assert code == 0, err
        assert "hosts 2 -> 1" in out + err
        ours, theirs = final_arrays(folder), final_arrays(whole)
        for name in ours:
            if name.startswith("learner/params"):
                assert_allclose(ours[name], theirs[name], rtol=0.05, atol=0.01, err_msg=name)

    def test_a_host_that_is_killed_ends_the_other_with_a_sentence(self, tmp_path: Path):
        both = trained(tmp_path)
        folder = tmp_path / tiny_config().run_path
        wait_for(lambda: len(rows(folder)) > 2)
        both[1].kill()
        (code, _, err), _ = ended(both)
        assert code == 1
        assert "another host has ended" in err
        assert "steps is kept" in err
        assert any((folder / "checkpoints").iterdir())

    def test_a_mistake_ends_both_with_its_sentence(self, tmp_path: Path):
        for code, _, err in ended(trained(tmp_path, "--num-envs", "15", "--batch-size", "60")):
            assert code == 2
            assert "2 hosts cannot share out num_envs 15 evenly: try num_envs 16" in err
        assert list(tmp_path.iterdir()) == []

    def test_the_hosts_of_a_slurm_job_find_each_other(self):
        """By SLURM's own variables, as srun sets them for two tasks on one node. Host 0's mistake is told to both."""
        job = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_NUM_NODES": "1"}
        command = ["dcp.cli.main", "train", "--preset", "smoke", "--hosts", "auto", "--num-envs", "15"]
        tasks = [{"SLURM_NTASKS": "2", "SLURM_PROCID": host, "SLURM_LOCALID": host} for host in ("0", "1")]
        (code, _, err), (code_1, _, err_1) = ended([started(command, **job, **task) for task in tasks])
        assert (code, code_1) == (2, 2)
        assert err.startswith("dcp: num_envs * (window - 1) = 15 * 32")
        assert err_1.startswith("dcp: host 0 has stopped: num_envs * (window - 1) = 15 * 32")


def rows(folder: Path) -> list[str]:
    try:
        return (folder / "metrics.csv").read_text().splitlines()[1:]
    except FileNotFoundError:
        return []


def wait_for(seen: Any) -> None:
    limit = time.monotonic() + 300.0
    while not seen():
        assert time.monotonic() < limit
        time.sleep(0.01)
