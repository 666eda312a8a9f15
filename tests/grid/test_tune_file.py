"""The file of a search: ranges and choices, and one sentence for a mistake."""

from pathlib import Path
from typing import Any

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FixedTrial

from dcp.errors import UserError
from dcp.grid.grid_file import check_runs, expand, parse_grid
from dcp.grid.tune_file import TuneFile, TuneSettings, ends, parse_tune_file, read_tune_file, suggest

EXAMPLE = Path(__file__).parents[2] / "examples" / "tune_push.toml"
SEARCH = {"width": [16, 32], "condition": {"scale": {"low": 0.5, "high": 2}}}


def parsed(search: Any = SEARCH, tune: Any = None, **grid: Any) -> TuneFile:
    content = {"preset": "smoke", "set": {"depth": 1}, "product": {"method": ["crl", "dcp"], "seed": [0, 1]}, **grid}
    content |= {} if search is None else {"search": search}
    return parse_tune_file(content | ({} if tune is None else {"tune": tune}), "f.toml")


def test_lists_are_choices_and_whole_ends_make_whole_numbers():
    search = {
        "width": {"low": 16, "high": 64, "step": 16},
        "depth": {"low": 1, "high": 8, "log": True},
        "discount": {"low": 0.9, "high": 0.99},
        "actor_learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
        "layer_norm": [True, False],
    }
    file = parsed(search, set={})
    assert file.search == search and file.space == {
        "width": IntDistribution(16, 64, step=16),
        "depth": IntDistribution(1, 8, log=True),
        "discount": FloatDistribution(0.9, 0.99),
        "actor_learning_rate": FloatDistribution(1e-4, 1e-2, log=True),
        "layer_norm": CategoricalDistribution((True, False)),
    }
    trial = FixedTrial({"width": 32, "discount": 0.95, "layer_norm": False})
    chosen = [suggest(trial, name, file.space[name]) for name in ("width", "discount", "layer_norm")]
    assert chosen == [32, 0.95, False] and type(chosen[0]) is int


def test_a_parts_setting_has_its_name_in_both_of_tomls_forms():
    scale = FloatDistribution(0.5, 2)
    assert parsed().space == {"width": CategoricalDistribution((16, 32)), "condition.scale": scale}
    assert parsed({"condition.scale": {"low": 0.5, "high": 2}}).space == {"condition.scale": scale}


def test_a_trial_trains_every_run_of_the_grid_with_its_choice_in_a_folder_of_its_own():
    file = parsed({"width": [16, 32]})
    runs = file.runs(7, {"width": 32})
    paths = [f"trial_7/point_u_maze/{method}/seed_{seed}" for method in ("crl", "dcp") for seed in (0, 1)]
    assert [run.path for run in runs] == paths and {run.settings.width for run in runs} == {32}
    assert [run.path for run in file.runs(7, {"width": 32}, ["method=dcp", "seed=1"])] == paths[3:]
    inner = parsed({"width": [16, 32]}, folder="d_{depth}").runs(0, {"width": 16})
    assert inner[0].path == "trial_0/d_1/point_u_maze/crl/seed_0"


WRONG = [
    ({"search": None}, "f.toml has no [search]: give settings there"),
    ({"search": {}}, "has no [search]"),
    ({"search": {"widht": [1, 2]}}, "unknown field 'widht' in [search]: did you mean width?"),
    ({"search": {"seed": [1, 2]}}, "seed is in [search], but the best seed is luck"),
    ({"search": {"env": ["point_u_maze", "ant_u_maze"]}}, "scores of two tasks cannot be compared"),
    ({"search": {"depth": [1, 2]}}, "depth is in [search] and in [set]: keep it in one of them"),
    ({"search": {"method": ["crl", "dcp"]}}, "method is in [search] and in [product]"),
    ({"search": {"width": [1, 2]}, "rows": {"point_*": {"width": 3}}}, 'is in [search] and in [rows."point_*"]'),
    ({"search": {"width": 32}}, "width in [search] is 32: write a list of two or more different values"),
    ({"search": {"width": [32]}}, "write a list of two or more different values"),
    ({"search": {"width": [32, 32]}}, "write a list of two or more different values"),
    ({"search": {"width": [32, [64]]}}, "write a list of two or more different values"),
    ({"search": {"width": [32, "big"]}}, "in [search], width must be int, not 'big'"),
    ({"search": {"width": {"low": 0, "high": 8}}}, "in [search], width is 0: use at least 1"),
    ({"search": {"discount": {"low": 0.9, "high": 1.0}}}, "in [search], discount is 1.0: use a number between 0 and 1"),
    ({"search": {"width": {"low": 16.0, "high": 64}}}, "width must be int, not 16.0"),
    ({"search": {"width": {"low": 16}}}, "width in [search] is a range, but 'high' is missing"),
    ({"search": {"width": {"low": 16, "hihg": 64}}}, "but 'hihg' is unknown: it has low, high, log and step"),
    ({"search": {"width": {"low": 64, "high": 16}}}, "`low <= high` must hold"),
    ({"search": {"width": {"low": "a", "high": 16}}}, "low, high and step must be numbers below"),
    ({"search": {"width": {"low": 1, "high": float("inf")}}}, "must be numbers below 2**63"),
    ({"search": {"width": {"low": 1, "high": 10**400}}}, "must be numbers below 2**63"),
    ({"search": {"width": {"low": 1, "high": 8, "log": 1}}}, "log must be true or false"),
    ({"search": {"final_goal_share": {"low": 0, "high": 1, "log": True}}}, "must hold for `log=True`"),
    ({"search": {"discount": {"low": 0.1, "high": 0.8, "log": True, "step": 0.1}}}, "`step` is not supported when"),
    ({"search": {"width": {"low": 16, "high": 40, "step": 16}}}, "the range is not divisible by `step`"),
    ({"search": {"width": {"low": 16, "high": 48, "step": -16}}}, "`step > 0` must hold"),
    ({"search": {"width": {"low": 16, "high": 17, "step": 0.5}}}, "width must be int, not 16.0"),
    ({"tune": 3}, "tune must be a table: write [tune] on a line of its own"),
    ({"tune": {"trails": 3}}, "unknown key 'trails' in [tune]: it has trials, metric, last, prune"),
    ({"tune": {"trials": 0}}, "trials in [tune] is 0: use a whole number from 1"),
    ({"tune": {"last": True}}, "last in [tune] is True: use a whole number from 1"),
    ({"tune": {"prune": "no"}}, "prune in [tune] is 'no': use true or false"),
    ({"tune": {"metric": 1}}, "metric in [tune] is 1: use a column of metrics.csv"),
    ({"preste": "smoke"}, "unknown key 'preste': did you mean preset?"),
]


@pytest.mark.parametrize(("change", "sentence"), WRONG)
def test_a_mistake_is_one_sentence(change: dict, sentence: str):
    with pytest.raises(UserError) as error:
        parsed(**{"search": {"width": [16, 32]}, **change})
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_a_file_is_refused_before_it_starts_only_if_neither_its_lowest_nor_its_highest_values_fit():
    few = {"pool_size": {"low": 4, "high": 32}}  # the preset has 8 candidates
    assert parsed(few).check((), ())[0].settings.pool_size == 32
    with pytest.raises(UserError, match="num_candidates 8 exceeds pool_size 4"):
        parsed({"pool_size": {"low": 4, "high": 7}}).check((), ())
    with pytest.raises(UserError, match="--where chooses pool_size, which is in"):
        parsed(few).check(["pool_size=32"], ())


def test_a_grid_does_not_run_a_search():
    with pytest.raises(UserError, match=r"\[search\] is for a search: run the file by `dcp tune`"):
        parse_grid({"search": {}}, "f.toml")


def test_only_trials_and_pruning_may_change_between_two_calls():
    one = parsed(tune={"trials": 3, "prune": True}).fingerprint([])
    assert parsed(tune={"trials": 9, "prune": False}).fingerprint([]) == one
    others = [parsed(tune={"last": 2}), parsed({"width": [16, 64]}), parsed(set={"depth": 2}, search={"width": [1, 2]})]
    assert one not in [other.fingerprint([]) for other in others] and parsed().fingerprint(["seed=0"]) != one


@pytest.mark.parametrize("end", [0, -1])
def test_the_example_searches_both_methods_with_the_same_trials(end: int):
    file = read_tune_file(EXAMPLE)
    chosen = {name: ends(values)[end] for name, values in file.space.items()}
    runs = check_runs(file.runs(0, chosen))
    assert {run.settings.method for run in runs} == {"sac_her", "sac_direction"} and len(runs) == 4
    assert file.options == TuneSettings() and len(file.check(["method=sac_her"], ())) == 2
    assert expand(parse_grid(file.content, "example"), ["method=sac_her"])[0].settings.control == "tool"
