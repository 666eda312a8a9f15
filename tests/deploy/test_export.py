"""Every exported form against the policy itself, and what a file says of itself."""

import json
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from dcp.deploy.export import layers, numpy_form, onnx_form
from dcp.deploy.export.metadata import describe
from dcp.deploy.export.write import export_policy
from dcp.deploy.exported import load_exported
from dcp.errors import RunError, UserError
from dcp.methods.table import CONDITIONS, METHODS
from dcp.networks import ACTIVATIONS
from dcp.types import EnvSpec
from tests.deploy.exports import ANT, ENDINGS, SCATTERED, exported, maze_inputs, saved, untrained

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
@pytest.mark.parametrize("method", METHODS)
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


def test_a_new_activation_or_condition_must_be_given_to_every_form():
    from dcp.deploy import numpy_policy

    assert onnx_form.ACTIVATIONS.keys() == numpy_policy.ACTIVATIONS.keys() == ACTIVATIONS.keys()
    assert onnx_form.CONDITIONS.keys() == numpy_policy.CONDITIONS.keys() == CONDITIONS.keys()


@pytest.mark.parametrize("form", ["numpy", "onnx"])
@pytest.mark.parametrize("table", ["ACTIVATIONS", "CONDITIONS"])
def test_what_a_form_was_not_given_is_refused_in_one_sentence(form: str, table: str, monkeypatch):
    monkeypatch.setattr({"numpy": numpy_form, "onnx": onnx_form}[form], table, {})
    make = {"numpy": numpy_form.numpy_bytes, "onnx": onnx_form.onnx_bytes}[form]
    with pytest.raises(UserError, match=rf"does not know the {table[:-1].lower()} '.*': choose --format stablehlo"):
        make(untrained("dcp"), describe(untrained("dcp"), {}, None))


@pytest.mark.parametrize("form", ["numpy", "onnx"])
def test_a_walk_that_misses_a_change_of_the_networks_writes_nothing(form: str, tmp_path: Path, monkeypatch):
    folder = saved(tmp_path, "dcp", depth=3, residual_every=1)
    hidden = layers._hidden
    monkeypatch.setattr(layers, "_hidden", lambda *args: hidden(*args)._replace(residual=False))
    with pytest.raises(RunError, match="differ from the policy's"):
        export_policy(folder, form)
    assert [path.name for path in folder.iterdir()] == ["policy.safetensors"]


@pytest.mark.parametrize("form", ENDINGS)
def test_a_file_says_what_it_is(form: str, tmp_path: Path):
    path = export_policy(saved(tmp_path), form, burst=(100, 10))
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
    assert metadata["burst"] == {"period": 100, "length": 10}
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


@pytest.mark.parametrize("burst", [(0, 0), (10, 11), (10, -1)])
def test_a_burst_that_does_not_fit_its_period_is_refused(burst: tuple[int, int], tmp_path: Path):
    with pytest.raises(UserError, match="0 <= L <= P"):
        export_policy(saved(tmp_path), "numpy", burst=burst)


def test_a_burst_of_no_steps_is_no_burst(tmp_path: Path):
    assert load_exported(export_policy(saved(tmp_path), "numpy", burst=(100, 0))).burst is None


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
    import sys

    folder = saved(tmp_path)
    monkeypatch.delitem(sys.modules, "dcp.deploy.export.onnx_form")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=r"pip install 'dcp\[onnx\]'"):
        export_policy(folder, "onnx")
