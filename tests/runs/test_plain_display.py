"""What a log says of a run, and of several seeds."""

from pathlib import Path

from dcp.config import Config
from dcp.presets import preset_config
from dcp.runs.display import Progress
from dcp.runs.plain_display import Pace, Plain, clock, forecast, headline, in_words, seed_names
from dcp.runs.training import TrainedRun
from tests.support.tiny import tiny_config

ROW = {"success_once": 0.25, "time_near_goal": 3.0, "critic_loss": 4.0, "actor_loss": 1.0, "diverged_episodes": 0}


def losses(*seeds: tuple[float, float]) -> list[dict[str, float]]:
    return [{"critic_loss": critic, "actor_loss": actor} for critic, actor in seeds]


def test_seeds_are_named():
    assert seed_names([4]) == "seed 4"
    assert seed_names([0, 2, 1]) == "seeds 0, 2 and 1 as one program"


def test_the_headline_says_that_the_budget_is_rounded_up():
    config = tiny_config(steps=3_900).resolve(250)
    assert "4,000 environment steps (3,900 rounded up to whole unrolls), 64 updates" in headline(config, Path("runs"))


def test_a_run_says_roughly_how_long_it_takes_and_which_preset_takes_less(monkeypatch):
    """One core, 50M steps of the ant: 3.1M updates of 8.3 ms and 63M steps of 12,500 per second are 8.6 hours."""
    monkeypatch.setenv("NPROC", "1")
    monkeypatch.setattr("dcp.runs.plain_display.jax.default_backend", lambda: "cpu")
    ant = forecast.__wrapped__(Config(env="ant_u_maze").resolve(1000))
    assert ant == "roughly 9 hours on 1 core (with --preset laptop, 5,000,000 steps, roughly 47 minutes)"
    assert forecast.__wrapped__(preset_config("demo").resolve(250)) == "roughly a minute on 1 core"
    monkeypatch.setattr("dcp.runs.plain_display.jax.default_backend", lambda: "gpu")
    assert "no forecast" in forecast.__wrapped__(Config(env="ant_u_maze").resolve(1000))


def test_a_log_gets_a_line_a_minute_between_evaluations(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr("dcp.runs.plain_display.time.perf_counter", lambda: now[0])
    shown = Plain(tiny_config().resolve(250), None)
    shown.joined([0], 0, 0)
    lines = []
    for unrolls, now[0] in enumerate((10.0, 61.0, 100.0, 122.0, 130.0), 1):
        shown.progress(Progress(unrolls, None if unrolls < 4 else losses((4.5, 1.5))))
        lines.append(capsys.readouterr().out.splitlines()[-1:])
    assert [bool(line) for line in lines] == [True, True, False, True, False]  # the first is the headline
    assert lines[1][0].split() == ["800", "/", "4,000", "steps", "filling", "the", "replay"]
    assert "1,600 / 4,000 steps  critic loss 4.500" in lines[3][0]


def test_time_left_counts_neither_compilation_nor_the_first_evaluation(monkeypatch):
    """Iterations end at 100, 102, 104 s (the first compiled), so 2 s each; 10 - 5 unrolls are left."""
    times = iter([100.0, 102.0, 104.0, 150.0])
    monkeypatch.setattr("dcp.runs.plain_display.time.perf_counter", lambda: next(times))
    pace = Pace(tiny_config().resolve(250))
    for unrolls in (3, 4, 5):
        pace.update(Progress(unrolls, []))
    pace.evaluated()
    assert pace.text() == "200 steps/s  0:10 left"
    assert (pace.steps, pace.total) == (2000, 4000)


def test_the_clock_reads_hours_only_when_there_are_some():
    assert [clock(seconds) for seconds in (5, 125, 3725)] == ["0:05", "2:05", "1:02:05"]
    assert [in_words(x) for x in (3, 90, 7_000, 7 * 3600, 3 * 86_400)] == [
        "a minute", "2 minutes", "2 hours", "7 hours", "3 days"
    ]  # fmt: skip


def test_divergence_is_reported_if_there_is_any(tiny_run: TrainedRun, tmp_path: Path, capsys):
    shown = Plain(tiny_config().resolve(250), tmp_path)
    shown.evaluated([{**tiny_run.rows[0], "diverged_episodes": 3}])
    assert capsys.readouterr().out.splitlines()[-1].endswith("  3 episodes diverged")
