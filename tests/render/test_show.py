"""Who is shown, under which name, and where."""

import numpy as np
import pytest

from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.evaluation.targets import Target, open_target
from dcp.policies.policy import HostPolicy
from dcp.render.show import Look, Shown, common_env, make_subject, names_of


def still(state: np.ndarray, goal: np.ndarray) -> np.ndarray:
    return np.zeros((len(state), 2))


def known_as(*abouts: dict, labels=("a/policy.safetensors", "b/policy.safetensors")) -> list[str]:
    return names_of(
        [Target(label, HostPolicy(still), about=about) for label, about in zip(labels, abouts, strict=True)]
    )


def test_policies_are_named_by_method_then_seed_then_path():
    assert known_as({"method": "dcp"}, {"method": "crl"}) == ["dcp", "crl"]
    assert known_as({"method": "dcp", "seed": 0}, {"method": "dcp", "seed": 1}) == ["dcp seed 0", "dcp seed 1"]
    same = {"method": "dcp", "seed": 0}
    assert known_as(same, same) == ["a/policy.safetensors", "b/policy.safetensors"]
    assert known_as({}, {}, labels=("a/one.onnx", "a/two.onnx")) == ["one", "two"]


def test_the_second_policy_must_fit_into_the_first_one_s_environment(tiny_run):
    other = Target("arm", HostPolicy(still), sizes=(20, 3, 7))
    with pytest.raises(UserError, match=r"arm has sizes .*\(20, 3, 7\), but point_u_maze has \(2, 2, 2\)"):
        common_env([open_target(tiny_run.folder), other], None, False)


def test_a_plain_function_is_shown_too_but_has_no_direction():
    target, env = Target("still", HostPolicy(still)), make_env("point_u_maze")
    (episode,) = make_subject(target, "still", env, Shown(steps=3, subgoal=True)).episodes
    np.testing.assert_array_equal(episode.achieved, np.tile(episode.achieved[0], (4, 1)))
    assert episode.directions is episode.subgoals is None
    with pytest.raises(UserError, match="still has no representation"):
        make_subject(target, "still", env, Shown(steps=3, direction="on"))


def test_bodies_are_shown_at_every_second_step_and_points_at_every_one():
    assert [Look().stride_for(make_env(name)) for name in ("ant_u_maze", "point_u_maze")] == [2, 1]
    assert Look(stride=5).stride_for(make_env("ant_u_maze")) == 5
