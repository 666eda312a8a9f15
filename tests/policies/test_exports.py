"""Every exported form against the policy itself, and what a file says of itself."""

import json
import sys
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest

from dcp import networks, policies
from dcp.errors import RunError, UserError
from dcp.methods.more_conditions import pulled_back
from dcp.methods.table import CONDITIONS, PAPER
from dcp.networks import ACTIVATIONS, MLP
from dcp.policies import exports, numpy_policy, onnx_form
from dcp.policies.exports import compare, encode, export_policy
from dcp.policies.policy import DeployedPolicy
from dcp.types import EnvSpec
from tests.support.exports import ANT, ENDINGS, SCATTERED, exported, maze_inputs, saved, untrained

# Each method with other networks, so that the forms meet many options.
OPTIONS = {
    "crl": {"layer_norm": True},
    "ssgc": {"activation": "relu", "layer_norm": True, "depth": 3, "residual_every": 1},
    "dcp": {"depth": 3, "residual_every": 1},
    "dcp_no_pool": {"activation": "relu", "depth": 4, "residual_every": 2, "energy": "l2"},
}
ROWS = 10_000


def agrees(folder: Path, form: str, spec: EnvSpec, method: str, **settings) -> None:
    policy = untrained(method, spec, **settings)
    state, goal = maze_inputs(spec, ROWS)
    goal[:100] = spec.achieved(state[:100])  # arrived: the direction is zero
    want = policy(state, goal)
    assert np.isfinite(want).all()
    assert want.std() > 0.1
    form_of = exported(folder, form, policy)
    np.testing.assert_allclose(form_of(state, goal), want, rtol=0, atol=1e-5)
    alone = [form_of(*pair) for pair in zip(state[90:110], goal[90:110], strict=True)]
    np.testing.assert_allclose(alone, want[90:110], rtol=0, atol=1e-5)


@pytest.mark.parametrize("form", ENDINGS)
@pytest.mark.parametrize("method", PAPER)
def test_an_export_acts_as_the_policy_on_ten_thousand_inputs(method: str, form: str, tmp_path: Path):
    spec = SCATTERED if method in ("ssgc", "dcp_no_pool") else ANT
    agrees(tmp_path, form, spec, method, **OPTIONS[method])


@pytest.mark.parametrize("form", ENDINGS)
def test_an_export_of_the_papers_size_acts_as_the_policy(form: str, tmp_path: Path):
    agrees(tmp_path, form, ANT, "dcp", width=256, repr_dim=64)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("residual_every", [0, 2])
def test_every_network_option_is_exported(activation: str, layer_norm: bool, residual_every: int, tmp_path: Path):
    options = {"activation": activation, "layer_norm": layer_norm, "residual_every": residual_every, "depth": 3}
    policy = untrained("dcp", SCATTERED, **options)
    state, goal = maze_inputs(SCATTERED, 200)
    want = policy(state, goal)
    for form in ("numpy", "onnx"):
        got = exported(tmp_path, form, policy)(state, goal)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5, err_msg=form)


@pytest.mark.parametrize("condition", [name for name in CONDITIONS if name not in ("raw_goal", "direction")])
def test_every_condition_is_exported(condition: str, tmp_path: Path):
    critic = "tmd" if condition == "steps" else "contrastive"
    policy = untrained("dcp", SCATTERED, condition=condition, critic=critic, repr_dim=16)
    state, goal = maze_inputs(SCATTERED, 50)
    goal[:5] = SCATTERED.achieved(state[:5])
    want = policy(state, goal)
    assert np.isfinite(want).all() and want.std() > 0.1
    for form in ENDINGS if condition in numpy_policy.CONDITIONS else ("stablehlo",):
        got = exported(tmp_path, form, policy)(state, goal)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-4, err_msg=form)


@pytest.mark.parametrize("depth", [3, 8])
def test_a_residual_network_is_exported(depth: int, tmp_path: Path):
    policy = untrained("dcp", SCATTERED, network="residual", depth=depth, activation="relu" if depth == 3 else "swish")
    state, goal = maze_inputs(SCATTERED, 200)
    want = policy(state, goal)
    assert want.std() > 0.05  # depth 3 is three layers, and its actions spread by 0.09
    for form in ("numpy", "onnx"):
        got = exported(tmp_path, form, policy)(state, goal)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-4, err_msg=form)


def test_where_two_goals_are_nearly_one_to_the_encoder_rounding_decides_in_jax_too(tmp_path: Path):
    """LayerNorm leaves little of a goal's distance from the origin: directions between such goals carry few digits."""
    policy = untrained("dcp", layer_norm=True, depth=3)
    state, goal = maze_inputs(ANT, ROWS)
    psi_s, psi_g = (np.asarray(policy.representation.encode_goal(x)) for x in (ANT.achieved(state), goal))
    near = np.linalg.norm(psi_g - psi_s, axis=-1) < 0.01 * np.linalg.norm(psi_g, axis=-1)
    assert 0 < near.mean() < 0.03
    for form in ("numpy", "onnx"):
        apart = np.abs(exported(tmp_path, form, policy)(state, goal) - policy(state, goal)).max(axis=-1)
        assert apart[~near].max() < 1e-5
        assert apart[near].max() < 1e-3


def test_a_new_activation_or_condition_of_ours_must_be_given_to_every_form():
    assert onnx_form.ACTIVATIONS.keys() == numpy_policy.ACTIVATIONS.keys() == ACTIVATIONS.keys()
    by_derivatives = {
        "gradient",
        "two_step",
        "curvature",
    }  # and `steps` by the critic's own calibration: StableHLO alone
    assert onnx_form.CONDITIONS.keys() == numpy_policy.CONDITIONS.keys()
    assert CONDITIONS.keys() - numpy_policy.CONDITIONS.keys() == {*by_derivatives, "steps"}


@pytest.mark.parametrize("form", ["numpy", "onnx"])
def test_a_walk_that_misses_a_change_of_the_networks_writes_nothing(form: str, tmp_path: Path, monkeypatch):
    folder = saved(tmp_path, "dcp", depth=3, residual_every=1)
    hidden = exports._hidden
    monkeypatch.setattr(exports, "_hidden", lambda *args: hidden(*args)._replace(residual=False))
    with pytest.raises(RunError, match="differ from the policy's"):
        export_policy(folder, form)
    assert [path.name for path in folder.iterdir()] == ["policy.safetensors"]


@pytest.mark.parametrize("form", ENDINGS)
def test_a_file_says_what_it_is(form: str, tmp_path: Path):
    path = export_policy(saved(tmp_path), form)
    assert path == tmp_path / f"policy{ENDINGS[form]}"
    if form == "numpy":
        stored = str(np.load(path, allow_pickle=False)["dcp"])
    elif form == "onnx":
        stored = {prop.key: prop.value for prop in onnx.load(path).metadata_props}["dcp"]
    else:
        stored = zipfile.ZipFile(path).read("dcp.json")
    metadata = json.loads(stored)
    assert metadata["inputs"] == {"state": ["batch", 29], "goal": ["batch", 2]}
    assert metadata["outputs"] == {"action": ["batch", 8]}
    assert (metadata["schema_version"], metadata["goal_dims"], metadata["condition"]) == (1, [0, 1], "direction")
    assert metadata["about"] == {"env": "ant_u_maze", "method": "dcp", "seed": 0, "env_steps": 5000}


@pytest.mark.parametrize("form", ENDINGS)
def test_the_same_policy_gives_the_same_file(form: str, tmp_path: Path):
    folder = saved(tmp_path)
    first, second = (export_policy(folder, form, tmp_path / f"{name}{ENDINGS[form]}") for name in "ab")
    assert first.read_bytes() == second.read_bytes()


def test_a_file_holds_what_the_policy_needs_and_nothing_of_the_critic(tmp_path: Path):
    held = {}
    for method in ("crl", "dcp"):
        with np.load(export_policy(saved(tmp_path / method, method), "numpy")) as file:
            held[method] = {name.split("/")[0] for name in file.files}
        assert file.files
    assert held == {"crl": {"dcp", "actor"}, "dcp": {"dcp", "actor", "psi_g"}}


def test_plain_onnxruntime_runs_the_file_on_any_batch(tmp_path: Path):
    session = onnxruntime.InferenceSession(str(export_policy(saved(tmp_path), "onnx")))
    state, goal = maze_inputs(ANT, 5)
    want = untrained("dcp")(state, goal)
    for rows in (1, 5):
        (action,) = session.run(["action"], {"state": state[:rows], "goal": goal[:rows]})
        np.testing.assert_allclose(action, want[:rows], rtol=0, atol=1e-5)


def test_an_onnx_file_can_be_cut_where_the_goal_is_encoded(tmp_path: Path):
    path = export_policy(saved(tmp_path), "onnx")
    onnx.utils.extract_model(str(path), str(tmp_path / "goal.onnx"), ["goal"], ["psi_goal"])
    onnx.utils.extract_model(str(path), str(tmp_path / "step.onnx"), ["state", "psi_goal"], ["action"])
    state, goal = maze_inputs(ANT, 3)
    psi_goal = onnxruntime.InferenceSession(tmp_path / "goal.onnx").run(None, {"goal": goal})[0]
    action = onnxruntime.InferenceSession(tmp_path / "step.onnx").run(None, {"state": state, "psi_goal": psi_goal})[0]
    np.testing.assert_allclose(action, untrained("dcp")(state, goal), rtol=0, atol=1e-5)


def test_a_name_that_readers_would_not_know_is_refused(tmp_path: Path):
    folder = saved(tmp_path)
    with pytest.raises(UserError, match=r"does not end in \.onnx"):
        export_policy(folder, "onnx", tmp_path / "policy.npz")
    with pytest.raises(UserError, match="unknown format 'torch': choose one of onnx"):
        export_policy(folder, "torch")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot write"):
        export_policy(folder, "numpy", tmp_path / "file" / "policy.npz")


def test_without_onnx_the_sentence_says_what_to_install(tmp_path: Path, monkeypatch):
    folder = saved(tmp_path)
    monkeypatch.delattr(policies, "onnx_form")
    monkeypatch.delitem(sys.modules, "dcp.policies.onnx_form")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=r"pip install '\.\[onnx\]'"):
        export_policy(folder, "onnx")


# ---- parts of a user's


@dataclass(frozen=True)
class Bearing:
    """Where the goal lies in its own coordinates, shortened where it is far."""

    scale: float = 2.0

    def size(self, spec: EnvSpec, repr_dim: int) -> int:
        return spec.goal_size

    def __call__(self, representation, achieved, commanded):
        offset = commanded - achieved
        return offset / (self.scale + jnp.linalg.norm(offset, axis=-1, keepdims=True))


class PulledBack(Bearing):
    """Needs a derivative of psi_g."""

    def __call__(self, representation, achieved, commanded):
        one = lambda a, c: pulled_back(representation, a, c)  # noqa: E731
        return jax.vmap(one)(achieved, commanded) if achieved.ndim > 1 else one(achieved, commanded)


class AsksForItsBatch(Bearing):
    def __call__(self, representation, achieved, commanded):
        return super().__call__(representation, achieved, commanded) * (1.0 if int(achieved.shape[0]) else 0.0)


class CallsTheHost(Bearing):
    def __call__(self, representation, achieved, commanded):
        return jax.pure_callback(np.negative, jax.ShapeDtypeStruct(commanded.shape, jnp.float32), commanded)


class HalfAsFast(MLP):
    def apply(self, params, x):
        return 0.5 * super().apply(params, x)


def of_a_user(part: str, monkeypatch) -> DeployedPolicy:
    policy = untrained("crl")
    if part == "gelu":
        monkeypatch.setitem(networks.ACTIVATIONS, "gelu", nn.gelu)
        return replace(policy, network=replace(policy.network, activation="gelu"))
    if part == "HalfAsFast":
        return replace(policy, network=HalfAsFast(**vars(policy.network)))
    return replace(policy, condition=globals()[part]())


@pytest.mark.parametrize("part", ["Bearing", "PulledBack", "AsksForItsBatch", "gelu", "HalfAsFast"])
def test_stablehlo_takes_parts_of_a_users(part: str, tmp_path: Path, monkeypatch):
    policy = of_a_user(part, monkeypatch)
    state, goal = maze_inputs(ANT, 100)
    want = policy(state, goal)
    assert np.abs(want - untrained("crl")(state, goal)).max() > 0.01
    np.testing.assert_allclose(exported(tmp_path, "stablehlo", policy)(state, goal), want, rtol=0, atol=1e-5)
    compare(policy, encode(policy, "stablehlo", {}), "stablehlo")


def test_what_cannot_leave_python_is_refused_in_one_sentence(monkeypatch):
    with pytest.raises(UserError, match=r"^jax.export cannot trace this policy \(.*host callbacks.*$"):
        encode(of_a_user("CallsTheHost", monkeypatch), "stablehlo", {})


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("Bearing", "the condition .*:Bearing"),
        ("PulledBack", "the condition .*:PulledBack"),
        ("gelu", "the activation gelu"),
        ("HalfAsFast", "the network .*:HalfAsFast"),
    ],
)
def test_forms_that_do_not_know_a_part_name_it_and_the_way_out(part: str, name: str, monkeypatch):
    policy = of_a_user(part, monkeypatch)
    with pytest.raises(UserError, match=rf"^the NumPy form does not know {name}: .*stablehlo$"):
        encode(policy, "numpy", {})
    with pytest.raises(UserError, match=rf"^our ONNX graph does not know {name}: .*stablehlo$"):
        encode(policy, "onnx", {})
