"""The paper's critic: its energy, its contrastive loss over logits [B, B], and the critic itself.

Row i of the logits is (s, a)_i, column j is goal j, the diagonal holds the positives. If `valid` [B] is given, the
other rows are not positives but still serve as negatives. `energies.py` has the other energies and losses.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.nn import logsumexp

from dcp.components import Table
from dcp.errors import UserError
from dcp.interfaces import CriticState, Problem, Representation
from dcp.networks import WIDE, transpose_with_unfused_gradient
from dcp.types import Array, Batch, Metrics, Params, masked_mean

# Energies say how well psi_sa and psi_g agree: higher is better. The plain form maps [..., D], [..., D] -> [...], the
# pairwise form [B, D], [B, D] -> [B, B] by a matrix product, without an array [B, B, D].

NORM_EPS = 1e-6


class Energy(NamedTuple):
    plain: Callable[[Array, Array], Array]
    pairwise: Callable[[Array, Array], Array]


def norm(x: Array, y: Array) -> Array:
    """Return the paper's energy, the negative distance."""
    return -jnp.sqrt(jnp.sum((x - y) ** 2, axis=-1) + NORM_EPS)


def pairwise_square(x: Array, y: Array) -> Array:
    """Return |x|^2 + |y|^2 - 2 xy, computed about the mean of y because a common offset would cost digits."""
    centre = jax.lax.stop_gradient(jnp.mean(y, axis=0, keepdims=True))  # [1, D]
    x, y = x - centre, y - centre
    # Full precision: a GPU's default rounding error in a product is as large as the distance of a positive pair.
    columns = transpose_with_unfused_gradient(y) if y.shape[0] >= WIDE else y.T  # [D, B]
    product = jnp.matmul(x, columns, precision=jax.lax.Precision.HIGHEST)  # [B, B]
    square = jnp.sum(x**2, axis=-1)[:, None] + jnp.sum(y**2, axis=-1)[None, :] - 2.0 * product  # [B, B]
    return jnp.maximum(square, 0.0)


def pairwise_norm(x: Array, y: Array) -> Array:
    return -jnp.sqrt(pairwise_square(x, y) + NORM_EPS)


ENERGIES = Table(
    "energy",
    {
        "norm": Energy(norm, pairwise_norm),
        "l2": "dcp.critics.energies:L2",  # imported when it is first used
        "dot": "dcp.critics.energies:DOT",
        "cosine": "dcp.critics.energies:COSINE",
    },
)
OF_DISTANCE = ("norm", "l2")  # the energies that are functions of |x - y|


# Contrastive losses.

Contrast = Callable[..., Array]  # logits [B, B], and `valid` [B] or None where actions are chunks


def backward_infonce(logits: Array, valid: Array | None = None) -> Array:
    """Return Algorithm 1's CriticLoss. Column-wise: the negatives of a goal are the other (s, a)."""
    return -masked_mean(jnp.diag(logits) - logsumexp(logits, axis=0), valid)


_LANES = 16


def row_max(x: Array) -> Array:
    """Return `jnp.max(x, axis=1)`. A CPU compares one number after another within a row, but columns side by side."""
    rows, columns = x.shape
    if columns < WIDE or columns % _LANES:
        return jnp.max(x, axis=1)

    def in_two_steps(x: Array) -> Array:
        lanes = jnp.max(x.reshape(rows, -1, _LANES), axis=1)  # [rows, lanes]
        return jnp.max(jax.lax.optimization_barrier(lanes), axis=1)

    return jax.lax.platform_dependent(x, cpu=in_two_steps, default=lambda x: jnp.max(x, axis=1))


def logsumexp_of_rows(logits: Array) -> Array:
    """Return `logsumexp(logits, axis=1)`, by `row_max`."""
    top = row_max(jax.lax.stop_gradient(logits))
    top = jnp.where(jnp.isfinite(top), top, 0.0)
    return jnp.log(jnp.sum(jnp.exp(logits - top[:, None]), axis=1)) + top


def contrast(name: str, logits: Array, valid: Array | None) -> Array:
    """Return the loss of this name. A user's loss without a `valid` argument works as long as there are no chunks."""
    if valid is None:
        return CONTRASTIVE_LOSSES.find(name)(logits)
    from dcp.critics.energies import loss_of_chunks

    return loss_of_chunks(name)(logits, valid)


def logsumexp_penalty(logits: Array) -> Array:
    """Penalise a common drift of the logits, which InfoNCE cannot see. Row-wise, as in JaxGCRL."""
    return jnp.mean(logsumexp_of_rows(logits) ** 2)


def infonce_accuracy(logits: Array) -> Array:
    """Return the share of (s, a) whose own goal has the highest logit. Chance is 1 / B. A tie is a miss, so that a
    collapse scores 0."""
    rivals = jnp.where(jnp.eye(logits.shape[0], dtype=bool), -jnp.inf, logits)  # [B, B]
    return jnp.mean(jnp.diag(logits) > row_max(rivals))


CONTRASTIVE_LOSSES = Table(
    "contrastive_loss",
    {
        "forward": "dcp.critics.energies:forward_infonce",
        "backward": backward_infonce,
        "symmetric": "dcp.critics.energies:symmetric_infonce",
        "binary_nce": "dcp.critics.energies:binary_nce",
    },
)


class Encoders:
    """The two networks of a critic with an embedding; it keeps nothing besides their parameters."""

    def psi_sa(self, problem: Problem, params: Params, state: Array, action: Array) -> Array:
        """Encode state [..., S] and action [..., A] -> [..., D]."""
        return problem.network.apply(params["psi_sa"], jnp.concatenate([state, action], axis=-1))

    def psi_g(self, problem: Problem, params: Params, goal: Array) -> Array:
        """Encode goal [..., G] -> [..., D]."""
        return problem.network.apply(params["psi_g"], goal)

    def after(self, problem: Problem, params: Params, carried: tuple[()]) -> tuple[()]:
        return carried


@dataclass(frozen=True)
class Contrastive(Encoders):
    """Train the paper's critic: psi_sa(s, a) and psi_g(g) are close if (s, a) tends to lead to g."""

    needs: ClassVar[frozenset[str]] = frozenset({"future_goal"})
    gives: ClassVar[frozenset[str]] = frozenset({"embedding", "distance"})
    from_config: ClassVar[tuple[str, ...]] = ("energy", "contrastive_loss", "logsumexp_penalty", "repr_dim")

    energy: str = "norm"
    contrastive_loss: str = "backward"
    logsumexp_penalty: float = 0.1
    repr_dim: int = 64
    eikonal: float = 0.0
    """Weight of (|grad d| - 1)^2 along the achieved goal, for the energies norm and l2; 0: none."""

    def __post_init__(self) -> None:
        ENERGIES.find(self.energy)
        CONTRASTIVE_LOSSES.find(self.contrastive_loss)
        if self.eikonal and self.energy not in OF_DISTANCE:
            raise UserError(f"critic.eikonal needs a distance, and the energy {self.energy} has none: use norm or l2")

    def init(self, keys: Array, problem: Problem) -> CriticState:
        spec, network = problem
        key_sa, key_g = keys
        psi_sa = network.init(key_sa, spec.state_size + spec.action_size, self.repr_dim)
        return CriticState({"psi_sa": psi_sa, "psi_g": network.init(key_g, spec.goal_size, self.repr_dim)})

    def loss(
        self, problem: Problem, params: Params, carried: tuple[()], batch: Batch, key: Array
    ) -> tuple[Array, Metrics]:
        """Return Algorithm 1's CriticLoss: InfoNCE on hindsight goals. It does not use the commanded goal."""
        assert batch.future_goal is not None
        psi_sa = self.psi_sa(problem, params, batch.state, batch.action)  # [B, D]
        psi_g = self.psi_g(problem, params, batch.future_goal)  # [B, D]
        loss, metrics = self.loss_of_embeddings(psi_sa, psi_g, batch.valid)
        if self.eikonal:
            from dcp.critics.energies import eikonal_term, euclidean

            loss += self.eikonal * eikonal_term(problem, partial(self.psi_g, problem, params), euclidean, batch)
        return loss, metrics

    def loss_of_embeddings(self, psi_sa: Array, psi_g: Array, valid: Array | None) -> tuple[Array, Metrics]:
        """Return the loss without the Eikonal term, for psi_sa [B, D] and psi_g [B, D]."""
        logits = ENERGIES.find(self.energy).pairwise(psi_sa, psi_g)  # [B, B]
        infonce = contrast(self.contrastive_loss, logits, valid)
        loss = infonce + self.logsumexp_penalty * logsumexp_penalty(logits)
        return loss, {"critic_loss": infonce, "infonce_accuracy": infonce_accuracy(logits)}

    def representation(self, problem: Problem, params: Params) -> Representation:
        def encode_goal(goal: Array) -> Array:
            return self.psi_g(problem, params, goal)

        def distance(psi_from: Array, psi_to: Array) -> Array:
            return jnp.linalg.norm(psi_from - psi_to, axis=-1)

        def value(state: Array, action: Array, goal: Array) -> Array:
            if "psi_sa" not in params:
                raise UserError(
                    "this policy was saved without its critic psi_sa: use the policy file of a run's own folder"
                )
            return ENERGIES.find(self.energy).plain(self.psi_sa(problem, params, state, action), encode_goal(goal))

        return Representation(encode_goal, distance, value)

    def deployed(self, params: Params) -> Params:
        """Return the parameters that a policy reads. psi_sa serves only training."""
        return {"psi_g": params["psi_g"]}
