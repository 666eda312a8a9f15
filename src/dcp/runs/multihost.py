"""Keep hosts that train together in step, and bring the whole of a split array to a host.

Everything here is collective: every host makes the same calls, and runs the programs in between, in the same order.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from dcp import devices, hosts
from dcp.config import Settings
from dcp.envs.registry import env_of
from dcp.errors import UserError

_PIECE = 2**26  # bytes per transfer


def start_hosts(settings: Settings) -> None:
    """Tell the other hosts, from host 0 and before its first array, how many devices to make; start with them."""
    if hosts.count() > 1:
        hosts.send(asdict(settings))
        start_host(settings)


def start_host(settings: Settings) -> None:
    """Make this host's devices, and connect to the other hosts by a first exchange while all are in step."""
    with suppress(UserError):  # host 0 reports what is wrong
        devices.prepare(settings.devices, env_of(settings).spec)
    with _gloo_to_stderr():
        highest_of_all([0])


def highest_of_all(numbers: Sequence[int]) -> list[int]:
    """Return, for each number, the highest over all hosts. A single host returns its own."""
    if hosts.count() == 1:
        return list(numbers)
    of_all = multihost_utils.process_allgather(np.asarray(numbers, np.int32))  # [hosts, numbers]
    return [int(number) for number in np.max(of_all, axis=0)]


def pieces(array: jax.Array) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield all of an array as (where, what). An array that is split over hosts is transferred piece by piece."""
    if array.is_fully_addressable:
        for shard in array.addressable_shards:
            if shard.replica_id == 0:
                yield shard.index, np.asarray(shard.data)
    elif array.is_fully_replicated:
        yield ..., np.asarray(array.addressable_shards[0].data)
    else:
        rows = array.shape[0]
        count = min(rows, max(1, _PIECE // (array.nbytes // rows)))
        take = _taking(count, NamedSharding(array.sharding.mesh, PartitionSpec()))  # pyright: ignore
        for first in range(0, rows, count):
            at = min(first, rows - count)  # all pieces have the same length, so the last two may overlap
            yield slice(at, at + count), np.asarray(take(array, at).addressable_shards[0].data)


def broadcast(arrays: dict[str, np.ndarray]) -> None:
    """Write host 0's numbers into every host's arrays of the same names and shapes."""
    in_order = [arrays[name] for name in sorted(arrays)]
    small = [array for array in in_order if array.nbytes <= _PIECE // 64]
    together = np.concatenate([_bytes(array) for array in small])
    _from_first(together)
    first = 0
    for array in small:
        _bytes(array)[:] = together[first : first + array.nbytes]
        first += array.nbytes
    for array in in_order:
        if array.nbytes > _PIECE // 64:
            _from_first(_bytes(array))


def _from_first(numbers: np.ndarray) -> None:
    for first in range(0, len(numbers), _PIECE):
        piece = numbers[first : first + _PIECE]
        piece[:] = multihost_utils.broadcast_one_to_all(piece)


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


@lru_cache(maxsize=64)
def _taking(count: int, place: NamedSharding) -> Any:
    return jax.jit(lambda array, at: jax.lax.dynamic_slice_in_dim(array, at, count), out_shardings=place)


@contextmanager
def _gloo_to_stderr() -> Iterator[None]:
    """Redirect to stderr what Gloo prints to stdout when it connects."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
