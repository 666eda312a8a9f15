"""What somebody reads to follow a run: the algorithm's imports, and the files that a smoke run executes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CORE = """
import sys, dcp.algorithm
files = {name: module.__file__ for name, module in sys.modules.items() if name == "dcp" or name.startswith("dcp.")}
print(len(files), sum(len(open(file).read().splitlines()) for file in files.values()), *files)
"""
# Files of dcp in which a function is called; a module's own body and those of its classes are no functions.
SMOKE = """
import json, sys, threading
files, FUNCTION = set(), 3  # code that is optimised and has local variables of its own
def profile(frame, event, argument):
    if event == "call" and frame.f_code.co_flags & FUNCTION == FUNCTION and "/src/dcp/" in frame.f_code.co_filename:
        files.add(frame.f_code.co_filename)
from dcp.cli.main import main
threading.setprofile(profile)
sys.setprofile(profile)
code = main(["train", "--preset", "smoke", "--runs-dir", sys.argv[1], "--no-plots", "--display", "none"])
sys.setprofile(None)
print(json.dumps([code, sorted(files)]))
"""


def test_the_algorithm_loads_a_core_that_can_be_read_in_one_sitting_and_nothing_of_the_machine():
    done = subprocess.run([sys.executable, "-P", "-c", CORE], capture_output=True, text=True, check=True)
    modules, lines, *names = done.stdout.split()
    assert int(modules) <= 24 and int(lines) <= 5000
    rooms = {name.split(".")[1] for name in names if "." in name}
    assert not rooms & {"machine", "runs", "lab", "grid", "robots", "interop", "cli", "files"}


@pytest.mark.slow
def test_a_smoke_run_executes_few_files_and_no_part_that_it_does_not_use(tmp_path: Path):
    command = [sys.executable, "-P", "-c", SMOKE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    code, files = json.loads(done.stdout.splitlines()[-1])
    assert code == 0
    lines = sum(len(Path(file).read_text().splitlines()) for file in files)
    names = {file.split("/src/dcp/")[1] for file in files}
    assert len(files) <= 38 and lines <= 7_500, sorted(names)
    assert {name for name in names if name.startswith("critics/")} == {"critics/contrastive.py"}
    assert not {name for name in names if name.startswith(("physics/", "lab/", "grid/", "interop/"))}
