"""What direction conditioning costs in training: a DCP iteration against a CRL iteration.

The paper's settings (512 environments, unroll 62, window 1,000, 1,998 updates of 256) on a point maze whose states and
actions are padded to the ant's sizes (S 29, A 8, G 2), so that collection, sampling and updates all count.
"""

import argparse
import sys
from pathlib import Path

import jax.numpy as jnp

sys.path.insert(0, str(Path(__file__).parent))
from timing import in_turns, report

from dcp.algorithm import make_algorithm
from dcp.config import Config
from dcp.envs.base import EnvState, sparse_state
from dcp.envs.registry import make_env, register_env
from dcp.machine.programs import Programs
from dcp.types import Array, EnvSpec


class AntSizedPoint:
    """point_u_maze with 27 more state numbers and 6 more actions, which do nothing."""

    def __init__(self) -> None:
        self.point = make_env("point_u_maze")
        maze = self.point.spec.maze
        self.spec = EnvSpec("ant_sized_point", 29, 2, 8, (0, 1), 0.125, 1000, maze, (0, 1))

    def reset(self, key: Array) -> EnvState:
        return self._pad(self.point.reset(key))

    def step(self, state: EnvState, action: Array) -> EnvState:
        return self._pad(self.point.step(state.physics, action[:2]))

    def _pad(self, inner: EnvState) -> EnvState:
        state, goal = self.point.spec.split(inner.obs)
        return sparse_state(self.spec, jnp.concatenate([state, jnp.zeros(27)]), goal, inner)


def prepared(method: str):
    """One iteration from a filled replay, always from the same state, so nothing is donated."""
    trainer = make_algorithm(Config(env="ant_sized_point", method=method, replay_rows=2000, num_evals=1))
    stages = Programs(trainer, donate=False)
    run = stages.init()
    for _ in range(trainer.config.num_prefill_unrolls):
        run = stages.prefill(run)
    return lambda: stages.iteration(run)[1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    register_env("ant_sized_point", AntSizedPoint)
    times = in_turns({method: prepared(method) for method in ("crl", "dcp", "ssgc")}, rounds)
    report(ratio=times["dcp"] / times["crl"], **{f"{name}_seconds": s for name, s in times.items()})


if __name__ == "__main__":
    main()
