"""The loop: what is done in which order, and what a row of metrics.csv says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dcp.algorithm import RunState, make_algorithm
from dcp.loop import (
    Budget,
    Callback,
    HostState,
    NotFiniteError,
    Recorder,
    Row,
    all_finite,
    evaluation_points,
    train_loop,
)
from tests.support.tiny import tiny_config

CONFIG = tiny_config().resolve(250)  # 2 unrolls of 400 steps fill the replay, 8 iterations follow
SCORES = {"success_once": 0.5}


@pytest.fixture(scope="module")
def run() -> RunState:
    return make_algorithm(CONFIG).init(jax.random.key(0))


class Counted:
    """Programs that count: the loss of an iteration is its number."""

    def __init__(self, broken: int = 0):
        self.calls: list[str] = []
        self.broken = broken  # the iteration whose loss is no number

    def collect(self, params, acting, replay, key):
        self.calls.append("unroll")
        return acting, replay, {}

    def windows(self, replay, key) -> None:
        return None

    def learn(self, learner, windows, *keys):
        self.calls.append("learn")
        number = self.calls.count("learn")
        return learner, {"critic_loss": jnp.float32(np.nan if number == self.broken else number)}

    def evaluate(self, params, key) -> Row:
        self.calls.append("evaluate")
        return dict(SCORES)


class Events(Callback):
    def __init__(self, calls: list[str]):
        self.calls = calls
        self.rows: list[Row] = []

    def evaluated(self, run: RunState, row: Row) -> None:
        self.rows.append(row)

    def boundary(self, run: RunState, host: HostState) -> None:
        self.calls.append("boundary")


def test_a_run_fills_its_replay_then_alternates_iterations_and_evaluations(run: RunState):
    programs = Counted()
    events, host = Events(programs.calls), HostState()
    train_loop(programs, CONFIG, [4, 8], run, host, events)
    half = ["unroll", "learn", "boundary"] * 4 + ["evaluate", "boundary"]
    assert programs.calls == ["unroll", "boundary"] * 2 + half * 2
    assert [row["env_steps"] for row in events.rows] == [2_400, 4_000]
    assert [row["updates"] for row in events.rows] == [32, 64]  # 8 batches an iteration
    assert [row["critic_loss"] for row in events.rows] == [2.5, 6.5]  # means of 1, 2, 3, 4 and of 5, 6, 7, 8
    assert host.rows == events.rows and host.metrics == [] and host.unrolls == 10


def test_a_run_resumes_where_its_host_state_stands(run: RunState):
    programs, host = Counted(), HostState(unrolls=9, rows=[{"env_steps": 2_400.0}], metrics=[{"critic_loss": 7.0}] * 3)
    train_loop(programs, CONFIG, [4, 8], run, host, Callback())
    assert programs.calls == ["unroll", "learn", "evaluate"]
    assert host.rows[-1]["critic_loss"] == 5.5  # of 7, 7, 7 before and 1 now


def test_a_loss_that_is_no_number_ends_the_run_before_its_boundary(run: RunState):
    programs = Counted(broken=2)
    with pytest.raises(NotFiniteError, match="critic_loss is nan at 1,600 environment steps") as error:
        train_loop(programs, CONFIG, [4, 8], run, HostState(), Events(programs.calls))
    assert programs.calls[-1] == "learn"
    assert error.value.as_json() == {"env_steps": 1_600, "metrics": {"critic_loss": "nan"}, "arrays_not_finite": {}}


def test_metrics_that_only_some_iterations_have_are_means_over_these():
    host = HostState(unrolls=4, metrics=[{"old": 2.0, "loss": 1.0}, {"loss": 3.0, "new": 5.0}])
    row = Recorder(CONFIG, host).add_row(SCORES, diverged=0)
    assert {name: row[name] for name in ("old", "loss", "new")} == {"old": 2.0, "loss": 2.0, "new": 5.0}


def test_speed_is_of_the_iterations_and_not_of_the_evaluation_between_them():
    recorder = Recorder(CONFIG, HostState())
    for seconds in (1.0, 3.0):
        recorder.count_unroll({"loss": 0.0}, seconds)
    assert recorder.add_row(SCORES, diverged=2)["steps_per_second"] == 2 * 400 / 4.0
    recorder.count_unroll({"loss": 0.0}, 1.0)
    row = recorder.add_row(SCORES, diverged=5)
    assert (row["steps_per_second"], row["diverged_episodes"]) == (400.0, 3)


def test_evaluations_are_evenly_spaced_in_each_budget():
    assert evaluation_points(CONFIG) == [4, 8]
    longer = tiny_config(steps=12_000, num_evals=7).resolve(250)  # 28 iterations
    assert evaluation_points(longer, (Budget(4_000, 2),)) == [4, 8, 12, 16, 20, 24, 28]


def test_one_infinite_number_anywhere_is_noticed(run: RunState):
    assert bool(all_finite(run.learner))
    params = run.learner.params._replace(log_alpha=jnp.float32(np.inf))
    assert not bool(all_finite(run.learner._replace(params=params)))
