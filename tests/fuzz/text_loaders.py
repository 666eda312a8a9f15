"""The readers of text as loaders to be fuzzed: configs, jobs, grids, searches, results, a ledger, seeds, goals.

Configs and grids may come from strangers and can name code. So they are read by everything that would import it.
"""

import hashlib
import json
import re
import shutil
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np

from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.files.run_folder import load_run
from dcp.grid.grid_file import check_runs, expand, read_grid
from dcp.grid.jobs import Job
from dcp.grid.tune_file import read_tune_file
from dcp.lab.build_report import with_safe_names
from dcp.lab.burst_tables import burst_sections, eval_results
from dcp.lab.compare_runs import compare, comparison_tables
from dcp.lab.result_tables import WRITERS
from dcp.lab.run_collection import collect, read_run
from dcp.methods.pool_seed import read_pool_seed
from dcp.robots.so101_arm import GoalFile
from dcp.runs.run_status import read_plan
from tests.fuzz.loader import Loader, command, each
from tests.fuzz.mutations import HOSTILE_MODULES, as_text, mutated_bytes, mutated_tree
from tools.ledger.entries import add, check_all, rerun
from tools.ledger.tables import index, table_faults, tables, write_tables


class Configs(Loader):
    """config.json, mutated as JSON or as bytes, with a metrics.csv that now and then has changed bytes.

    A tenth of them, and all that name a hostile module, are also planned by `dcp train`.
    """

    def __init__(self, folder: Path, run: Path):
        super().__init__(folder)
        self.good = {name: (run / name).read_bytes() for name in ("config.json", "metrics.csv")}
        self.tree = json.loads(self.good["config.json"])
        self.tree["earlier_budgets"] = [{"steps": 1_000, "num_evals": 1}]
        self.files = [folder / name for name in self.good]
        self.plans = True

    def write_good(self) -> None:
        for name, content in self.good.items():
            (self.folder / name).write_bytes(content)
        self.plans = True

    def write(self, random: Random) -> None:
        kind = random.random()
        if kind < 0.85:
            content = as_text(mutated_tree(self.tree, random), random).encode()
        else:
            content = mutated_bytes(self.good["config.json"], random)
        (self.folder / "config.json").write_bytes(content)
        metrics = self.good["metrics.csv"]
        (self.folder / "metrics.csv").write_bytes(mutated_bytes(metrics, random) if random.random() < 0.1 else metrics)
        self.plans = random.random() < 0.1 or any(f'"{module}'.encode() in content for module in HOSTILE_MODULES)

    def load(self) -> None:
        read_run(self.folder)  # makes a remark of what is wrong
        loads = [lambda: read_plan(self.folder), lambda: load_run(self.folder)]
        if self.plans:
            folder = str(self.folder)
            loads.append(lambda: command("train", "--config", folder, "--dry-run", "--runs-dir", f"{folder}/runs"))
            loads.append(lambda: command("train", "--resume", folder, "--dry-run"))
        each(*loads)


class Jobs(Loader):
    """A job of a grid, as its worker reads it."""

    JOB: ClassVar = {"seeds": [0, 1], "runs_dir": "runs", "subfolder": "", "code": None, "imports": ["mine"],
           "resources": {"cores": 1, "memory_bytes": 5, "gpus": 0.5}}  # fmt: skip

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.path = folder / "job.json"
        self.files = [self.path]

    def write_good(self) -> None:
        self.path.write_text(json.dumps({"config": {"seed": 1}, "job": self.JOB}))

    def write(self, random: Random) -> None:
        tree = mutated_tree({"config": {"seed": 1}, "job": self.JOB}, random)
        self.path.write_bytes(as_text(tree, random).encode())

    def load(self) -> None:
        Job.read(self.path)


def toml(value: Any) -> str:
    """Write a tree of JSON as TOML values. What TOML does not have, such as null, becomes an error of its reader."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {toml(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return str(value) if isinstance(value, float) else json.dumps(value)


class Grids(Loader):
    """A grid file, mutated as a tree or as bytes, and checked run by run as before `dcp grid` starts them."""

    TREE: ClassVar = {
        "preset": "smoke", "folder": "b_{batch_size}", "set": {"steps": 4000, "eval_env": "point_u_maze"},
        "product": {"env": ["point_u_maze"], "method": ["crl", "dcp"], "seed": [0, 1]},
        "zip": [{"batch_size": [64, 32], "num_envs": [16, 32]}], "rows": {"point_*": {"num_evals": 3}},
    }  # fmt: skip

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.path = folder / "grid.toml"
        self.files = [self.path]

    def _text(self, tree: Any) -> bytes:
        try:
            if not isinstance(tree, dict):
                return toml(tree).encode()
            return "".join(f"{json.dumps(key)} = {toml(value)}\n" for key, value in tree.items()).encode()
        except RecursionError:  # a value is nested too deeply for Python to write
            return b"preset = " + b"[" * 400 + b"]" * 400

    def write_good(self) -> None:
        self.path.write_bytes(self._text(self.TREE))

    def write(self, random: Random) -> None:
        kind = random.random()
        tree = self.TREE if kind < 0.15 else mutated_tree(self.TREE, random)
        content = self._text(tree)
        self.path.write_bytes(mutated_bytes(content, random) if kind < 0.15 else content)

    def load(self) -> None:
        check_runs(expand(read_grid(self.path)))


class Searches(Grids):
    """The file of a search: a grid file with two more tables."""

    TREE: ClassVar = Grids.TREE | {
        "product": {"env": ["point_u_maze"], "seed": [0, 1]},
        "search": {
            "width": [32, 64], "method": ["dcp", "dcp_no_pool"], "discount": {"low": 0.9, "high": 0.999},
            "actor_learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
            "unroll_length": {"low": 5, "high": 50, "step": 5},
        },
        "tune": {"trials": 3, "metric": "success_once", "last": 1, "prune": True},
    }  # fmt: skip

    def load(self) -> None:
        read_tune_file(self.path).check((), ())


class Evals(Loader):
    """Two runs with a result of `dcp eval`, one of them a stranger's, as `dcp report` and `dcp compare` show them."""

    PART: ClassVar = {
        "schema_version": 1, "about": {"env": "point_u_maze", "method": "dcp", "seed": 0, "env_steps": 4000,
        "physics": "brax"}, "fidelity": "paper", "physics": "brax", "randomize": [], "stochastic": False,
        "episode_length": 250, "env": "point_u_maze", "episodes": 2, "burst": None,
        "seeds": [{"seed": 0, "success_once": 0.5, "saturation": 0.25, "goal_set_sha256": "00"}],
    }  # fmt: skip
    BURST: ClassVar = PART | {"burst": [100, 10], "without_burst": PART}
    INTERVENTION: ClassVar = PART | {
        "intervention": {"name": "stalled_burst", "patience": 20, "length": 5}, "without_intervention": PART
    }  # fmt: skip
    EPISODES = b"seed,episode,success,time_near_goal\n0,0,1,20\n0,1,0,0\n"

    def __init__(self, folder: Path, run: Path):
        super().__init__(folder)
        self.runs = [folder / name for name in ("mine", "strangers")]
        for path in self.runs:
            shutil.copytree(run, path, ignore=shutil.ignore_patterns("checkpoints", "plots", ".lock"))
            (path / "evals").mkdir()
        self.files = [self.runs[1] / "evals" / name for name in ("2_episodes.json", "2_episodes.csv")]
        self._put(self.runs[0], json.dumps(self.BURST).encode(), self.EPISODES)

    @staticmethod
    def _put(run: Path, content: bytes, episodes: bytes) -> None:
        (run / "evals" / "2_episodes.json").write_bytes(content)
        (run / "evals" / "2_episodes.csv").write_bytes(episodes)

    def write_good(self) -> None:
        self._put(self.runs[1], json.dumps(self.BURST).encode(), self.EPISODES)

    def write(self, random: Random) -> None:
        tree = random.choice((self.PART, self.BURST, self.INTERVENTION))
        episodes = hostile_numbers(self.EPISODES, random) if random.random() < 0.3 else self.EPISODES
        content = json.dumps(tree).encode()
        if random.random() < 0.9:
            content = as_text(mutated_tree(tree, random), random).encode()
        else:
            content = mutated_bytes(content, random)
        self._put(self.runs[1], content, episodes)

    def load(self) -> None:
        collection = collect(self.runs)
        shown = [table for section in with_safe_names(burst_sections(collection)) for table in section.tables]
        for table in (*shown, *comparison_tables(compare(*self.runs))):
            for writer in WRITERS.values():
                writer(table).encode()
            assert re.fullmatch("[A-Za-z0-9_-]+", table.name)  # it becomes the name of a file
        for remark in (*filter(None, (run.remark for run in collection.runs)), *eval_results(collection)[1]):
            raise UserError(remark)


class Ledger(Loader):
    """A ledger of one entry. Most of its mutations are sealed again by whoever forged them: sums, name and command."""

    KEPT = ("config.json", "metrics.csv", "policy.safetensors")

    def __init__(self, folder: Path, run: Path):
        super().__init__(folder)
        self.ledger = folder / "ledger"
        self.honest = add(run, self.ledger, by="A. Tester")
        write_tables(self.ledger, check_all(self.ledger))
        self.good = {path.name: path.read_bytes() for path in self.honest.iterdir()}
        self.trees = {name: json.loads(self.good[name]) for name in ("config.json", "entry.json")}
        self.files = [self.honest / name for name in self.good]
        self.entry = self.honest

    def _put(self, content: dict[str, bytes], name: str) -> None:
        shutil.rmtree(self.entry)
        self.entry = self.honest.with_name(name)
        self.entry.mkdir()
        for file, data in content.items():
            (self.entry / file).write_bytes(data)

    def write_good(self) -> None:
        self._put(self.good, self.honest.name)

    def write(self, random: Random) -> None:
        content, kind = dict(self.good), random.random()
        if kind < 0.6:
            content["config.json"] = as_text(mutated_tree(self.trees["config.json"], random), random).encode()
        if kind < 0.15 or 0.6 <= kind < 0.85:
            content["metrics.csv"] = hostile_numbers(content["metrics.csv"], random)
        if kind >= 0.85:
            content["policy.safetensors"] = mutated_bytes(content["policy.safetensors"], random)
        entry = mutated_tree(self.trees["entry.json"], random) if random.random() < 0.3 else self.trees["entry.json"]
        name = self.honest.name
        if random.random() < 0.8 and isinstance(entry, dict):
            sums = {file: hashlib.sha256(content[file]).hexdigest() for file in self.KEPT}
            name = f"seed_0_{hashlib.sha256(''.join(sums.values()).encode()).hexdigest()[:8]}"
            command = str(self.trees["entry.json"]["command"]).replace(self.honest.name, name)
            entry = {**entry, "sha256": sums, "command": command}
        content["entry.json"] = as_text(entry, random).encode()
        self._put(content, name)

    def load(self) -> None:
        entries = check_all(self.ledger)
        tables(entries)
        index(self.ledger, entries)
        faults = [fault for entry in entries for fault in entry.faults] + table_faults(self.ledger, entries)
        unforeseen = [fault for fault in faults if "cannot be checked (" in fault]
        assert not unforeseen, unforeseen
        if any(entry.faults for entry in entries):
            try:
                rerun(self.entry, 1, lambda _: None)
            except UserError:
                pass
            else:
                raise AssertionError(f"an entry with faults was trained again: {faults}")
        for fault in faults:
            raise UserError(fault)


def hostile_numbers(table: bytes, random: Random) -> bytes:
    """Change one cell of a CSV to a number or a word that no run logs, or its bytes."""
    if random.random() < 0.3:
        return mutated_bytes(table, random)
    lines = [line.split(",") for line in table.decode().splitlines()]
    row = random.choice(lines)
    row[random.randrange(len(row))] = random.choice(
        ("", "nan", "inf", "-inf", "1e308", "-1e308", "1e999", "0", "-1", "1.5", "9" * 5_000, "x", '"', "evil:make")
    )
    return "".join(",".join(line) + "\n" for line in lines).encode()


class Seeds(Loader):
    """States for a pool, as NPZ or CSV."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.path, self.spec = folder / "seeds", make_env("point_u_maze_inertia").spec
        self.files = [self.path]
        states = np.random.default_rng(0).uniform(1.0, 3.0, (40, 4))
        np.savez(folder / "good.npz", states=states)
        lines = ["x,y,vx,vy", *(",".join(map(repr, map(float, row))) for row in states)]
        self.good = [(folder / "good.npz").read_bytes(), "\n".join(lines).encode()]

    def write_good(self) -> None:
        self.path.write_bytes(self.good[1])

    def write(self, random: Random) -> None:
        npz, table = self.good
        kind = random.random()
        self.path.write_bytes(mutated_bytes(npz, random) if kind < 0.5 else hostile_numbers(table, random))

    def load(self) -> None:
        read_pool_seed(str(self.path), self.spec)


class Goals(Loader):
    """The file from which a robot's loop reads its goal at each step."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.path = folder / "goal.txt"
        self.files = [self.path]

    def write_good(self) -> None:
        self.path.write_text("0.2 0.1 0.15\n")

    def write(self, random: Random) -> None:
        self.path.write_bytes(hostile_numbers(b"0.2,0.1,0.15\n", random))

    def load(self) -> None:
        GoalFile(self.path, size=3, timeout=60.0).read()
