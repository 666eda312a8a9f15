"""`dcp train` on several hosts: which flags go together. What the hosts then do: tests/runs/test_multihost.py."""

import subprocess
import sys

import pytest

from dcp.cli.main import main

TWO = ["--coordinator", "127.0.0.1:9", "--num-hosts", "2", "--host-id", "1", "--join-seconds", "0.1"]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--num-hosts", "2"], "--num-hosts, --host-id: add --coordinator, --host-id"),
        (["--hosts", "all"], "unknown value 'all' for --hosts: choose one of auto"),
        (["--hosts", "auto", "--num-hosts", "2"], "--hosts takes auto alone"),
        ([*TWO, "--seeds", "0", "1"], "--seeds trains several seeds on one host"),
        ([*TWO, "--dry-run"], "--dry-run looks at one host"),
        ([*TWO, "--host-id", "one"], "--host-id takes a whole number, not 'one'"),
        ([*TWO, "--host-id", "2"], "--host-id 2 of --num-hosts 2: number the hosts from 0"),
        ([*TWO, "--coordinator", "here"], "--coordinator 'here' is not HOST:PORT"),
        (TWO, "host 0 did not answer at 127.0.0.1:9 within 0.1 s"),
    ],
)
def test_a_mistake_gets_one_sentence(flags: list[str], sentence: str, capsys: pytest.CaptureFixture[str]):
    assert main(["train", *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert sentence in line


@pytest.mark.slow
def test_a_cluster_that_is_not_there_gets_one_sentence():
    """In a process of its own: JAX looks for one only before it starts."""
    command = [sys.executable, "-m", "dcp.cli.main", "train", "--hosts", "auto"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "--hosts auto found no cluster here" in line
