"""The tiny run's first evaluation period by two hosts: `python -m tests.runs.two_hosts COORDINATOR HOST_ID`.

Prints one line of JSON that test_multihost.py judges: the means of the period's metrics, and what this host holds.
"""

import json
import sys

import jax
import numpy as np

from dcp import hosts
from dcp.algorithm import make_algorithm
from dcp.host_handshake import Cluster
from dcp.programs import Programs
from dcp.runs import multihost as exchange
from dcp.runs.multihost import broadcast, highest_of_all, pieces, start_host
from tests.tiny import tiny_config


def period() -> dict[str, object]:
    stages = Programs(make_algorithm(tiny_config()))
    run, metrics = stages.init(), []
    for _ in range(2):
        run = stages.prefill(run)
    for _ in range(4):
        run, seen = stages.iteration(run)
        metrics.append({name: float(value) for name, value in seen.items()})
    gathered = np.empty(run.replay.rows.state.shape, np.float32)
    for where, what in pieces(run.replay.rows.state):
        gathered[where] = what
    return {
        "devices": stages.split.count,
        "split_batches": stages.algorithm.config.split_batches,
        "own": [shard.data.shape[1] for shard in run.replay.rows.state.addressable_shards],
        "means": {name: float(np.mean([row[name] for row in metrics])) for name in metrics[0]},
        "own_part": all(np.array_equal(gathered[s.index], s.data) for s in run.replay.rows.state.addressable_shards),
        "replay": float(np.abs(np.float64(gathered)).sum()),
        "parameters": float(sum(np.abs(np.float64(leaf)).sum() for leaf in jax.tree.leaves(run.learner.params))),
    }


def spread_from_first() -> list[float]:
    """What a host has of host 0's numbers: small ones together, and one that goes in four pieces."""
    mine = float(hosts.index() + 1)
    arrays = {"a": np.full((2, 3), mine), "b": np.arange(3.0) * mine, "large": np.full(1 << 13, mine)}
    broadcast(dict(sorted(arrays.items(), reverse=mine == 1.0)))  # whoever reads a checkpoint may have its own order
    return [float(array.sum()) for array in arrays.values()]


def main(coordinator: str, host: int) -> None:
    hosts.join(Cluster(coordinator, 2, host, patience=60.0, secret="between these two"))
    exchange._PIECE = 2**14  # so that the replay's 64 kB too go in pieces
    start_host(tiny_config())
    exchanged = {"agreed": highest_of_all([host, 5 - host]), "spread": spread_from_first()}
    seen = {"host": hosts.index(), **exchanged, **period()}
    print(json.dumps(seen))
    hosts.disconnect()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
