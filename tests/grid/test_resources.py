"""What runs at once: cores, memory and GPUs, by hand."""

import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcp.config import Settings
from dcp.errors import UserError
from dcp.grid import resources
from dcp.grid.jobs import Job
from dcp.grid.resources import (
    FreeResources,
    Gpu,
    Resources,
    device_memory,
    parse_memory,
    require_fit,
    require_gpu_memory,
    run_memory,
)
from tests.support.tiny import tiny_config

GB = 10**9


def job(seed: int = 0, cores: int = 1, memory: int = 0, gpus: int = 0) -> Job:
    return Job(Settings(seed=seed), (seed,), Path("/runs"), "", Resources(cores, memory, gpus))


def test_cores_and_memory_are_given_out_until_none_are_left_and_taken_back():
    free = FreeResources(cores=3, memory_bytes=5 * GB)
    assert free.take(Resources(1, 2 * GB)) == ()
    assert free.take(Resources(1, 4 * GB)) is None  # 3 GB are left
    assert free.take(Resources(2, 3 * GB)) == ()
    assert free.take(Resources(1, 0)) is None  # no core is left
    free.give_back(Resources(2, 3 * GB), ())
    assert (free.cores, free.memory_bytes) == (2, 3 * GB)


def test_gpus_are_given_out_whole():
    free = FreeResources(cores=9, gpus=["0", "1", "2"])
    assert free.take(Resources(gpus=1)) == ("0",)
    assert free.take(Resources(gpus=2)) == ("1", "2")
    assert free.take(Resources(gpus=1)) is None
    free.give_back(Resources(gpus=2), ("1", "2"))
    assert free.gpus == ["1", "2"]


def test_no_more_runs_at_once_than_asked_for():
    free = FreeResources(cores=9, jobs=1)
    assert free.take(Resources()) == () and free.take(Resources()) is None
    free.give_back(Resources(), ())
    assert free.take(Resources()) == ()


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 8), st.integers(0, 2)), max_size=12))
def test_what_is_taken_is_never_more_than_there_is_and_comes_back_whole(wanted: list):
    free, held = FreeResources(cores=6, memory_bytes=16, gpus=["0", "1"]), []
    for cores, memory, gpus in wanted:
        needed = Resources(cores, memory, gpus)
        if (chosen := free.take(needed)) is not None:
            held.append((needed, chosen))
        assert free.cores >= 0 and free.memory_bytes is not None and free.memory_bytes >= 0
        assert len(free.gpus) + sum(len(chosen) for _, chosen in held) == 2
    for needed, chosen in held:
        free.give_back(needed, chosen)
    assert (free.cores, free.memory_bytes) == (6, 16)
    assert sorted(free.gpus) == ["0", "1"]


@pytest.mark.parametrize(
    ("needs", "sentence"),
    [
        ({"cores": 3}, "a run is to have 3 cores, but there are 2: lower --cores-per-run"),
        ({"memory": 5 * GB}, "needs about 5.0 GB, but there are 4 GB: lower its replay_rows or num_envs"),
        (
            {"gpus": 1},
            "there are 0: lower --gpus-per-run, or let JAX use NVIDIA's: pip install '.[cuda]' in a clone of dcp",
        ),
    ],
)
def test_a_job_that_would_wait_for_ever_is_refused(needs: dict, sentence: str):
    with pytest.raises(UserError) as error:
        require_fit([FreeResources(2, 4 * GB)], [job(), job(1, **needs)])
    assert sentence in str(error.value)


def test_as_many_jobs_fit_at_once_as_the_scarcest_resource_allows():
    free = FreeResources(cores=8, memory_bytes=10 * GB, gpus=["0", "1"])
    assert free.count(Resources(1, 2 * GB)) == 5 and free.count(Resources(3)) == 2
    assert free.count(Resources(1, 0, 1)) == 2 and free.count(Resources(9)) == 0
    assert FreeResources(cores=8, jobs=3).count(Resources()) == 3
    assert free.cores == 8  # counting takes nothing


def tiny_job(**changes: object) -> Job:
    settings = Settings(**asdict(tiny_config(**changes).resolve(256)))
    return Job(settings, (settings.seed,), Path("/runs"))


def test_memory_grows_by_the_replay_twice_for_its_checkpoint_and_with_seeds():
    small, large = tiny_job().settings, tiny_job(replay_rows=100_500).settings
    row = 16 * (2 + 2 + 2 + 1) * 4  # environments x (state, action, goal, episode) x bytes
    assert run_memory(large) - run_memory(small) == 2 * 100_000 * row
    assert run_memory(large, on_gpu=True) - run_memory(small, on_gpu=True) == 100_000 * row
    assert device_memory(small, 3) == 3 * device_memory(small)
    assert (
        run_memory(small, 3) - run_memory(small, 2) == run_memory(small, 2) - run_memory(small) > device_memory(small)
    )


def test_seeds_that_do_not_fit_into_a_gpu_are_refused():
    together = replace(tiny_job(), seeds=(0, 1), resources=Resources(gpus=1))
    needed = device_memory(together.settings, 2)
    require_gpu_memory([together], [needed])
    require_gpu_memory([together], [])  # a machine without: another sentence says so
    with pytest.raises(UserError, match="raise --gpus-per-run, or use --seeds-as processes"):
        require_gpu_memory([together], [needed, needed - 1])


@pytest.mark.parametrize(("text", "amount"), [("12GB", 12 * GB), ("500m", 500_000_000), ("1.5 T", 1500 * GB), ("7", 7)])
def test_an_amount_of_memory_is_read(text: str, amount: int):
    assert parse_memory(text) == amount


@pytest.mark.parametrize("text", ["", "much", "-3GB", "0GB", "3PB", "nan"])
def test_what_is_not_an_amount_is_reported(text: str):
    with pytest.raises(UserError, match="such as 12GB"):
        parse_memory(text)


@pytest.mark.parametrize(("plugins", "found"), [((), ()), (("jax_cuda13_plugin",), (Gpu("0", 2**34),))])
def test_a_gpu_counts_only_where_jax_has_its_plugin(plugins: tuple, found: tuple, tmp_path: Path, monkeypatch):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 0, 16384\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("dcp.grid.resources.find_spec", lambda name: name in plugins or None)
    assert resources.gpus.__wrapped__() == found


PINNED = (
    "from dcp.grid.worker import pin; import os; pin(1); print(sorted(os.sched_getaffinity(0)), flush=True); input()"
)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_two_processes_are_pinned_to_different_cores_until_they_end():
    """By a class of their own, so that runs of a grid at the same time do not matter: another temporary folder."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:

        def start() -> subprocess.Popen:
            command, environ = [sys.executable, "-c", PINNED], {**os.environ, "TMPDIR": folder}
            return subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environ)

        first, second = start(), start()
        assert first.stdout and second.stdout
        claimed = [first.stdout.readline(), second.stdout.readline()]
        assert len(set(claimed)) == 2 and all(len(text.split(",")) == 1 for text in claimed)
        first.kill()
        first.wait()
        third = start()
        assert third.stdout and third.stdout.readline() == claimed[0]
        for process in (second, third):
            process.communicate("\n", timeout=60)
