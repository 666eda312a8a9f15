"""`dcp tune`: mistakes start nothing; a real search, stopped and resumed, ends with its page."""

import csv
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dcp.cli.main import main
from dcp.config import cores
from tests.support.tiny import LONGER

FILE = f"""
preset = "smoke"
[set]
depth = 1
steps = {LONGER["steps"]}
num_evals = {LONGER["num_evals"]}
[product]
method = ["crl", "dcp"]
seed = [100]
[search]
actor_learning_rate = {{ low = 1e-4, high = 1e-2, log = true }}
discount = [0.9, 0.99]
[tune]
trials = 2
last = 2
"""
# A shell has what it starts in the background ignore Ctrl-C, and whoever is started from there too.
LISTENING = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
LISTENING += "from dcp.cli.main import main; sys.exit(main())"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(FILE)
    return "small.toml"


WRONG = [
    ([], "name one grid file with [search], not 0; write it before --where"),
    (["small.toml", "small.toml"], "name one grid file with [search], not 2"),
    (["nowhere.toml"], "cannot read nowhere.toml"),
    (["small.toml", "--trials", "0"], "--trials is 0: use 1 or more"),
    (["small.toml", "--where", "method=td3"], "no run has method=td3: these runs have method crl, dcp"),
    (["small.toml", "--where", "discount=0.9"], "--where chooses discount, which is in [search]"),
    (["small.toml", "--cores-per-run", "4096"], "lower --cores-per-run"),
    (["small.toml", "--report-only"], "there is no runs/tune/small/study.db: start the search"),
    (["small.toml", "--report-only", "--where", "method=dcp"], "there is no runs/tune/small_dcp/study.db"),
    (["small.toml", "--report"], "unknown option --report: did you mean --report-only?"),
]


@pytest.mark.parametrize(("argv", "sentence"), WRONG)
def test_a_mistake_gets_a_sentence_and_nothing_starts(argv: list[str], sentence: str, file: str, capsys):
    assert main(["tune", *argv]) == 2
    said = capsys.readouterr()
    assert sentence in said.err and said.err.count("\n") == 1 and not said.out
    assert [path.name for path in Path().iterdir()] == [file]


def test_a_dry_run_says_what_is_searched_and_writes_nothing(file: str, capsys):
    assert main(["tune", file, "--dry-run", "--where", "method=dcp"]) == 0
    assert capsys.readouterr().out == (
        'actor_learning_rate: {"low": 0.0001, "high": 0.01, "log": true}\ndiscount: [0.9, 0.99]\n'
        "2 trials of 1 run, 12,000 steps per trial, in runs/tune/small_dcp:\n"
        "  trial_0/point_u_maze/dcp/seed_100\n"
    )
    assert [path.name for path in Path().iterdir()] == [file]


def start(file: str) -> subprocess.Popen:
    command = [sys.executable, "-c", LISTENING, "tune", file, "--cores-per-run", str(cores())]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def until(condition, seconds: float = 400.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_search_that_ends_early_is_resumed_and_another_beside_it_is_refused(file: str, number: int, capsys):
    folder = Path("runs/tune/small")
    first = folder / "trial_0/point_u_maze/crl/seed_100/metrics.csv"
    process = start(file)
    until(lambda: first.exists() and len(first.read_text().splitlines()) > 3)
    assert main(["tune", file]) == 2
    assert "runs/tune/small is in use by process" in capsys.readouterr().err
    assert main(["tune", file, "--report-only"]) == 1  # no trial is complete
    assert "1 trial, 0 complete" in capsys.readouterr().out
    os.kill(process.pid, number)
    said, _ = process.communicate(timeout=400)
    if number == signal.SIGINT:
        assert process.returncode == 75 and "Stopped. The same command resumes the search." in said
    with sqlite3.connect(folder / "study.db") as study:
        before = study.execute("select param_value from trial_params where trial_id = 1").fetchall()
    again = start(file)
    said, _ = again.communicate(timeout=600)
    assert again.returncode == 0, said
    assert "2 trials, 2 complete" in said and "dcp train --config runs/tune/small/trial_" in said
    rows = list(csv.DictReader((folder / "trials.csv").open()))
    assert {row["state"] for row in rows} == {"complete"} and sorted(row["trial"] for row in rows) == ["0", "1"]
    with sqlite3.connect(folder / "study.db") as study:
        assert study.execute("select param_value from trial_params where trial_id = 1").fetchall() == before
    page = (folder / "trials.html").read_text()
    assert "--seed 0" in page and "data:image/png;base64" in page
    assert (folder / "figures/actor_learning_rate.pdf").is_file()
    once = [path.stat().st_mtime_ns for path in sorted(folder.glob("trial_*/*/*/*/metrics.csv"))]
    assert main(["tune", file, "--trials", "2"]) == 0  # nothing is left to do
    assert [path.stat().st_mtime_ns for path in sorted(folder.glob("trial_*/*/*/*/metrics.csv"))] == once
