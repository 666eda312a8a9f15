"""Environments by name, by registration and by module."""

import pytest

from dcp.envs import registry
from dcp.envs.base import Environment
from dcp.envs.registry import ENVIRONMENTS, make_env, register_env
from dcp.errors import UserError
from tests.support.installed import INSTALLED
from tests.support.toys import LineWorld


@pytest.mark.parametrize("name", INSTALLED)
def test_every_registered_environment_is_made_under_its_own_name(name: str):
    env = make_env(name)
    assert isinstance(env, Environment)
    assert env.spec.name == name


def test_a_users_environment_is_known_once_registered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "ENVIRONMENTS", dict(ENVIRONMENTS))
    register_env("my_line", LineWorld)
    assert make_env("my_line") == LineWorld()


def test_a_taken_name_is_refused():
    with pytest.raises(UserError, match="'point_u_maze' exists already"):
        register_env("point_u_maze", LineWorld)


def test_an_environment_is_named_by_module_and_factory():
    assert make_env("tests.support.toys:LineWorld") == LineWorld()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("point_u_mase", "unknown environment 'point_u_mase': did you mean 'point_u_maze'"),
        ("zzz", "`dcp envs` lists them"),
        ("no_such_module:factory", "name it as module:factory"),
        ("tests.support.toys:NoSuchFactory", "name it as module:factory"),
        (":factory", "name it as module:factory"),
        ("collections:OrderedDict", "made a OrderedDict, which is not an environment"),
    ],
)
def test_a_wrong_name_gets_one_sentence(name: str, sentence: str):
    with pytest.raises(UserError, match=sentence):
        make_env(name)
