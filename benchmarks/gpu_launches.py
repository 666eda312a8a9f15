"""Count what our programs would launch on an NVIDIA GPU, on a machine without one.

    python benchmarks/gpu_launches.py [NAME ...] [--side ours | plain | both] [--lines 12] [--graphs loops | xla | off]

NAME is one of the nine environments or `update`: CRL's, DCP's and that of deep networks (default: all). JAX's CUDA
plugin compiles for a described GPU, and XLA writes down the sequence that it would run. Counted, for one step of 512
environments with automatic reset, by our engine and by Brax's own pipeline on the same task, and for one update (batch
256):

launches: kernels, copies, memsets and library calls; submissions: what the host hands to the GPU, where a CUDA graph
of many launches is one; host_waits: the host reads a value before it can continue (a loop of unknown length, a branch).
`ratios`: launches of plain Brax over ours. A loop whose length only the data knows (MJX's solver, on both sides) counts
as one round. Plain Brax is compiled with XLA's own options, ours with those of `compiling.py` (--graphs).
"""

import argparse
import json
import os
import re
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"  # what runs here runs on the CPU; the GPU is only compiled for
import jax
import jax.numpy as jnp

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

GPU = HERE / "a100.txtpb"
INSTALL = "pip install jax-cuda13-plugin=={0} jax-cuda13-pjrt=={0} (1.6 GB; best into an environment of its own)"
UPDATE = "update"
NO_LAUNCH = {"kSequential", "kReplicaId", "kPartitionId", "kWaitForStreams"}


def gpu() -> Any:
    """Return the place that stands for the described GPU, or end with what to install."""
    from jax.experimental import topologies
    from jax.sharding import SingleDeviceSharding

    try:
        described = topologies.get_topology_desc(platform="cuda", target_config=GPU.read_text(), topology="1x1x1")
    except Exception as error:
        why = str(error).splitlines()[0]
        raise SystemExit(f"JAX has no CUDA plugin here ({why}): {INSTALL.format(jax.__version__)}") from None
    return SingleDeviceSharding(described.devices[0])


# What XLA would run.


@dataclass
class Thunk:
    """One entry of XLA's sequence; a loop, branch or graph has parts of its own."""

    number: int
    kind: str
    parts: dict[str, list["Thunk"]] = field(default_factory=lambda: defaultdict(list))


_THUNK = re.compile(r"\s*(\d+): (k\w+)")


def parsed(text: str) -> list[Thunk]:
    """Read the tree that XLA prints by indentation. A loop's "condition:" is printed at the left edge."""
    top: list[Thunk] = []
    path: list[tuple[int, list[Thunk]]] = [(0, top)]  # indentation of the entries, where they go
    last: dict[int, Thunk] = {}  # the last thunk at each indentation
    waiting: list[Thunk] | None = None  # a part whose first entry comes next
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if found := _THUNK.match(line):
            if waiting is None and indent > path[-1][0]:  # the entries of a graph have no title
                waiting = last[path[-1][0]].parts[""]
            if waiting is not None:
                path.append((indent, waiting))
            while path[-1][0] > indent:
                path.pop()
            waiting, thunk = None, Thunk(int(found[1]), found[2])
            path[-1][1].append(thunk)
            last = {at: other for at, other in last.items() if at < indent} | {indent: thunk}
        elif line.rstrip().endswith(":"):
            name = line.strip()[:-1]
            owner = max(at for at in last if name == "condition" or at < indent)
            while path[-1][0] > owner:
                path.pop()
            last = {at: other for at, other in last.items() if at <= owner}
            waiting = last[owner].parts[name]
    return top


class Program:
    """A compiled program, as XLA wrote it down."""

    def __init__(self, folder: Path):
        sequence = next(folder.glob("*thunk_sequence_after_thunk_passes.txt"), None)
        self.thunks = parsed((sequence or next(folder.glob("*thunk_sequence.txt"))).read_text())
        named = re.findall(
            r'profile_annotation: "([^"]*)"\s*thunk_id: (\d+)', next(folder.glob("*thunk_metadata.txt")).read_text()
        )
        self.names = {int(number): name for name, number in named}
        text = next(folder.glob("*gpu_after_optimizations.txt")).read_text()
        self.instructions = dict(re.findall(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*)$", text, re.M))
        self.tables = {
            name: _table(text, name) for name in ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
        }

    def trips(self, thunk: Thunk) -> float | None:
        """Return how often a loop runs, None where only the data knows."""
        known = re.search(r'known_trip_count":\{"n":"(\d+)"', self._text(thunk))
        return float(known[1]) if known else None

    def line(self, thunk: Thunk) -> str:
        """Return the innermost line of ours that a launch comes from."""
        stack = self.stack(thunk)
        ours = [line for line in stack if "/dcp/" in line and "batching.py" not in line and "vectors.py" not in line]
        return (ours or stack or [re.sub(r"[.\d]+$", "", self.names.get(thunk.number, "?"))])[0].split("/dcp/")[-1]

    def stack(self, thunk: Thunk) -> list[str]:
        found = re.search(r"stack_frame_id=(\d+)", self._text(thunk))
        number, lines = found[1] if found else "", []
        while number in self.tables["StackFrames"]:
            frame = self.tables["StackFrames"][number]
            place = self.tables["FileLocations"][_number(frame, "file_location_id")]
            file = self.tables["FileNames"][_number(place, "file_name_id")].strip('"')
            function = self.tables["FunctionNames"][_number(place, "function_name_id")].strip('"')
            lines.append(f"{file}:{_number(place, 'line')} {function}")
            parent = _number(frame, "parent_frame_id")
            number = str(int(parent) - 1) if parent else ""  # counted from one, where frames are counted from zero
        return lines

    def _text(self, thunk: Thunk) -> str:
        return self.instructions.get(self.names.get(thunk.number, ""), "")


def _table(text: str, title: str) -> dict[str, str]:
    found = re.search(rf"^{title}\n(.*?)\n\n", text, re.S | re.M)
    return dict(re.findall(r"^(\d+) (.*)$", found[1], re.M)) if found else {}


def _number(entry: str, name: str) -> str:
    found = re.search(rf"\b{name}=(\d+)", entry)
    return found[1] if found else ""


@dataclass
class Count:
    launches: float = 0.0
    submissions: float = 0.0
    host_waits: float = 0.0
    lines: Any = field(default_factory=Counter)  # line of ours -> launches

    def add(self, other: "Count", times: float = 1.0) -> None:
        self.launches += times * other.launches
        self.submissions += times * other.submissions
        self.host_waits += times * other.host_waits
        for line, number in other.lines.items():
            self.lines[line] += times * number


def counted(program: Program, thunks: list[Thunk], in_graph: bool = False) -> Count:
    total = Count()
    for thunk in thunks:
        parts = {
            name: counted(program, part, in_graph or thunk.kind == "kCommandBuffer")
            for name, part in thunk.parts.items()
        }
        if thunk.kind == "kWhile":
            trips = program.trips(thunk)
            times = 1.0 if trips is None else trips
            total.add(parts.get("body", Count()), times)
            if trips is None:  # the device computes the condition; outside a graph the host reads it
                total.add(parts.get("condition", Count()), times + 1)
                total.host_waits += 0 if in_graph else times + 1
        elif thunk.kind == "kConditional":
            total.add(max(parts.values(), key=lambda part: part.launches, default=Count()))
            total.host_waits += not in_graph
        elif thunk.kind in NO_LAUNCH or thunk.kind == "kCommandBuffer":
            for part in parts.values():
                total.add(part)
            total.submissions += thunk.kind == "kCommandBuffer"
        else:
            total.launches += 1
            total.submissions += not in_graph
            total.lines[program.line(thunk)] += 1
    return total


# What is counted.


def compiled_count(function: Any, shapes: Any, place: Any, donate: tuple[int, ...], graphs: str) -> tuple[Count, float]:
    """-> the count of one call, and the temporary memory in MB"""
    from dcp.machine.compiling import GPU_GRAPHS

    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=place), shapes)
    with tempfile.TemporaryDirectory() as folder:
        options: Any = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True} | GPU_GRAPHS[graphs]
        program: Any = jax.jit(function, donate_argnums=donate).lower(*shapes).compile(compiler_options=options)
        found = Program(Path(folder))
        return counted(found, found.thunks), program.memory_analysis().temp_size_in_bytes / 1e6


def env_step(env: Any, num_envs: int, place: Any, graphs: str) -> tuple[Count, float]:
    from dcp.envs.base import Episodes

    episodes = Episodes(env, num_envs, 1000, "paper")
    key = jax.eval_shape(lambda: jax.random.key(0))
    action = jax.ShapeDtypeStruct((num_envs, env.spec.action_size), jnp.float32)
    return compiled_count(episodes.step, (jax.eval_shape(episodes.reset, key), action, key), place, (0,), graphs)


def our_env(name: str) -> Any:
    """Return the environment as it would be on a GPU."""
    from dcp.envs.ant_tasks import AntPush
    from dcp.envs.registry import make_env

    return AntPush(engine="mjx") if name == "ant_push" else make_env(name)


UPDATES: dict[str, dict[str, Any]] = {
    "crl": {"method": "crl"},
    "dcp": {"method": "dcp"},
    "crl, residual, depth 16": {"method": "crl", "network": "residual", "depth": 16},
}


def update(settings: dict[str, Any], place: Any, graphs: str) -> tuple[Count, float]:
    """Count a pass of updates, as training runs it, and divide."""
    from dcp.algorithm import make_algorithm
    from dcp.presets import preset_config

    algorithm = make_algorithm(preset_config("paper", env="ant_u_maze", devices=1, num_envs=512, **settings))
    key = jax.eval_shape(lambda: jax.random.key(0))
    learner = jax.eval_shape(algorithm.learner.init, key)
    replay = jax.eval_shape(algorithm.init_experience, key)[1]
    windows = jax.eval_shape(algorithm.windows, replay, key)
    count, memory = compiled_count(algorithm.learn, (learner, windows, key, key, key), place, (0,), graphs)
    share = Count()
    share.add(count, 1.0 / algorithm.config.num_updates)
    return share, memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--side", choices=("ours", "plain", "both"), default="both")
    parser.add_argument("--envs", type=int, default=512)
    parser.add_argument("--lines", type=int, default=0, help="show this many of our lines that launch most")
    parser.add_argument("--graphs", default="loops", help="our options for GPUs: a row of compiling.GPU_GRAPHS")
    args = parser.parse_args()
    if args.lines:
        jax.config.update("jax_traceback_in_locations_limit", 30)

    from environments import plain_env

    from dcp.lab.paper_values import ENVIRONMENTS

    place, graphs = gpu(), args.graphs
    programs: dict[str, Any] = {}
    for name in args.names or [*ENVIRONMENTS, UPDATE]:
        if name == UPDATE:
            programs |= {
                f"{UPDATE} {name}": lambda s=chosen: update(s, place, graphs) for name, chosen in UPDATES.items()
            }
            continue
        if args.side != "plain":
            programs[name] = lambda n=name: env_step(our_env(n), args.envs, place, graphs)
        if args.side != "ours":
            programs[f"{name} plain"] = lambda n=name: env_step(plain_env(n), args.envs, place, "xla")
    found: dict[str, Count] = {}
    memory: dict[str, float] = {}
    for name, work in programs.items():
        found[name], memory[name] = work()
        c = found[name]
        words = f"{c.launches:,.0f} launches in {c.submissions:,.0f} submissions, {c.host_waits:,.0f} host waits"
        print(f"{name}: {words}, {memory[name]:.1f} MB", flush=True)
        for line, number in c.lines.most_common(args.lines):
            print(f"    {number:8.1f}  {line}")
    ratios = {n: found[f"{n} plain"].launches / found[n].launches for n in found if f"{n} plain" in found}
    figures = {
        "launches": {name: round(c.launches, 1) for name, c in found.items()},
        "submissions": {name: round(c.submissions, 1) for name, c in found.items()},
        "host_waits": {name: round(c.host_waits, 1) for name, c in found.items()},
        "ratios": {name: round(ratio, 2) for name, ratio in ratios.items()},
        "temporary_mb": {name: round(size, 1) for name, size in memory.items()},
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
