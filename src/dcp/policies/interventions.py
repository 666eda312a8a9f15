"""Intervene in a deployed policy when its progress has stalled: zero-shot variants of the paper's periodic burst.

Progress is measured in psi: a stall is `patience` steps of the policy without a new least distance from psi of the
achieved goal to psi of the goal. A state near the goal is no stall, and ends an intervention.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.errors import UserError
from dcp.methods.scores import reachable
from dcp.policies.policy import DeployedPolicy, Policy
from dcp.policies.wrappers import BURST_STREAM, LENGTH, PERIOD, SampledPolicy
from dcp.types import Array

PATIENCE, AIM = PERIOD - LENGTH, 100  # steps: so a burst acts at most as often as the paper's; the longest new aim
MARGIN = 0.01  # a least distance is new if it is this share below the last one
CANDIDATES = 32  # as the paper's scorer draws
_CANDIDATE_STREAM = 0x7265616D  # keeps the candidates' random stream apart from that of random actions


class StallState(NamedTuple):
    inner: Any  # the policy's own state
    key: Array
    step: Array  # []: steps so far
    least: Array  # [N]: the least distance in psi to the goal so far
    since: Array  # [N]: steps of the policy since it was new
    left: Array  # [N]: steps of the intervention that remain
    memory: Array  # StalledBurst: [N, A], the policy's mean action; ReAim: [N, G], z


@partial(jax.tree_util.register_dataclass, data_fields=["policy", "patience", "length"], meta_fields=["untried"])
@dataclass(frozen=True)
class StalledBurst:
    """Take `length` random actions when progress has stalled for `patience` steps, instead of in every period.

    Random actions are those of `PeriodicBurst` at the same step, and the policy also computes its action there: where
    progress never comes, this is the periodic burst with P = patience + length, and where it never ends, the policy.

    `untried`: a random action whose inner product with the running mean of the policy's own actions, over about
    `patience` steps, is positive is turned around. So it is uniform in the half of the actions away from that mean.
    """

    policy: Policy
    patience: int | Array = PATIENCE
    length: int | Array = LENGTH
    untried: bool = False

    def init(self, key: Array) -> StallState:
        inner = self.policy.init(key)  # the same key, so that without a stall the policy acts as if it were alone
        zero = jnp.zeros((), jnp.int32)
        least = jnp.full((), jnp.inf)
        return StallState(inner, jax.random.fold_in(key, BURST_STREAM), zero, least, zero, zero, jnp.zeros(()))

    def act(self, policy_state: StallState, state: Array, goal: Array) -> tuple[StallState, Array]:
        watched, _ = self.watched(policy_state, state, goal)
        inner, action = self.policy.act(watched.inner, state, goal)
        acts, key = (watched.left > 0)[..., None], jax.random.fold_in(watched.key, watched.step)
        uniform, mean = jax.random.uniform(key, action.shape, minval=-1.0, maxval=1.0), watched.memory
        if self.untried:
            uniform = jnp.where(jnp.sum(uniform * mean, axis=-1, keepdims=True) > 0.0, -uniform, uniform)
        mean = jnp.where(acts, mean, mean + (action - mean) / self.patience)
        return self.after(watched._replace(inner=inner, memory=mean)), jnp.where(acts, uniform, action)

    def watched(self, policy_state: StallState, state: Array, goal: Array) -> tuple[StallState, Array]:
        """Return the state before this step's action, and whether an intervention begins, [N]."""
        policy = deployed(self.policy)
        representation, achieved = policy.representation, policy.spec.achieved(state)
        now = representation.distance(representation.encode_goal(achieved), representation.encode_goal(goal))  # [N]
        near = jnp.linalg.norm(achieved - goal, axis=-1) < policy.spec.threshold
        is_new = now < (1.0 - MARGIN) * policy_state.least
        least = jnp.where(is_new, now, policy_state.least)
        since = jnp.where(is_new | near, 0, policy_state.since + 1)
        left = jnp.where(near, 0, policy_state.left)
        begins = (left == 0) & (since >= self.patience) & ~near
        return policy_state._replace(least=least, since=since, left=jnp.where(begins, self.length, left)), begins

    def after(self, watched: StallState) -> StallState:
        """Return the state after this step: the next stall is counted from the end of the intervention."""
        since = jnp.where(watched.left > 0, -1, watched.since)
        return watched._replace(step=watched.step + 1, since=since, left=jnp.maximum(watched.left - 1, 0))


@partial(jax.tree_util.register_dataclass, data_fields=["policy", "pool", "patience", "length"], meta_fields=[])
@dataclass(frozen=True)
class ReAim:
    """When stalled, command a visited state instead of the goal, until it is reached or for `length` steps.

    Of 32 random states of the pool it is the one with the best `reachable` score: nearest to the goal in psi among the
    half that is nearest to the present state.
    """

    policy: Policy
    pool: Array  # [P, G]
    patience: int | Array = PATIENCE
    length: int | Array = AIM
    init = StalledBurst.init
    watched = StalledBurst.watched
    after = StalledBurst.after

    def act(self, policy_state: StallState, state: Array, goal: Array) -> tuple[StallState, Array]:
        policy = deployed(self.policy)
        achieved = policy.spec.achieved(state)
        arrives = jnp.linalg.norm(achieved - policy_state.memory, axis=-1) < policy.spec.threshold
        left = jnp.where(arrives, 0, policy_state.left)
        watched, begins = self.watched(policy_state._replace(left=left), state, goal)
        z = jnp.where(begins[..., None], self.choose(watched, achieved, goal), watched.memory)  # [N, G]
        commanded = jnp.where((watched.left > 0)[..., None], z, goal)
        inner, action = self.policy.act(watched.inner, state, commanded)
        return self.after(watched._replace(inner=inner, memory=z)), action

    def choose(self, watched: StallState, achieved: Array, goal: Array) -> Array:
        """Return a state of the pool for every environment: achieved [N, G], goal [N, G] -> [N, G]."""
        representation = deployed(self.policy).representation
        key = jax.random.fold_in(jax.random.fold_in(watched.key, _CANDIDATE_STREAM), watched.step)
        drawn = jax.random.randint(key, (*achieved.shape[:-1], CANDIDATES), 0, len(self.pool))
        candidates = self.pool[drawn]  # [N, C, G]
        encode = representation.encode_goal
        scores = reachable(representation, encode(achieved), encode(self.pool)[drawn], encode(goal))  # [N, C]
        best = jnp.argmax(scores, axis=-1)[..., None, None]
        return jnp.take_along_axis(candidates, best, axis=-2)[..., 0, :]


INTERVENTIONS = ("stalled_burst", "untried", "reaim")


def deployed(policy: Policy) -> DeployedPolicy:
    """Return the policy of ours whose psi is read, which may be sampled."""
    return policy.policy if isinstance(policy, SampledPolicy) else policy  # pyright: ignore[reportReturnType]


def with_intervention(
    policy: "Policy | Callable[..., Any]",
    name: str,
    patience: int | None = None,
    length: int | None = None,
    pool: np.ndarray | None = None,
) -> Policy:
    """Return the policy with an intervention of this name. `pool` [P, G] is for `reaim`."""
    inner = deployed(policy)  # pyright: ignore[reportArgumentType]
    if not isinstance(inner, DeployedPolicy) or "distance" not in getattr(inner.critic, "gives", ()):
        raise UserError(f"{name} reads the critic's distance: use a policy of ours that has a psi, or --burst")
    if name not in INTERVENTIONS:
        raise UserError(f"there is no intervention {name!r}: choose one of {', '.join(INTERVENTIONS)}")
    patience = PATIENCE if patience is None else patience
    length = (AIM if name == "reaim" else LENGTH) if length is None else length
    if min(patience, length) < 1 or int(patience) != patience or int(length) != length:
        raise UserError(f"a stall of {patience} steps and an intervention of {length}: use W >= 1 and L >= 1")
    if name != "reaim":
        return StalledBurst(policy, patience, length, name == "untried")  # pyright: ignore[reportArgumentType]
    if pool is None or len(pool) == 0:
        raise UserError("reaim needs a pool of visited states: give one, [P, G]")
    return ReAim(policy, jnp.asarray(pool, jnp.float32), patience, length)  # pyright: ignore[reportArgumentType]
