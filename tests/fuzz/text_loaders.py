"""The readers of text as loaders to be fuzzed: configs, jobs, grids, a ledger, pool seeds, a robot's goals and logs.

Configs and grids may come from strangers and can name code. So they are read by everything that would import it.
"""

import hashlib
import json
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
from dcp.lab.run_collection import read_run
from dcp.methods.pool_seed import read_pool_seed
from dcp.robots.so101_arm import GoalFile, replay
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


class Logs(Loader):
    """The log of a robot's loop, replayed by a policy."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.path = folder / "log.csv"
        self.files = [self.path]
        rows = [f"{step},0.1,0.2,0.3,0.1,0.2,0.5,-0.5" for step in range(20)]
        head = "step,state_0,state_1,goal_0,goal_1,goal_2,action_0,action_1"
        self.good = "\n".join([head, *rows]).encode() + b"\n"

    def write_good(self) -> None:
        self.path.write_bytes(self.good)

    def write(self, random: Random) -> None:
        self.path.write_bytes(hostile_numbers(self.good, random))

    def load(self) -> None:
        replay(lambda state, goal: np.zeros(2), self.path)
