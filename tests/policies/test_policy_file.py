"""A policy file: the same policy back, and one sentence for every file that is not one."""

import dataclasses
import json
import resource
import subprocess
import sys
import time
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
from dcp.policies.policy import DeployedPolicy, save_policy
from dcp.policies.policy_file import load_policy, policy_about
from tests.support.untrained import untrained_policy


@cache
def untrained(condition: str = "direction", **settings) -> DeployedPolicy:
    spec = make_env("point_u_maze_inertia").spec
    return untrained_policy(spec, seed=3, condition=condition, width=8, repr_dim=4, **settings)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_policy(tmp_path / "policy.safetensors", untrained(), {"env": "point_u_maze_inertia", "method": "dcp"})


@pytest.mark.parametrize(
    "condition", [name for name, row in CONDITIONS.items() if not getattr(row, "needs_steps", False)]
)
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


def test_a_run_folder_can_be_given_for_its_policy(saved: Path):
    assert load_policy(saved.parent).spec.name == "point_u_maze_inertia"
    assert policy_about(saved) == {"env": "point_u_maze_inertia", "method": "dcp"}


def test_a_new_policy_replaces_the_old_one_whole(saved: Path):
    save_policy(saved, untrained("raw_goal"), {})
    assert load_policy(saved).condition == RawGoal()
    assert [path.name for path in saved.parent.iterdir()] == ["policy.safetensors"]


def rewrite(path: Path, change_arrays=None, **metadata) -> None:
    """Forge a file: with other content, and without the checksum, as files of before have none."""
    with safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        stored = json.loads(file.metadata()["dcp"])
    del stored["sha256"]
    if change_arrays is not None:
        change_arrays(arrays)
    save_file(arrays, path, {"dcp": json.dumps({**stored, **metadata})})


def drop(arrays) -> None:
    del arrays["actor/out/bias"]


def shorten(arrays) -> None:
    arrays["actor/out/bias"] = arrays["actor/out/bias"][:1]


def clash(arrays) -> None:
    arrays["actor/out"] = np.zeros(1, np.float32)


def poison(value: float):
    def change(arrays) -> None:
        arrays["actor/out/bias"][0] = value

    return change


def deep(arrays) -> None:
    arrays["/".join("a" * 20_000)] = np.zeros(1, np.float32)


def setting(kind: str, name: str, **settings) -> dict:
    return {kind: {"name": name, "settings": settings}}


def respec(path: Path, **values) -> None:
    with safe_open(path, framework="numpy") as file:
        stored = json.loads(file.metadata()["dcp"])
    rewrite(path, spec={**stored["spec"], **values})


def nested(path: Path) -> None:
    save_file({"x": np.zeros(2)}, path, {"dcp": '{"schema_version": 2, "spec": ' + 100_000 * "[" + "}"})


def eight_bit(path: Path) -> None:
    """An array of a type that NumPy does not have."""
    header = b'{"x":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]},"__metadata__":{"dcp":"{}"}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"ab")


# Each of these gave a traceback, a hang, or a policy, before there was a schema.
HOSTILE = {
    "nested 100,000 deep": (nested, "nested too deeply"),
    "infinite schema version": (lambda p: rewrite(p, schema_version=float("inf")), "schema_version: expected int"),
    "true as schema version": (lambda p: rewrite(p, schema_version=True), "schema_version: expected int, got bool"),
    "schema version of 900 digits": (lambda p: rewrite(p, schema_version=10**900), "upgrade dcp"),
    "a list as about": (lambda p: rewrite(p, about=["env"]), "about: expected object"),
    "a list as env": (lambda p: rewrite(p, about={"env": ["x"]}), "about.env: expected str"),
    "text as env steps": (lambda p: rewrite(p, about={"env_steps": "many"}), "about.env_steps: expected float"),
    "a terminal's codes as env": (lambda p: rewrite(p, about={"env": "\x1b[2J"}), "about.env: expected str matching"),
    "half a character": (lambda p: rewrite(p, about={"env": "\ud800"}), "half a character"),
    "eight-bit floats": (eight_bit, "copy it again"),
    "no state": (lambda p: respec(p, state_size=0), "state_size: expected int >= 1"),
    "a goal of minus one": (lambda p: respec(p, goal_size=-1), "goal_size: expected int >= 1"),
    "text as size": (lambda p: respec(p, action_size="2"), "action_size: expected int, got str"),
    "a huge state": (lambda p: respec(p, state_size=10**30), "state_size: expected int <= 1000000"),
    "goal dims outside": (lambda p: respec(p, goal_dims=[0, 99]), "not indices below 4"),
    "an infinite threshold": (lambda p: respec(p, threshold=float("inf")), "threshold: expected float <="),
    "a ragged maze": (lambda p: respec(p, maze={"rows": ["##", "#"], "scale": 1.0}), "not of one length"),
    "a field too many": (lambda p: respec(p, colour="red"), "'colour', which this dcp does not know"),
    "zero width": (lambda p: rewrite(p, **setting("network", "mlp", width=0)), "copy it again"),
    "zero repr_dim": (lambda p: rewrite(p, **setting("critic", "contrastive", repr_dim=0)), "copy it again"),
    "depth of a billion": (lambda p: rewrite(p, **setting("network", "mlp", depth=10**9)), "depth is 1000000000"),
    "width of 900 digits": (lambda p: rewrite(p, **setting("network", "mlp", width=10**900)), "copy it again"),
    "a name of 20,000 parts": (lambda p: rewrite(p, deep), "copy it again"),
    "code of 20,000 parts": (
        lambda p: rewrite(p, **setting("condition", ".".join("a" * 20_000) + ":b")), "condition.*|name: expected str",
    ),
    "nan": (lambda p: rewrite(p, poison(np.nan)), "not all finite"),
    "inf": (lambda p: rewrite(p, poison(np.inf)), "not all finite"),
    "a library's function": (lambda p: rewrite(p, **setting("critic", "numpy:load")), "code outside dcp"),
    "our own class": (lambda p: rewrite(p, **setting("condition", "dcp.types:MazeLayout")), "code outside dcp"),
    "a class of the user's that is no part": (
        lambda p: rewrite(p, **setting("condition", f"{__name__}:Innocent", path="x")), "is not a condition",
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Innocent:
    """A dataclass of an imported module: a policy file may not have it made."""

    path: str

    def __post_init__(self) -> None:
        raise AssertionError("made for a policy file")


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_gives_one_sentence_at_once(case: str, saved: Path):
    damage, sentence = HOSTILE[case]
    damage(saved)
    started = time.process_time()
    with pytest.raises(UserError, match=sentence) as error:
        load_policy(saved)
    assert len(str(error.value).splitlines()) == 1 and len(str(error.value)) < 1_000
    assert time.process_time() - started < 2.0


def test_a_flipped_byte_anywhere_is_reported(saved: Path):
    """Of every byte the lowest bit, and then a file that says so of itself still loads."""
    content = saved.read_bytes()
    load_policy(saved)
    random = np.random.default_rng(0)
    name = content.index(b"sha256")
    for position in sorted({*range(200), *range(name, name + 6), *random.integers(0, len(content), 150).tolist()}):
        saved.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        with pytest.raises(UserError, match=r"copy it again|not written by dcp|upgrade dcp"):
            load_policy(saved)
    saved.write_bytes(content)
    load_policy(saved)


def test_a_file_without_a_checksum_still_loads(saved: Path):
    rewrite(saved)
    assert load_policy(saved).spec.name == "point_u_maze_inertia"


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


def test_one_observation_or_many_give_the_same_actions_and_a_wrong_size_is_reported(saved: Path):
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


@pytest.mark.parametrize(("gigabytes", "reason"), [(12, "more than 2,147,483,648"), (1, "array zz is")])
def test_a_file_whose_header_does_not_fit_is_refused_before_any_array_is_read(
    gigabytes: int, reason: str, saved: Path, tmp_path: Path
):
    """A sparse file takes no room on the disk, and would take all memory."""
    content = saved.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    count, end = gigabytes * 2**28, len(data)
    header["zz"] = {"dtype": "F32", "shape": [count], "data_offsets": [end, end + 4 * count]}
    text = json.dumps(header).encode()
    with (path := tmp_path / "sparse.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)
        file.truncate(8 + len(text) + end + 4 * count)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=reason):
        load_policy(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kilobytes
