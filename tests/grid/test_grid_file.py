"""Grid files: what they expand to, by hand, and what is wrong with those that are wrong, in one sentence."""

import tomllib
from math import prod
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcp.config import Settings
from dcp.errors import UserError
from dcp.grid.grid_file import builtin_grid, check_runs, expand, parse_grid, read_grid


def runs(text: str, where: tuple[str, ...] = ()):
    return expand(parse_grid(tomllib.loads(text), "grid.toml"), where)


def told(text: str, names: tuple[str, ...]) -> list[tuple]:
    return [tuple(getattr(run.settings, name) for name in names) for run in runs(text)]


PRODUCT_AND_ZIP = """
preset = "smoke"
folder = "{batch_size}"
[set]
depth = 1
[product]
method = ["crl", "dcp"]
seed = [0, 1]
[[zip]]
batch_size = [32, 64]
num_envs = [8, 16]
"""


def test_a_product_and_a_zip_expand_in_the_files_order():
    expected = [
        ("crl", 0, 32, 8), ("crl", 0, 64, 16), ("crl", 1, 32, 8), ("crl", 1, 64, 16),
        ("dcp", 0, 32, 8), ("dcp", 0, 64, 16), ("dcp", 1, 32, 8), ("dcp", 1, 64, 16),
    ]  # fmt: skip
    assert told(PRODUCT_AND_ZIP, ("method", "seed", "batch_size", "num_envs")) == expected


def test_a_run_has_what_the_preset_and_set_say_and_a_folder_by_the_template():
    first = runs(PRODUCT_AND_ZIP)[0]
    assert (first.settings.depth, first.settings.width) == (1, 32)  # [set]; the smoke preset's
    assert first.path == "32/point_u_maze/crl/seed_0"


def test_an_environments_row_wins_over_the_preset_and_over_set():
    text = """
    preset = "paper"
    [set]
    num_evals = 10
    [product]
    env = ["ant_u_maze", "humanoid_u_maze"]
    [rows."humanoid_*"]
    num_evals = 20
    width = 512
    """
    names = ("env", "num_evals", "width", "num_envs", "steps")
    assert told(text, names) == [
        ("ant_u_maze", 10, 256, 512, 50_000_000),
        ("humanoid_u_maze", 20, 512, 128, 100_000_000),
    ]


def test_two_zips_are_multiplied_and_a_single_value_is_a_list_of_one():
    text = '[product]\nmethod = "crl"\n[[zip]]\nseed = [1, 2]\nwidth = [8, 16]\n[[zip]]\nenv = ["point_u_maze"]'
    assert told(text, ("method", "seed", "width")) == [("crl", 1, 8), ("crl", 2, 16)]


def test_the_paper_is_nine_environments_three_methods_and_five_seeds():
    found = expand(builtin_grid("paper"))
    assert len(found) == len({run.path for run in found}) == 135
    budgets = {run.settings.env: run.settings.steps for run in found}
    assert sum(steps == 100_000_000 for steps in budgets.values()) == 3 and len(budgets) == 9


def test_the_demos_far_goals_are_not_those_of_another_environment():
    (run,) = runs('preset = "demo"\n[set]\nenv = "point_big_maze"')
    assert run.settings.eval_env is None


@pytest.mark.parametrize(
    ("where", "count"),
    [(("env=ant_u_maze",), 15), (("env=ant_*", "seed=0,3", "method=dcp"), 10), (("steps=100000000",), 45)],
)
def test_where_keeps_the_runs_that_fit_every_condition(where: tuple[str, ...], count: int):
    assert len(expand(builtin_grid("paper"), where)) == count


@given(
    st.lists(st.sampled_from(["crl", "ssgc", "dcp"]), min_size=1, max_size=3, unique=True),
    st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=4, unique=True),
    st.lists(st.integers(1, 512), min_size=1, max_size=4, unique=True),
)
@settings(max_examples=30, deadline=None)
def test_every_combination_is_there_once_in_its_own_folder(methods: list, seeds: list, widths: list):
    content = {"product": {"method": methods, "seed": seeds}, "zip": [{"width": widths, "repr_dim": widths}]}
    found = expand(parse_grid({**content, "folder": "w{width}"}, "g"))
    assert len(found) == prod(map(len, (methods, seeds, widths)))
    assert len({run.path for run in found}) == len(found)
    assert {(r.settings.method, r.settings.seed, r.settings.width) for r in found} == {
        (m, s, w) for m in methods for s in seeds for w in widths
    }
    assert all(run.settings.width == run.settings.repr_dim for run in found)


WRONG = {
    "[set]\nbatchsize = 3": "unknown field 'batchsize' in [set]: did you mean batch_size?",
    "steps = 3": "steps is a setting: put it under [set]",
    "presets = 'paper'": "did you mean preset?",
    "preset = 'papier'": "unknown preset 'papier'",
    "preset = ['paper']": "unknown preset ['paper']",
    "[set]\nseed = [1, 2]": "several values go under [product] or [[zip]]",
    "[product]\nseed = []": "seed in [product] is an empty list",
    "[[zip]]\nseed = [1, 2]\nwidth = [3]": "seed has 2, width has 1 values",
    "[set]\nseed = 1\n[product]\nseed = [1]": "seed is in [product] and in [set]",
    "[product]\nwidth = [1]\n[rows.'ant_*']\nwidth = 2": "width is in [product] and in [rows",
    "[rows.'ant_*']\nenv = 'ant_push'": "env in [rows",
    "[product]\nseed = [1, 1]": "names the run point_u_maze/dcp/seed_1 twice",
    "[product]\nbatch_size = [128, 256]": 'differ in batch_size: give each its own by folder = "{batch_size}"',
    "folder = '{width}'\n[product]\nwidth = [1, 2]\ndepth = [1, 2]": 'folder = "{width}_{depth}"',
    "folder = '{with}'": "did you mean width?",
    "folder = '{width'": "is broken",
    "folder = '../{width}'": "must lie below --runs-dir",
    "folder = '/tmp/{width}'": "must lie below --runs-dir",
    "folder = 'grid/{width}'": "must lie below --runs-dir",
    "folder = 3": "folder must be text",
    'folder = "a\\u0000b"': "cannot be a name",
    "zip = 3": "write [[zip]]",
    "product = 3": "write [product]",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_grid_is_refused_in_a_sentence(text: str):
    with pytest.raises(UserError) as error:
        runs(text)
    assert WRONG[text] in str(error.value)


VALUES = {
    "width = 'wide'": "grid.toml: width must be int, not 'wide'",
    "env = 'ant_u_mase'": "unknown environment 'ant_u_mase': did you mean 'ant_u_maze'?",
    "method = 'dpc'": "unknown method 'dpc'",
    "batch_size = 0": "batch_size is 0: use at least 2",
    "seed = -1": "seed is -1: use at least 0",
    "env = 'mine:maze'": "names the code 'mine:maze': if you trust it, also give --own-code mine:maze",
    "env = 3": "env must be str, not 3",
    "width = 2026-11-16": "width must be int, not datetime.date",
    "devices = 3": "devices 3 cannot share out num_envs 512 evenly",
}


@pytest.mark.parametrize("text", VALUES)
def test_a_wrong_value_is_refused_before_anything_starts(text: str):
    with pytest.raises(UserError) as error:
        check_runs(runs(f"[set]\n{text}"))
    assert VALUES[text] in str(error.value)


def test_a_list_within_a_list_is_a_wrong_value():
    with pytest.raises(UserError, match="seed must be int, not"):
        check_runs(runs("[product]\nseed = [[1, 2]]"))


def test_checked_runs_have_what_the_environment_decides():
    (run,) = check_runs(runs("[set]\nenv = 'point_big_maze'"))
    assert run.settings.window == run.settings.episode_length is not None
    assert run.settings.eval_env == "point_big_maze"
    assert Settings().window is None


def test_a_grid_of_too_many_runs_is_counted_before_they_are_listed(tmp_path: Path):
    """2,000^4 runs would take all memory."""
    path = tmp_path / "bomb.toml"
    values = list(range(1, 2_001))
    path.write_text("[product]\n" + "".join(f"{name} = {values}\n" for name in ("seed", "width", "depth", "num_envs")))
    with pytest.raises(
        UserError, match=r"bomb\.toml names 16,000,000,000,000 runs, more than 100,000: shorten its lists"
    ):
        expand(read_grid(path), ["seed=1"])


@pytest.mark.parametrize("content", [b"preset = ", b"\xff\xfe", None])
def test_what_is_not_toml_is_reported(tmp_path: Path, content: bytes | None):
    path = tmp_path / "grid.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match="not TOML" if content is not None else "cannot read"):
        read_grid(path)


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("seed", "--where takes KEY=VALUE"),
        ("sede=1", "did you mean seed?"),
        ("seed=7", "no run has seed=7: these runs have seed 0, 1, 2, 3, 4"),
    ],
)
def test_a_wrong_filter_is_reported(where: str, sentence: str):
    with pytest.raises(UserError) as error:
        expand(builtin_grid("paper"), [where])
    assert sentence in str(error.value)
