"""Gymnasium knows our environments by their ids, whichever of the two packages is imported first."""

import subprocess
import sys

import gymnasium
import pytest

from dcp.envs.registry import OURS, make_env
from dcp.interop.ids import EPISODE_STEPS, gymnasium_id
from dcp.interop.registration import register

LOADED = "sorted({'gymnasium', 'jax', 'numpy'} & set(sys.modules))"
COUNT = "sum(name.startswith('dcp/') for name in gymnasium.registry)"


def run(script: str) -> list[str]:
    command = [sys.executable, "-W", "error", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize(
    ("name", "id_"),
    [
        ("ant_u_maze", "dcp/AntUMaze-v0"),
        ("point_u_maze_inertia_eval", "dcp/PointUMazeInertiaEval-v0"),
        ("pusher_hard_far", "dcp/PusherHardFar-v0"),
    ],
)
def test_an_id_is_the_name_in_capitals(name: str, id_: str):
    assert gymnasium_id(name) == id_


def test_every_environment_has_an_id_with_its_own_time_limit():
    assert {name: make_env(name).spec.episode_length for name in OURS} == EPISODE_STEPS
    for name, steps in EPISODE_STEPS.items():
        spec = gymnasium.spec(gymnasium_id(name))
        assert spec.max_episode_steps == steps and spec.kwargs == {"env": name}


def test_dcp_before_gymnasium_registers_and_imports_nothing_by_itself():
    lines = run(f"import sys, dcp; print({LOADED}); import gymnasium; print({COUNT}); print('jax' in sys.modules)")
    assert lines == ["[]", "28", "False"]


def test_gymnasium_before_dcp_registers_and_an_id_can_name_the_package():
    script = f"import gymnasium; print({COUNT}); print(gymnasium.make('dcp:dcp/PointUMaze-v0').spec.id); print({COUNT})"
    assert run(script) == ["0", "dcp/PointUMaze-v0", "28"]


def test_dcp_needs_no_gymnasium():
    assert run("import sys; sys.modules['gymnasium'] = None; import dcp; print(dcp.__version__)")


def test_registering_twice_changes_nothing():
    before = dict(gymnasium.registry)
    register()  # Gymnasium would warn of an id that is entered anew
    assert gymnasium.registry == before
