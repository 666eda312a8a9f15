"""Parts of one's own, in a package that dcp has never seen: they train, resume, load, evaluate, render and export.

`outside_parts.py` is copied to a temporary folder and imported from there, as a user's would be.
"""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import dcp
from dcp.cli.main import main
from dcp.errors import UserError
from tests.support.same_run import assert_same_run, final_arrays, metrics
from tests.support.tiny import tiny_config

QUIET = ["--no-plots", "--display", "none"]
SETTINGS = ["--preset", "smoke", "--depth", "1", "--window", "33", "--batch-size", "64", "--num-evals", "4", *QUIET]
PARTS = ["--env", "outside_parts:Square", "--critic", "outside_parts:CosineInfoNCE", "--critic.temperature", "0.2",
         "--command", "pooled_subgoal", "--score", "outside_parts:farthest", "--condition", "outside_parts:NearOrFar",
         "--condition.near", "0.5", "--network", "outside_parts:SineNetwork", "--network.units", "16", "--actor-goal",
         "commanded", "--method", "mine"]  # fmt: skip
RUN = "outside_parts.Square/mine-outside_parts.SineNetwork-temperature_0.2-near_0.5-units_16/seed_0"
DCP = [sys.executable, "-P", "-m", "dcp.cli.main"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's project: the module, and nothing else."""
    path = tmp_path_factory.mktemp("project")
    shutil.copy(Path(__file__).with_name("outside_parts.py"), path)
    return path


@pytest.fixture(scope="module")
def outside(folder: Path):
    """The module, imported as `import outside_parts` would with its folder on the path."""
    sys.path.append(str(folder))
    try:
        import outside_parts
    finally:
        sys.path.remove(str(folder))
    yield outside_parts
    del sys.modules["outside_parts"]


def dcp_command(folder: Path, *argv: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*DCP, *argv], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, (argv, done.stdout[-1500:], done.stderr[-3000:])
    return done


@pytest.fixture(scope="module")
def trained(folder: Path) -> Path:
    """A run of all parts, trained from the command line in a process of its own."""
    dcp_command(folder, "train", *SETTINGS, *PARTS)
    return folder / "runs" / RUN


def composed(outside, **settings) -> dcp.Algorithm:
    """The same algorithm, composed in Python."""
    agent = dcp.Agent(
        critic=outside.CosineInfoNCE(temperature=0.2),
        command=dcp.PooledSubgoal(pool_size=32, num_candidates=8, score=outside.farthest),
        condition=outside.NearOrFar(near=0.5),
        actor_goal="commanded",
        network=outside.SineNetwork(units=16),
    )
    config = dcp.Config(
        steps=4_000, num_envs=16, unroll_length=25, window=33, batch_size=64, replay_rows=500, min_replay_rows=50,
        num_evals=4, eval_episodes=16, method="mine", **settings,
    )  # fmt: skip
    return dcp.Algorithm(outside.Square(), agent, config)


class TestFromTheCommandLine:
    def test_a_run_of_own_parts_writes_their_names_and_settings(self, trained: Path):
        config = json.loads((trained / "config.json").read_text())["config"]
        assert config["critic"] == "outside_parts:CosineInfoNCE" and config["score"] == "outside_parts:farthest"
        assert config["component_settings"] == {"critic.temperature": 0.2, "condition.near": 0.5, "network.units": 16}
        assert [float(row["temperature"]) > 0 for row in metrics(trained)] == [True] * 4

    def test_what_a_critic_carries_is_in_the_checkpoint(self, trained: Path):
        updates = int(metrics(trained)[-1]["updates"])
        assert int(final_arrays(trained)["learner/carried/updates"]) == updates > 0

    def test_killed_and_resumed_it_ends_bit_by_bit_the_same(self, trained: Path, folder: Path):
        argv = ["train", *SETTINGS, *PARTS, "--runs-dir", "killed", "--checkpoint-evals", "1"]
        child = subprocess.Popen([*DCP, *argv], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        run = folder / "killed" / RUN
        deadline = time.monotonic() + 200
        while not any(run.glob("checkpoints/*/SHA256SUMS")) and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert any(run.glob("checkpoints/*")), "nothing was written before the kill"
        dcp_command(
            folder, "train", "--resume", str(run), "--import", "outside_parts", "--no-plots", "--display", "none"
        )
        assert_same_run(run, trained)

    def test_every_command_takes_the_run_once_its_module_is_imported(self, trained: Path, folder: Path):
        code = """
import json, sys
from dcp.cli.main import main
codes = {argv[0]: main([*argv, "--import", "outside_parts"]) for argv in json.loads(sys.argv[1])}
print("\\n" + json.dumps(codes))
"""
        run = str(trained)
        commands = [
            ["eval", run, "--episodes", "8"],
            ["render", run, "--format", "gif", "html"],
            ["export", run, "--format", "stablehlo", "--out", "mine.stablehlo"],
            ["latency", run, "--steps", "10"],
            ["report", "runs", "--out", "page"],
        ]
        done = subprocess.run([sys.executable, "-P", "-c", code, json.dumps(commands)], cwd=folder, capture_output=True,
                              text=True, timeout=300)  # fmt: skip
        assert json.loads(done.stdout.splitlines()[-1]) == {argv[0]: 0 for argv in commands}, done.stderr[-3000:]
        assert list((trained / "videos").glob("*.gif")) and list((folder / "page").glob("*.html"))

    def test_an_export_acts_as_the_policy_without_the_module(self, trained: Path, folder: Path, outside):
        policy = dcp.load_policy(trained)
        states, goals = np.random.default_rng(0).uniform(-1, 1, (2, 6, 2)).astype(np.float32)
        file = folder / "alone.stablehlo"
        assert main(["export", str(trained), "--format", "stablehlo", "--out", str(file)]) == 0
        code = """
import sys, numpy as np
from dcp.policies.exports import load_exported
policy = load_exported(sys.argv[1])
states, goals = np.random.default_rng(0).uniform(-1, 1, (2, 6, 2)).astype(np.float32)
assert "outside_parts" not in sys.modules
print(policy(states, goals).tolist())
"""
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, str(file)], capture_output=True, text=True, timeout=200
        )
        assert done.returncode == 0, done.stderr
        np.testing.assert_allclose(json.loads(done.stdout), policy(states, goals), atol=1e-5)

    def test_numpys_form_says_which_part_it_cannot_hold(self, trained: Path, outside, capsys):
        assert main(["export", str(trained), "--format", "numpy"]) == 2
        said = capsys.readouterr().err
        assert "outside_parts:NearOrFar" in said and "stablehlo" in said and len(said.splitlines()) == 1


class TestWithoutTheModule:
    @pytest.mark.parametrize(
        ("argv", "sentence"),
        [
            (["eval", "RUN"], "needs outside_parts:"),
            (["export", "RUN", "--format", "stablehlo"], "needs outside_parts:"),
            (["train", "--resume", "RUN"], "names the code"),
            (["train", "--config", "RUN"], "names the code"),
        ],
    )
    def test_the_sentence_says_which_import_is_missing(self, argv: list[str], sentence: str, trained: Path, tmp_path):
        """In a folder where the module lies, too: nobody named it."""
        shutil.copy(Path(__file__).with_name("outside_parts.py"), tmp_path)
        said = dcp_command(tmp_path, *[str(trained) if arg == "RUN" else arg for arg in argv], code=2).stderr
        assert sentence in said and "--import outside_parts" in said
        assert "damaged" not in said and len(said.splitlines()) == 1

    def test_python_says_the_same_and_loads_it_after_the_import(self, trained: Path, folder: Path):
        code = """
import sys, dcp
try:
    dcp.load_policy(sys.argv[1])
except ValueError as error:
    print(error)
sys.path.append(sys.argv[2])
import outside_parts
print(type(dcp.load_policy(sys.argv[1]).condition).__name__)
"""
        done = subprocess.run([sys.executable, "-P", "-c", code, str(trained), str(folder)], capture_output=True,
                              text=True, timeout=200)  # fmt: skip
        assert done.returncode == 0, done.stderr
        refused, loaded = done.stdout.splitlines()
        assert "import outside_parts first" in refused and loaded == "NearOrFar"

    def test_a_file_that_names_a_part_of_python_is_refused(self, trained: Path, tmp_path: Path):
        from safetensors import safe_open
        from safetensors.numpy import load_file, save_file

        source = trained / "policy.safetensors"
        with safe_open(source, framework="numpy") as file:
            stored = json.loads(file.metadata()["dcp"])
        del stored["sha256"]
        stored["condition"] = {"name": "os:system", "settings": {"command": f"touch {tmp_path / 'ran'}"}}
        save_file(load_file(source), tmp_path / "p.safetensors", {"dcp": json.dumps(stored)})
        with pytest.raises(UserError, match="os:system"):
            dcp.load_policy(tmp_path / "p.safetensors")
        assert not (tmp_path / "ran").exists()


class TestFromPython:
    def test_an_algorithm_of_objects_trains_to_the_same_policy_as_its_names(self, trained: Path, outside, tmp_path):
        run = dcp.train(composed(outside), runs_dir=tmp_path, display="none")
        assert run.folder is not None
        ours, theirs = dcp.load_policy(run.folder), dcp.load_policy(trained)
        same = jax.tree.map(np.array_equal, (ours.actor, ours.critic_params), (theirs.actor, theirs.critic_params))
        assert all(jax.tree.leaves(same))
        assert ours.critic == theirs.critic and ours.condition == theirs.condition and ours.network == theirs.network

    def test_it_resumes_from_its_folder(self, trained: Path, outside, tmp_path):
        def dies(evaluation) -> None:
            if evaluation.row["evaluation"] == 2:
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            dcp.train(composed(outside), dies, runs_dir=tmp_path, display="none")
        run = dcp.train(composed(outside), runs_dir=tmp_path, resume=True, display="none")
        assert [row["critic_loss"] for row in run.rows] == [float(row["critic_loss"]) for row in metrics(trained)]

    def test_it_trains_without_a_folder_and_saves_its_policy(self, trained: Path, outside, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        seen = []
        run = dcp.train(
            composed(outside), lambda evaluation: seen.append(evaluation.row), runs_dir=None, display="none"
        )
        assert run.folder is None and run.rows == seen and len(seen) == 4
        assert list(tmp_path.iterdir()) == []
        file = run.policy.save(tmp_path / "mine.safetensors")
        np.testing.assert_array_equal(dcp.load_policy(file)([0.1, 0.2], [0.5, 0.5]), run.policy([0.1, 0.2], [0.5, 0.5]))
        assert str(run.rows[-1]["critic_loss"]) == metrics(trained)[-1]["critic_loss"]

    def test_it_is_pure(self, outside):
        """jit, vmap over seeds, and the same numbers as one seed alone."""
        algorithm = composed(outside)
        run = jax.vmap(algorithm.init)(jax.vmap(jax.random.key)(np.arange(2)))
        for _ in range(algorithm.config.num_prefill_unrolls):
            run = jax.jit(jax.vmap(algorithm.prefill))(run)
        run, found = jax.jit(jax.vmap(algorithm.iteration))(run)
        assert found["critic_loss"].shape == (2,) and np.all(np.isfinite(found["critic_loss"]))
        scores = jax.jit(jax.vmap(algorithm.evaluate))(run, jax.random.split(jax.random.key(0)))
        assert scores["success_once"].shape == (2,)

    def test_a_critic_without_psi_refuses_a_direction_at_construction(self, outside):
        class Blind(outside.CosineInfoNCE):
            gives = frozenset()

        agent = dcp.Agent(Blind(), dcp.FinalGoal(), dcp.Direction())
        with pytest.raises(UserError, match=r"the condition direction reads psi, and the critic .*Blind has none"):
            dcp.Algorithm(outside.Square(), agent, dcp.Config())

    def test_registered_rows_are_known_by_name_everywhere(self, outside, tmp_path: Path, capsys):
        dcp.register("condition", "near_or_far", outside.NearOrFar)
        dcp.register("method", "nearly", dcp.Method(dcp.Contrastive, dcp.FinalGoal, "near_or_far", "commanded"))
        try:
            config = tiny_config(method="nearly", component_settings={"condition.near": 0.25})
            run = dcp.train(config, steps=1_200, num_evals=1, runs_dir=tmp_path, display="none")
            assert run.folder == tmp_path / "point_u_maze/nearly/seed_0"
            assert dcp.load_policy(run.folder).condition == outside.NearOrFar(near=0.25)
            assert main(["methods"]) == 0
            assert "nearly" in capsys.readouterr().out
            with pytest.raises(UserError, match="exists already"):
                dcp.register("condition", "near_or_far", dcp.RawGoal)
        finally:
            del dcp.METHODS["nearly"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    [
        ["--condition", "outside_parts:NearOrFar"],
        ["--critic", "outside_parts:CosineInfoNCE"],
        ["--network", "outside_parts:SineNetwork"],
        ["--score", "outside_parts:farthest"],
        ["--env", "outside_parts:Square"],
        ["--energy", "outside_energies:manhattan"],
        ["--contrastive-loss", "outside_energies:halved"],
        ["--activation", "jax.nn:gelu"],
    ],
    ids=lambda part: part[0],
)
def test_each_part_alone_beside_ours(part: list[str], folder: Path):
    (folder / "outside_energies.py").write_text(
        "import jax.numpy as jnp\n"
        "from dcp.critics.contrastive import backward_infonce\n"
        "from dcp.critics.contrastive import Energy\n"
        "manhattan = Energy(lambda x, y: -jnp.sum(jnp.abs(x - y), -1),\n"
        "                   lambda x, y: -jnp.sum(jnp.abs(x[:, None] - y[None]), -1))\n"
        "def halved(logits):\n    return 0.5 * backward_infonce(logits)\n"
    )
    runs = f"alone{part[0]}"
    dcp_command(folder, "train", *SETTINGS, *part, "--runs-dir", runs)
    (run,) = (path.parent for path in (folder / runs).rglob("config.json"))
    dcp_command(folder, "eval", str(run), "--episodes", "4", "--import", part[1].split(":")[0])
