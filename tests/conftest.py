"""For every test: no device but the CPU, no silent change of rank, and nothing compiled twice."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

from tests.support import compilation

# Before JAX is imported, and inherited by the subprocesses that tests start.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_NUM_CPU_DEVICES"] = "1"  # whatever a test asks for: the split has a process of its own
os.environ["PYTHONSAFEPATH"] = ""  # else `dcp.cli.main` sets it, and a later test cannot start `python -m tests...`
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(__file__).parents[1] / ".pytest_cache" / "xla")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
os.environ["XLA_FLAGS"] = compilation.xla_flags()

import jax
import pytest

from dcp.runs.training import TrainedRun, train
from tests.support.tiny import LONGER, tiny_config

jax.config.update("jax_numpy_rank_promotion", "raise")

LARGE = 3e9  # bytes

# The files that take longest, longest first: begun last, one would keep one process busy while the other is idle.
LONGEST = (
    "runs/test_random_configs.py", "runs/test_resuming.py", "envs/test_ant_tasks.py", "grid/test_local_grid.py",
    "test_learner.py", "cli/test_doctor.py", "cli/test_bad_inputs.py",
    "policies/test_exports.py", "interop/test_goal_env.py", "runs/test_training.py", "robots/test_controller.py",
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    config.option.loadscopereorder = False  # xdist would begin with the files of the most tests


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(LONGEST)))


@pytest.fixture
def precision() -> Iterator[None]:
    """Whatever precision of products a test sets, such as one that acts as a GPU, it is as before afterwards."""
    before = jax.config.jax_default_matmul_precision
    yield
    jax.config.update("jax_default_matmul_precision", before)


@pytest.fixture(scope="module", autouse=True)
def memory_for_two() -> Iterator[None]:
    """Drop compiled programs after a file that leaves a process large: the slow suite's would fill the machine."""
    yield
    statm = Path("/proc/self/statm")
    if statm.exists() and int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") > LARGE:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """point_u_maze, dcp, seed 0, trained for a moment: policy, rows, and a folder that tests only read."""
    return train(tiny_config(), runs_dir=tmp_path_factory.mktemp("runs"), display="none")


@pytest.fixture(scope="session")
def longer_run(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """The tiny run with fourteen evaluations, never interrupted: what every interrupted one must end as."""
    return train(tiny_config(**LONGER), runs_dir=tmp_path_factory.mktemp("runs"), display="none")
