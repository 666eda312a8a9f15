"""What hosts that train together must have in common, and how the whole of a split array reaches a host.

Everything here is collective: every host calls it in the same order, as it does the programs in between.
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

_PIECE = 2**26  # bytes that are passed at once


def start_hosts(settings: Settings) -> None:
    """Host 0, before its first array: tell the others how many devices to make, and start together with them."""
    if hosts.count() > 1:
        hosts.send(asdict(settings))
        start_host(settings)


def start_host(settings: Settings) -> None:
    """Every host: make its devices, then its connections by a first exchange, while all are in step."""
    with suppress(UserError):  # host 0 will say what is wrong
        devices.prepare(settings.devices, env_of(settings).spec)
    with _gloo_to_stderr():
        highest_of_all([0])


def highest_of_all(numbers: Sequence[int]) -> list[int]:
    """Return for each number the highest of all hosts'. One host asks nobody."""
    if hosts.count() == 1:
        return list(numbers)
    of_all = multihost_utils.process_allgather(np.asarray(numbers, np.int32))  # [hosts, numbers]
    return [int(number) for number in np.max(of_all, axis=0)]


def pieces(array: jax.Array) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield all of an array, as (where, what). One that is split over hosts is passed on in turns, piece by piece."""
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
            at = min(first, rows - count)  # the last piece is as long as the others
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
    """Gloo says on stdout that it has connected."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
