"""Policies on frozen episodes: a trained run's, a function's, on its own environment and on others."""

import dataclasses
import json
import math
from pathlib import Path

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dcp
from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.evaluation import Measures, evaluation_key, training_scores
from dcp.lab.targets import environment_of, open_target
from dcp.lab.trial import (
    Trial,
    arena_for,
    as_csv,
    as_json,
    estimates,
    evaluate,
    goal_set_key,
    paired,
    write_results,
)
from dcp.policies.exports import export_policy
from dcp.policies.policy_file import save_policy
from dcp.policies.wrappers import PeriodicBurst, SampledPolicy
from dcp.runs.training import TrainedRun

FEW = {"episodes": 16, "seeds": (3,)}  # the run's own number of episodes: its program serves again


def standing(state: np.ndarray, goal: np.ndarray) -> np.ndarray:
    return np.zeros((len(state), 2))


def test_an_evaluation_of_training_comes_out_again_bit_for_bit(tiny_run: TrainedRun):
    target = open_target(tiny_run.folder)
    trial = arena_for(target).trial(target.policy, [evaluation_key(0, len(tiny_run.rows) - 1)])
    scores = training_scores(trial.all)
    assert scores == {name: tiny_run.rows[-1][name] for name in scores}
    assert scores != {name: tiny_run.rows[-2][name] for name in scores}


def test_a_seed_decides_the_episodes_and_nothing_else_does(tiny_run: TrainedRun):
    ours = evaluate(tiny_run.folder, episodes=16, seeds=3)  # one seed may come without its brackets
    theirs = evaluate(standing, "point_u_maze", **FEW)
    burst = evaluate(tiny_run.folder, burst=(10, 5), **FEW)
    other = evaluate(tiny_run.folder, episodes=16, seeds=(4,))
    assert_array_equal(ours.all.start, theirs.all.start)
    assert ours.goal_sets() == theirs.goal_sets() == burst.goal_sets()
    assert ours.goal_sets() != other.goal_sets()
    assert not np.array_equal(ours.all.final_distance, burst.all.final_distance)


def test_no_goal_set_is_one_of_trainings_evaluations():
    training = {tuple(jax.random.key_data(evaluation_key(0, index)).tolist()) for index in range(200)}
    assert tuple(jax.random.key_data(goal_set_key(0)).tolist()) not in training


def test_a_burst_of_length_0_gives_the_same_numbers_as_none(tiny_run: TrainedRun):
    """As the policy itself, and in the program of the bursts, where L is an argument."""
    plain, none = evaluate(tiny_run.folder, **FEW), evaluate(tiny_run.folder, burst=(100, 0), **FEW)
    for name in plain.all._fields:
        assert_array_equal(getattr(none.all, name), getattr(plain.all, name), err_msg=name)
    arena = arena_for(open_target(tiny_run.folder), **FEW)
    argument = arena.trial(PeriodicBurst(tiny_run.policy, 100, 0))
    assert_allclose(argument.all.final_distance, plain.all.final_distance, atol=1e-5)


def test_a_function_that_stands_still_is_as_near_as_it_started():
    trial = dcp.evaluate(standing, "point_u_maze", **FEW)
    assert_allclose(trial.all.final_distance, trial.all.start_distance, rtol=1e-6)
    assert trial.all.saturation.max() == 0.0


def test_our_policy_as_a_plain_function_does_the_same(tiny_run: TrainedRun):
    ours, theirs = evaluate(tiny_run.folder, **FEW), evaluate(tiny_run.policy.__call__, "point_u_maze", **FEW)
    assert_allclose(theirs.all.final_distance, ours.all.final_distance, atol=1e-3)


def test_samples_vary_around_the_mean_action(tiny_run: TrainedRun):
    policy = SampledPolicy(tiny_run.policy)
    state, goal = np.float32([[1.0, 1.0]]), np.float32([[3.0, 1.0]])
    mean, log_std = tiny_run.policy.heads(state, goal)
    keys = jax.random.split(jax.random.key(0), 4000)
    drawn = np.asarray(jax.vmap(lambda key: policy.act(policy.init(key), state, goal)[1][0])(keys))  # [4000, A]
    assert_allclose(np.median(drawn, axis=0), np.tanh(mean[0]), atol=0.1)
    assert_allclose(
        np.std(np.arctanh(drawn.astype(np.float64).clip(-0.9999999, 0.9999999)), axis=0), np.exp(log_std[0]), rtol=0.1
    )
    assert not np.array_equal(evaluate(tiny_run.folder, **FEW).all.final_distance,
                              evaluate(tiny_run.folder, stochastic=True, **FEW).all.final_distance)  # fmt: skip


def test_only_a_policy_of_ours_can_be_drawn_from():
    with pytest.raises(UserError, match="leave out --stochastic"):
        evaluate(standing, "point_u_maze", stochastic=True)


def test_a_policy_goes_to_another_environment_of_its_sizes(tiny_run: TrainedRun):
    assert evaluate(tiny_run.folder, "point_big_maze", **FEW).spec.name == "point_big_maze"


def test_a_policy_that_does_not_fit_gets_a_sentence_with_both_sizes(tiny_run: TrainedRun):
    with pytest.raises(UserError, match=r"\(2, 2, 2\), but point_u_maze_inertia has \(4, 2, 2\)"):
        evaluate(tiny_run.folder, "point_u_maze_inertia")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"episodes": -1}, "episodes is -1"),
        ({"seeds": ()}, "seeds is 0"),
        ({"seeds": (1, 1)}, "twice"),
    ],
)
def test_a_mistake_gives_one_sentence(tiny_run: TrainedRun, wrong: dict, words: str):
    with pytest.raises(UserError, match=words):
        evaluate(tiny_run.folder, **wrong)


def test_what_cannot_act_is_refused_and_a_function_needs_an_environment():
    with pytest.raises(UserError, match="cannot evaluate a int"):
        evaluate(7)  # pyright: ignore
    with pytest.raises(UserError, match="--env"):
        evaluate(standing)


def test_an_export_is_judged_where_the_run_was_wherever_it_lies(tiny_run: TrainedRun, tmp_path: Path):
    about = {"env": "point_u_maze", "eval_env": "point_u_maze_eval", "fidelity": "fixed", "seed": 0}
    policy = save_policy(tmp_path / "mine.safetensors", tiny_run.policy, about)
    exported = open_target(export_policy(policy, "numpy", tmp_path / "policy.npz"))
    assert (exported.env, exported.fidelity, exported.config) == ("point_u_maze_eval", "fixed", None)


def test_a_config_next_to_a_policy_counts_only_if_it_is_its_runs(tiny_run: TrainedRun, tmp_path: Path):
    path = export_policy(tiny_run.folder, "numpy", tmp_path / "policy.npz")
    stored = json.loads((tiny_run.folder / "config.json").read_text())
    for change, own in (({}, True), ({"seed": 1}, False), ({"eval_env": "point_u_maze_eval"}, False)):
        changed = {**stored, "config": {**stored["config"], **change}}
        (tmp_path / "config.json").write_text(json.dumps(changed))
        assert (open_target(path).config is not None) == own
        assert open_target(path).env == "point_u_maze"


def test_code_that_a_run_names_is_not_run_unasked(tiny_run: TrainedRun):
    target = open_target(tiny_run.folder)
    assert target.config is not None
    named = dataclasses.replace(target, config=dataclasses.replace(target.config, eval_env="os:getcwd"))
    with pytest.raises(UserError, match="if you trust it"):
        environment_of(named)


def test_a_run_without_a_policy_gets_a_sentence(tiny_run: TrainedRun, tmp_path: Path):
    (tmp_path / "config.json").write_bytes((tiny_run.folder / "config.json").read_bytes())
    with pytest.raises(UserError, match="no policy yet"):
        evaluate(tmp_path)


def test_an_environment_may_be_given_itself():
    def stand_still(state, goal):
        return 0.0 * state[:, :2]

    env = dcp.make_env("point_u_maze")
    given, named = (dcp.evaluate(stand_still, one, episodes=2) for one in (env, "point_u_maze"))
    assert given.goal_sets() == named.goal_sets()


def test_a_policy_and_its_metadata_are_read_at_once(tiny_run: TrainedRun, monkeypatch):
    """A run that is being trained replaces its file at any moment: two readings may be of two policies."""
    from dcp.policies import policy_file

    readings, read = [], policy_file._opened
    monkeypatch.setattr(policy_file, "_opened", lambda path: readings.append(path) or read(path))
    target = open_target(tiny_run.folder)
    assert target.about["method"] == "dcp"
    assert len(readings) == 1


# Intervals, pairs and files of `dcp eval`, by hand.


def measures(first_reach: list[int], near: list[int], start: np.ndarray | None = None) -> Measures:
    n = len(first_reach)
    starts = np.tile(np.float32([1.0, 1.0, 3.0, 1.0]), (n, 1)) if start is None else start
    steps, zeros = np.full(n, 5), np.zeros(n)
    reach = np.array([np.mean([0 < f <= t for f in first_reach]) for t in range(1, 6)])
    return Measures(
        starts,
        np.array(near),
        np.array(first_reach),
        zeros,
        np.full(n, 2.0),
        zeros,
        zeros,
        zeros.astype(bool),
        steps,
        reach,
    )


def test_the_first_reach_is_of_the_episodes_that_reached():
    assert estimates(measures([2, 4, 0], [3, 1, 0]))["first_reach"].mean == 3.0
    assert math.isnan(estimates(measures([0, 0], [0, 0]))["first_reach"].mean)


def test_pairs_are_won_tied_and_lost_episode_by_episode():
    gain = paired(measures([0, 0, 3, 2], [0, 0, 1, 4]), measures([5, 0, 0, 2], [1, 0, 0, 2]))
    assert (gain.wins, gain.ties, gain.losses) == (1, 2, 1)
    assert gain.success_once.mean == 0.0
    assert gain.time_near_goal.mean == -0.5  # +1, 0, -1, -2


def test_a_gain_is_after_minus_before():
    """0, 0, 1, 1 reached before; 1, 1, 1, 0 after: +1, +1, 0, -1."""
    gain = paired(measures([0, 0, 3, 2], [0, 0, 1, 4]), measures([5, 4, 3, 0], [1, 2, 3, 0]))
    assert (gain.wins, gain.ties, gain.losses) == (2, 1, 1)
    assert gain.success_once.mean == 0.25
    assert gain.time_near_goal.mean == 0.25  # +1, +2, +2, -4


def test_different_episodes_are_never_paired():
    other = np.tile(np.float32([1.0, 1.0, 2.0, 3.0]), (1, 1))
    with pytest.raises(UserError, match="different episodes"):
        paired(measures([1], [1]), measures([1], [1], other))


@pytest.fixture
def trial() -> Trial:
    spec = make_env("point_u_maze").spec
    return Trial(spec, 5, (0, 7), (measures([2, 0], [3, 0]), measures([4, 1], [1, 5])))


def test_distances_in_a_maze_are_along_its_paths(trial: Trial):
    """From (1, 1) round the U's corners (1.5, 2.5) and (2.5, 2.5) to (3, 1); straight it is two."""
    kind, lengths = trial.distances
    assert kind == "path"
    assert_allclose(lengths, [2.0 * math.hypot(0.5, 1.5) + 1.0] * 4, rtol=1e-6)
    assert trial.all.start_distance.tolist() == [2.0] * 4


def test_seeds_are_put_together_episode_by_episode(trial: Trial):
    assert trial.all.first_reach.tolist() == [2, 0, 4, 1]
    assert_allclose(trial.all.cumulative_reach, [0.25, 0.5, 0.5, 0.75, 0.75])


def test_the_json_holds_what_the_table_shows_and_null_for_what_is_not_known(trial: Trial, tmp_path: Path):
    never = Trial(trial.spec, 5, (0,), (measures([0], [0]),))
    json_path, csv_path = write_results(tmp_path, "name", as_json(never, {"policy": "p"}), never)
    stored = json.loads(json_path.read_text())
    assert stored["summary"]["first_reach"]["mean"] is None
    assert stored["summary"]["success_once"]["mean"] == 0.0
    assert stored["cumulative_reach"] == [0.0] * 5
    assert stored["seeds"][0]["goal_set_sha256"] == never.goal_sets()[0]
    assert csv_path.parent == tmp_path / "evals"


def test_the_csv_has_one_row_an_episode_with_its_goal(trial: Trial):
    header, *rows = [line.split(",") for line in as_csv(trial).splitlines()]
    assert len(rows) == 4
    last = dict(zip(header, rows[-1], strict=True))
    assert (last["seed"], last["episode"], last["success"], last["first_reach"]) == ("7", "1", "1", "1")
    assert float(last["distance"]) == pytest.approx(1.0 + math.sqrt(10.0))  # twice (0.5, 1.5), and 1
    assert (float(last["goal_0"]), float(last["goal_1"])) == (3.0, 1.0)


def test_a_folder_that_cannot_be_written_gives_one_sentence(trial: Trial, tmp_path: Path):
    (tmp_path / "evals").write_text("in the way")
    with pytest.raises(UserError, match="--out"):
        write_results(tmp_path, "name", as_json(trial, {}), trial)
