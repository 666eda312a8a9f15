"""Several seeds as one program compute what each computes alone."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.algorithm import RunState, make_algorithm
from dcp.evaluation import evaluation_key
from dcp.machine.programs import Programs
from dcp.machine.seed_programs import How, SeedPrograms
from tests.support.tiny import tiny_config

SEEDS = (3, 0)  # an order of one's own


@pytest.mark.parametrize("learner", ["vmap", pytest.param("map", marks=pytest.mark.slow)])
def test_after_three_iterations_every_metric_is_that_of_the_single_run(learner):
    """As accelerators do it, and as a CPU does; the tests below are of the latter here."""
    assert_three_iterations_agree(learner)


def test_after_three_iterations_the_frontier_is_that_of_the_single_run_and_so_is_learning_from_data(tmp_path: Path):
    random = np.random.default_rng(0)
    arrays = {"observations": random.uniform(1, 3, (300, 2)), "actions": random.uniform(-1, 1, (300, 2))}
    np.savez(tmp_path / "data.npz", terminals=np.arange(300) % 100 == 99, **arrays)
    more = {"data": str(tmp_path / "data.npz"), "component_settings": {"command.explore_after": 5}}
    runs, run, several, one = assert_three_iterations_agree("vmap", command="frontier", average_weights=2, **more)
    deployed, wanted = several.learner_of(runs, 0).deployed, run.learner.deployed
    jax.tree.map(lambda ours, alone: assert_allclose(ours, alone, atol=1e-4), deployed.actor, wanted.actor)
    assert several.scores(runs, SEEDS, 5)[0] == pytest.approx(one.evaluate(wanted, evaluation_key(3, 5)), abs=1e-4)


def assert_three_iterations_agree(learner: How, **settings: Any) -> tuple[RunState, RunState, SeedPrograms, Programs]:
    trainer = make_algorithm(tiny_config(**settings))
    several, one = SeedPrograms(trainer, learner=learner), Programs(make_algorithm(tiny_config(seed=3, **settings)))
    runs, run = several.prefill(several.prefill(several.init(SEEDS))), one.prefill(one.prefill(one.init()))
    for _ in range(3):
        runs, metrics = several.iteration(runs)
        run, wanted = one.iteration(run)
        assert list(metrics) == list(wanted)
        for name, value in wanted.items():
            assert_allclose(metrics[name][0], value, atol=1e-4, err_msg=name)
    assert metrics["critic_loss"][0] != metrics["critic_loss"][1]
    return runs, run, several, one


@pytest.mark.slow
def test_under_physics_two_seeds_collect_what_each_collects_alone():
    """Eight steps: later the rounding of contacts decides, as on two devices."""
    settings = {"env": "ant_u_maze", "unroll_length": 8, "min_replay_rows": 8, "window": 9, "devices": 1}
    trainer = make_algorithm(tiny_config(**settings, episode_length=50))
    several, one = SeedPrograms(trainer), Programs(make_algorithm(tiny_config(**settings, episode_length=50, seed=3)))
    runs, run = several.prefill(several.init(SEEDS)), one.prefill(one.init())
    assert_allclose(runs.replay.rows.state[0], run.replay.rows.state, atol=1e-3)
    assert np.array_equal(runs.replay.rows.episode_id[0], run.replay.rows.episode_id)
    assert not np.array_equal(runs.replay.rows.state[1], run.replay.rows.state)


def test_between_two_ticks_of_the_clock_nothing_is_scored_and_rows_are_inserted_as_slices():
    """A predicate with an axis of seeds would make a select of the cond: both sides computed, at every step."""
    trainer = make_algorithm(tiny_config())
    programs, keys = SeedPrograms(trainer).jitted(2), jax.random.split(jax.random.key(0), 2)
    runs = jax.eval_shape(jax.vmap(trainer.init, out_axes=programs.axes), keys)
    found = list(_equations(programs.prefill.trace(runs).jaxpr.jaxpr))
    assert {inside for name, inside, _ in found if name == "top_k"} == {True}
    stored = runs.replay.rows.state.shape
    assert not [name for name, _, shapes in found if name.startswith("scatter") and stored in shapes]
    assert [name for name, _, shapes in found if name == "dynamic_update_slice" and stored in shapes]


def _equations(jaxpr, inside: bool = False):
    """Every primitive, whether it is on one side of a cond, and the shapes that it gives."""
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        yield name, inside, [var.aval.shape for var in equation.outvars]
        values = [value if isinstance(value, tuple) else (value,) for value in equation.params.values()]
        for inner in (getattr(item, "jaxpr", item) for items in values for item in items):
            if hasattr(inner, "eqns"):
                yield from _equations(inner, inside or name == "cond")
