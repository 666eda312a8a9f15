"""Full disks, second writers, signals, numbers that are none, and files of other versions."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dcp.cli.main import main
from dcp.errors import RunError, UserError
from dcp.files.run_folder import read_config_file
from dcp.loop import Evaluation
from dcp.runs import checkpoint as files
from dcp.runs import run_status
from dcp.runs.folder import FolderLock
from dcp.runs.resuming import resume
from dcp.runs.training import TrainedRun, train
from tests.support.same_run import assert_same_run, final_arrays
from tests.support.tiny import LONGER, LONGER_FLAGS, tiny_config

ROOT = Path(__file__).parents[2]


class TestFullDisk:
    @pytest.fixture
    def file_size_limit(self):
        """The system refuses to write past the limit, as it does on a full disk."""
        before = resource.getrlimit(resource.RLIMIT_FSIZE)

        def limit(size: int) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

        yield limit
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    @pytest.mark.parametrize("size", [60_000, 100], ids=["a checkpoint", "anything"])
    def test_a_write_that_fails_stops_the_run_and_the_last_checkpoint_is_intact(
        self, size: int, file_size_limit, longer_run: TrainedRun, tmp_path: Path
    ):
        def fill_the_disk(evaluation: Evaluation) -> None:
            if evaluation.row["evaluation"] == 3:
                file_size_limit(size)

        with pytest.raises(RunError, match=r"File too large\): the checkpoint at .* is kept; repair that and run"):
            train(tiny_config(**LONGER), fill_the_disk, runs_dir=tmp_path, display="none")
        file_size_limit(resource.RLIM_INFINITY)
        folder = tmp_path / tiny_config().run_path
        run_status.verify(files.checkpoints(folder / "checkpoints")[0])
        resume(folder, display="none")
        assert not list((folder / "checkpoints").glob("*.draft"))
        assert_same_run(folder, longer_run.folder)

    @pytest.mark.slow
    def test_a_full_file_system_stops_the_command_with_one_sentence(self, tmp_path: Path):
        """A real one: a tmpfs of 3 MB, mounted in a name space of its own. Two checkpoints and a draft need more."""
        if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
            pytest.skip("this system lets no user mount a file system")
        flags = [*LONGER_FLAGS, "--replay-rows", "4000", "--display", "plain"]
        dcp = f"{sys.executable} -m dcp.cli.main train {' '.join(flags)}"
        script = (
            f"mount -t tmpfs -o size=3m tmpfs {tmp_path} && {dcp} --runs-dir {tmp_path}; code=$?;"
            f"mount -o remount,size=100m {tmp_path};"
            f"for c in {tmp_path}/*/*/*/checkpoints/*; do (cd $c && sha256sum --check --quiet SHA256SUMS); done;"
            f"{dcp} --resume {tmp_path}/*/*/* && exit $code"
        )
        command = ["unshare", "-rm", "sh", "-c", script]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 1, done.stdout + done.stderr
        assert "No space left on device): the checkpoint at" in done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert "Trained for 12,000" in done.stdout  # once there was room again


HOLDER = """
import sys, time
from pathlib import Path
from dcp.runs.folder import FolderLock
lock = FolderLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


class TestTwoWriters:
    def test_the_second_is_refused_and_the_lock_ends_with_its_owner(self, longer_run: TrainedRun, tmp_path: Path):
        folder = Path(shutil.copytree(longer_run.folder, tmp_path / "run"))
        holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=f"is in use by process {holder.pid} on "):
            resume(folder, steps=20_000, display="none")
        holder.kill()  # SIGKILL: it cannot clean up
        holder.wait()
        assert (folder / ".lock").exists()
        FolderLock(folder).release()

    def test_neither_a_new_run_nor_overwriting_gets_past_the_lock(self, tmp_path: Path):
        folder = tmp_path / tiny_config().run_path
        folder.mkdir(parents=True)
        lock = FolderLock(folder)
        for overwrite in (False, True):
            with pytest.raises(UserError, match="is in use by"):
                train(tiny_config(), runs_dir=tmp_path, overwrite=overwrite, display="none")
        lock.release()
        assert not any(folder.iterdir())


BUSY = """
import hashlib, sys
from dcp.machine.signals import StopRequest
with StopRequest(lambda name: print("heard", name, flush=True)) as stop:
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"a long call that", b"never returns to Python", {rounds})
print("finished", stop.signal.name if stop.signal else None)
"""


class TestSignals:
    def start(self, rounds: int) -> subprocess.Popen:
        code = BUSY.format(rounds=rounds)
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def test_the_first_is_heard_at_once_and_what_is_going_on_ends(self):
        process = self.start(3_000_000)
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60)[0] == "heard SIGTERM\nfinished SIGTERM\n"
        assert process.returncode == 0

    def test_the_second_ends_the_process_at_once(self):
        process = self.start(2_000_000_000)  # an hour or so
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == "heard SIGTERM\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 143


LATE_BLOW_UP = """
import jax, jax.numpy as jnp
from dcp.envs.base import sparse_state
from dcp.types import EnvSpec

class Line:
    spec = EnvSpec("line", 1, 1, 1, goal_dims=(0,), threshold=0.5, episode_length=250)

    def reset(self, key):
        return sparse_state(self.spec, jnp.zeros(1), jnp.full((1,), 2.0), jnp.zeros((), jnp.int32))

    def step(self, state, action):
        x, goal = self.spec.split(state.obs)
        steps = state.physics + 1
        x = jnp.where(steps < 160, jnp.clip(x + action, -5.0, 5.0), 1e30)  # after 6 unrolls of 25 steps
        return sparse_state(self.spec, x, goal, steps)
"""


class TestNumbersThatAreNone:
    @pytest.fixture(scope="class")
    def folder(self, tmp_path_factory: pytest.TempPathFactory):
        """Of a run whose environment sends it to infinity after the first evaluation."""
        path = tmp_path_factory.mktemp("blow_up")
        (path / "late_blow_up.py").write_text(LATE_BLOW_UP)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(path)
            patch.syspath_prepend(str(path))
            with pytest.raises(RunError, match=r"is (nan|inf) at 2,800 environment steps: see .*fault.json") as error:
                train(tiny_config(env="late_blow_up:Line", method="crl"), runs_dir=path, display="none")
        return path / "late_blow_up.Line/crl/seed_0", str(error.value)

    def test_the_run_stops_and_writes_what_was_seen(self, folder):
        path, said = folder
        fault = json.loads((path / "fault.json").read_text())
        assert fault["env_steps"] == 2_800
        assert {fault["metrics"]["critic_loss"], fault["metrics"]["actor_loss"]} & {"nan", "inf"}
        assert "params/actor/out/kernel" in " ".join(fault["arrays_not_finite"])
        assert fault["last_checkpoint"] == 2_400
        assert fault["schema_version"] == 2
        assert "the checkpoint at 2,400 steps is kept" in said

    def test_the_checkpoint_that_is_kept_is_finite(self, folder):
        arrays = {name: array for name, array in final_arrays(folder[0]).items() if name.startswith("learner/")}
        assert len(arrays) > 10
        assert all((array == array).all() and (abs(array) < 1e30).all() for array in arrays.values())


class TestVersions:
    def test_a_config_of_schema_1_is_migrated(self, tmp_path: Path):
        old = {"schema_version": 1, "config": {"steps": 5_000_000, "num_evals": 10}, "versions": {"dcp": "0.0.9"}}
        (tmp_path / "config.json").write_text(json.dumps(old))
        now = read_config_file(tmp_path / "config.json")
        assert (now["schema_version"], now["earlier_budgets"]) == (2, [])
        assert (now["config"], now["versions"]) == (old["config"], old["versions"])

    def test_a_run_whose_config_is_of_schema_1_continues(self, longer_run: TrainedRun, tmp_path: Path):
        folder = Path(shutil.copytree(longer_run.folder, tmp_path / "run"))
        stored = json.loads((folder / "config.json").read_text())
        del stored["earlier_budgets"]
        (folder / "config.json").write_text(json.dumps({**stored, "schema_version": 1}))
        shutil.rmtree(files.checkpoints(folder / "checkpoints")[0])
        resume(folder, display="none")
        assert_same_run(folder, longer_run.folder)
        assert json.loads((folder / "config.json").read_text())["schema_version"] == 2

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            ({"schema_version": 99}, "has schema_version 99, not 2: upgrade dcp"),
            ({"schema_version": 1}, "has schema_version 1, not 2: train again"),
            ({"config": {"seed": 5}}, "was written with .* restore config.json"),
            ({"arrays": {}}, "continue the run with the dcp that began it"),
            ({"rows": "none"}, "rows: expected array, got str.* use a checkpoint that dcp wrote"),
            ({"rows": [{"env_steps": "many"}]}, "expected float, got str"),
            ({"rows": [3]}, "expected object, got int"),
            ({"metrics": [{"loss": 1.0}]}, "metrics of 1 iterations"),
            ({"metrics": {}}, "metrics: expected array"),
            ({"unrolls": None}, "unrolls: expected int, got null"),
            ({"unrolls": True}, "unrolls: expected int, got bool"),
            ({"unrolls": -5}, "unrolls: expected int >= 0"),
            ({"unrolls": 10**15}, "unrolls: expected int <= "),
            ({"unrolls": 31}, "contradicts itself"),
            ({"unrolls": 29, "env_steps": 29 * 960}, "contradicts itself"),
            ({"seconds": float("inf")}, "seconds: expected float <= "),
            ({"rows": []}, "contradicts itself"),
            ({"versions": {"jax": 3}}, "versions.*expected str, got int"),
        ],
    )
    def test_a_checkpoint_that_cannot_be_read_is_refused_in_a_sentence(
        self, change: dict, sentence: str, longer_run: TrainedRun, tmp_path: Path
    ):
        folder = Path(shutil.copytree(longer_run.folder, tmp_path / "run"))
        newest = files.checkpoints(folder / "checkpoints")[0]
        record = {**run_status.read_record(newest), **change}
        files.publish(newest.rename(newest.with_name(f"{newest.name}.draft")), record)
        with pytest.raises(UserError, match=sentence):
            resume(folder, steps=20_000, display="none")
        FolderLock(folder).release()  # it was let go

    def test_a_checkpoint_with_other_arrays_than_it_says_is_refused(self, longer_run: TrainedRun, tmp_path: Path):
        """A stranger's, whose checksums fit."""
        folder = Path(shutil.copytree(longer_run.folder, tmp_path / "run"))
        newest = files.checkpoints(folder / "checkpoints")[0]
        record, draft = run_status.read_record(newest), newest.with_name(f"{newest.name}.draft")
        arrays = {**final_arrays(folder), "replay/head": np.zeros(3, np.int32)}
        files.write_arrays(newest.rename(draft), arrays)
        files.publish(draft, record)
        with pytest.raises(UserError, match=r"holds other arrays than its checkpoint.json says"):
            resume(folder, steps=20_000, display="none")

    def test_other_versions_of_what_computes_are_told(self, longer_run: TrainedRun, tmp_path: Path, capsys):
        folder = Path(shutil.copytree(longer_run.folder, tmp_path / "run"))
        newest, before = files.checkpoints(folder / "checkpoints")
        shutil.rmtree(newest)
        record = run_status.read_record(before)
        record["versions"]["jax"] = "0.9.0"
        files.publish(before.rename(before.with_name(f"{before.name}.draft")), record)
        resume(folder, display="none")
        assert "jax 0.9.0 -> " in capsys.readouterr().err


hooked: list[str] = []
watching = False


def watch(event: str, arguments: tuple) -> None:
    """Note what would run code."""
    if watching and event in ("pickle.find_class", "exec", "compile", "os.system", "os.exec", "subprocess.Popen"):
        hooked.append(f"{event} {arguments}")


class Payload:
    def __reduce__(self):
        return os.system, ("false",)


@pytest.mark.parametrize("array", ["pickled", "compressed"])
def test_loading_a_strangers_checkpoint_runs_no_code_and_inflates_nothing(
    array: str, longer_run: TrainedRun, tmp_path: Path
):
    """Whose checksums fit."""
    global watching
    final_arrays(longer_run.folder)  # imports what it needs
    folder = Path(shutil.copytree(longer_run.folder, tmp_path / "run"))
    newest = files.checkpoints(folder / "checkpoints")[0]
    arrays, record = final_arrays(folder), run_status.read_record(newest)
    draft = newest.rename(newest.with_name(f"{newest.name}.draft"))
    if array == "pickled":
        np.savez(draft / "state.npz", **{**arrays, "replay/head": np.array([Payload()])})
    else:
        np.savez_compressed(draft / "state.npz", **arrays)
    files.publish(draft, record)
    sys.addaudithook(watch)
    watching = True
    try:
        with pytest.raises(files.DamagedError, match="allow_pickle=False" if array == "pickled" else "compressed"):
            final_arrays(folder)
    finally:
        watching = False
    assert [event for event in hooked if not event.startswith("compile")] == []


def test_the_exit_codes_are_in_the_help(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "75 stopped by SIGINT or SIGTERM with a checkpoint" in shown
    assert os.EX_TEMPFAIL == 75


# SIGHUP as it is told, whatever the tests themselves run under.
HUNG_UP = """
import os, signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_IGN if sys.argv[1] == "nohup" else signal.SIG_DFL)
from dcp.machine.signals import StopRequest
with StopRequest() as stop:
    os.write(1, b"ready" + bytes([10]))
    until = time.monotonic() + (2 if sys.argv[1] == "nohup" else 60)
    while stop.signal is None and time.monotonic() < until:
        time.sleep(0.01)
    if sys.argv[1] != "nohup":
        print("to a terminal that is gone", flush=True)
open(sys.argv[2], "w").write(str(stop.signal and stop.signal.name))
"""


@pytest.mark.parametrize(("how", "heard"), [("ssh", "SIGHUP"), ("nohup", "None")])
def test_a_terminal_that_ends_stops_a_run_as_sigterm_does_unless_under_nohup(how: str, heard: str, tmp_path: Path):
    ours, theirs = os.openpty()
    command = [sys.executable, "-c", HUNG_UP, how, str(tmp_path / "heard")]
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *command], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, text=True
    )
    os.close(theirs)
    said = b""
    while not said.endswith(b"\n"):
        said += os.read(ours, 1_000)
    os.close(ours)
    error = process.communicate(timeout=100)[1]
    assert process.returncode == 0, error
    assert (tmp_path / "heard").read_text() == heard
