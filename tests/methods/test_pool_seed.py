"""Reading seeds of the pool: what is accepted, and one sentence for each mistake."""

import hashlib
import io
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dcp.config import Config
from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.methods import pool_seed
from dcp.methods.pool_seed import read_pool_seed, read_seeds, row_of_each_slot

# S 4, G 2, a ball's place last
SPEC = replace(make_env("point_u_maze_inertia").spec, name="ball", goal_dims=(2, 3))
STATES = np.array([[1.0, 2.0, 3.0, 4.0], [5.0, 1.0, 2.0, 2.5]])


def npz(folder: Path, **arrays: np.ndarray) -> str:
    np.savez(folder / "seed.npz", **arrays)
    return str(folder / "seed.npz")


def written(folder: Path, text: str | bytes) -> str:
    path = folder / "seed.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_whole_states_give_their_goals(tmp_path: Path):
    found = read_pool_seed(npz(tmp_path, states=STATES), SPEC)
    assert np.array_equal(found.goals, [[3.0, 4.0], [2.0, 2.5]])
    assert found.states is not None and np.array_equal(found.states, STATES) and found.states.dtype == np.float32
    assert found.sha256 == hashlib.sha256((tmp_path / "seed.npz").read_bytes()).hexdigest()


def test_goals_without_states_are_enough(tmp_path: Path):
    found = read_pool_seed(npz(tmp_path, goals=np.array([[3, 4]])), SPEC)  # whole numbers too
    assert np.array_equal(found.goals, [[3.0, 4.0]]) and found.states is None


@pytest.mark.parametrize(
    "text", ["1,2,3,4\n5,1,2,2.5\n", "x,y,ball_x,ball_y\r\n1,2,3,4\r\n5,1,2,2.5", "\ufeff1,2,3,4\n\n5,1,2,2.5"]
)
def test_a_csv_of_states_with_or_without_a_header(tmp_path: Path, text: str):
    found = read_pool_seed(written(tmp_path, text), SPEC)
    assert found.states is not None and np.array_equal(found.states, STATES)


def test_a_csv_with_as_many_columns_as_goals_have_holds_goals(tmp_path: Path):
    found = read_pool_seed(written(tmp_path, "3,4\n2,2.5\n"), SPEC)
    assert np.array_equal(found.goals, [[3.0, 4.0], [2.0, 2.5]]) and found.states is None


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"states": np.zeros((0, 4))}, "holds no state: give at least one"),
        ({"states": np.full((2, 4), np.nan)}, "holds a NaN"),
        ({"states": np.full((2, 4), 1e39)}, "beyond 3.4e38"),
        ({"states": np.zeros((2, 3))}, r"`states` .* is float64\[2, 3\]: ball needs numbers of shape \[K, 4\]"),
        ({"states": np.zeros(4)}, r"shape \[K, 4\]"),
        ({"goals": np.zeros((2, 4))}, r"`goals` .* shape \[K, 2\]"),
        ({"states": np.array([["a"] * 4])}, "needs numbers"),
        ({"states": np.zeros((2, 4)), "goals": np.zeros((2, 2))}, "one array, `states` or `goals`"),
        ({"observations": np.zeros((2, 4))}, "one array, `states` or `goals`"),
    ],
)
def test_a_wrong_array_gets_one_sentence(tmp_path: Path, arrays: dict[str, np.ndarray], sentence: str):
    with pytest.raises(UserError, match=sentence) as error:
        read_pool_seed(npz(tmp_path, **arrays), SPEC)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "holds no state"),
        ("x,y,ball_x,ball_y\n", "holds no state"),
        ("1,2,3\n", "has 3 columns: ball needs 4 for states or 2 for goals"),
        ("1,2,3,4\n1,2\n", "has 2 and 4 columns"),
        ("1,2,3,4\n1,2,3,inf\n", "holds a NaN, an infinity"),
        ("1,2,3,4\n1,2,three,4\n", "'1,2,three,4' is not a line of numbers"),
        ("1;2;3;4\n1;2;3;5\n", "'1;2;3;5' is not a line of numbers"),
        (b"\xff\xfe\x00\x81", "cannot be read"),
    ],
)
def test_a_wrong_csv_gets_one_sentence(tmp_path: Path, text: str | bytes, sentence: str):
    with pytest.raises(UserError, match=sentence) as error:
        read_pool_seed(written(tmp_path, text), SPEC)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("path", ["absent.npz", "", ".", "a\x00b", "x" * 5000])
def test_a_file_that_is_not_there_gets_one_sentence(path: str):
    with pytest.raises(UserError, match="cannot read pool_seed") as error:
        read_pool_seed(path, SPEC)
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


class Code:
    """Unpickled, it makes a file."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return (open, (str(self.mark), "w"))


def test_a_pickle_is_never_loaded(tmp_path: Path):
    """Neither as an array of objects nor as a bare file."""
    mark = tmp_path / "code_ran"
    np.savez(tmp_path / "seed.npz", states=np.array([Code(mark)], dtype=object), allow_pickle=True)
    (tmp_path / "bare.npz").write_bytes(pickle.dumps(Code(mark)))
    for name in ("seed.npz", "bare.npz"):
        with pytest.raises(UserError):
            read_pool_seed(str(tmp_path / name), SPEC)
    assert not mark.exists()
    pickle.loads((tmp_path / "bare.npz").read_bytes()).close()
    assert mark.exists()  # what would have been seen


def test_a_file_that_is_or_unpacks_too_large_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pool_seed, "LARGEST", 5_000)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("states.npy", bytes(10_000))
    (tmp_path / "bomb.npz").write_bytes(packed.getvalue())
    assert len(packed.getvalue()) < 5_000
    with pytest.raises(UserError, match="unpacks to more than"):
        read_pool_seed(str(tmp_path / "bomb.npz"), SPEC)
    with pytest.raises(UserError, match="is larger than"):
        read_pool_seed(npz(tmp_path, states=np.zeros((1000, 4))), SPEC)


def test_slots_are_shared_out_evenly_over_the_file():
    assert row_of_each_slot(3, 6).tolist() == [0, 0, 1, 1, 2, 2]
    assert row_of_each_slot(8, 4).tolist() == [0, 2, 4, 6]
    assert row_of_each_slot(2, 3).tolist() == [0, 0, 1]


def test_a_run_takes_its_share_of_slots_and_the_critic_each_of_these_states_once(tmp_path: Path):
    """A quarter of 8 slots, out of 3 states: the first and the second. For a half, 4 slots: all three."""
    path = npz(tmp_path, states=np.arange(12.0).reshape(3, 4))
    config = Config(env="point_soccer", pool_seed=path, pool_size=8, num_candidates=2).resolve(250)
    seeds = read_seeds(config, SPEC)
    assert config.pool_seed_fraction == 0.25 and seeds.sha256 == read_pool_seed(path, SPEC).sha256
    assert seeds.critic is None
    assert np.array_equal(seeds.pool, [[2, 3], [6, 7]])
    half = Config(env="point_soccer", pool_seed=path, pool_size=8, num_candidates=2, pool_seed_fraction=0.5,
                  pool_seed_in_critic=True)  # fmt: skip
    seeds = read_seeds(half, SPEC)
    assert seeds.critic is not None
    assert np.array_equal(seeds.pool, [[2, 3], [2, 3], [6, 7], [10, 11]])
    assert np.array_equal(seeds.critic, np.arange(12.0).reshape(3, 4))
