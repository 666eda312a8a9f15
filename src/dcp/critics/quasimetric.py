"""Critics with an asymmetric distance that obeys the triangle inequality by construction: CMD-1 and TMD.

d(x, y) is the distance from x to y. `MRN` and `IQE` are distances between latents of size D; the critics train
phi = psi_sa(s, a) and psi = psi_g(g) so that d(phi, psi) is short if (s, a) tends to lead to g. psi of the achieved
goal represents the state, so the inequality holds among goals' latents.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from dcp.critics.contrastive import CONTRASTIVE_LOSSES, Encoders, contrast, infonce_accuracy, logsumexp_penalty
from dcp.critics.energies import eikonal_term, safe_root
from dcp.critics.value import without_value
from dcp.errors import UserError, unknown
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


def _larger(a: Array, b: Array) -> Array:
    """Return the larger one, a where one of them is NaN. It takes a CPU a third of `jnp.maximum`'s time."""
    return jnp.where(b >= a, b, a)


def _parts(z: Array, components: int) -> Array:
    """z [B, D] -> [components, D / components, B], turned by a product.

    XLA would move a plain transposition into every kernel that reads it, which then reads one number at a time.
    """
    turned = jnp.matmul(jnp.eye(z.shape[1], dtype=z.dtype), z.T, precision=_EXACT)
    return turned.reshape(components, -1, z.shape[0])


_EXACT = jax.lax.Precision.HIGHEST  # for products that only select


def pairwise_mrn(x: Array, y: Array, mix: Array, components: int) -> Array:
    """Return `mrn` for all pairs, one component after another: a component's [B, B] stay in a core's cache."""
    lengths = [_mrn_component(*parts) for parts in zip(_parts(x, components), _parts(y, components), strict=True)]
    # A product again: XLA would compute all of this once more in every kernel that reads it, and TMD has many.
    apart = sum(lengths[1:], lengths[0]) / components
    return jnp.matmul(apart, jnp.eye(apart.shape[1], dtype=apart.dtype), precision=_EXACT)


@jax.custom_vjp
def _mrn_component(x: Array, y: Array) -> Array:
    """x [k, B], y [k, B] -> [B, B]: max_i relu(x_i - y_i) over the first half of i plus |x - y| over the second"""
    _, one_way, square = _mrn_parts(x, y)
    return one_way + safe_root(square)


def _mrn_parts(x: Array, y: Array) -> tuple[list[Array], Array, Array]:
    """-> differences of the first half, the largest of them or 0, the square of the second half's"""
    apart = [one[:, None] - other[None, :] for one, other in zip(x, y, strict=True)]  # k of [B, B]
    half = len(apart) // 2
    one_way = jnp.zeros_like(apart[0])
    for difference in apart[:half]:
        one_way = _larger(difference, one_way)
    return apart[:half], one_way, sum((difference**2 for difference in apart[half:]), jnp.zeros_like(apart[0]))


def _mrn_gradient(parts: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    """Pass the gradient to the first largest difference, and to the second half by products: x_i sum q - sum q y_i."""
    x, y = parts
    apart, one_way, square = _mrn_parts(x, y)
    rest, to_x, to_y = jnp.where(one_way > 0.0, gradient, 0.0), [], []
    for difference in apart:
        share = jnp.where(difference == one_way, rest, 0.0)
        rest = jnp.where(difference == one_way, 0.0, rest)
        to_x.append(jnp.sum(share, axis=1))
        to_y.append(-jnp.sum(share, axis=0))
    weight = gradient * jnp.where(square > 0.0, jax.lax.rsqrt(jnp.where(square > 0.0, square, 1.0)), 0.0)  # [B, B]
    x, y = x[len(apart) :], y[len(apart) :]
    centre = jnp.mean(y, axis=1, keepdims=True)  # a common offset would cost digits
    x, y, ones = x - centre, y - centre, jnp.ones_like(y[:1])
    of_x = jnp.matmul(jnp.concatenate([y, ones]), weight.T, precision=_EXACT)  # [k / 2 + 1, B]
    of_y = jnp.matmul(jnp.concatenate([x, ones]), weight, precision=_EXACT)
    return (
        jnp.concatenate([jnp.stack(to_x), x * of_x[-1:] - of_x[:-1]]),
        jnp.concatenate([jnp.stack(to_y), y * of_y[-1:] - of_y[:-1]]),
    )


_mrn_component.defvjp(lambda x, y: (_mrn_component(x, y), (x, y)), _mrn_gradient)


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
    total, reached = jax.nn.relu(y[0] - x[0]), jnp.maximum(x[0], y[0])
    for left, right in zip(x[1:], y[1:], strict=True):
        total += jax.nn.relu(right - jnp.maximum(left, reached))
        reached = jnp.maximum(reached, right)
    return _mixed(jnp.moveaxis(total, -1, 0), mix)


_BLOCK = 1 << 14  # pairs of a block: its arrays stay in a core's cache together


def pairwise_iqe(x: Array, y: Array, mix: Array, components: int) -> Array:
    """Return `iqe` for all pairs: on a CPU one component and block of rows after another, elsewhere all at once."""
    rows = x.shape[0]
    fits = (n for n in range(1, rows) if rows % n == 0 and rows // n * y.shape[0] <= _BLOCK)
    blocks = next(fits, rows)
    x, y = _parts(x, components), _parts(y, components)  # [components, k, B]
    x = x.reshape(*x.shape[:2], blocks, -1).swapaxes(1, 2).reshape(components * blocks, x.shape[1], -1)
    y = jnp.repeat(y, blocks, axis=0)  # [components * blocks, k, B]
    forms = {
        "cpu": lambda x, y: jax.lax.map(lambda parts: _iqe_component(*parts), (x, y)),
        "default": jax.vmap(_iqe_component),
    }
    lengths = jax.lax.platform_dependent(x, y, **forms)  # [components * blocks, B / blocks, B]
    return _mixed(lengths.reshape(components, rows, -1), mix)


@jax.custom_vjp
def _iqe_component(x: Array, y: Array) -> Array:
    """x [k, A], y [k, B] -> [A, B]: the length of the union over i of [x_i, max(x_i, y_i)]"""
    left, right = _sorted(_ranks(x), x, y)
    total, reached = _larger(right[0] - left[0], jnp.zeros(())), right[0]
    for begin, end in zip(left[1:], right[1:], strict=True):
        total += _larger(end - _larger(begin, reached), jnp.zeros(()))
        reached = _larger(end, reached)
    return total


def _ranks(x: Array) -> Array:
    """x [k, A] -> [k, k, A]: 1 at [i, m] where x_m is the i-th smallest. Of equal ones the first comes first."""
    number = range(x.shape[0])
    before = lambda j, m: x[j] <= x[m] if j < m else x[j] < x[m]  # noqa: E731
    ranks = [sum((before(j, m).astype(x.dtype) for j in number if j != m), jnp.zeros_like(x[m])) for m in number]
    return jnp.stack([jnp.stack([(rank == i).astype(x.dtype) for rank in ranks]) for i in number])


def _sorted(order: Array, x: Array, y: Array) -> tuple[list[Array], list[Array]]:
    """Return the left ends in ascending order, k of [A, 1], and the right end of each, k of [A, B]."""
    left = [sum((row * one for row, one in zip(rows, x, strict=True)), jnp.zeros_like(x[0]))[:, None] for rows in order]
    return left, [jnp.matmul(rows.T, y, precision=_EXACT) for rows in order]


def _iqe_gradient(residuals: tuple[Array, Array, Array], gradient: Array) -> tuple[Array, Array]:
    """Pass the gradient to the ends of the union: it grows with the right end of each of its pieces, and shrinks with
    the left one. Of all intervals only those matter that reach beyond every earlier one."""
    order, x, y = residuals
    left, right = _sorted(order, x, y)
    reached: list[Any] = [-jnp.inf]
    for end in right[:-1]:
        reached.append(_larger(end, reached[-1]))
    to_left, to_y, following = [], jnp.zeros_like(y), jnp.inf  # following: the left end of the next one that matters
    for i in reversed(range(len(left))):
        matters = right[i] > _larger(left[i], reached[i])
        closes, opens = matters & (following >= right[i]), matters & (left[i] >= reached[i])
        to_y += jnp.matmul(order[i], jnp.where(closes, gradient, 0.0), precision=_EXACT)
        to_left.insert(0, -jnp.sum(jnp.where(opens, gradient, 0.0), axis=1))
        following = jnp.where(matters, left[i], following)
    return jnp.sum(order * jnp.stack(to_left)[:, None], axis=0), to_y


def _iqe_kept(x: Array, y: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    return _iqe_component(x, y), (_ranks(x), x, y)


_iqe_component.defvjp(_iqe_kept, _iqe_gradient)


DISTANCES = {"mrn": Distance(mrn, pairwise_mrn), "iqe": Distance(iqe, pairwise_iqe)}


@dataclass(frozen=True)
class Quasimetric(Encoders):
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
        CONTRASTIVE_LOSSES.find(self.contrastive_loss)
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
        onward, back = self._apart(params, psi, jnp.roll(psi, 1, axis=0)), self._apart(params, jnp.roll(psi, 1, 0), psi)
        return {
            "infonce_accuracy": infonce_accuracy(logits),
            "asymmetry": jnp.mean(jnp.abs(onward - back)) / jnp.maximum(jnp.mean(onward + back), 1e-6),
        }

    def _apart(self, params: Params, x: Array, y: Array) -> Array:
        return DISTANCES[self.quasimetric].plain(x, y, params["mix"], self.components)

    def _eikonal(self, problem: Problem, params: Params, batch: Batch) -> Array | float:
        if not self.eikonal:
            return 0.0
        encode, distance = partial(self.psi_g, problem, params), partial(self._apart, params)
        return self.eikonal * eikonal_term(problem, encode, distance, batch)

    def representation(self, problem: Problem, params: Params) -> Representation:
        def encode_goal(goal: Array) -> Array:
            return self.psi_g(problem, params, goal)

        def distance(psi_from: Array, psi_to: Array) -> Array:
            return self._apart(params, psi_from, psi_to)

        def value(state: Array, action: Array, goal: Array) -> Array:
            return -self._apart(params, self.psi_sa(problem, params, state, action), encode_goal(goal))

        return Representation(
            encode_goal, distance, value if "psi_sa" in params else without_value, self._steps(distance)
        )

    def _steps(self, distance: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array] | None:
        return None

    def deployed(self, params: Params) -> Params:
        """Return the parameters that a policy reads. psi_sa and c serve only training."""
        return {name: params[name] for name in ("psi_g", "mix")}


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
