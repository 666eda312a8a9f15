"""What the loop counts: rows, speeds, means; and what stops it."""

import json

import jax.numpy as jnp
import pytest

from dcp.config import Config
from dcp.learner import LearnerParams, LearnerState
from dcp.loop import HostState, NotFiniteError, Recorder, all_finite

CONFIG = Config(num_envs=4, unroll_length=10, batch_size=9, window=10, min_replay_rows=30, steps=1000, num_evals=2)


def test_a_row_counts_steps_and_updates_and_takes_means_since_the_last_evaluation():
    """Windows of 10 rows are 36 pairs, 4 batches. 5 unrolls of 40 steps: 3 fill the replay, 2 have 4 updates each."""
    recorder = Recorder(CONFIG, HostState())
    for _ in range(3):
        recorder.count_unroll()
    recorder.count_unroll({"critic_loss": 1.0}, seconds=0.5)
    recorder.count_unroll({"critic_loss": 2.0}, seconds=1.5)
    row = recorder.add_row({"success_once": 0.25}, diverged=3)
    assert (row["evaluation"], row["env_steps"], row["updates"]) == (1, 200, 8)
    assert (row["critic_loss"], row["success_once"], row["diverged_episodes"]) == (1.5, 0.25, 3)
    assert row["steps_per_second"] == pytest.approx(80 / 2.0)
    recorder.count_unroll({"critic_loss": 5.0}, seconds=1.0)
    row = recorder.add_row({}, diverged=4)
    assert (row["evaluation"], row["critic_loss"], row["diverged_episodes"]) == (2, 5.0, 1)


def test_a_loss_that_is_not_finite_is_named_with_the_arrays_that_are_not():
    params = LearnerParams({"bias": jnp.array([1.0, jnp.nan])}, {"kernel": jnp.ones(2)}, jnp.zeros(()))
    learner = LearnerState(params, ())
    assert not all_finite(learner) and all_finite(params.critic)
    error = NotFiniteError(4000, {"critic_loss": float("inf"), "alpha": 1.0}, learner)
    assert str(error) == "critic_loss is inf at 4,000 environment steps"
    assert json.loads(json.dumps(error.as_json())) == {
        "env_steps": 4000,
        "metrics": {"critic_loss": "inf", "alpha": 1.0},
        "arrays_not_finite": {"params/actor/bias": "1 of 2 numbers not finite"},
    }
