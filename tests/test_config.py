"""Settings: derived numbers by hand, round trips, and what a mistake is told."""

import dataclasses
import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dcp.config import Config, Settings, fields_where, shown
from dcp.errors import UserError

PAPER = Config().resolve(episode_length=1000)


def test_the_papers_numbers_follow_from_the_papers_settings():
    assert PAPER.env_steps_per_unroll == 512 * 62 == 31_744
    assert PAPER.num_prefill_unrolls == 17  # 1000 / 62 = 16.1
    assert PAPER.num_updates == 512 * 999 // 256 == 1_998
    assert PAPER.num_unrolls == 1_576  # 50,000,000 / 31,744 = 1575.1
    assert PAPER.num_iterations == 1_576 - 17


def test_the_defaults_are_the_papers_settings_and_where_it_is_silent_jaxgcrls():
    """Written down here, so that no recorded run has to stay for it."""
    papers = {
        "num_envs": 512, "steps": 50_000_000, "unroll_length": 62, "batch_size": 256, "replay_rows": 10_000,
        "min_replay_rows": 1_000, "discount": 0.99, "actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4,
        "alpha_learning_rate": 3e-4, "pool_size": 512, "num_candidates": 32, "subgoal_period": 25,
        "score": "inner_product", "energy": "norm", "contrastive_loss": "backward", "fidelity": "paper",
    }  # fmt: skip
    jaxgcrls = {
        "num_evals": 50, "eval_episodes": 256, "width": 256, "depth": 2, "repr_dim": 64, "activation": "swish",
        "network": "mlp", "layer_norm": False, "logsumexp_penalty": 0.1, "target_entropy_scale": 0.5, "physics": "brax",
    }  # fmt: skip
    ours = {"final_goal_share": 0.0, "pool_refresh_steps": None, "pool_seed": None, "hindsight": None}
    expected = papers | jaxgcrls | ours
    assert {name: getattr(Config(), name) for name in expected} == expected


def test_jaxgcrls_name_of_soccer_is_ours():
    assert Config(env="ant_ball", eval_env="ant_ball") == Config(env="ant_soccer", eval_env="ant_soccer")
    assert Config.from_dict({"env": "ant_ball"}).run_path == "ant_soccer/dcp/seed_0"


@pytest.mark.parametrize(("steps", "unrolls"), [(31_744 * 70, 70), (31_744 * 70 + 1, 71), (31_744 * 71 - 1, 71)])
def test_the_budget_is_reached_by_the_smallest_whole_number_of_unrolls(steps: int, unrolls: int):
    assert dataclasses.replace(PAPER, steps=steps).num_unrolls == unrolls


def test_the_published_loop_makes_800_of_999_updates():
    config = Config(batch_size=512, updates_per_iteration=800).resolve(1000)
    assert (config.num_updates, config.num_batches) == (800, 512 * 999 // 512)
    with pytest.raises(UserError, match="updates_per_iteration 1000 exceeds the 999 batches of an iteration: lower it"):
        Config(batch_size=512, updates_per_iteration=1000).resolve(1000)


def test_a_budget_beyond_double_precision_is_still_counted_exactly():
    """2^60 + 1 environment steps, one environment, one step an unroll: a float would lose the one."""
    config = Config(num_envs=1, unroll_length=1, steps=2**60 + 1)
    assert config.num_unrolls == 2**60 + 1


def test_the_prefill_covers_a_window_that_is_longer_than_the_minimum():
    config = Config(window=1241, min_replay_rows=1000)  # 1241 / 62 = 20.02
    assert config.num_prefill_unrolls == 21


def test_resolving_fills_in_what_the_environment_decides():
    config = Config(num_envs=256, replay_rows=2000, min_replay_rows=500).resolve(episode_length=251)
    assert (config.episode_length, config.window, config.pool_refresh_steps) == (251, 251, 251)
    assert config.eval_env == config.env


def test_resolving_keeps_what_was_given():
    given_settings = {"episode_length": 101, "window": 65, "pool_refresh_steps": 7, "eval_env": "point_u_maze_eval"}
    config = Config(**given_settings).resolve(episode_length=250)
    assert {name: getattr(config, name) for name in given_settings} == given_settings


def test_a_resolved_config_resolves_to_itself():
    assert PAPER.resolve(episode_length=1000) == PAPER
    assert PAPER.resolve(episode_length=3) == PAPER


@pytest.mark.parametrize("config", [Config(), PAPER, Config(method="crl", actor_goal="commanded", layer_norm=True)])
def test_a_config_round_trips_through_json(config: Config):
    assert Config.from_dict(json.loads(config.to_json())) == config


def test_a_config_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PAPER.seed = 3  # pyright: ignore[reportAttributeAccessIssue]


# Each with words that the message must hold: the numbers, and what to do.
BAD: list[tuple[dict[str, Any], list[str]]] = [
    ({"num_candidates": 600}, ["num_candidates 600", "pool_size 512"]),
    ({"steps": -5}, ["steps is -5", "at least 1"]),
    ({"steps": 0}, ["steps is 0"]),
    ({"num_envs": 0}, ["num_envs is 0", "at least 1"]),
    ({"batch_size": 1}, ["batch_size is 1", "at least 2"]),
    ({"window": 1}, ["window is 1", "at least 2"]),
    ({"replay_rows": 500}, ["min_replay_rows 1000", "replay_rows 500"]),
    ({"replay_rows": 40, "min_replay_rows": 30}, ["unroll_length 62", "replay_rows 40"]),
    ({"window": 20_000}, ["window 20000", "replay_rows 10000", "raise replay_rows to 20000"]),
    # 17 unrolls fill the replay and 50 evaluations need one each: 67 * 31,744 = 2,126,848.
    ({"window": 1000, "steps": 1_000_000}, ["make 32 unrolls", "17 fill", "at least 2126848 steps"]),
    ({"discount": 1.0}, ["discount is 1.0"]),
    ({"discount": 0.0}, ["discount is 0.0"]),
    ({"final_goal_share": 1.5}, ["final_goal_share is 1.5", "from 0 to 1"]),
    ({"actor_learning_rate": 0.0}, ["actor_learning_rate is 0.0", "positive"]),
    ({"seed": -1}, ["seed is -1"]),
    ({"seed": 2**32}, ["seed is 4294967296", "use at most 4294967295"]),
    *(
        ({"method": label, "critic": "contrastive", "command": "final_goal", "condition": "raw_goal"}, ["method is"])
        for label in ("../../outside", "a/b", "a\0b", "", ".hidden", "a" * 101, "a\n")
    ),
    ({"fidelity": "exact"}, ["unknown fidelity 'exact'", "paper, fixed"]),
    ({"actor_goal": "past"}, ["unknown actor_goal 'past'", "future, commanded"]),
    ({"num_envs": 2.0}, ["num_envs must be int, not 2.0"]),
    ({"num_envs": True}, ["num_envs must be int, not True"]),
    ({"layer_norm": 1}, ["layer_norm must be bool, not 1"]),
    ({"env": None}, ["env must be str, not None"]),
    ({"discount": float("nan")}, ["discount must be finite, not nan"]),
    ({"steps": "many"}, ["steps must be int, not 'many'"]),
    ({"steps": "a\nb"}, ["steps must be int, not 'a\\nb'"]),
    # Python writes no integer of more than 4,300 digits.
    ({"steps": 10**5000}, ["steps must fit 64 bits", "below 2**63"]),
    ({"steps": -(10**5000)}, ["steps must fit 64 bits"]),
    ({"steps": [10**5000]}, ["steps must be int, not this list"]),
    ({"discount": 10**400}, ["discount must fit a 32-bit float"]),
    ({"actor_learning_rate": 1e39}, ["actor_learning_rate must fit a 32-bit float, not 1e+39"]),
    # 32-bit integers on the device
    ({"subgoal_period": 2**31}, ["subgoal_period is 2147483648", "at most 2147483647"]),
    ({"pool_refresh_steps": 2**31}, ["pool_refresh_steps is 2147483648", "at most 2147483647"]),
    ({"num_evals": 10**6 + 1, "steps": 10**15}, ["num_evals is 1000001", "at most 1000000"]),
    ({"depth": 10_001}, ["depth is 10001", "at most 10000"]),
    # 2^20 * 2^12 = 2^32 pairs
    ({"num_envs": 2**20, "window": 2**12 + 1, "steps": 10**15}, ["= 4294967296 pairs exceed", "lower num_envs"]),
]


def test_pairs_that_fill_no_whole_batch_are_left_out():
    """512 environments with windows of 1001 rows have 512,000 pairs: 2,007 batches of 255, and 215 pairs that wait."""
    config = Config(window=1001, batch_size=255)
    assert config.num_batches == config.num_updates == 2007
    assert Config(window=1001).num_batches == 2000  # the paper's: nothing is left out


@pytest.mark.parametrize(("values", "words"), BAD, ids=lambda part: shown(part)[:40])
def test_a_mistake_is_reported_with_its_numbers_and_the_fix(values: dict[str, Any], words: list[str]):
    with pytest.raises(UserError) as error:
        Config(**values)
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("label", ["dcp", "my_module:SoftDCP", "dcp-2.0+wide", "a" * 100])
def test_a_method_may_have_a_label_that_a_folder_can_have(label: str):
    assert Config(method=label).run_path == f"point_u_maze/{label.replace(':', '.')}/seed_0"


def test_two_settings_of_an_own_part_have_two_folders():
    def folder(**settings: Any) -> str:
        return Config(condition="mine:Soft", component_settings=settings).run_path.split("/")[1]

    assert folder() == "dcp-mine.Soft"
    assert folder(**{"condition.scale": 2.0, "condition.kind": "a"}) == "dcp-mine.Soft-kind_a-scale_2.0"
    odd = [folder(**{"condition.name": name}) for name in ("../a", "../b", [1, 2])]
    assert len(set(odd)) == 3 and all(re.fullmatch(r"dcp-mine\.Soft-[0-9a-f]{8}", name) for name in odd)
    assert Config(critic="quasimetric", component_settings={"critic.components": 4}).run_path.split("/")[1] == (
        "dcp-quasimetric"  # ours: as before
    )


def test_several_mistakes_are_all_reported_at_once():
    with pytest.raises(UserError, match=r"seed is -1.*num_candidates 600"):
        Config(seed=-1, num_candidates=600)


def test_an_unknown_field_is_named():
    with pytest.raises(UserError, match="unknown config field 'sede'"):
        Config.from_dict({"sede": 1})


def test_a_window_is_checked_when_the_environment_makes_it_known():
    config = Config(num_envs=3, batch_size=800)  # nothing to object to yet
    with pytest.raises(UserError, match=r"3 \* 249 = 747 pairs are fewer than batch_size 800"):
        config.resolve(episode_length=250)


numbers = st.one_of(st.integers(-2, 5), st.integers(6, 3000), st.sampled_from([10**6, 10**9, 10**30]))
anything = st.one_of(numbers, st.none(), st.booleans(), st.floats(), st.sampled_from(["", "dcp", [1], {}]))
names = st.sampled_from([field.name for field in dataclasses.fields(Config)])


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(names, numbers, max_size=6), st.dictionaries(names, anything, max_size=1))
def test_random_settings_construct_or_raise_a_user_error_and_nothing_else(sizes: dict, odd: dict):
    try:
        config = Config(**{**sizes, **odd}).resolve(episode_length=250)
    except UserError as error:
        assert str(error)
        return
    assert config.num_unrolls * config.env_steps_per_unroll >= config.steps
    assert config.num_iterations >= config.num_evals
    pairs = config.num_envs * ((config.window or 0) - 1)
    assert config.num_batches == pairs // config.batch_size
    assert config.num_updates == (config.updates_per_iteration or config.num_batches) <= config.num_batches


def test_settings_of_parts_that_are_no_table_get_a_sentence():
    with pytest.raises(UserError, match="component_settings is 'x': give a table of settings"):
        Config.from_dict({"component_settings": "x", "condition.scale": 2.0})


def test_facts_about_settings_are_stated_at_the_settings():
    assert fields_where(grows=True) == ("steps", "num_evals")
    assert "split_batches" in fields_where(run_decides=True) and "batch_size" not in fields_where(run_decides=True)
    assert fields_where(compared=False, grows=True) == ("steps", "num_evals")
    assert fields_where(of_method=True, code=True) == ("critic", "command", "condition")


def test_a_run_has_a_path_in_words_before_its_types_are_checked():
    assert Settings(network={"a": 1}).run_path.startswith("point_u_maze/dcp-")  # pyright: ignore[reportArgumentType]
