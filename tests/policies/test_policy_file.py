"""A policy file: the same policy back, and one sentence for every file that is not one."""

import dataclasses
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.methods.conditions import RawGoal
from dcp.methods.table import CONDITIONS
from dcp.policies.policy import DeployedPolicy
from dcp.policies.policy_file import load_policy, policy_about, save_policy
from tests.untrained import untrained_policy


@cache
def untrained(condition: str = "direction", **settings) -> DeployedPolicy:
    spec = make_env("point_u_maze_inertia").spec
    return untrained_policy(spec, seed=3, condition=condition, width=8, repr_dim=4, **settings)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_policy(tmp_path / "policy.safetensors", untrained(), {"env": "point_u_maze_inertia", "method": "dcp"})


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_policy_comes_back_bit_for_bit(condition: str, tmp_path: Path):
    policy = untrained(condition, depth=3, layer_norm=True, residual_every=2, activation="relu", energy="l2")
    loaded = load_policy(save_policy(tmp_path / "p.safetensors", policy, {}))
    assert (loaded.spec, loaded.network, loaded.critic) == (policy.spec, policy.network, policy.critic)
    assert policy.critic.energy == "l2"
    assert loaded.spec.maze is not None
    assert type(loaded.condition) is type(policy.condition)
    state, goal = np.linspace(0, 3, 12).reshape(3, 4), np.linspace(3, 0, 6).reshape(3, 2)
    np.testing.assert_array_equal(loaded(state, goal), policy(state, goal))
    same = jax.tree.map(np.array_equal, loaded.critic_params, policy.critic_params)
    assert all(jax.tree.leaves(same))


def test_a_specs_physics_and_fixes_come_back_and_older_files_have_none(tmp_path: Path):
    policy = untrained()
    spec = dataclasses.replace(policy.spec, physics="spring", fixes=("the ball rolls", "the box stands"))
    path = save_policy(tmp_path / "p.safetensors", dataclasses.replace(policy, spec=spec), {})
    assert load_policy(path).spec == spec
    assert hash(load_policy(path).spec) == hash(spec)
    with safe_open(path, framework="numpy") as file:
        stored = json.loads(file.metadata()["dcp"])["spec"]
    rewrite(path, spec={name: value for name, value in stored.items() if name not in ("physics", "fixes")})
    assert load_policy(path).spec == policy.spec


def test_a_run_folder_stands_for_its_policy(saved: Path):
    assert load_policy(saved.parent).spec.name == "point_u_maze_inertia"
    assert policy_about(saved) == {"env": "point_u_maze_inertia", "method": "dcp"}


def test_a_new_policy_replaces_the_old_one_whole(saved: Path):
    save_policy(saved, untrained("raw_goal"), {})
    assert load_policy(saved).condition == RawGoal()
    assert [path.name for path in saved.parent.iterdir()] == ["policy.safetensors"]


def rewrite(path: Path, change_arrays=None, **metadata) -> None:
    with safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        stored = json.loads(file.metadata()["dcp"])
    if change_arrays is not None:
        change_arrays(arrays)
    save_file(arrays, path, {"dcp": json.dumps({**stored, **metadata})})


def drop(arrays) -> None:
    del arrays["actor/out/bias"]


def shorten(arrays) -> None:
    arrays["actor/out/bias"] = arrays["actor/out/bias"][:1]


def clash(arrays) -> None:
    arrays["actor/out"] = np.zeros(1, np.float32)


@pytest.mark.parametrize(
    ("damage", "fix"),
    [
        (lambda p: p.unlink(), "no policy at"),
        (lambda p: p.write_bytes(b""), "copy it again"),
        (lambda p: p.write_text("not a policy at all"), "copy it again"),
        (lambda p: p.write_bytes(p.read_bytes()[:-100]), "copy it again"),
        (lambda p: save_file({"x": np.zeros(2)}, p), "not written by dcp"),
        (lambda p: save_file({"x": np.zeros(2)}, p, {"dcp": "{"}), "damaged metadata"),
        (lambda p: save_file({"x": np.zeros(2)}, p, {"dcp": "3"}), "damaged metadata"),
        (lambda p: rewrite(p, schema_version=99), "upgrade dcp"),
        (lambda p: rewrite(p, spec=None), "copy it again"),
        (lambda p: rewrite(p, spec={"name": "x"}), "copy it again"),
        (lambda p: rewrite(p, network={}), "copy it again"),
        (lambda p: rewrite(p, condition={"name": "telepathy", "settings": {}}), "unknown condition"),
        (lambda p: rewrite(p, critic={"name": "contrastive", "settings": {"energy": "dark"}}), "copy it again"),
        (lambda p: rewrite(p, drop), "actor"),
        (lambda p: rewrite(p, shorten), "actor"),
        (lambda p: rewrite(p, clash), "copy it again"),
    ],
)
def test_a_file_that_is_no_policy_gives_one_sentence(damage, fix: str, saved: Path):
    damage(saved)
    with pytest.raises(UserError, match=fix) as error:
        load_policy(saved)
    assert len(str(error.value).splitlines()) == 1


def test_a_folder_without_a_policy_gives_one_sentence(tmp_path: Path):
    with pytest.raises(UserError, match="no policy at"):
        load_policy(tmp_path)


def test_loading_a_policy_needs_neither_physics_nor_environments_nor_the_trainer(saved: Path):
    """And takes less than two seconds of a CPU, imports and all: of its own time, for this machine may be busy."""
    code = f"""
import sys, time, dcp
policy = dcp.load_policy({str(saved)!r})
print(time.process_time() < 2.0)
print(policy([1.0, 1.0, 0.0, 0.0], [1.0, 3.0]).shape)
foreign = ("brax", "mujoco", "dcp.algorithm", "dcp.runs", "dcp.envs", "optax", "orbax", "scipy", "gymnasium")
print([name for name in sys.modules if name.startswith(foreign)])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["True", "(2,)", "[]"], done.stdout + done.stderr


def test_a_policy_without_its_critic_acts_the_same_and_is_smaller(tmp_path: Path):
    policy = untrained()
    whole = save_policy(tmp_path / "whole.safetensors", policy, {})
    slim = save_policy(tmp_path / "slim.safetensors", policy.without_critic(), {})
    assert slim.stat().st_size < whole.stat().st_size
    loaded = load_policy(slim)
    state, goal = np.linspace(0, 3, 12).reshape(3, 4), np.linspace(3, 0, 6).reshape(3, 2)
    np.testing.assert_array_equal(loaded(state, goal), policy(state, goal))
    with pytest.raises(UserError, match="without its critic"):
        loaded.representation.value(state[0], np.zeros(2), goal[0])


def test_one_observation_or_many_give_the_same_actions_and_a_wrong_size_is_told(saved: Path):
    policy = load_policy(saved)
    state, goal = np.linspace(0, 3, 12).reshape(3, 4), np.linspace(3, 0, 6).reshape(3, 2)
    batched = policy(state, goal)
    assert isinstance(batched, np.ndarray)
    np.testing.assert_allclose(batched[1], policy(state[1], goal[1]), atol=1e-6)
    with pytest.raises(UserError, match=r"observation has 4 numbers, not shape \(3,\)"):
        policy(state[0, :3], goal[0])
    with pytest.raises(UserError, match=r"goal has 2 numbers, not shape \(1,\)"):
        policy(state[0], goal[0, :1])


def test_one_goal_serves_many_states_and_one_state_many_goals(saved: Path):
    policy = load_policy(saved)
    state, goal = np.linspace(0, 3, 12).reshape(3, 4), np.linspace(3, 0, 6).reshape(3, 2)
    np.testing.assert_array_equal(policy(state, goal[0]), policy(state, goal[[0, 0, 0]]))
    np.testing.assert_array_equal(policy(state[0], goal), policy(state[[0, 0, 0]], goal))
    assert policy(state[:0], goal[0]).shape == (0, 2)


@pytest.mark.parametrize(
    ("observation", "words"), [(np.zeros((5, 4)), "do not pair"), ("west", "numbers"), ([[1, 2], [3]], "numbers")]
)
def test_what_cannot_be_acted_on_gives_one_sentence(observation, words: str, saved: Path):
    with pytest.raises(UserError, match=words):
        load_policy(saved)(observation, np.zeros((3, 2)))
