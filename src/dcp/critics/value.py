"""Baselines: SAC with HER, TD3 with HER, and GCBC. Twin Q(s, a, g) with slow target networks.

    y = r + discount^H (1 - terminal) (min_k Q'_k(s', a', g) - alpha log pi(a' | s', g)),  loss = mean_k (Q_k - y)^2 / 2

r is 1 for each next state near the goal, else 0; reaching the goal does not end an episode. H is a chunk's length.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from dcp.actor import Deterministic, Imitation, Soft
from dcp.errors import UserError
from dcp.interfaces import ActorRule, CriticState, Hindsight, Problem, Representation
from dcp.types import Array, Batch, Metrics, Params, masked_mean


def without_psi(*arrays: Array) -> Array:
    raise UserError("this policy's critic has no psi to look at: use one of contrastive, quasimetric, tmd, chronosrl")


def without_value(*arrays: Array) -> Array:
    raise UserError("this policy was trained without a critic, or saved without it: there is no value to look at")


class Targets(NamedTuple):
    params: Params  # of the slow copies
    updates: Array  # []


@dataclass(frozen=True)
class SAC:
    """Train twin Q with SAC's entropy and HER's final goals: an episode's last achieved goal, if the window holds its
    time limit."""

    needs: ClassVar[frozenset[str]] = frozenset(
        {"future_goal", "next_state", "has_next", "terminal", "reward", "next_action"}
    )
    gives: ClassVar[frozenset[str]] = frozenset()
    from_config: ClassVar[tuple[str, ...]] = ("discount",)
    hindsight: ClassVar[Hindsight] = Hindsight(draws="final")

    discount: float = 0.99
    """Of the return."""
    target_rate: float = 0.005
    """Share of the networks that their slow copies take over at each step."""

    @property
    def repr_dim(self) -> int:
        return 0

    @property
    def actor_rule(self) -> ActorRule:
        return Soft()

    def init(self, keys: Array, problem: Problem) -> CriticState:
        spec, network = problem
        size = spec.state_size + spec.action_size + spec.goal_size
        params = {"q_1": network.init(keys[0], size, 1), "q_2": network.init(keys[1], size, 1)}
        return CriticState(params, Targets(params, jnp.zeros((), jnp.int32)))

    def loss(
        self, problem: Problem, params: Params, carried: Targets, batch: Batch, key: Array
    ) -> tuple[Array, Metrics]:
        b = batch
        assert b.next_state is not None and b.next_action is not None and b.next_bonus is not None
        assert b.future_goal is not None and b.reward is not None and b.terminal is not None and b.has_next is not None
        onward = jnp.min(self.both(problem, carried.params, b.next_state, b.next_action, b.future_goal), axis=0)
        discount = self.discount**problem.spec.action_chunk
        target = jax.lax.stop_gradient(b.reward + discount * jnp.where(b.terminal, 0.0, onward + b.next_bonus))  # [B]
        values = self.both(problem, params, b.state, b.action, b.future_goal)  # [2, B]
        error = jnp.mean((values - target[None, :]) ** 2, axis=0) / 2  # [B]
        loss = masked_mean(error, b.has_next | b.terminal)  # nothing follows a fall, so its target is known
        return loss, {"critic_loss": loss, "value": jnp.mean(values), "reward": jnp.mean(b.reward)}

    def after(self, problem: Problem, params: Params, carried: Targets) -> Targets:
        """Update the slow copies whenever the actor steps."""
        rate = jnp.where(carried.updates % self.actor_rule.delay == 0, self.target_rate, 0.0)
        slow = jax.tree.map(lambda new, old: rate * new + (1.0 - rate) * old, params, carried.params)
        return Targets(slow, carried.updates + 1)

    def representation(self, problem: Problem, params: Params) -> Representation:
        def value(state: Array, action: Array, goal: Array) -> Array:
            return self.value(problem, params, state, action, goal)

        return Representation(without_psi, without_psi, value if params else without_value)

    def deployed(self, params: Params) -> Params:
        """Return the parameters that a policy reads: none."""
        return {}

    def value(self, problem: Problem, params: Params, state: Array, action: Array, goal: Array) -> Array:
        """Return what the actor maximises: the smaller of the two values."""
        return jnp.min(self.both(problem, params, state, action, goal), axis=0)

    def both(self, problem: Problem, params: Params, state: Array, action: Array, goal: Array) -> Array:
        """Return both values: state [..., S], action [..., A], goal [..., G] -> [2, ...]."""
        x = jnp.concatenate([state, action, goal], axis=-1)
        return jnp.stack([problem.network.apply(params[name], x)[..., 0] for name in ("q_1", "q_2")])


@dataclass(frozen=True)
class TD3(SAC):
    """Train twin Q with a deterministic actor, which steps every other update; its slow copy gives the next action."""

    exploration: float = 0.4
    """Std of the noise on actions that are taken."""
    smoothing: float = 0.2
    """Std of the noise on the next action, cut at 0.5."""

    @property
    def actor_rule(self) -> ActorRule:
        return Deterministic(exploration=self.exploration, smoothing=self.smoothing)

    def value(self, problem: Problem, params: Params, state: Array, action: Array, goal: Array) -> Array:
        """Return what the actor maximises: the first value."""
        return self.both(problem, params, state, action, goal)[0]


@dataclass(frozen=True)
class GCBC:
    """Use no critic, as a lower baseline: the actor imitates the actions that once led to the hindsight goal."""

    needs: ClassVar[frozenset[str]] = frozenset({"future_goal"})
    gives: ClassVar[frozenset[str]] = frozenset()
    actor_goals: ClassVar[tuple[str, ...]] = ("future",)  # its actions did not lead to the commanded goal
    actor_rule: ClassVar[ActorRule] = Imitation()

    @property
    def repr_dim(self) -> int:
        return 0

    def init(self, keys: Array, problem: Problem) -> CriticState:
        return CriticState({})

    def loss(
        self, problem: Problem, params: Params, carried: tuple[()], batch: Batch, key: Array
    ) -> tuple[Array, Metrics]:
        return jnp.zeros(()), {"critic_loss": jnp.zeros(())}

    def after(self, problem: Problem, params: Params, carried: tuple[()]) -> tuple[()]:
        return carried

    def representation(self, problem: Problem, params: Params) -> Representation:
        return Representation(without_psi, without_psi, without_value)
