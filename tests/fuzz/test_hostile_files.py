"""What a file may be besides its content: a pipe, a device, a link, a folder, huge, or under a name nobody can open.

Every loader ends within seconds, in little memory, with a result or one sentence.
"""

import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dcp.errors import UserError
from dcp.files.run_folder import load_run
from dcp.grid.grid_file import read_grid
from dcp.grid.jobs import Job
from dcp.lab.run_collection import collect, read_run
from dcp.policies.exports import load_exported
from dcp.policies.policy_file import load_policy, policy_about
from dcp.robots.so101_arm import GoalFile
from dcp.runs.run_status import how_far, is_finished, read_plan
from tests.fuzz.loader import Loader
from tests.fuzz.loaders import KINDS
from tests.fuzz.many_files import memory, start_peak

SECONDS, MEGABYTES = 10, 200
HUGE = 1_200_000_000  # bytes, of which none is on the disk; a checkpoint is hashed whole


@contextmanager
def bounded() -> Iterator[None]:
    """Fail on what takes longer or more memory than an honest file does."""

    def late(*_: object) -> None:
        raise AssertionError(f"still loading after {SECONDS} s")

    handler, limits = signal.signal(signal.SIGALRM, late), resource.getrlimit(resource.RLIMIT_AS)
    start_peak()
    before = memory("VmRSS")
    resource.setrlimit(resource.RLIMIT_AS, (memory("VmSize") * 1024 + 3 * 10**9, limits[1]))  # it spares the machine
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert (memory("VmHWM") - before) / 1024 < MEGABYTES


def require_result_or_sentence(load: Callable[[], object]) -> None:
    with bounded():
        try:
            load()
        except UserError as error:
            assert len(str(error).splitlines()) == 1
        except OSError as error:  # `dcp` makes its sentence of it, in one place for all commands
            assert error.filename is not None


def huge(path: Path) -> None:
    """Keep the beginning, so that what is read first looks right, and append zeros that take no room."""
    with path.open("r+b") as file:
        file.truncate(HUGE)


FORMS: dict[str, Callable[[Path, Path], object]] = {  # the file, removed, and a copy of it elsewhere
    "pipe": lambda path, copy: os.mkfifo(path),
    "zeros without end": lambda path, copy: path.symlink_to("/dev/zero"),
    "link out": lambda path, copy: path.symlink_to(copy),
    "link to nothing": lambda path, copy: path.symlink_to(copy.with_name("nothing")),
    "link to itself": lambda path, copy: path.symlink_to(path),
    "folder": lambda path, copy: path.mkdir(),
    "huge": lambda path, copy: huge(Path(shutil.copy(copy, path))),
    "huge and empty": lambda path, copy: (path.touch(), huge(path)),
    "empty": lambda path, copy: path.touch(),
    "missing": lambda path, copy: None,
}


@pytest.fixture(scope="module")
def loaders(tiny_run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Loader]:
    return {kind: make(tmp_path_factory.mktemp(kind) / kind, tiny_run.folder) for kind, make in KINDS.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_a_file_of_another_form_gives_a_result_or_one_sentence(
    form: str, kind: str, loaders: dict[str, Loader], tmp_path: Path
):
    loader = loaders[kind]
    loader.write_good()
    assert loader.files
    for path in loader.files:
        copy = Path(shutil.copy(path, tmp_path / "copy"))
        path.unlink()
        try:
            FORMS[form](path, copy)
            require_result_or_sentence(loader.load)
        finally:
            with suppress(FileNotFoundError):
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
            shutil.copy(copy, path)
    loader.load()


READERS: dict[str, Callable[[Path], object]] = {
    "policy_about": policy_about,
    "load_policy": load_policy,
    "load_exported": load_exported,
    "load_run": load_run,
    "read_run": read_run,
    "collect": lambda path: collect([path]),
    "read_plan": read_plan,
    "how_far": how_far,
    "is_finished": is_finished,
    "read_grid": read_grid,
    "read_job": Job.read,
    "goal": lambda path: GoalFile(path, 3, 1.0).read(),
}
NAMES = {
    "long": Path("a" * 5_000),
    "many folders": Path(*["a"] * 3_000),
    "surrogate": Path("a\udcffb"),
    "below a file": Path("/etc/passwd/a"),
    "a device": Path("/dev/null"),
    "no ending": Path("policy"),
    "an export's ending": Path("a" * 5_000 + ".onnx"),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_nothing_can_have_gives_one_sentence(name: str, reader: str, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    require_result_or_sentence(lambda: READERS[reader](NAMES[name]))
