"""Reading an exported file back, whatever its form: one sentence for what does not fit; the document's code runs."""

import json
import re
import resource
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

from dcp.errors import UserError
from dcp.lab.targets import open_target
from dcp.policies import numpy_policy
from dcp.policies.exports import export_policy, is_exported, load_exported
from tests.support.exports import ANT, ENDINGS, maze_inputs, saved, untrained

DOCS = Path(__file__).parents[2] / "docs" / "evaluation.md"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = saved(tmp_path_factory.mktemp("exported"))
    for form in ENDINGS:
        export_policy(folder, form)
    return folder


@pytest.fixture(params=ENDINGS)
def path(request, files: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(files / f"policy{ENDINGS[request.param]}", tmp_path))


def test_a_file_tells_its_sizes_and_where_it_comes_from(path: Path):
    policy = load_exported(path)
    assert (policy.state_size, policy.goal_size, policy.action_size, policy.goal_dims) == (29, 2, 8, (0, 1))
    assert policy.about == {"env": "ant_u_maze", "method": "dcp", "seed": 0, "env_steps": 5000}


def test_single_batch_and_one_goal_for_all_agree(path: Path):
    policy, (state, goal) = load_exported(path), maze_inputs(ANT, 3)
    want = untrained("dcp")(state, np.tile(goal[0], (3, 1)))
    one, many, lists = policy(state[1], goal[0]), policy(state, goal[0]), policy(state[2].tolist(), goal[0].tolist())
    np.testing.assert_allclose(one, want[1], rtol=0, atol=1e-5)
    np.testing.assert_allclose(many, want, rtol=0, atol=1e-5)
    np.testing.assert_allclose(lists, want[2], rtol=0, atol=1e-5)


def test_the_kept_psi_of_a_goal_gives_way_to_a_new_goal(path: Path):
    policy, (state, goal) = load_exported(path), maze_inputs(ANT, 2)
    want = untrained("dcp")(np.tile(state[0], (2, 1)), goal)
    mutable = goal[0].copy()
    first = policy(state[0], mutable)
    mutable[:] = goal[1]
    np.testing.assert_allclose([first, policy(state[0], mutable)], want, rtol=0, atol=1e-5)
    assert np.abs(want[0] - want[1]).max() > 1e-3


def test_a_batch_of_none_gives_none(path: Path):
    assert load_exported(path)(np.zeros((0, 29)), np.zeros((0, 2))).shape == (0, 8)


@pytest.mark.parametrize(
    ("state", "goal", "sentence"),
    [
        (np.zeros(28), np.zeros(2), r"observation has 29 numbers, not shape \(28,\)"),
        (np.zeros(29), np.zeros((4, 3)), r"goal has 2 numbers, not shape \(4, 3\)"),
        (np.float32(1.0), np.zeros(2), "observation has 29 numbers"),
        (np.zeros((3, 29)), np.zeros((4, 2)), "do not pair"),
        (["a"] * 29, np.zeros(2), "observation must be numbers"),
    ],
)
def test_inputs_of_other_sizes_give_one_sentence(state, goal, sentence: str, files: Path):
    for form in ("numpy", "onnx"):
        with pytest.raises(UserError, match=sentence):
            load_exported(files / f"policy{ENDINGS[form]}")(state, goal)


def rewrite(path: Path, **changes) -> None:
    """The file with other metadata."""
    if path.suffix == ".npz":
        with np.load(path) as file:
            arrays = dict(file)
        np.savez(path, **{**arrays, "dcp": np.array(json.dumps({**json.loads(str(arrays["dcp"])), **changes}))})
    elif path.suffix == ".onnx":
        model = onnx.load(path)
        model.metadata_props[0].value = json.dumps({**json.loads(model.metadata_props[0].value), **changes})
        onnx.save(model, path)
    else:
        with zipfile.ZipFile(path) as archive:
            stored = {name: archive.read(name) for name in archive.namelist()}
        stored["dcp.json"] = json.dumps({**json.loads(stored["dcp.json"]), **changes}).encode()
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in stored.items():
                archive.writestr(name, content)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda p: p.unlink(), "there is no file"),
        (lambda p: p.write_bytes(b""), "export or copy it again"),
        (lambda p: p.write_text("not a policy at all"), "export or copy it again"),
        (lambda p: p.write_bytes(p.read_bytes()[:-300]), "export or copy it again"),
        (lambda p: rewrite(p, format="torch"), "not a policy that `dcp export` wrote"),
        (lambda p: rewrite(p, schema_version=99), "schema 99, this reader knows 2"),
        (lambda p: rewrite(p, state_size=30), "export or copy it again"),
        (lambda p: rewrite(p, goal_dims=[0, 29]), "goal_dims"),
        (lambda p: rewrite(p, burst={"period": 5, "length": 2}), "it has a burst inside"),
        (lambda p: rewrite(p, about=3), "export or copy it again"),
        (lambda p: rewrite(p, about={"env": 5}), "env: expected str"),
        (lambda p: rewrite(p, about={"env": [1]}), "env: expected str"),
        (lambda p: rewrite(p, about={"fidelity": ["x"]}), "fidelity: expected str"),
        (lambda p: rewrite(p, about={"env_steps": "many"}), "env_steps: expected float"),
        (lambda p: rewrite(p, about={"env_steps": float("nan")}), "env_steps: expected float"),
        (lambda p: rewrite(p, about={"env_steps": float("inf")}), "env_steps: expected float"),
        (lambda p: rewrite(p, about={"method": "\x1b]0;x\x07"}), "method: expected str"),
    ],
)
def test_a_file_that_is_no_policy_gives_one_sentence(damage, sentence: str, path: Path):
    damage(path)
    with pytest.raises(UserError, match=sentence) as error:
        load_exported(path)
    assert len(str(error.value).splitlines()) == 1


def test_an_origin_of_nulls_is_an_unknown_one(files: Path, tmp_path: Path):
    path = Path(shutil.copy(files / "policy.npz", tmp_path))
    rewrite(path, about=dict.fromkeys(("env", "fidelity", "physics", "method", "env_steps")))
    target = open_target(path)
    assert (target.env, target.fidelity, target.physics) == (None, "paper", "brax")


def test_junk_in_an_npz_gets_our_own_sentence_and_not_numpys(tmp_path: Path):
    """NumPy takes random bytes for a pickle, and would tell how to load it unsafely."""
    path = tmp_path / "junk.npz"
    path.write_bytes(bytes(range(1, 200)))
    with pytest.raises(UserError) as error:
        load_exported(path)
    assert str(error.value) == f"{path} is not a whole policy of `dcp export`: export or copy it again"


@pytest.mark.parametrize("changes", [{"condition": "telepathy"}, {"networks": {}}, {"action_size": 7}])
def test_numpy_metadata_that_do_not_fit_the_arrays_give_one_sentence(changes, files: Path, tmp_path: Path):
    path = Path(shutil.copy(files / "policy.npz", tmp_path))
    rewrite(path, **changes)
    with pytest.raises(UserError, match="not a whole policy"):
        load_exported(path)


def test_a_changed_byte_is_noticed_or_does_no_harm(files: Path, tmp_path: Path):
    content, random = (files / "policy.npz").read_bytes(), np.random.default_rng(0)
    path, refused = tmp_path / "policy.npz", 0
    for position in random.integers(0, len(content), 200):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0x55]) + content[position + 1 :])
        try:
            load_exported(path)
        except UserError:
            refused += 1
    assert refused > 150


def test_endings_decide_what_is_an_exported_file(tmp_path: Path):
    assert [is_exported(name) for name in ("a/policy.npz", "policy.onnx", "policy.stablehlo")] == [True] * 3
    assert [is_exported(name) for name in ("policy.safetensors", "runs/x", tmp_path)] == [False] * 3
    (tmp_path / "folder.npz").mkdir()
    assert not is_exported(tmp_path / "folder.npz")
    with pytest.raises(UserError, match=r"is not an exported policy: name a file that ends in \.onnx"):
        load_exported(tmp_path / "policy.safetensors")


def test_without_onnxruntime_the_sentence_says_what_to_install(files: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match=r"needs onnxruntime here: pip install '\.\[onnx\]'"):
        load_exported(files / "policy.onnx")


def test_every_block_of_the_document_runs(tmp_path: Path, monkeypatch, capsys):
    folder = saved(tmp_path)
    for form in ENDINGS:
        export_policy(folder, form)
    shutil.copy(numpy_policy.__file__, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    state, goal = maze_inputs(ANT, 1)
    names = {"observation": state[0], "goal": goal[0]}
    want, actions = untrained("dcp")(state, goal)[0], []
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    for block in blocks:
        exec(compile(block, str(DOCS), "exec"), names)
        actions.append(np.array(names["action"]).reshape(-1))
    assert len(actions) == 5
    for action in actions:
        np.testing.assert_allclose(action, want, rtol=0, atol=1e-5)
    assert "(0, 1) {'env': 'ant_u_maze'" in capsys.readouterr().out


def test_a_stablehlo_program_may_call_only_what_jax_allows_whatever_its_text_looks_like():
    """A call named "Sharding x" once counted as Sharding, which is allowed."""
    from dcp.policies.exports import _require_stable_calls

    program = """func.func @main(%x: tensor<f32>) -> tensor<f32> {
      %y = stablehlo.custom_call @"NAME"(%x) : (tensor<f32>) -> tensor<f32>
      return %y : tensor<f32> }"""
    _require_stable_calls(program.replace("NAME", "Sharding"))
    for name in ("Sharding x", "evil", "Sharding("):
        with pytest.raises(ValueError, match=re.escape(f"it calls {name!r}")):
            _require_stable_calls(program.replace("NAME", name))


def test_an_onnx_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path):
    pytest.importorskip("onnx")
    with (path := tmp_path / "policy.onnx").open("wb") as file:
        file.truncate(6 * 2**30)  # takes no room on the disk
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match="6,442,450,944 bytes, more than"):
        load_exported(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kilobytes
