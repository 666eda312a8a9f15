"""What a machine may do to a run besides killing it: each ends in its results, or in one sentence and a checkpoint that
resumes to the same bits. The commands are real processes, so all of these are slow."""

import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dcp.cli.main import main
from dcp.runs import checkpoint as files
from dcp.runs import run_status
from dcp.runs.training import TrainedRun
from tests.support.same_run import assert_same_run
from tests.support.tiny import LONGER_FLAGS, tiny_config

pytestmark = pytest.mark.slow
STOPPED = float(os.environ.get("DCP_TEST_STOPPED_SECONDS", "60"))
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2


def permissions_count() -> None:
    """In a child of root's: without the capability that lets it write where it may not."""
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability)


@contextmanager
def training(
    tmp_path: Path, *flags: str, before: Callable[[], None] | None = None, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "dcp.cli.main", "train", *LONGER_FLAGS, "--runs-dir", str(tmp_path / "runs")]
    environment, pipe = env or dict(os.environ), subprocess.PIPE
    process = subprocess.Popen(
        [*command, *flags], stdout=pipe, stderr=pipe, text=True, env=environment, preexec_fn=before
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for_rows(process: subprocess.Popen[str], folder: Path, rows: int) -> None:
    deadline, file = time.monotonic() + 500, folder / "metrics.csv"
    while not file.exists() or file.read_text().count("\n") <= rows:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.002)


def the_sentence(process: subprocess.Popen[str], code: int) -> str:
    out, err = process.communicate(timeout=500)
    assert process.returncode == code, (process.returncode, out, err)
    assert len(err.splitlines()) == 1 and err.startswith("dcp: "), err
    return err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs" / tiny_config().run_path


def test_stopped_for_a_minute_a_run_goes_on(folder: Path, longer_run: TrainedRun, tmp_path: Path):
    with training(tmp_path) as process:
        wait_for_rows(process, folder, 3)
        process.send_signal(signal.SIGSTOP)
        time.sleep(STOPPED)
        assert process.poll() is None
        process.send_signal(signal.SIGCONT)
        assert process.wait(500) == 0, process.communicate()
    assert_same_run(folder, longer_run.folder)


def test_a_folder_that_is_made_read_only_ends_its_run_with_a_sentence(folder: Path, longer_run, tmp_path: Path):
    with training(tmp_path, before=permissions_count) as process:
        wait_for_rows(process, folder, 3)
        places = (folder / "checkpoints", folder)
        for place in places:
            place.chmod(0o555)
        try:
            line = the_sentence(process, 1)
        finally:
            for place in places:
                place.chmod(0o755)
    assert "Permission denied" in line and "is kept" in line
    assert main(["train", "--resume", str(folder), "--no-plots", "--display", "none"]) == 0
    assert_same_run(folder, longer_run.folder)


def test_a_folder_that_is_moved_ends_its_run_and_resumes_where_it_is(folder: Path, longer_run, tmp_path: Path):
    with training(tmp_path) as process:
        wait_for_rows(process, folder, 3)
        folder.rename(tmp_path / "elsewhere")
        line = the_sentence(process, 1)
    assert "was moved or removed in the middle of its run" in line
    assert not [path for path in folder.rglob("*") if path.is_file()]  # nothing is written where it was
    assert main(["train", "--resume", str(tmp_path / "elsewhere"), "--no-plots", "--display", "none"]) == 0
    assert_same_run(tmp_path / "elsewhere", longer_run.folder)


def test_a_folder_that_is_deleted_ends_its_run_with_a_sentence(folder: Path, tmp_path: Path):
    with training(tmp_path) as process:
        wait_for_rows(process, folder, 3)
        while folder.exists():
            shutil.rmtree(folder, ignore_errors=True)
        line = the_sentence(process, 1)
    assert "was moved or removed in the middle of its run" in line


def test_a_damaged_compilation_cache_costs_time_only(folder: Path, longer_run: TrainedRun, tmp_path: Path):
    cache = tmp_path / "cache"
    env = {name: value for name, value in os.environ.items() if not name.startswith("JAX_COMPILATION_CACHE")}
    env |= {"DCP_CACHE_DIR": str(cache), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    for damage in (None, lambda content: content[: len(content) // 2], lambda content: b"\x00" * 100, lambda _: b""):
        entries = [path for path in cache.rglob("*") if path.is_file()]
        for entry in entries if damage is not None else []:
            entry.write_bytes(damage(entry.read_bytes()))
        with training(tmp_path, "--overwrite", "--display", "none", env=env) as process:
            _, err = process.communicate(timeout=500)
        assert process.returncode == 0, err
        assert "Traceback" not in err
        assert_same_run(folder, longer_run.folder)
    assert entries  # there was something to damage


def test_without_a_home_and_a_language_it_trains(folder: Path, longer_run: TrainedRun, tmp_path: Path):
    keep = ("PATH", "JAX_PLATFORMS", "JAX_NUM_CPU_DEVICES", "XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")
    env = {name: os.environ[name] for name in keep if name in os.environ} | {"LANG": "C", "LC_ALL": "C"}
    with training(tmp_path, "--display", "plain", env=env) as process:
        out, err = process.communicate(timeout=500)
    assert process.returncode == 0 and err == "", err
    assert "Trained for 12,000" in out
    assert_same_run(folder, longer_run.folder)


@pytest.mark.parametrize("megabytes", [600, 1_500, 2_500])
def test_with_too_little_memory_a_run_ends_and_resumes(megabytes: int, folder: Path, longer_run, tmp_path: Path):
    """Libraries in C++ may end the process as they like: what counts is that a run that was begun is whole."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes * 2**20, megabytes * 2**20))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    with training(tmp_path, "--display", "none", before=limited) as process:
        process.communicate(timeout=500)
    assert process.returncode != 0 or megabytes > 2_000  # where it is enough after all
    if (folder / "config.json").exists():
        for checkpoint in files.checkpoints(folder / "checkpoints"):
            run_status.verify(checkpoint)
        assert main(["train", "--resume", str(folder), "--no-plots", "--display", "none"]) == 0
        assert_same_run(folder, longer_run.folder)
    else:
        assert not folder.exists() or not any(folder.glob("*.safetensors"))
