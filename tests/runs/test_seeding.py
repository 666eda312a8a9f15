"""A run whose pool is seeded: what it keeps, what the critic sees of it, and what a changed file does to a resume."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dcp.algorithm import make_algorithm
from dcp.cli.main import main
from dcp.config import Config, Settings
from dcp.errors import UserError
from dcp.files.run_folder import read_config_file
from dcp.machine.checks import violations
from dcp.machine.programs import Programs
from dcp.methods.pool_seed import inject_stationary_pairs
from dcp.runs.checkpoint import Cadence
from dcp.runs.resuming import resume
from dcp.runs.training import TrainedRun, train
from dcp.types import Batch
from tests.support.tiny import FLAGS, tiny_config

STATES = np.array([[1.0, 3.0], [2.0, 3.0], [3.0, 3.0], [3.0, 2.0], [3.0, 1.0]], np.float32)  # far corners of the U maze


@pytest.fixture(scope="module")
def seed_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("seeds") / "seed.npz"
    np.savez(path, states=STATES)
    return path


@pytest.fixture(scope="module")
def seeded(seed_file: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """A quarter of 32 slots, and a quarter of each batch of 64: but 5 states are all there are."""
    config = tiny_config(pool_seed=str(seed_file), pool_seed_in_critic=True)
    runs = tmp_path_factory.mktemp("runs")
    return train(config, runs_dir=runs, display="none", cadence=Cadence(evals=1, minutes=0.0))


def test_seeds_stay_in_their_quarter_of_the_pool_and_the_rest_is_visited(seeded: TrainedRun):
    pool = np.asarray(seeded.state.acting.command.pool)
    assert np.array_equal(pool[:8], STATES[[0, 0, 1, 1, 2, 3, 3, 4]])  # 8 slots over 5 states
    assert not np.any(np.all(pool[8:, None] == STATES[None], axis=-1))


def test_the_file_is_noted_by_its_hash_and_the_share_by_its_number(seeded: TrainedRun, seed_file: Path):
    config = read_config_file(seeded.folder / "config.json")["config"]
    assert config["pool_seed"] == str(seed_file) and config["pool_seed_fraction"] == 0.25
    assert len(config["pool_seed_sha256"]) == 64


def test_a_resume_takes_the_same_file_and_refuses_a_changed_one(seeded: TrainedRun, seed_file: Path):
    content = seed_file.read_bytes()
    try:
        np.savez(seed_file, states=STATES + 0.1)
        with pytest.raises(UserError, match="is not the file that this run began with"):
            resume(seeded.folder, steps=6_000, display="none")
        seed_file.unlink()
        with pytest.raises(UserError, match="cannot read pool_seed"):
            resume(seeded.folder, steps=6_000, display="none")
    finally:
        seed_file.write_bytes(content)
    further = resume(seeded.folder, steps=6_000, display="none")
    assert np.array_equal(further.state.acting.command.pool[:8], seeded.state.acting.command.pool[:8])


def test_without_seeds_a_run_is_what_it_was(tiny_run: TrainedRun):
    """The first state of an unseeded trainer: no slot is seeded, and nothing waits for the critic."""
    trainer = make_algorithm(tiny_config())
    assert trainer.pool_seed_file is None
    assert trainer.draws(jnp.zeros((2, 64), jnp.int32), jax.random.key(0)).seed_states is None
    assert int(tiny_run.state.acting.command.seeded) == 0


def test_the_critic_learns_from_seeds_at_rest_and_the_actor_only_from_experience(seed_file: Path):
    trainer = make_algorithm(tiny_config(pool_seed=str(seed_file), pool_seed_in_critic=True))
    learner, key = trainer.learner, jax.random.key(0)
    batch = Batch(*(jax.random.normal(k, (64, 2)) for k in jax.random.split(key, 4)))
    states = trainer.draws(jnp.zeros((3, 64), jnp.int32), key).seed_states
    assert states is not None and states.shape == (3, 5, 2)
    assert np.array_equal(np.unique(np.asarray(states[0]), axis=0), np.unique(STATES, axis=0))
    assert not np.array_equal(states[0], states[1])  # each update draws anew
    for_critic = inject_stationary_pairs(batch, states[0], learner.spec)
    params, noise = learner.init(key).params, learner.noise(key, 64)
    gradients = jax.jit(jax.grad(learner.loss, has_aux=True))
    with_seeds, _ = gradients(params, batch, noise, for_critic)
    without, _ = gradients(params, batch, noise, batch)
    standing = inject_stationary_pairs(batch, states[0], learner.spec)
    replaced, _ = gradients(params, standing, noise, standing)
    for ours, other in ((with_seeds.actor, without.actor), (with_seeds.critic, replaced.critic)):
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    pairs = zip(jax.tree.leaves(with_seeds.critic), jax.tree.leaves(without.critic), strict=True)
    assert any(np.abs(np.asarray(a - b)).max() > 1e-4 for a, b in pairs)


def test_a_pass_of_updates_differs_by_the_switch_alone(seed_file: Path):
    """The same pairs, order and noise: with the seeds in the critic's data the encoders end elsewhere."""
    ends = []
    for in_critic in (False, True):
        trainer = make_algorithm(tiny_config(pool_seed=str(seed_file), pool_seed_in_critic=in_critic))
        key = jax.random.key(1)
        pairs = Batch(*(jax.random.normal(k, (128, 2)) for k in jax.random.split(key, 4)))
        learner, _ = trainer.updates(
            trainer.learner.init(key), pairs, trainer.draws(jnp.arange(128).reshape(2, 64), key)
        )
        ends.append(jax.tree.leaves(learner.params.critic))
    assert any(not np.array_equal(a, b) for a, b in zip(*ends, strict=True))


def test_trainers_with_the_same_seeds_are_one_program_and_others_are_not(seed_file: Path, tmp_path: Path):
    config = tiny_config(pool_seed=str(seed_file))
    assert make_algorithm(config) == make_algorithm(config)
    assert (
        Programs(make_algorithm(config)).jitted
        is Programs(make_algorithm(tiny_config(**{**vars(config), "seed": 1}))).jitted
    )
    np.savez(tmp_path / "other.npz", states=STATES + 0.1)
    other = tiny_config(pool_seed=str(tmp_path / "other.npz"))
    assert Programs(make_algorithm(config)).jitted is not Programs(make_algorithm(other)).jitted


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"method": "crl"}, "crl has no pool to seed: leave pool_seed out, or choose one of ssgc, dcp"),
        ({"method": "dcp_no_pool"}, "dcp_no_pool has no pool to seed"),
        ({"pool_seed": None, "pool_seed_fraction": 0.5}, "pool_seed_fraction is about seeds, but there is no"),
        ({"pool_seed": None, "pool_seed_in_critic": True}, "pool_seed_in_critic is about seeds"),
        ({"pool_seed_fraction": 0.0}, "pool_seed_fraction is 0.0: use a share above 0"),
        ({"pool_seed_fraction": 1.5}, "pool_seed_fraction is 1.5"),
        ({"pool_seed_fraction": 0.0005}, "pool_seed_fraction 0.0005 of pool_size 512 is below one slot"),
        ({"pool_seed_fraction": 1.0, "pool_seed_in_critic": True}, "leaves the critic no seed or nothing else"),
        ({"pool_seed_sha256": "0" * 64}, "is not the file that this run began with"),
        ({"env": "ant_soccer"}, r"`states` .* is float32\[5, 2\]: ant_soccer needs numbers of shape \[K, 31\]"),
        ({"pool_seed": "absent.csv"}, r"cannot read pool_seed 'absent.csv' \(No such file or directory\)"),
    ],
)  # fmt: skip
def test_each_mistake_gets_one_sentence(seed_file: Path, overrides: dict, sentence: str):
    settings = Settings(**{"pool_seed": str(seed_file), **overrides})
    with pytest.raises(UserError, match=sentence):
        raise UserError("; ".join(violations(settings)))


def test_goals_alone_cannot_enter_the_critics_data(tmp_path: Path):
    np.savez(tmp_path / "goals.npz", goals=np.ones((3, 2)))
    settings = Settings(env="point_soccer", pool_seed=str(tmp_path / "goals.npz"), pool_seed_in_critic=True)
    assert violations(settings)[0].endswith("needs whole states [K, 6]: give these, or leave it out")


def test_the_command_line_names_the_file(seed_file: Path, capsys: pytest.CaptureFixture, tmp_path: Path):
    flags = [*FLAGS, "--runs-dir", str(tmp_path), "--pool-seed", str(seed_file), "--pool-seed-fraction", "0.5"]
    assert main(["train", *flags, "--dry-run"]) == 0
    assert "pool_seed_fraction" in capsys.readouterr().out
    assert main(["train", *flags, "--method", "crl"]) != 0
    assert "has no pool to seed" in capsys.readouterr().err


def test_a_config_from_before_there_were_seeds_still_loads(tmp_path: Path):
    values = {name: value for name, value in vars(Config()).items() if not name.startswith("pool_seed")}
    (tmp_path / "config.json").write_text(json.dumps({"schema_version": 2, "config": values}))
    assert Config.from_dict(read_config_file(tmp_path / "config.json")["config"]) == Config()
