"""Gymnasium knows our environments by their ids, once `dcp.gym` is imported; `import dcp` alone changes nothing."""

import subprocess
import sys

import gymnasium
import pytest

from dcp.envs.registry import OURS, make_env
from dcp.gym import EPISODE_STEPS, gymnasium_id, register
from tests.support.installed import INSTALLED

LOADED = "sorted({'gymnasium', 'jax', 'numpy'} & set(sys.modules))"
STEP = "env = gymnasium.make('{}'); env.reset(seed=0); env.step(env.action_space.sample()); print(env.spec.id)"
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
    assert EPISODE_STEPS.keys() == OURS.keys()
    for name in INSTALLED:
        assert make_env(name).spec.episode_length == EPISODE_STEPS[name]
    for name, steps in EPISODE_STEPS.items():
        spec = gymnasium.spec(gymnasium_id(name))
        assert spec.max_episode_steps == steps and spec.kwargs == {"env": name}


def test_importing_dcp_installs_no_hook_and_imports_no_gymnasium():
    script = f"import sys; before = list(sys.meta_path); import dcp; print(sys.meta_path == before, {LOADED})"
    assert run(script) == ["True []"]


def test_importing_dcp_gym_registers_without_jax():
    script = f"import sys, dcp, gymnasium; print({COUNT}); import dcp.gym; print({COUNT}, 'jax' in sys.modules)"
    assert run(script) == ["0", "55 False"]


def test_an_id_is_made_after_dcp_gym_is_imported():
    assert run(f"import dcp.gym, gymnasium; {STEP.format('dcp/PointUMaze-v0')}") == ["dcp/PointUMaze-v0"]


def test_an_id_can_name_the_package():
    script = f"import gymnasium; print({COUNT}); {STEP.format('dcp:dcp/PointUMaze-v0')}; print({COUNT})"
    assert run(script) == ["0", "dcp/PointUMaze-v0", "55"]


def test_an_id_that_names_dcp_gym_works_even_where_dcp_was_imported_first():
    assert run(f"import dcp, gymnasium; {STEP.format('dcp.gym:dcp/PointUMaze-v0')}") == ["dcp/PointUMaze-v0"]


def test_dcp_needs_no_gymnasium():
    assert run("import sys; sys.modules['gymnasium'] = None; import dcp; print(dcp.__version__)")


def test_registering_twice_changes_nothing():
    before = dict(gymnasium.registry)
    register()  # Gymnasium would warn of an id that is entered anew
    assert gymnasium.registry == before
