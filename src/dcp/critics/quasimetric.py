"""Critics with an asymmetric distance that obeys the triangle inequality by construction: CMD-1 and TMD.

d(x, y) is the distance from x to y. `MRN` and `IQE` are distances between latents of size D; the critics train
phi = psi_sa(s, a) and psi = psi_g(g) so that d(phi, psi) is short if (s, a) tends to lead to g. psi of the achieved
goal represents the state, so the inequality holds among goals' latents.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from dcp.components import unknown
from dcp.critics.contrastive import contrast, infonce_accuracy, logsumexp_penalty
from dcp.critics.eikonal import eikonal_term
from dcp.critics.energies import safe_root
from dcp.errors import UserError
from dcp.interfaces import CriticState, Problem, Representation
from dcp.types import Array, Batch, Metrics, Params, masked_mean


class Distance(NamedTuple):
    plain: Callable[[Array, Array, Array, int], Array]  # [..., D], [..., D], mix [], components -> [...]
    pairwise: Callable[[Array, Array, Array, int], Array]  # [B, D], [B, D], mix [], components -> [B, B]


def mrn(x: Array, y: Array, mix: Array, components: int) -> Array:
    """Return the mean over components of max_i relu(x_i - y_i) over the first half plus |x - y| over the second."""
    difference = (x - y).reshape(*jnp.broadcast_shapes(x.shape, y.shape)[:-1], components, 2, -1)
    one_way = jnp.max(jax.nn.relu(difference[..., 0, :]), axis=-1)  # [..., components]
    both_ways = safe_root(jnp.sum(difference[..., 1, :] ** 2, axis=-1))
    return jnp.mean(one_way + both_ways, axis=-1)


def pairwise_mrn(x: Array, y: Array, mix: Array, components: int) -> Array:
    """Return `mrn` for all pairs. The batch axes are last: [components, D / 2 components, B, B] is never stored."""
    x, y = (z.T.reshape(components, 2, -1, z.shape[0]) for z in (x, y))
    difference = x[..., :, None] - y[..., None, :]  # [components, 2, D / 2 components, B, B]
    one_way = jnp.max(jax.nn.relu(difference[:, 0]), axis=1)  # [components, B, B]
    both_ways = safe_root(jnp.sum(difference[:, 1] ** 2, axis=1))
    return jnp.mean(one_way + both_ways, axis=0)


def _union(left: Array, right: Array) -> Array:
    """Return the length of the union of intervals [left, right] with ascending left ends: [k, ...] -> [...]."""
    total, reached = right[0] - left[0], right[0]
    for i in range(1, left.shape[0]):
        total += jax.nn.relu(right[i] - jnp.maximum(left[i], reached))
        reached = jnp.maximum(reached, right[i])
    return total


def _mixed(lengths: Array, mix: Array) -> Array:
    """Return a mean + (1 - a) max with a = sigmoid(mix): [components, ...] -> [...]."""
    share = jax.nn.sigmoid(mix)
    return share * jnp.mean(lengths, axis=0) + (1.0 - share) * jnp.max(lengths, axis=0)


def iqe(x: Array, y: Array, mix: Array, components: int) -> Array:
    """Mix the mean and the max of the components: each is the length of the union over i of [x_i, max(x_i, y_i)]."""
    x, y = jnp.broadcast_arrays(x, y)
    x, y = (z.reshape(*z.shape[:-1], components, -1) for z in (x, y))  # [..., components, k]
    order = jnp.argsort(jax.lax.stop_gradient(x), axis=-1)
    x, y = (jnp.moveaxis(jnp.take_along_axis(z, order, axis=-1), -1, 0) for z in (x, y))  # [k, ..., components]
    return _mixed(jnp.moveaxis(_union(x, jnp.maximum(x, y)), -1, 0), mix)


def pairwise_iqe(x: Array, y: Array, mix: Array, components: int) -> Array:
    """Return `iqe` for all pairs. Only x decides the order of left ends, so x is sorted once, and y by a product."""
    x, y = (z.reshape(z.shape[0], components, -1) for z in (x, y))  # [B, components, k]
    order = jnp.argsort(jax.lax.stop_gradient(x), axis=-1)
    chosen = jax.nn.one_hot(order, x.shape[-1])  # [B, components, k, k]
    high = jax.lax.Precision.HIGHEST  # the product selects, so it must be exact
    left = jnp.einsum("ackm,acm->kca", chosen, x, precision=high)[..., None]  # [k, components, B, 1]
    right = jnp.maximum(left, jnp.einsum("ackm,bcm->kcab", chosen, y, precision=high))  # [k, components, B, B]
    return _mixed(_union(left, right), mix)


DISTANCES = {"mrn": Distance(mrn, pairwise_mrn), "iqe": Distance(iqe, pairwise_iqe)}


@dataclass(frozen=True)
class Quasimetric:
    """Train CMD-1: InfoNCE with logits (c(g_j) - d(phi_i, psi_j)) / sqrt(D), and a penalty on their log-sum-exp.

    c(g) learns how common a goal is, which a distance cannot express. The actor minimises d.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"future_goal"})
    gives: ClassVar[frozenset[str]] = frozenset({"embedding", "distance"})
    from_config: ClassVar[tuple[str, ...]] = ("repr_dim",)

    repr_dim: int = 64
    quasimetric: str = "mrn"
    """mrn or iqe."""
    components: int = 8
    """Parts of the latent that the distance is made of."""
    contrastive_loss: str = "forward"
    """forward (CMD's), backward, symmetric or binary_nce."""
    logsumexp_penalty: float = 0.01
    """Weight of the penalty on squared row-wise log-sum-exp."""
    eikonal: float = 0.0
    """Weight of (|grad d| - 1)^2 along the achieved goal; 0: none."""

    def __post_init__(self) -> None:
        if self.quasimetric not in DISTANCES:
            raise UserError(unknown("quasimetric", self.quasimetric, DISTANCES))
        least = 2 * self.components if self.quasimetric == "mrn" else self.components
        if self.components < 1 or self.repr_dim % max(least, 1):
            raise UserError(
                f"repr_dim {self.repr_dim} does not split into {self.components} components of {self.quasimetric}: "
                f"use a multiple of {max(least, 1)}"
            )

    def init(self, keys: Array, problem: Problem) -> CriticState:
        spec, network = problem
        return CriticState(
            {
                "psi_sa": network.init(keys[0], spec.state_size + spec.action_size, self.repr_dim),
                "psi_g": network.init(keys[1], spec.goal_size, self.repr_dim),
                "mix": jnp.zeros(()),
                **self._more(jax.random.fold_in(keys[1], 1), problem),
            }
        )

    def _more(self, key: Array, problem: Problem) -> dict[str, Params]:
        return {"commonness": problem.network.init(key, problem.spec.goal_size, 1)}

    def loss(
        self, problem: Problem, params: Params, carried: tuple[()], batch: Batch, key: Array
    ) -> tuple[Array, Metrics]:
        _, psi, apart = self._pairs(problem, params, batch)
        assert batch.future_goal is not None
        common = problem.network.apply(params["commonness"], batch.future_goal)[:, 0]  # [B]
        logits = (common[None, :] - apart) / self.repr_dim**0.5  # [B, B]
        infonce = contrast(self.contrastive_loss, logits, batch.valid)
        loss = infonce + self.logsumexp_penalty * logsumexp_penalty(logits)
        loss += self._eikonal(problem, params, batch)
        return loss, {"critic_loss": infonce, **self._metrics(logits, params, psi)}

    def _pairs(self, problem: Problem, params: Params, batch: Batch) -> tuple[Array, Array, Array]:
        """Return phi [B, D], psi [B, D] and d(phi_i, psi_j) [B, B]."""
        assert batch.future_goal is not None
        phi = self.psi_sa(problem, params, batch.state, batch.action)
        psi = self.psi_g(problem, params, batch.future_goal)
        return phi, psi, DISTANCES[self.quasimetric].pairwise(phi, psi, params["mix"], self.components)

    def _metrics(self, logits: Array, params: Params, psi: Array) -> Metrics:
        """Return the metrics, with the asymmetry of the distance between the batch's goals: |d - d'| over d + d'."""
        there, back = self._apart(params, psi, jnp.roll(psi, 1, axis=0)), self._apart(params, jnp.roll(psi, 1, 0), psi)
        return {
            "infonce_accuracy": infonce_accuracy(logits),
            "asymmetry": jnp.mean(jnp.abs(there - back)) / jnp.maximum(jnp.mean(there + back), 1e-6),
        }

    def _apart(self, params: Params, x: Array, y: Array) -> Array:
        return DISTANCES[self.quasimetric].plain(x, y, params["mix"], self.components)

    def _eikonal(self, problem: Problem, params: Params, batch: Batch) -> Array | float:
        if not self.eikonal:
            return 0.0
        encode, distance = partial(self.psi_g, problem, params), partial(self._apart, params)
        return self.eikonal * eikonal_term(problem, encode, distance, batch)

    def after(self, problem: Problem, params: Params, carried: tuple[()]) -> tuple[()]:
        return carried

    def representation(self, problem: Problem, params: Params) -> Representation:
        def encode_goal(goal: Array) -> Array:
            return self.psi_g(problem, params, goal)

        def distance(psi_from: Array, psi_to: Array) -> Array:
            return self._apart(params, psi_from, psi_to)

        def value(state: Array, action: Array, goal: Array) -> Array:
            return -self._apart(params, self.psi_sa(problem, params, state, action), encode_goal(goal))

        return Representation(encode_goal, distance, value, self._steps(distance))

    def _steps(self, distance: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array] | None:
        return None

    def deployed(self, params: Params) -> Params:
        """Return the parameters that a policy reads. psi_sa and c serve only training."""
        return {name: params[name] for name in ("psi_g", "mix")}

    def psi_sa(self, problem: Problem, params: Params, state: Array, action: Array) -> Array:
        """Encode state [..., S] and action [..., A] -> [..., D]."""
        return problem.network.apply(params["psi_sa"], jnp.concatenate([state, action], axis=-1))

    def psi_g(self, problem: Problem, params: Params, goal: Array) -> Array:
        """Encode goal [..., G] -> [..., D]."""
        return problem.network.apply(params["psi_g"], goal)


def backward_divergence(apart: Array, onward: Array, log_discount: float) -> Array:
    """Return TMD's backward term: least at d = d' - log discount, linear if d - d' exceeds 3. Only d has gradients."""
    excess = apart - jax.lax.stop_gradient(onward)
    # In the linear branch the exponential must not overflow, or its gradient would be 0 times inf.
    return jnp.where(excess > 3.0, excess, jnp.exp(log_discount + jnp.minimum(excess, 3.0)) - apart)


@dataclass(frozen=True)
class TMD(Quasimetric):
    """Train temporal metric distillation: con + inv + 0.05 back. d settles at -log discount per step.

    con: InfoNCE, for each goal over the (s, a), with logits -d(phi_i, psi_j) / sqrt(D);
    inv: mean d(psi(s), phi(s, a)), which should be zero because the best action adds no distance;
    back: d(phi_i, psi_j) against d(psi(s'_i), psi_j) - log discount, half over all pairs, half over the diagonal.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"future_goal", "next_state", "has_next"})
    gives: ClassVar[frozenset[str]] = frozenset({"embedding", "distance", "steps"})
    from_config: ClassVar[tuple[str, ...]] = ("repr_dim", "discount")

    contrastive_loss: str = "backward"
    """backward (TMD's), forward, symmetric or binary_nce."""
    logsumexp_penalty: float = 0.0
    """Weight of the penalty on squared row-wise log-sum-exp."""
    invariance: float = 1.0
    """Weight of the distance from a state to its own (s, a)."""
    backward: float = 0.05
    """Weight of the backward term."""
    discount: float = 0.99
    """A step is worth -log of it in distance."""

    def _more(self, key: Array, problem: Problem) -> dict[str, Params]:
        return {}

    def loss(
        self, problem: Problem, params: Params, carried: tuple[()], batch: Batch, key: Array
    ) -> tuple[Array, Metrics]:
        phi, psi, apart = self._pairs(problem, params, batch)
        logits = -apart / self.repr_dim**0.5
        infonce = contrast(self.contrastive_loss, logits, batch.valid)
        psi_s = self.psi_g(problem, params, problem.spec.achieved(batch.state))
        invariance = masked_mean(self._apart(params, psi_s, phi), batch.valid)
        assert batch.next_state is not None and batch.has_next is not None
        psi_next = self.psi_g(problem, params, problem.spec.achieved(batch.next_state))
        pairwise = DISTANCES[self.quasimetric].pairwise
        onward = pairwise(*jax.lax.stop_gradient((psi_next, psi, params["mix"])), self.components)  # [B, B]
        terms = backward_divergence(apart, onward, problem.spec.action_chunk * math.log(self.discount))
        everywhere = masked_mean(jnp.mean(terms, axis=1), batch.has_next)
        backward = 0.5 * everywhere + 0.5 * masked_mean(jnp.diag(terms), batch.has_next)
        loss = infonce + self.logsumexp_penalty * logsumexp_penalty(logits)
        loss += self.invariance * invariance + self.backward * backward + self._eikonal(problem, params, batch)
        return loss, {
            "critic_loss": infonce,
            "invariance": invariance,
            "backward_divergence": backward,
            **self._metrics(logits, params, psi),
        }

    def _steps(self, distance: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
        return lambda psi_from, psi_to: distance(psi_from, psi_to) / -math.log(self.discount)
