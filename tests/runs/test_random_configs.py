"""Random configs: each is accepted, or refused in one sentence; and what is accepted trains."""

import io
import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings

from dcp.cli.main import main
from dcp.config import Config, Settings
from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.machine import checks
from tests.support import compilation
from tests.support.installed import INSTALLED
from tests.support.random_configs import FIELDS, ORDINARY, Values, any_values, as_flags, can_be_typed, trainable_values

ROOT = Path(__file__).parents[2]
GIGABYTE = 10**9
SLOW = pytest.param(False, marks=pytest.mark.slow, id="random")
BOTH = pytest.mark.parametrize("same_every_time", [pytest.param(True, id="fixed"), SLOW])


@pytest.fixture(autouse=True)
def same_machine(monkeypatch: pytest.MonkeyPatch):
    """What is accepted depends on free memory and JAX's devices; physics' modules take a second to import."""
    monkeypatch.setattr(checks, "available_memory", lambda: 16 * GIGABYTE)
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))  # put back what `devices.prepare` adds
    for name in INSTALLED:
        make_env(name)


def test_every_field_takes_part():
    assert set(ORDINARY) == FIELDS


def is_one_sentence(text: str, values: Values) -> bool:
    named = any(name in text or name.replace("_", " ") in text for name in FIELDS)
    shown = any(repr(value) in text for value in values.values())
    return bool(text.strip()) and len(text.splitlines()) == 1 and "Traceback" not in text and (named or shown)


def refusal(values: Values, make=Config) -> str | None:
    try:
        make(**values)
    except UserError as error:
        return str(error)
    return None


def judge(values: Values) -> str:
    """All ways to check these settings must agree. -> accepted or refused"""
    chosen = Settings(**values)
    problems = checks.violations(chosen)
    sentence = "; ".join(problems)
    assert refusal({"config": chosen}, checks.check) == (sentence or None)
    early = refusal(values)
    assert early == refusal({"values": values}, Config.from_dict)
    if not problems:
        assert early is None
        config = Config(**values)
        resolved = config.resolve(make_env(config.env, config.fidelity).spec.episode_length)
        assert checks.violations(resolved) == []
        assert Config.from_dict(json.loads(resolved.to_json())) == resolved
        assert resolved.num_iterations >= resolved.num_evals >= 1
        return "accepted"
    if early is not None:  # whatever is seen without the environment is seen with it
        assert set(chosen.violations()) <= set(problems)
        assert is_one_sentence(early, values), early
    assert is_one_sentence(sentence, values), sentence
    return "refused"


def seconds_to_check(values: Values) -> float:
    since = os.times().user  # the system's own time grows with the load of the machine
    checks.violations(Settings(**values))
    return os.times().user - since


@BOTH
def test_two_thousand_random_configs_are_accepted_or_refused_in_one_sentence(same_every_time: bool):
    outcomes: Counter[str] = Counter()

    @settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck), derandomize=same_every_time,
              database=None)  # fmt: skip
    @given(any_values())
    def each(values: Values):
        note(f"checks.violations(Settings(**{values!r}))")
        outcomes[judge(values)] += 1
        assert any(seconds_to_check(values) < 1.0 for _ in range(3))  # shapes are traced, nothing is allocated

    each()
    assert outcomes.total() >= 2000
    assert 0.2 < outcomes["accepted"] / outcomes.total() < 0.6, outcomes


@BOTH
def test_the_command_line_takes_the_same_settings_or_says_one_sentence(same_every_time: bool, tmp_path: Path):
    outcomes: Counter[int] = Counter()

    @settings(max_examples=100 if same_every_time else 1000, deadline=None, suppress_health_check=list(HealthCheck),
              derandomize=same_every_time, database=None)  # fmt: skip
    @given(any_values())
    def each(values: Values):
        argv = ["train", "--dry-run", "--runs-dir", str(tmp_path), *as_flags(values)]
        note(f"dcp.cli.main.main({argv!r})")
        out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(argv)
        outcomes[code] += 1
        assert code in (0, 2)
        assert len(err.getvalue().splitlines()) == (1 if code else 0), err.getvalue()
        assert "Traceback" not in err.getvalue()
        if can_be_typed(values):
            fits = not checks.violations(Settings(**values))
            plans_fewer = code == 0 and "steps" in values and "num_evals" not in values  # evaluations
            assert (code == 0) == fits or plans_fewer

    each()
    assert min(outcomes[0], outcomes[2]) > 0.1 * outcomes.total(), outcomes
    assert not any(tmp_path.iterdir())


def draw_trainable(count: int, same_every_time: bool) -> list[Values]:
    drawn: list[Values] = []

    @settings(max_examples=count, phases=[Phase.generate], deadline=None, suppress_health_check=list(HealthCheck),
              derandomize=same_every_time, database=None)  # fmt: skip
    @given(trainable_values())
    def each(values: Values):
        drawn.append(values)

    each()
    return drawn[:count]


# Each config is a program of its own that runs for a moment: next to all of the time is XLA's, also in the slow suite.
# Of random numbers' code there is less by `rbg`. It is compiled and run all the same.
FAST_COMPILATION = {
    "XLA_FLAGS": compilation.FAST,
    "JAX_DEFAULT_PRNG_IMPL": "unsafe_rbg",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.05",
}
UNCACHED = {"JAX_COMPILATION_CACHE_DIR": "", "DCP_CACHE_DIR": "off"}  # nobody will ask for these programs again


SHOWN = {"method": 4, "energy": 4, "contrastive_loss": 4, "score": 7, "activation": 2}  # field -> how many values


def covering(drawn: list[Values]) -> list[Values]:
    """Those that have a value of a field of SHOWN that none before had: each config costs seconds of compilation."""
    seen: set[tuple[str, Any]] = set()
    kept = []
    for values in drawn:
        fresh = {(name, values[name]) for name in SHOWN} - seen
        if fresh:
            kept.append(values)
        seen |= fresh
    return kept


@pytest.mark.parametrize(
    ("count", "same_every_time"),
    [pytest.param(20, True, id="of 20 fixed"), pytest.param(200, False, id="200 random", marks=pytest.mark.slow)],
)
def test_accepted_configs_train_one_iteration_and_every_number_is_finite(count: int, same_every_time: bool):
    drawn = draw_trainable(count, same_every_time)
    assert len(drawn) == count
    for values in drawn:
        assert checks.violations(Settings(**values)) == [], f"Settings(**{values!r})"
    if same_every_time:
        drawn = covering(drawn)
        for name, most in SHOWN.items():
            assert len({values[name] for values in drawn}) == most, name
    answers = trained(drawn, "iteration" if same_every_time else "whole", {} if same_every_time else UNCACHED)
    for values, answer in zip(drawn, answers, strict=True):
        config = Config(**values)
        assert not answer["problem"], f"dcp.runs.training.train(Config(**{values!r}))\n{answer['problem']}"
        assert not answer["not_finite"], f"Config(**{values!r}): {answer['not_finite']}"
        assert answer["updates"] == config.num_updates


def trained(drawn: list[Values], how: str, environment: dict[str, str]) -> list[dict[str, Any]]:
    """What became of each, in two processes."""
    command = [sys.executable, "-m", "tests.support.train_configs", how]
    env = os.environ | FAST_COMPILATION | environment
    answers: list[dict[str, Any]] = [{}] * len(drawn)

    def work(share: slice) -> None:
        lines = "".join(json.dumps(values) + "\n" for values in drawn[share])
        done = subprocess.run(command, input=lines, cwd=ROOT, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        answers[share] = [json.loads(line) for line in done.stdout.splitlines()]

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, (slice(0, None, 2), slice(1, None, 2))))
    return answers


def test_a_random_config_is_drawn_again_the_same_in_the_quick_suite():
    assert draw_trainable(3, same_every_time=True) == draw_trainable(3, same_every_time=True)
