"""A goal environment of Gymnasium, registered in a module of its user, trains as it is: `--env gym:ID`.

`gym_tasks.py` is copied to a temporary folder and imported from there, as a user's would be.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dcp
from dcp.algorithm import restarted
from dcp.config import Config
from dcp.envs.base import Episodes
from dcp.envs.gym_workers import RESET, STEP, TIMEOUT, Workers
from dcp.errors import RunError, UserError, WorkerError, worker_error_in
from dcp.evaluation import measure, rollout
from dcp.files import CONFIG_FILE
from dcp.machine.checks import violations
from dcp.runs.checkpoint import checkpoints
from tests.support.tiny import tiny_config

DCP = [sys.executable, "-P", "-m", "dcp.cli.main"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's project: the module, and nothing else."""
    path = tmp_path_factory.mktemp("project")
    shutil.copy(Path(__file__).with_name("gym_tasks.py"), path)
    return path


@pytest.fixture(scope="module", autouse=True)
def registered(folder: Path):
    """The module, imported as with its folder on the path; workers get the path of the process that starts them."""
    sys.path.append(str(folder))
    import gym_tasks

    yield gym_tasks
    sys.path.remove(str(folder))
    del sys.modules["gym_tasks"]


@pytest.fixture
def made(request: pytest.FixtureRequest):
    """Make tasks whose workers end with the test."""

    def make(name: str):
        env = dcp.make_env(f"gym:{name}")
        request.addfinalizer(env.close)
        return env

    return make


def gym_config(name: str, **settings) -> Config:
    return tiny_config(env=f"gym:{name}", fidelity="fixed", **settings)


def by_hand(name: str, seed: int, actions: np.ndarray) -> np.ndarray:
    """Return the observations of Gymnasium's own environment: state, achieved goal, desired goal. [T + 1, S + G]"""
    env = gymnasium.make(name)
    seen = [env.reset(seed=seed)[0], *(env.step(action)[0] for action in actions)]
    return np.array([np.concatenate([o["observation"], o["achieved_goal"], o["desired_goal"]]) for o in seen])


class TestTask:
    def test_its_spec_is_that_of_the_gymnasium_environment(self, made):
        spec = made("PointReach-v0").spec
        assert (spec.state_size, spec.goal_size, spec.action_size, spec.goal_dims) == (5, 2, 2, (3, 4))
        assert (spec.threshold, spec.episode_length) == (0.15, 20)

    def test_a_threshold_is_read_from_a_sparse_reward(self, made):
        spec = made("RewardReach-v0").spec
        assert spec.threshold == pytest.approx(0.25, abs=1e-6) and spec.episode_length == 1000

    def test_its_steps_are_those_of_gymnasium_with_actions_in_its_own_range(self, made):
        env, actions = made("PointReach-v0"), np.random.default_rng(0).uniform(-1.3, 1.3, (6, 3, 2))
        state = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(3), 3))
        seen, step = [state.obs], jax.jit(jax.vmap(env.step))
        for action in actions:
            state = step(state, jnp.asarray(action, jnp.float32))
            seen.append(state.obs)
        for i, seed in enumerate(np.asarray(state.physics.episode).tolist()):
            scaled = np.clip(actions[:, i].astype(np.float32), -1, 1) * np.array([0.1, 0.2])
            expected = by_hand("PointReach-v0", seed, scaled)
            np.testing.assert_allclose(np.asarray(seen)[:, i], expected, atol=1e-6)
        near = np.linalg.norm(np.asarray(seen)[-1][:, 3:5] - np.asarray(seen)[-1][:, 5:], axis=1) < 0.15
        np.testing.assert_array_equal(state.near_goal, near)

    def test_success_is_the_environments_own_where_it_reports_one(self, made):
        env = made("own/Succeeds-v0")
        measures = measure(rollout(env, _Still(), jax.random.key(0), 3, 8))
        np.testing.assert_array_equal(measures.first_reach, 5)
        np.testing.assert_array_equal(measures.time_near_goal, 4)

    def test_after_its_own_end_nothing_counts(self, made):
        measures = measure(rollout(made("Ends-v0"), _Still(), jax.random.key(0), 3, 12))
        np.testing.assert_array_equal(measures.steps, 7)
        assert not measures.diverged.any()

    def test_a_reset_where_it_is_due_leaves_the_others_alone(self, made):
        env = made("PointReach-v0")
        keys, action = jax.random.split(jax.random.key(0), 2), jnp.zeros((2, 2))
        first = jax.vmap(env.step)(jax.vmap(env.reset)(keys), action)
        fresh = jax.vmap(env.reset_if)(jax.random.split(jax.random.key(1), 2), jnp.array([True, False]))
        mixed = jax.tree.map(lambda new, old: jnp.stack([new[0], old[1]]), fresh, first)
        after = jax.vmap(env.step)(mixed, action)
        np.testing.assert_allclose(after.obs[:, 2], [0.1, 0.2])  # the third number counts steps
        assert not np.allclose(after.obs[0, :2], first.obs[0, :2])

    @pytest.mark.parametrize("fidelity", ["paper", "fixed"])
    def test_episodes_end_at_the_runs_limit(self, made, fidelity: str):
        episodes = Episodes(made("PointReach-v0"), 2, 4, fidelity)
        state, step = episodes.reset(jax.random.key(0)), jax.jit(episodes.step)
        start, times = state.env.obs, []
        for t in range(9):
            state = step(state, jnp.zeros((2, 2)), jax.random.key(t))
            times.append(np.asarray(state.env.obs[:, 2] * 10).round().tolist())
        assert [one[0] for one in times] == [1, 2, 3, 0, 1, 2, 3, 0, 1]
        assert bool(jnp.allclose(state.first.obs, start)) == (fidelity == "paper")
        np.testing.assert_array_equal(state.episode_id, 2)

    def test_a_simulation_that_is_not_finite_ends_its_episode_and_is_never_seen(self, made):
        episodes = Episodes(made("Diverges-v0"), 1, 500, "fixed")
        state, step = episodes.reset(jax.random.key(0)), jax.jit(episodes.step)
        for t in range(203):
            state = step(state, jnp.zeros((1, 2)), jax.random.key(t))
            assert np.all(np.isfinite(state.env.obs))
        np.testing.assert_array_equal(state.diverged, 3)  # from its 201st step on it always does

    def test_two_users_of_the_same_workers_are_told_so(self, made):
        env, keys = made("PointReach-v0"), jax.random.split(jax.random.key(0), 2)
        step = jax.vmap(env.step)
        state = step(jax.vmap(env.reset)(keys), jnp.zeros((2, 2)))
        jax.vmap(env.reset)(keys)
        with pytest.raises(jax.errors.JaxRuntimeError) as caught:
            jax.block_until_ready(step(state, jnp.zeros((2, 2))))
        assert "somebody else has reset" in str(worker_error_in(caught.value))


class _Still:
    def init(self, key):
        return ()

    def act(self, state, obs, goal):
        return state, jnp.zeros((*obs.shape[:-1], 2))


class TestRefusals:
    @pytest.mark.parametrize(
        ("name", "sentence"),
        [
            ("NoGoals-v0", "is no goal environment: its observations must be a dictionary"),
            ("Missing-v0", "Gymnasium cannot make gym:Missing-v0 .*gym_tasks_that_are_missing"),
            ("PointReach-v7", "has no environment 'PointReach-v7': did you mean 'PointReach-v0'.*--import MODULE"),
        ],
    )
    def test_an_environment_that_cannot_be_trained_gets_a_sentence(self, name: str, sentence: str):
        with pytest.raises(UserError, match=sentence):
            dcp.make_env(f"gym:{name}")

    def test_gymnasium_robotics_says_which_mujoco_it_wants(self):
        import gymnasium_robotics

        gymnasium.register_envs(gymnasium_robotics)
        with pytest.raises(UserError, match=r"\(AssertionError\).*it wants mujoco 3.3 or older.*fetch_reach"):
            dcp.make_env("gym:FetchReach-v4")

    def test_a_config_cannot_name_a_module_in_an_id(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        (folder / "evil.py").write_text("raise SystemExit('it was imported')")
        monkeypatch.syspath_prepend(str(folder))
        with pytest.raises(UserError, match=r"write gym:ID with the id alone.*--import"):
            Config(env="gym:evil:Reach-v0")
        with pytest.raises(UserError, match="Gymnasium has no environment 'evil:Reach-v0'"):
            dcp.make_env("gym:evil:Reach-v0")
        assert "evil" not in sys.modules

    def test_several_devices_and_seeds_as_one_program_are_refused(self):
        problems = violations(gym_config("PointReach-v0", devices=2), memory=False)
        assert any("leave out devices" in problem for problem in problems)
        with pytest.raises(UserError, match="one seed at a time: use --seeds-as processes"):
            dcp.train_seeds(gym_config("PointReach-v0"), [0, 1])

    def test_a_time_limit_that_is_no_number(self, monkeypatch: pytest.MonkeyPatch, made):
        monkeypatch.setenv(TIMEOUT, "soon")
        with pytest.raises(jax.errors.JaxRuntimeError, match="set it to a number of seconds above 0"):
            jax.block_until_ready(made("PointReach-v0").reset(jax.random.key(0)).obs)


class TestWorkers:
    def asked(self, ask: int, number: int = 3, moment: int = 0) -> dict[str, np.ndarray]:
        return {
            "ask": np.full(number, ask, np.uint8),
            "episode": np.arange(number, dtype=np.uint32),
            "moment": np.full(number, moment, np.int32),
            "action": np.ones((number, 2), np.float32),
        }

    def test_shares_that_do_not_divide_evenly_keep_their_order(self, made):
        recipe = made("PointReach-v0")._recipe
        one, two = Workers(recipe, 3, processes=1), Workers(recipe, 3, processes=2)
        try:
            assert (one.num_envs, two.num_envs) == (1, 2)
            for ask in (RESET, STEP):
                for a, b in zip(one.ask(**self.asked(ask)), two.ask(**self.asked(ask)), strict=True):
                    np.testing.assert_array_equal(a, b)
                    assert len(a) == 3
        finally:
            one.close()
            two.close()
        assert not any(process.is_alive() for process in [*one.processes, *two.processes])

    @pytest.mark.parametrize(
        ("name", "sentence"),
        [
            ("Hangs-v0", r"a worker process of gym:Hangs-v0 gave no answer for 1 s \(\$DCP_GYM_TIMEOUT"),
            ("Dies-v0", r"a worker process of gym:Dies-v0 died \(exit code 3\)"),
            ("Raises-v0", r"a worker process of gym:Raises-v0 failed \(ValueError: the motor is too hot\)"),
        ],
    )
    def test_trouble_ends_in_a_sentence_and_without_processes(self, made, monkeypatch, name: str, sentence: str):
        workers = Workers(made(name)._recipe, 1, processes=1)
        workers.ask(**self.asked(RESET, 1))
        for moment in range(200):
            workers.ask(**self.asked(STEP, 1, moment))
        monkeypatch.setenv(TIMEOUT, "1")
        with pytest.raises(WorkerError, match=sentence):
            workers.ask(**self.asked(STEP, 1, 200))
        assert not any(process.is_alive() for process in workers.processes)


class TestRuns:
    def test_a_task_of_gymnasium_robotics_trains_by_the_command_line(self, tmp_path: Path):
        """PointMaze works under our MuJoCo. `--import` registers it, here and in the worker processes."""
        settings = "--preset smoke --steps 3000 --num-envs 4 --window 33 --no-plots --display plain --fidelity fixed"
        command = [*DCP, "train", "--import", "gymnasium_robotics", "--env", "gym:PointMaze_UMaze-v3"]
        done = subprocess.run(
            [*command, *settings.split(), "--runs-dir", str(tmp_path)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert "success" in done.stdout + done.stderr
        assert (tmp_path / "gym.PointMaze_UMaze-v3/dcp/seed_0/policy.safetensors").is_file()

    @pytest.mark.parametrize(
        ("name", "sentence"), [("Dies-v0", r"died \(exit code 3\)"), ("Raises-v0", "the motor is too hot")]
    )
    def test_a_worker_that_fails_ends_the_run_with_a_checkpoint(self, tmp_path: Path, capsys, name: str, sentence: str):
        settings = {"num_evals": 1, "eval_episodes": 2}
        with pytest.raises(RunError, match=f"{sentence}.*: the checkpoint at 3,200 steps is kept.*--resume"):
            dcp.train(gym_config(name, **settings), runs_dir=tmp_path, display="none")
        assert "begins their episodes again" in capsys.readouterr().err
        run = tmp_path / f"gym.{name}" / "dcp" / "seed_0"
        assert len(checkpoints(run / "checkpoints")) == 1 and not (run / "run.lock").exists()
        config = json.loads((run / CONFIG_FILE).read_text())["config"]
        assert config["env"] == config["eval_env"] == f"gym:{name}"
        resumed = dcp.resume(run, display="none")  # by new workers, which are at their first steps again
        assert [row["env_steps"] for row in resumed.rows] == [4_000]

    @pytest.mark.slow  # it waits for as long as a loaded machine may take to start a worker
    def test_a_worker_that_hangs_ends_the_run_with_a_checkpoint(self, tmp_path: Path, monkeypatch):
        monkeypatch.setenv(TIMEOUT, "15")
        with pytest.raises(RunError, match=r"gave no answer for 15 s.*the checkpoint at 3,200 steps is kept"):
            dcp.train(gym_config("Hangs-v0", num_evals=1, eval_episodes=2), runs_dir=tmp_path, display="none")

    def test_a_restarted_run_is_at_the_first_states_of_new_episodes(self, made):
        algorithm = dcp.Algorithm(made("PointReach-v0"), config=gym_config("PointReach-v0"))
        assert algorithm.eval_env is not algorithm.env and algorithm.eval_env.spec == algorithm.env.spec
        run = algorithm.init(jax.random.key(0))
        episodes = run.acting.episodes
        later = algorithm.episodes.step(episodes, jnp.zeros((16, 2)), jax.random.key(1))
        again = restarted(run._replace(acting=run.acting._replace(episodes=later))).acting.episodes
        np.testing.assert_array_equal(again.env.obs, episodes.env.obs)
        np.testing.assert_array_equal(again.steps, 0)
        np.testing.assert_array_equal(again.episode_id, 1)

    @pytest.mark.slow  # four processes
    def test_the_command_line_trains_evaluates_and_exports_in_processes_of_their_own(self, folder: Path):
        def command(*argv: str) -> subprocess.CompletedProcess[str]:
            done = subprocess.run([*DCP, *argv], cwd=folder, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, (argv, done.stdout[-1500:], done.stderr[-3000:])
            return done

        flags = ["--preset", "smoke", "--depth", "1", "--fidelity", "fixed", "--display", "plain", "--no-plots"]
        done = command("train", "--import", "gym_tasks", "--env", "gym:own/Succeeds-v0", *flags)
        assert "does not end with the same bits" in done.stderr and "steps/s" in done.stdout
        run = "runs/gym.own.Succeeds-v0/dcp/seed_0"
        done = command("eval", run, "--import", "gym_tasks", "--episodes", "4")
        assert "100.0%" in done.stdout
        command("export", run, "--format", "numpy", "--out", "policy.npz")
        unknown = subprocess.run([*DCP, "eval", run], cwd=folder, capture_output=True, text=True, timeout=600)
        assert unknown.returncode == 2 and "--import MODULE" in unknown.stderr.splitlines()[-1]
