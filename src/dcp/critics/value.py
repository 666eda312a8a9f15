"""Baselines: SAC with HER, TD3 with HER, GCBC and TD-InfoNCE. Twin Q(s, a, g) with slow target networks.

    y = r + discount^H (1 - terminal) (min_k Q'_k(s', a', g) - alpha log pi(a' | s', g)),  loss = mean_k (Q_k - y)^2 / 2

r is 1 for each next state near the goal, else 0; reaching the goal does not end an episode. H is a chunk's length.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from dcp.actor import Deterministic, Imitation, Soft, WithoutEntropy
from dcp.critics.energies import normalize
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


@dataclass(frozen=True)
class TDInfoNCE(SAC):
    """Train TD-InfoNCE (Zheng et al., ICLR 2024): InfoNCE by temporal differences, on goals that nobody need reach.

    f(s, a, g, x) = phi(s, a, g) . psi(x), both of unit length, says how likely x comes up when s, a is followed by the
    policy for g. x comes up next with probability 1 - discount, or later, as often as from the next state:

        (1 - discount) CE(f(s, a, g, x'_j), I) + discount CE(f(s, a, g, r_j), softmax_j min_k f'_k(s', a', g, r_j))

    x' are the achieved goals of the next states, r random goals, f' slow copies of the twin networks. The actor picks
    its own goal out among the batch's, without an entropy term.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"future_goal", "next_state", "has_next", "next_action"})
    hindsight: ClassVar[Hindsight] = Hindsight(random_share=1.0)

    latent: int = 16
    """Size of phi and psi."""

    @property
    def actor_rule(self) -> ActorRule:
        return WithoutEntropy()

    def init(self, keys: Array, problem: Problem) -> CriticState:
        spec, network = problem
        sizes = {"phi": spec.state_size + spec.action_size + spec.goal_size, "psi": spec.goal_size}
        params = {
            f"{name}_{k + 1}": network.init(jax.random.fold_in(key, n), size, self.latent)
            for k, key in enumerate(keys)
            for n, (name, size) in enumerate(sizes.items())
        }
        return CriticState(params, Targets(params, jnp.zeros((), jnp.int32)))

    def loss(
        self, problem: Problem, params: Params, carried: Targets, batch: Batch, key: Array
    ) -> tuple[Array, Metrics]:
        b = batch
        assert b.next_state is not None and b.next_action is not None
        assert b.future_goal is not None and b.has_next is not None
        phi = self.phi(problem, params, b.state, b.action, b.future_goal)  # [2, B, D]
        next_achieved, random = problem.spec.achieved(b.next_state), jnp.roll(b.future_goal, -1, axis=0)
        next_phi = self.phi(problem, carried.params, b.next_state, b.next_action, b.future_goal)
        later = _logits(next_phi, self.psi(problem, carried.params, random))  # [2, B, B]
        shares = jax.lax.stop_gradient(jax.nn.softmax(jnp.min(later, axis=0), axis=-1))  # [B, B]
        to_next = jax.nn.log_softmax(_logits(phi, self.psi(problem, params, next_achieved)), axis=-1)
        to_random = jax.nn.log_softmax(_logits(phi, self.psi(problem, params, random)), axis=-1)
        soon = -jnp.mean(jnp.diagonal(to_next, axis1=1, axis2=2), axis=0)  # [B]
        onward = -jnp.mean(jnp.sum(shares[None] * to_random, axis=-1), axis=0)  # [B]
        discount = self.discount**problem.spec.action_chunk
        loss = masked_mean((1.0 - discount) * soon + discount * onward, b.has_next)
        parts = {"next_loss": masked_mean(soon, b.has_next), "onward_loss": masked_mean(onward, b.has_next)}
        return loss, {"critic_loss": loss, **parts}

    def phi(self, problem: Problem, params: Params, state: Array, action: Array, goal: Array) -> Array:
        """state [..., S], action [..., A], goal [..., G] -> [2, ..., D], of unit length"""
        x = jnp.concatenate([state, action, goal], axis=-1)
        return jnp.stack([normalize(problem.network.apply(params[name], x)) for name in ("phi_1", "phi_2")])

    def psi(self, problem: Problem, params: Params, goal: Array) -> Array:
        """goal [..., G] -> [2, ..., D], of unit length"""
        return jnp.stack([normalize(problem.network.apply(params[name], goal)) for name in ("psi_1", "psi_2")])

    def both(self, problem: Problem, params: Params, state: Array, action: Array, goal: Array) -> Array:
        """Return both f(s, a, g, g): [2, ...]."""
        phi = self.phi(problem, params, state, action, goal)
        return jnp.sum(phi * self.psi(problem, params, goal), axis=-1)

    def actor_value(self, problem: Problem, params: Params, batch: Batch, action: Array, goal: Array) -> Array:
        """Return the log probability that each row's goal is picked out among all rows' goals: [B]."""
        phi, psi = self.phi(problem, params, batch.state, action, goal), self.psi(problem, params, goal)
        return jnp.diag(jax.nn.log_softmax(jnp.min(_logits(phi, psi), axis=0), axis=-1))


def _logits(phi: Array, psi: Array) -> Array:
    """phi [2, B, D], psi [2, B, D] -> [2, B, B]"""
    return jnp.einsum("kid,kjd->kij", phi, psi)
