"""TD-InfoNCE (Zheng et al., ICLR 2024): InfoNCE by temporal differences, so that goals need not be reached in the data.

f(s, a, g, x) = phi(s, a, g) . psi(x), both of unit length, says how likely x comes up when s, a is followed by the
policy for g. x comes up next with probability 1 - discount, or later, as often as from the next state:

    (1 - discount) CE(f(s, a, g, x'_j), I) + discount CE(f(s, a, g, r_j), softmax_j min_k f'_k(s', a', g, r_j))

x' are the achieved goals of the next states, r random goals, f' slow copies of the twin networks.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from dcp.actor import WithoutEntropy
from dcp.critics.contrastive import normalize
from dcp.critics.value import SAC, Targets
from dcp.interfaces import ActorRule, CriticState, Hindsight, Problem
from dcp.types import Array, Batch, Metrics, Params, masked_mean


@dataclass(frozen=True)
class TDInfoNCE(SAC):
    """Train TD-InfoNCE on random goals; the actor picks its own goal out among the batch's, without an entropy term."""

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
