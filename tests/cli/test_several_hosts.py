"""`dcp train` on several hosts: which flags go together. What the hosts then do: tests/runs/test_multihost.py."""

import re
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
        (["--hosts", "auto", "--num-hosts", "2"], "--hosts takes only auto"),
        ([*TWO, "--seeds", "0", "1"], "--seeds trains several seeds on one host"),
        ([*TWO, "--dry-run"], "--dry-run looks at one host"),
        ([*TWO, "--host-id", "one"], "--host-id takes a whole number, not 'one'"),
        ([*TWO, "--host-id", "2"], "--host-id 2 of --num-hosts 2: number the hosts from 0"),
        ([*TWO, "--coordinator", "here"], "--coordinator 'here' is not HOST:PORT"),
        ([*TWO, "--coordinator", "a:\u00b2"], "is not HOST:PORT"),
        ([*TWO, "--coordinator", "a..b:1"], "is not HOST:PORT"),
        ([*TWO, "--join-seconds", "nan"], "--join-seconds"),
        ([*TWO, "--join-seconds", "inf"], "--join-seconds"),
        ([*TWO, "--join-seconds", "-3"], "--join-seconds"),
        (TWO, "host 0 did not answer at 127.0.0.1:9 within 0.1 s"),
    ],
)
def test_a_mistake_gets_one_sentence(flags: list[str], sentence: str, monkeypatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("DCP_HOSTS_SECRET", "0123456789abcdef")
    assert main(["train", *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert sentence in line


def test_a_host_without_the_secret_gets_a_sentence_on_where_it_comes_from(
    monkeypatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delenv("DCP_HOSTS_SECRET", raising=False)
    assert main(["train", *TWO]) == 2
    assert "host 1 needs the hosts' secret: set DCP_HOSTS_SECRET to what host 0 printed" in capsys.readouterr().err


def test_host_0_makes_a_secret_and_prints_the_command_for_the_others(monkeypatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.delenv("DCP_HOSTS_SECRET", raising=False)
    flags = ["--coordinator", "127.0.0.1:9", "--num-hosts", "2", "--host-id", "0", "--join-seconds", "0.1"]
    monkeypatch.setattr(sys, "argv", ["dcp", "train", *flags])
    assert main(["train", *flags]) == 2
    told = capsys.readouterr().err.splitlines()[0]
    assert re.search(r"DCP_HOSTS_SECRET=[0-9a-f]{32} dcp train .* --host-id 1 --join-seconds 0.1$", told)


@pytest.mark.slow
def test_a_cluster_that_is_not_there_gets_one_sentence():
    """In a process of its own: JAX looks for one only before it starts."""
    command = [sys.executable, "-m", "dcp.cli.main", "train", "--hosts", "auto"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "--hosts auto found no cluster here" in line
