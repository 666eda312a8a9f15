"""Mutated files, some of them here and more in the slow suite: a result or one sentence, at once, and nothing else.

`python -m tests.fuzz.many_files KIND COUNT` loads as many as one likes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dcp.errors import UserError
from dcp.files.run_folder import read_config_file
from dcp.files.validation import FormatError, checked, parse_json
from dcp.policies.policy_file import _Metadata
from tests.fuzz.loaders import KINDS, Loader
from tests.fuzz.many_files import fuzz
from tests.fuzz.mutations import mutated_tree

SHORT = {
    "policy": 150, "checkpoint": 60, "config": 200, "export": 100, "job": 200, "grid": 200, "search": 100,
    "evals": 100, "ledger": 100, "seed": 200, "goal": 100,
}  # fmt: skip


@pytest.fixture(scope="module")
def loaders(tiny_run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Loader]:
    return {kind: make(tmp_path_factory.mktemp(kind) / kind, tiny_run.folder) for kind, make in KINDS.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_mutated_file_gives_a_result_or_one_sentence(kind: str, loaders: dict[str, Loader]):
    """Without the audit hook, which would stay for all tests after this one."""
    result = fuzz(loaders[kind], SHORT[kind], seed=11)
    assert result["offences"] == []
    assert result.get("loaded", 0) > 0 and result["refused"] > 0
    assert result["most_megabytes_in_a_batch"] < 200


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_more_of_them_under_an_audit_hook(kind: str):
    """No code is run, no process or socket opened, no file written."""
    command = [sys.executable, "-m", "tests.fuzz.many_files", kind, str(10 * SHORT[kind]), "23"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1_000, env=os.environ)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    assert "Traceback" not in done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["offences"] == []


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "runs"), [("policy", 3_000), ("config", 5_000), ("export", 2_000), ("job", 5_000)])
def test_a_fuzzer_that_follows_the_code_finds_nothing(kind: str, runs: int):
    pytest.importorskip("atheris")  # `make test-all` installs it where it has a wheel
    command = [sys.executable, "-m", "tests.fuzz.guided", kind, str(runs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1_000, env=os.environ)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-4_000:]
    assert f"Done {runs} runs" in done.stderr and "cov: " in done.stderr


def test_the_audit_hook_sees_code_that_runs():
    """Else it could find nothing in the other tests."""
    code = """
import os, sys, subprocess
from tests.fuzz import many_files
sys.addaudithook(many_files.watch)
watched = many_files.Watched()
for bad in (lambda: exec("1"), lambda: os.system("true"), lambda: open("/dev/null", "w").close(), lambda: 1 / 0):
    watched.one(bad, 0)
watched.one(lambda: open("/dev/null").close(), 0)
print(len(watched.offences), [what.split(" ")[1] for what in watched.offences])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert "ZeroDivisionError" in done.stdout and "os.system" in done.stdout and "exec" in done.stdout, done.stdout
    assert "open" in done.stdout, done.stdout + done.stderr


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=JSON, seed=st.integers(0, 2**32))
def test_any_json_is_a_config_or_one_sentence(tree, seed: int, loaders: dict[str, Loader], tmp_path: Path):
    loader = loaders["config"]
    known = mutated_tree(loader.tree, Random(seed))  # pyright: ignore[reportAttributeAccessIssue]
    for content in (tree, {"schema_version": 2, "config": tree}, known):
        (tmp_path / "config.json").write_text(json.dumps(content))
        try:
            read_config_file(tmp_path / "config.json")
        except UserError as error:
            assert len(str(error).splitlines()) == 1


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=200) | JSON.map(json.dumps) | st.binary(max_size=100).map(lambda b: b.decode("latin-1")))
def test_any_text_is_json_of_a_schema_or_a_format_error(text: str):
    try:
        checked(parse_json(text), _Metadata)
    except FormatError as error:
        assert len(str(error).splitlines()) == 1
