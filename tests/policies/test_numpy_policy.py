"""The NumPy form alone: what its one file needs, what it keeps between steps, and its burst."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dcp.policies import numpy_policy
from dcp.policies.exports import encode
from dcp.policies.numpy_policy import NumpyPolicy
from tests.support.exports import ANT, SCATTERED, maze_inputs, untrained


def written(folder: Path, method: str = "dcp", **settings) -> Path:
    policy = untrained(method, **settings)
    path = folder / "policy.npz"
    path.write_bytes(encode(policy, "numpy", {"method": method}))
    return path


def counted(policy: NumpyPolicy) -> list[int]:
    """How often psi_g is run for one input, from now on."""
    calls, network = [0], policy._one.condition._psi
    run = network.run

    def count() -> None:
        calls[0] += 1
        run()

    network.run = count
    return calls


def test_the_one_file_runs_where_there_is_no_jax_and_no_dcp(tmp_path: Path):
    state, goal = maze_inputs(ANT, 2)
    code = f"""
import sys
for name in ("jax", "jaxlib", "flax", "dcp", "onnx", "onnxruntime", "scipy", "safetensors"):
    sys.modules[name] = None
sys.path.insert(0, {str(tmp_path)!r})
from numpy_policy import NumpyPolicy
policy = NumpyPolicy.load({str(written(tmp_path))!r})
print(policy({state.tolist()}, {goal.tolist()}).tolist())
print(policy({state[1].tolist()}, {goal[1].tolist()}).tolist())
"""
    (tmp_path / "numpy_policy.py").write_text(Path(numpy_policy.__file__).read_text())
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    both, one = (np.array(eval(line)) for line in done.stdout.splitlines())
    want = untrained("dcp")(state, goal)
    np.testing.assert_allclose(both, want, rtol=0, atol=1e-5)
    np.testing.assert_allclose(one, want[1], rtol=0, atol=1e-5)


def test_the_one_file_is_written_for_an_older_python_too():
    tree = ast.parse(Path(numpy_policy.__file__).read_text(encoding="utf-8"), feature_version=(3, 9))
    imported = {
        (node.module, name.name) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names
    }
    assert ("__future__", "annotations") in imported  # `int | None` is then never evaluated
    assert {name for module, name in imported if module == "typing"} <= {"Any", "ClassVar", "NamedTuple"}


def test_psi_of_the_goal_is_kept_while_its_numbers_stay_the_same(tmp_path: Path):
    policy, (state, goal) = NumpyPolicy.load(written(tmp_path)), maze_inputs(ANT, 3)
    fresh = NumpyPolicy.load(written(tmp_path))
    runs = counted(policy)
    policy(state[0], goal[0])
    assert runs == [2]
    policy(state[1], goal[0].copy())  # other memory, the same numbers
    assert runs == [3]
    mutable = goal[0].copy()
    policy(state[1], mutable)
    mutable[1] += 1.0  # the same memory, other numbers
    moved = policy(state[1], mutable)
    assert runs == [6]
    np.testing.assert_array_equal(moved, fresh(state[1], mutable))


def test_an_action_is_the_callers_own_and_inputs_are_not_changed(tmp_path: Path):
    policy, (state, goal) = NumpyPolicy.load(written(tmp_path)), maze_inputs(ANT, 2)
    before = state.copy(), goal.copy()
    first = policy(state[0], goal[0])
    kept = first.copy()
    policy(state[1], goal[1])
    np.testing.assert_array_equal(first, kept)
    first[:] = 7.0
    np.testing.assert_array_equal(policy(state[0], goal[0]), kept)
    np.testing.assert_array_equal((state, goal)[0], before[0])
    np.testing.assert_array_equal((state, goal)[1], before[1])


@pytest.mark.parametrize("method", ["crl", "dcp"])
def test_batches_of_any_size_and_singles_may_follow_each_other(method: str, tmp_path: Path):
    policy = NumpyPolicy.load(written(tmp_path, method, spec=SCATTERED, layer_norm=True))
    state, goal = maze_inputs(SCATTERED, 2000)
    whole = policy(state, goal)  # more than are computed at once
    for rows in (3, 1, 3, 0, 500, 3):
        np.testing.assert_allclose(policy(state[:rows], goal[:rows]), whole[:rows], rtol=0, atol=1e-6)
    np.testing.assert_allclose(policy(state[7], goal[7]), whole[7], rtol=0, atol=1e-6)
    grid = policy(state[:6].reshape(2, 3, -1), goal[:6].reshape(2, 3, -1))
    np.testing.assert_allclose(grid, whole[:6].reshape(2, 3, -1), rtol=0, atol=1e-6)
    shared = policy(state[:5], goal[9])
    np.testing.assert_allclose(shared, policy(state[:5], np.tile(goal[9], (5, 1))), rtol=0, atol=1e-6)


def test_at_the_goal_the_direction_is_exactly_zero(tmp_path: Path):
    policy, (state, goal) = NumpyPolicy.load(written(tmp_path)), maze_inputs(ANT, 50)
    goal[::2] = ANT.achieved(state[::2])
    policy(state, goal)
    condition = policy._batch[1].actor.input[:, ANT.state_size :]
    lengths = np.linalg.norm(condition[:, :-1], axis=-1)
    np.testing.assert_array_equal(condition[::2], 0.0)
    np.testing.assert_allclose(lengths[1::2], 1.0, rtol=1e-6)
    policy(state[0], goal[0])
    np.testing.assert_array_equal(policy._one.actor.input[ANT.state_size :], 0.0)


class Trap:
    """Unpickling it writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.write_text, (self.path, "caught")


def test_loading_never_unpickles(tmp_path: Path):
    path, traces = tmp_path / "policy.npz", tmp_path / "traces"
    np.savez(path, dcp=np.array([Trap(traces)], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="not a whole policy"):
        NumpyPolicy.load(path)
    assert not traces.exists()
    np.load(path, allow_pickle=True)["dcp"]
    assert traces.exists()  # the trap works
