"""The readers of arrays as loaders to be fuzzed: policies, checkpoints, exports; and all loaders by their kind."""

import hashlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save

from dcp.algorithm import make_algorithm
from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.machine.programs import Programs
from dcp.policies.exports import encode, load_exported
from dcp.policies.policy_file import load_policy, policy_about, save_policy
from dcp.runs import checkpoint as files
from dcp.runs.run_status import how_far, is_finished, load, read_plan
from tests.fuzz import text_loaders
from tests.fuzz.loader import Loader
from tests.fuzz.mutations import as_text, mutated_bytes, mutated_tree
from tests.support.untrained import untrained_policy


class Policies(Loader):
    """Policy files of both schemas: metadata without its sum, arrays of other types and shapes, changed bytes."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        spec = make_env("point_u_maze_inertia").spec
        self.path = folder / "policy.safetensors"
        self.files = [self.path]
        self.seeds: list[tuple[dict[str, Any], dict[str, np.ndarray], bytes]] = []
        norm, residual = {"condition": "raw_goal", "layer_norm": True, "depth": 3}, {"network": "residual", "depth": 4}
        for settings in ({}, norm, residual):
            policy = untrained_policy(spec, width=8, repr_dim=4, **settings)
            content = save_policy(self.path, policy, {"env": spec.name, "method": "dcp", "seed": 3}).read_bytes()
            length = int.from_bytes(content[:8], "little")
            metadata = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["dcp"])
            del metadata["sha256"]
            self.seeds.append((metadata, _arrays(content), content))

    def write_good(self) -> None:
        self.path.write_bytes(self.seeds[0][2])

    def write(self, random: Random) -> None:
        metadata, arrays, content = random.choice(self.seeds)
        kind = random.random()
        if kind < 0.2:
            self.path.write_bytes(mutated_bytes(content, random))
            return
        arrays = dict(arrays)
        if kind < 0.4:
            _mutate_arrays(arrays, random)
        if kind > 0.3:
            metadata = mutated_tree(metadata, random)
        self.path.write_bytes(save(arrays, {"dcp": as_text(metadata, random)}))

    def load(self) -> None:
        policy_about(self.path)
        policy = load_policy(self.path)
        for array in (*policy.actor.values(), *policy.critic_params.values()):
            assert all(np.isfinite(leaf).all() for leaf in _leaves(array))


def _leaves(tree: Any) -> list[np.ndarray]:
    return [leaf for part in tree.values() for leaf in _leaves(part)] if isinstance(tree, dict) else [np.asarray(tree)]


def _arrays(content: bytes) -> dict[str, np.ndarray]:
    return load_arrays(content)


def _mutate_arrays(arrays: dict[str, np.ndarray], random: Random) -> None:
    name = random.choice(sorted(arrays))
    array = arrays.pop(name)
    changed: dict[str, Callable[[], np.ndarray]] = {
        "gone": lambda: np.zeros(0, np.float32),
        "half": lambda: array.astype(np.float16),
        "double": lambda: array.astype(np.float64),
        "whole": lambda: array.astype(np.int8),
        "flat": lambda: np.ascontiguousarray(array.reshape(-1)),
        "longer": lambda: np.concatenate([array, array]),
        "nan": lambda: np.full_like(array, random.choice((np.nan, np.inf, -np.inf, 3e38))),
    }
    how = random.choice(sorted(changed))
    if how != "gone" or random.random() < 0.5:
        arrays[random.choice((name, name, name, "x", "/" * 300, "actor", name + "/a"))] = changed[how]()


class Checkpoints(Loader):
    """A run's checkpoint with right checksums and a mutated record, mutated arrays, or changed bytes."""

    def __init__(self, folder: Path, run: Path):
        super().__init__(folder)
        self.run = Path(shutil.copytree(run, folder / "run"))
        self.path = files.checkpoints(self.run / "checkpoints")[0]
        for older in files.checkpoints(self.run / "checkpoints")[1:]:
            shutil.rmtree(older)
        self.config, _ = read_plan(self.run)
        self.shapes = Programs(make_algorithm(self.config)).shapes()
        self.record = json.loads((self.path / files.RECORD_FILE).read_text())
        found = [path for path in self.path.rglob("*") if path.is_file()]
        self.good = {path.relative_to(self.path).as_posix(): path.read_bytes() for path in found}
        self.sums = dict(reversed(line.split("  ", 1)) for line in self.good[files.SUMS_FILE].decode().splitlines())
        self.changed: set[str] = set()
        self.files = [self.path / files.RECORD_FILE, self.path / files.SUMS_FILE]

    def write_good(self) -> None:
        for name in self.changed:
            (self.path / name).write_bytes(self.good[name])
        self.changed = set()

    def _put(self, name: str, content: bytes, with_sum: bool = True) -> None:
        self.changed |= {name, files.SUMS_FILE}
        (self.path / name).write_bytes(content)
        if with_sum:
            sums = {**self.sums, name: hashlib.sha256(content).hexdigest()}
            lines = "".join(f"{sums[file]}  {file}\n" for file in self.sums)
            (self.path / files.SUMS_FILE).write_text(lines)

    def write(self, random: Random) -> None:
        self.write_good()
        kind = random.random()
        if kind < 0.8:
            self._put(files.RECORD_FILE, as_text(mutated_tree(self.record, random), random).encode())
        else:
            name = random.choice(sorted(self.good))
            self._put(name, mutated_bytes(self.good[name], random), with_sum=kind < 0.9 and name != files.SUMS_FILE)

    def load(self) -> None:
        try:
            how_far(self.run)
            is_finished(self.run)
            _, moment = load(self.path, self.config, self.shapes)
        except files.DamagedError as damage:
            raise UserError(str(damage)) from damage
        assert 0 <= moment.unrolls <= self.config.num_unrolls


class Exports(Loader):
    """A NumPy export: metadata mutated as JSON, or bytes changed."""

    ending = "npz"

    def __init__(self, folder: Path):
        super().__init__(folder)
        spec = make_env("point_u_maze_inertia").spec
        self.path = folder / "policy.npz"
        self.files = [self.path]
        self.good = encode(untrained_policy(spec, width=8, repr_dim=4), "numpy", {"method": "dcp"})
        with np.load(io.BytesIO(self.good)) as file:
            self.arrays = {name: file[name] for name in file.files}
        self.metadata = json.loads(str(self.arrays.pop("dcp")))

    def write_good(self) -> None:
        self.path.write_bytes(self.good)

    def write(self, random: Random) -> None:
        if random.random() < 0.3:
            self.path.write_bytes(mutated_bytes(self.good, random))
            return
        arrays = dict(self.arrays)
        if random.random() < 0.2:
            _mutate_arrays(arrays, random)
        text = as_text(mutated_tree(self.metadata, random), random)
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, dcp=np.array(text), **arrays)  # pyright: ignore
        self.path.write_bytes(content.getvalue())

    def load(self) -> None:
        load_exported(self.path)


KINDS: dict[str, Callable[[Path, Path], Loader]] = {
    "policy": lambda folder, run: Policies(folder),
    "checkpoint": Checkpoints,
    "config": text_loaders.Configs,
    "export": lambda folder, run: Exports(folder),
    "job": lambda folder, run: text_loaders.Jobs(folder),
    "grid": lambda folder, run: text_loaders.Grids(folder),
    "search": lambda folder, run: text_loaders.Searches(folder),
    "evals": text_loaders.Evals,
    "ledger": text_loaders.Ledger,
    "seed": lambda folder, run: text_loaders.Seeds(folder),
    "goal": lambda folder, run: text_loaders.Goals(folder),
}
