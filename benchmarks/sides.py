"""What each side of an update costs one core: the critic's, the actor's, and both in one program; the ant's sizes.

On two free cores an update lasts as long as its longer side (`side_by_side.py`). Everything runs on one core and is
timed by the process's own clock, in turns, and the least counts, so that other work on the machine hardly does.
`blas` is the update's own products by NumPy: half of it is the floor of two cores, and `times_floor` the longer side
over that.
"""

import os

os.environ |= {"NPROC": "1", "JAX_PLATFORMS": "cpu", "OPENBLAS_NUM_THREADS": "1"}

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from learner import make_learner, products, random_batch
from timing import least_in_turns, report

from dcp.compiling import EIGEN_DOTS, compiler_options_of_a_side
from dcp.side_by_side import SideBySide

if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

UPDATES, BATCH = 8, 256


def forms(method: str) -> dict[str, Callable[[], Any]]:
    learner = make_learner(method)
    sides, state = SideBySide(learner), learner.init(jax.random.key(0))
    pairs, keys = random_batch(UPDATES * BATCH, jax.random.key(1)), jax.random.split(jax.random.key(2), UPDATES)
    order = jax.random.permutation(jax.random.key(3), UPDATES * BATCH).reshape(UPDATES, BATCH)
    steps = (order, jax.vmap(learner.noise, in_axes=(0, None))(keys, BATCH), keys, None)
    critic, actor, of_critic, of_actor, buffer, _ = jax.jit(sides._begun)(state, pairs, steps)

    def one_program(state: Any, pairs: Any, steps: Any) -> Any:
        def update(state: Any, step: Any) -> Any:
            indices, noise, key, _ = step
            return learner.step(state, jax.tree.map(lambda x: x[indices], pairs), noise, key=key)

        return jax.lax.scan(update, state, steps)

    options, bounds = compiler_options_of_a_side(), (jnp.int32(0), jnp.int32(UPDATES))
    run_critic, run_actor = (
        jax.jit(side, compiler_options=options) for side in (sides._critic_updates, sides._actor_updates)
    )
    whole = jax.jit(one_program, compiler_options=EIGEN_DOTS)
    factors = products(learner, jax.tree.map(lambda x: x[:BATCH], pairs), keys[0]) * UPDATES
    return {
        f"{method}_critic": lambda: run_critic(critic, buffer, of_critic, pairs, steps, *bounds),
        f"{method}_actor": lambda: run_actor(actor, of_actor, buffer, pairs, steps, *bounds),
        f"{method}_one_program": lambda: whole(state, pairs, steps),
        f"{method}_blas": lambda: [np.matmul(one, other, out=room) for one, other, room in factors],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    work = forms("crl") | forms("dcp")
    least = {f"{name}_ms": 1e3 * seconds / UPDATES for name, seconds in least_in_turns(work, rounds).items()}
    longer = {method: max(least[f"{method}_critic_ms"], least[f"{method}_actor_ms"]) for method in ("crl", "dcp")}
    times_floor = {f"{method}_times_floor": ms / (least[f"{method}_blas_ms"] / 2) for method, ms in longer.items()}
    report(ratio=longer["dcp"] / longer["crl"], **least, **times_floor)


if __name__ == "__main__":
    main()
