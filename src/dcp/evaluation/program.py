"""One compiled program runs the episodes of training's evaluations and those of `dcp eval`: the same bits from both."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from dcp.compiling import compiler_options
from dcp.devices import ONE_DEVICE, Split
from dcp.envs.base import Environment
from dcp.evaluation.rollout import Record, rollout
from dcp.policies.policy import Policy
from dcp.types import Array

EVALUATION_STREAM = 0x6576616C  # keeps evaluation's random stream apart from training's


def evaluation_key(seed: int, index: int) -> Array:
    """The same episodes for every method: fresh at each evaluation, decided by the seed alone."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), EVALUATION_STREAM), index)


@dataclass(frozen=True)
class Deployment:
    """Where and for how long policies are tried."""

    env: Environment
    num_episodes: int
    episode_length: int
    split: Split = ONE_DEVICE

    def episodes(self, policy: Policy, key: Array) -> Record:
        return rollout(self.env, policy, key, self.num_episodes, self.episode_length, self.split)


def compiled(deployment: Deployment) -> Callable[[Any, Array], Record]:
    """`episodes`, jitted: a policy's parameters are arguments, so policies that differ in them alone share it."""
    split = deployment.split
    layout: dict[str, Any] = (
        {"out_shardings": split.whole} if split.spans_hosts else {}
    )  # each host measures the whole record
    return jax.jit(deployment.episodes, compiler_options=compiler_options(), **layout)
