"""Agents whose psi is known have the known answers; random ones have those of chance. All share one set of programs."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.config import Config
from dcp.critics.quasimetric import Quasimetric
from dcp.errors import UserError
from dcp.lab.diagnose import PARTS, diagnose
from dcp.lab.diagnose.direction_measures import (
    align,
    choose_subgoals,
    gaps_to,
    summarize_alignment,
    summarize_gaps,
    with_paper_command,
)
from dcp.lab.diagnose.visited_states import Study, gather, learned, truth_of
from dcp.lab.episodes import distances
from dcp.lab.targets import Target
from dcp.methods.commands import PooledSubgoal
from dcp.methods.more_conditions import Gradient
from dcp.methods.table import make_part
from dcp.policies.policy import DeployedPolicy
from tests.support.agents import DIM, OPEN, folded_agent, known_agent, linear, random_agent

SIZES = {"episodes": 16, "states": 64}


def looked_at(policy, **settings):
    return diagnose(policy, OPEN, **{**SIZES, **settings})


@pytest.fixture(scope="module")
def known():
    """psi_g(x) = x, and an actor that goes straight."""
    return looked_at(known_agent())


def test_in_an_open_room_the_plane_s_own_distance_points_along_the_true_way(known):
    for where in ("maze", "visited"):
        found = known["alignment"][where]
        for name in ("pulled_back", "descent", "straight_line"):
            assert_allclose([found[name][end] for end in ("mean", "low", "high")], 1.0, atol=1e-5)
        assert found["nearer"]["mean"] == 1.0
        assert found["largest_difference"] < 1e-5  # -grad_s d_psi = J^T u


def test_a_subgoal_on_the_line_shows_the_goal_s_direction(known):
    oracle = known["gaps"]["kinds"]["oracle"]
    assert oracle["state"]["mean"] < 1e-3 and oracle["psi"]["mean"] < 1e-3 and oracle["slack"]["mean"] < 1e-6
    assert oracle["on_path"]["mean"] == 1.0
    assert 0.2 < oracle["magnitude"]["mean"] < 0.8  # z lies after 20 to 80% of the way


def test_every_gap_is_the_plane_s_own(known):
    """Directly from the places of s, z and g: the angle between two straight lines, and the detour."""
    policy = known_agent()
    visits = gather(OPEN, policy, 0, 16, 250, 64)
    subject = Study(policy, OPEN, Config(pool_size=32, num_candidates=8), truth_of(OPEN.spec), visits, 0)
    z = choose_subgoals(subject)["random"]
    found = gaps_to(subject, z)
    s, g = visits.achieved.astype(float), visits.goal.astype(float)
    to_z, to_g = (x - s for x in (z, g))
    lengths = [np.linalg.norm(x, axis=1, keepdims=True) for x in (to_z, to_g, g - z)]
    apart = lengths[0][:, 0] > 0.05  # closer than that, float32's places decide the angle
    assert_allclose(
        found["state"][apart], np.linalg.norm(to_z / lengths[0] - to_g / lengths[1], axis=1)[apart], atol=1e-3
    )
    assert_allclose(found["psi"][apart], found["state"][apart], atol=1e-3)  # psi is the plane
    assert_allclose(found["slack"], (lengths[0] + lengths[2] - lengths[1])[:, 0], atol=1e-5)
    assert_allclose(found["magnitude"], (np.abs(lengths[0] - lengths[1]) / lengths[1])[:, 0], atol=1e-4)


def test_the_plane_s_own_distance_is_calibrated(known):
    found = known["calibration"]
    assert found["episodes_that_reach"] == 16
    way = found["true_way"]
    assert way["rank_correlation"]["mean"] == pytest.approx(1.0)
    assert found["steps_to_goal"]["rank_correlation"]["mean"] > 0.99  # it goes straight, at one speed
    assert found["hindsight"]["rank_correlation"]["mean"] > 0.9


def test_a_driftless_point_away_from_walls_can_follow_any_direction(known):
    found = known["controllability"]["steps"]["1"]
    assert found["share"]["mean"] == pytest.approx(1.0, abs=1e-5) and found["cosine"]["mean"] > 1.0 - 1e-5
    assert found["reach"]["mean"] == pytest.approx(0.25 * 0.12, rel=1e-3)


def test_a_psi_that_keeps_no_direction_is_at_chance():
    """Triangle waves: the sign of each axis is right half of the time, be it toward this goal or another one."""
    s, g, other = np.random.default_rng(1).uniform(0.6, 4.4, (3, 500, 2)).astype(np.float32)
    found = align(folded_agent(), truth_of(OPEN.spec), s, g, other)
    said = summarize_alignment(found, np.arange(500))
    for name, chance in (("pulled_back", 0.0), ("descent", 0.0), ("another_goal", 0.0), ("nearer", 0.5)):
        assert said[name]["low"] < chance < said[name]["high"] < chance + 0.15, name


def test_the_scorer_of_a_psi_that_knows_nothing_is_on_the_path_as_often_as_a_random_state():
    rng = np.random.default_rng(0)
    s, g, pool = rng.uniform(0.6, 4.4, (3, 2000, 2)).astype(np.float32)
    visits = SimpleNamespace(
        spec=OPEN.spec, state=s, achieved=s, goal=g, episode=np.arange(2000), at=s, pool=lambda size, seed: pool[:size]
    )
    subject = Study(folded_agent(), OPEN, Config(), truth_of(OPEN.spec), visits, 0)
    chosen = choose_subgoals(subject)
    found = summarize_gaps({kind: gaps_to(subject, z) for kind, z in chosen.items()}, visits)["kinds"]
    for name in ("on_path", "on_path_midway", "at_goal"):
        scorer, base = found["scorer"][name], found["random"][name]
        assert scorer["low"] <= base["high"] and base["low"] <= scorer["high"], name
    assert found["random"]["on_path"]["mean"] > 0.05  # there is a rate to be compared with
    assert found["oracle"]["state"]["mean"] > 0.8 * found["random"]["state"]["mean"] > 0.5  # on the path or not


def test_the_settings_of_a_runs_own_command_are_not_those_of_the_scorer():
    """The run's command is neither imported nor asked: the scorer is the paper's, with the config's pool."""
    mine = Config(command="nowhere:Mine", pool_size=64, component_settings={"command.stride": 2, "condition.unit": 9.0})
    pooled = with_paper_command(mine)
    assert pooled.component_settings == {"condition.unit": 9.0}
    assert make_part("command", pooled) == PooledSubgoal(pool_size=64)
    assert (
        make_part("command", with_paper_command(Config(component_settings={"command.threshold": 0.3}))).threshold == 0.3
    )
    crl = Config(method="crl", command="pooled_subgoal", component_settings={"command.threshold": 0.3})
    assert with_paper_command(crl).component_settings == {"command.threshold": 0.3}


def test_untrained_networks_point_about_straight_and_no_better():
    """They are nearly linear, and a random linear map keeps directions: that is why the straight line is reported."""
    cosines = []
    for seed in range(3):
        found = looked_at(random_agent(seed), parts=("alignment",))["alignment"]["maze"]
        assert found["pulled_back"]["mean"] < found["straight_line"]["mean"] == pytest.approx(1.0)
        cosines.append(found["pulled_back"]["mean"] - found["another_goal"]["mean"])
    assert np.mean(cosines) > 0.3


def test_the_numbers_follow_from_the_seed():
    one, again, other = (looked_at(known_agent(), parts=("gaps",), seed=seed) for seed in (3, 3, 4))
    assert one["gaps"] == again["gaps"] != other["gaps"]


def quasimetric_agent() -> DeployedPolicy:
    """MRN over psi(x, y) = (x, y, 0, ...): one component of four one way and four both ways; it sees the gradient."""
    known, spec = known_agent(), OPEN.spec
    critic = Quasimetric(repr_dim=DIM, components=1)
    params = {**known.critic_params, "mix": np.float32(0.0), "commonness": linear(np.zeros((1, 2)), 2)}
    actor = linear(np.zeros((2 * spec.action_size, 5)), spec.state_size + 3)
    return replace(known, critic=critic, critic_params=params, condition=Gradient(), actor=actor)


def test_a_critics_own_distance_is_the_one_that_is_measured():
    """One way max(relu(x), relu(y)) of s - g, not Euclid's: from (0, 0) to (3, 4) it is 0, and back 4."""
    policy = quasimetric_agent()
    s, g = (np.array([x], np.float32) for x in ([0.0, 0.0], [3.0, 4.0]))
    assert_allclose([distances(policy, s, g), distances(policy, g, s)], [[0.0], [4.0]], atol=1e-5)
    assert_allclose(learned(policy, g, s).magnitude, [4.0], atol=1e-5)
    assert_allclose(distances(known_agent(), s, g), [5.0], rtol=1e-6)


def test_every_part_is_measured_and_none_that_was_not_asked_for(known):
    assert set(PARTS) <= set(known)
    assert set(looked_at(known_agent(), parts=("calibration",))) & set(PARTS) == {"calibration"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"parts": ("gap",)}, "there is no part 'gap'"),
        ({"episodes": 1}, "use 2 or more"),
        ({"states": 3}, "use 8 or more"),
        ({"seed": -1}, "use 0 or more"),
    ],
)
def test_a_mistake_is_one_sentence(settings, words):
    with pytest.raises(UserError, match=words):
        looked_at(known_agent(), **settings)


def test_what_has_no_psi_is_refused():
    with pytest.raises(UserError, match="holds no psi"):
        diagnose(Target("mine", lambda s, g: s), OPEN, **SIZES)
