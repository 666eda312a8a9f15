"""Experience of others beside a run's own: what is read of a file, and that each batch has exactly its share."""

import hashlib
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dcp
from dcp.algorithm import Mixed, prefill
from dcp.config import Config
from dcp.errors import UserError
from dcp.files.experience import at_least, is_experience, read_experience
from dcp.machine.checks import memory_parts, violations
from dcp.methods.pool_seed import read_pool_seed
from dcp.replay import relabel, sample_stretches, with_data
from tests.support.same_run import assert_same_run
from tests.support.tiny import tiny_config

SPEC = dcp.EnvSpec(
    name="line", state_size=2, goal_size=1, action_size=1, goal_dims=(0,), threshold=0.1, episode_length=5
)
TERMINALS = np.array([0, 0, 1, 0, 0, 0])  # an episode of three rows, and one whose end is missing


def states(rows: int = 6) -> np.ndarray:
    """The state's first number, which is the achieved goal, counts the rows."""
    return np.stack([np.arange(rows, dtype=np.float64), np.full(rows, 9.0)], axis=1)


def npz(folder: Path, **arrays: np.ndarray) -> str:
    given = {"observations": states(), "actions": np.full((6, 1), 0.5), "terminals": TERMINALS}
    np.savez(folder / "data.npz", **(given | arrays))
    return str(folder / "data.npz")


def minari(folder: Path) -> Path:
    """Two episodes in Minari's form: with the last observation, goals of their own, and out of order by name."""
    import h5py

    path = folder / "line" / "data" / "main_data.hdf5"
    path.parent.mkdir(parents=True)
    with h5py.File(path, "w") as file:
        for number, steps in ((10, 2), (2, 3)):
            episode = file.create_group(f"episode_{number}")
            seen = episode.create_group("observations")
            seen["observation"] = states(steps + 1) + number
            seen["achieved_goal"] = states(steps + 1)[:, :1] + number
            seen["desired_goal"] = np.full((steps + 1, 1), 100.0 + number)
            episode["actions"] = np.zeros((steps, 1), np.float32)
            episode["terminations"] = np.arange(steps) == (steps - 1 if number == 2 else -1)
            episode["truncations"] = np.zeros(steps, bool)
    return path


class TestFiles:
    def test_ogbenchs_npz_is_cut_where_it_says_and_its_last_episode_may_lack_an_end(self, tmp_path: Path):
        rows, sha256 = (read := read_experience(npz(tmp_path), SPEC)).rows, read.sha256
        assert rows.episode_id.tolist() == [0, 0, 0, 1, 1, 1]
        assert rows.commanded_goal[:, 0].tolist() == [2, 2, 2, 5, 5, 5]  # what each episode came to
        assert rows.fell is not None and not rows.fell.any()  # its ends are time limits
        assert rows.state.dtype == np.float32 and rows.state[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
        assert sha256 == hashlib.sha256((tmp_path / "data.npz").read_bytes()).hexdigest()

    @pytest.mark.parametrize("form", ["file", "folder", "id"])
    def test_a_minari_data_set_in_the_order_of_its_episodes(self, tmp_path: Path, monkeypatch, form: str):
        file = minari(tmp_path)
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
        rows = read_experience({"file": str(file), "folder": str(tmp_path / "line"), "id": "line"}[form], SPEC).rows
        assert rows.episode_id.tolist() == [0, 0, 0, 1, 1] and rows.state[:, 0].tolist() == [2, 3, 4, 10, 11]
        assert rows.commanded_goal[:, 0].tolist() == [102] * 3 + [110] * 2
        assert rows.fell is not None and rows.fell.tolist() == [False, False, True, False, False]

    def test_a_state_that_lacks_only_the_achieved_goal_gets_it_at_its_end(self, tmp_path: Path):
        spec = replace(SPEC, state_size=3, goal_dims=(2,))
        assert read_experience(str(minari(tmp_path)), spec).rows.state[:2].tolist() == [[2, 11, 2], [3, 11, 3]]

    @pytest.mark.parametrize(
        ("arrays", "sentence"),
        [
            ({"observations": states()[:, :1]}, r"have states of 1 and actions of 1 numbers.*line has 2 and 1"),
            ({"actions": np.full((6, 1), 3.0)}, r"an action outside \[-1, 1\]"),
            ({"observations": np.full((6, 2), np.nan)}, "hold a NaN"),
            ({"terminals": np.zeros(4)}, "have 6 observations, 6 actions and 4 terminals"),
            ({"observations": np.array([object()] * 6)}, "cannot read the data"),
            ({"observations": states(0), "actions": np.zeros((0, 1)), "terminals": np.zeros(0)}, "hold no episode"),
        ],
    )
    def test_what_does_not_fit_gets_a_sentence(self, tmp_path: Path, arrays: dict, sentence: str):
        with pytest.raises(UserError, match=sentence):
            read_experience(npz(tmp_path, **arrays), SPEC)

    def test_missing_and_damaged_files(self, tmp_path: Path):
        np.savez(tmp_path / "half.npz", observations=states(), actions=np.zeros((6, 1)))
        (tmp_path / "text").write_text("nothing")
        for name, sentence in (("none", "there is no data"), ("half.npz", "lack terminals"), ("text", "cannot read")):
            with pytest.raises(UserError, match=sentence):
                read_experience(str(tmp_path / name), SPEC)

    def test_an_array_that_lies_in_another_file_is_refused(self, tmp_path: Path):
        import h5py

        file = minari(tmp_path)
        with h5py.File(file, "a") as content:
            del content["episode_2/actions"]
            content["episode_2/actions"] = h5py.ExternalLink(str(file), "episode_10/actions")
        with pytest.raises(UserError, match="have no array actions of their own"):
            read_experience(str(file), SPEC)

    def test_seeds_of_the_pool_are_read_from_the_same_files(self, tmp_path: Path):
        for path in (npz(tmp_path), str(minari(tmp_path))):
            seed = read_pool_seed(path, SPEC)
            assert is_experience(path) and seed.states is not None
            assert np.array_equal(seed.goals, seed.states[:, :1])
            assert seed.sha256 == read_experience(path, SPEC).sha256

    def test_few_rows_are_repeated_as_other_episodes(self, tmp_path: Path):
        rows = at_least(read_experience(npz(tmp_path), SPEC).rows, 13)
        assert rows.episode_id.tolist() == [i for i in range(6) for _ in range(3)]
        assert rows.state[12:, 0].tolist() == [0, 1, 2, 3, 4, 5]


class TestBatches:
    def test_the_share_is_exact_and_no_pair_comes_twice(self):
        order = jnp.arange(12).reshape(3, 4)  # of 20 own pairs
        mixed = np.asarray(with_data(order, 20, 9, 3, jax.random.key(0)))
        assert mixed[:, 0].tolist() == [0, 4, 8]
        assert np.all(mixed[:, 1:] >= 20) and len(set(mixed[:, 1:].ravel().tolist())) == 9

    def test_hindsight_goals_are_of_the_rows_own_episode(self, tmp_path: Path):
        rows = read_experience(npz(tmp_path), SPEC).rows._replace(fell=None)
        windows = sample_stretches(rows, 200, 5, jax.random.key(0))
        assert windows.state.shape == (5, 200, 2)
        assert {0.0, 1.0} == set(np.asarray(windows.state[0, :, 0]).tolist())  # six rows hold two stretches of five
        pairs = relabel(windows, SPEC, 0.9, jax.random.key(1), {"future_goal"})
        assert pairs.future_goal is not None
        row, goal = np.asarray(pairs.state[:, 0]), np.asarray(pairs.future_goal)[:, 0]
        np.testing.assert_array_equal(row < 3, goal < 3)
        assert np.all(goal >= row)

    @pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
    def test_each_batch_of_a_run_has_its_share_of_the_data(self, maze_data: str, share: float):
        algorithm = dcp.Algorithm(config=tiny_config(data=maze_data, data_share=share))
        run = prefill(algorithm, prefill(algorithm, algorithm.init(jax.random.key(0))))
        windows = algorithm.windows(run.replay, jax.random.key(1))
        assert isinstance(windows, Mixed)
        pairs, order = algorithm.pairs(windows, jax.random.key(2), jax.random.key(3))
        is_data = np.asarray(pairs.state)[np.asarray(order)][..., 0] == 77.0
        number = round(share * algorithm.config.batch_size)
        assert (is_data.sum(axis=1) == number).all() and len(order) == algorithm.config.num_updates
        chosen = np.asarray(order)[is_data]
        assert len(set(chosen.tolist())) == len(chosen)


@pytest.fixture
def maze_data(tmp_path: Path) -> str:
    """Data for point_u_maze, which no run has: the first coordinate is always 77."""
    observations = np.stack([np.full(400, 77.0), np.linspace(1, 3, 400)], axis=1)
    return npz(tmp_path, observations=observations, actions=np.zeros((400, 2)), terminals=np.arange(400) % 20 == 19)


class TestRuns:
    def test_the_config_holds_the_datas_hash_and_refuses_others(self, maze_data: str):
        resolved = dcp.Algorithm(config=tiny_config(data=maze_data)).config
        assert resolved.data_sha256 == hashlib.sha256(Path(maze_data).read_bytes()).hexdigest()
        assert resolved.data_share == 0.5 and not violations(resolved, memory=False)
        (problem,) = violations(replace(resolved, data_sha256="0" * 64), memory=False)
        assert "are not those that this run began with: restore them, or begin anew" in problem

    def test_the_memory_that_a_run_needs_includes_its_data_and_their_pairs(self, maze_data: str):
        alone, mixed = tiny_config().resolve(250), tiny_config(data=maze_data).resolve(250)
        spec = dcp.make_env(alone.env).spec
        without, parts = memory_parts(alone, spec), memory_parts(mixed, spec)
        assert (without["the data"], parts["the data"]) == (0, 400 * (6 * 4 + 4 + 1))  # six floats, an id, a fall
        more = parts["one iteration's pairs"] / without["one iteration's pairs"]
        assert 1.3 < more < 1.5  # half as many windows again; the order of the pairs does not grow

    def test_a_share_needs_data(self):
        with pytest.raises(UserError, match="data_share is about data, and there are none"):
            Config(data_share=0.5)
        with pytest.raises(UserError, match="below one pair"):
            Config(data="x", data_share=0.001)

    @pytest.mark.parametrize("method", ["dcp", "sac_her"])
    def test_a_run_that_is_resumed_ends_with_the_same_bits(self, maze_data: str, tmp_path: Path, method: str):
        config = tiny_config(data=maze_data, method=method, num_evals=2)

        class StopError(Exception):
            pass

        def stop(evaluation):
            if evaluation.row["evaluation"] == 2:
                raise StopError

        whole = dcp.train(config, runs_dir=tmp_path / "whole", display="none")
        with pytest.raises(StopError):
            dcp.train(config, stop, runs_dir=tmp_path / "cut", display="none")
        resumed = dcp.resume(tmp_path / "cut" / config.run_path, display="none")
        assert whole.folder is not None and resumed.folder is not None
        assert_same_run(resumed.folder, whole.folder)
