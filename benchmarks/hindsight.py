"""Future goals for 64 windows of 1,000 rows: the inverse transform against a categorical over all T x T pairs."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from timing import in_turns, report

from dcp.replay import future_offsets, steps_left
from dcp.types import Array

NUM_ENVS, LENGTH, DISCOUNT = 64, 1000, 0.99


def by_categorical(episode_id: Array, key: Array) -> Array:
    """[T] -> [T]: for each row a draw over all rows, those that are not its future masked out."""
    row = jnp.arange(LENGTH)
    ahead = row[None, :] - row[:, None]  # [T, T]
    is_future = (ahead > 0) & (episode_id[None, :] == episode_id[:, None])
    weights = jnp.where(is_future, DISCOUNT ** ahead.astype(jnp.float32), 0.0) + jnp.eye(LENGTH) * 1e-5
    return jax.random.categorical(key, jnp.log(weights), axis=-1) - row


def by_inverse_transform(episode_id: Array, key: Array) -> Array:
    left = steps_left(episode_id)
    return future_offsets(left, jax.random.uniform(key, left.shape), DISCOUNT)


def main() -> None:
    starts = np.random.default_rng(0).integers(0, 1000, NUM_ENVS)
    episode_id = jnp.asarray((np.arange(LENGTH)[None, :] + starts[:, None]) // 1000)  # [N, T]
    keys = jax.random.split(jax.random.key(0), NUM_ENVS)
    jitted = {f.__name__: jax.jit(jax.vmap(f)) for f in (by_categorical, by_inverse_transform)}
    means = {name: float(jnp.mean(f(episode_id, keys))) for name, f in jitted.items()}
    assert abs(means["by_categorical"] / means["by_inverse_transform"] - 1) < 0.03, means
    times = in_turns({name: lambda f=f: f(episode_id, keys) for name, f in jitted.items()}, rounds=7)
    ratio = times["by_categorical"] / times["by_inverse_transform"]
    report(ratio=ratio, **{f"{name}_ms": 1e3 * s for name, s in times.items()}, mean_offsets=means)


if __name__ == "__main__":
    main()
