"""Survival critics: SRL, which predicts when a goal is reached, and ChronoSRL, whose psi-distance is that time.

With W one-step bins, p0 = sig(l0) and hazards h_k = sig(l_k), S_k is the probability of not being near before step k:

    log S_k = log(1 - p0) + sum_{j < k} log(1 - h_j)                        S_0 = 1 - p0

The goal is first near at step tau (0: now), or never within the window; then it counts as not reached within all W
steps. The loss is the negative log-likelihood

    -log p0 (tau = 0);   -(log S_tau + log h_tau) (tau >= 1, at most W - 1);   -log S_W (never)

and the actor maximises Q = -sum_{k < W} gamma^k S_k: minus the discounted number of steps before the goal is reached.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from dcp.critics.contrastive import Encoders, pairwise_square
from dcp.critics.energies import eikonal_term, euclidean, safe_root
from dcp.critics.value import without_psi, without_value
from dcp.errors import UserError
from dcp.interfaces import CriticState, Hindsight, Problem, Representation
from dcp.types import Array, Batch, EnvSpec, Metrics, Params, masked_mean

BLOCK = 32  # bins that are summed by one product
BASIS = 64  # basis functions of time for the hazards
FILM = 0.1  # how strongly the goal modulates the state's features


def running_sums(x: Array) -> Array:
    """Return jnp.cumsum along the last axis, by products with triangles of ones: blocks, then the blocks' totals."""
    blocks = -(-x.shape[-1] // BLOCK)
    padding = [(0, 0)] * (x.ndim - 1) + [(0, blocks * BLOCK - x.shape[-1])]
    parts = jnp.pad(x, padding).reshape(*x.shape[:-1], blocks, BLOCK)
    high = jax.lax.Precision.HIGHEST  # a GPU's default would round the sums to three digits
    within = jnp.matmul(parts, jnp.asarray(np.triu(np.ones((BLOCK, BLOCK))), x.dtype), precision=high)
    before = jnp.matmul(within[..., -1], jnp.asarray(np.triu(np.ones((blocks, blocks)), 1), x.dtype), precision=high)
    return (within + before[..., None]).reshape(*x.shape[:-1], -1)[..., : x.shape[-1]]


def log_survival(logit_0: Array, logits: Array) -> Array:
    """Return log S_k for k = 0 .. W: l0 [...], l [..., W] -> [..., W + 1]."""
    stays = -jax.nn.softplus(logits)  # log(1 - h)
    first = -jax.nn.softplus(logit_0)[..., None]  # log(1 - p0)
    return jnp.concatenate([first, first + running_sums(stays)], axis=-1)


def hazard_loss(logit_0: Array, logits: Array, hit_time: Array, hit: Array) -> Array:
    """Return the negative log-likelihood [B] for l0 [B], l [B, W], steps to the goal [B], whether it is reached [B]."""
    # With log h = l - softplus(l) and log(1 - h) = -softplus(l), both cases are sums up to a last bin.
    step, at = jnp.arange(logits.shape[-1])[None, :], jnp.minimum(hit_time, logits.shape[-1] - 1)[:, None]
    summed = (step <= at) | ~hit[:, None]  # [B, W]
    waits = jnp.sum(jnp.where(summed, jax.nn.softplus(logits), 0.0), axis=1)
    arrives = jnp.sum(jnp.where((step == at) & hit[:, None], logits, 0.0), axis=1)
    later = jax.nn.softplus(logit_0) + waits - arrives
    return jnp.where(hit & (hit_time == 0), jax.nn.softplus(-logit_0), later)


def discounted_wait(logit_0: Array, logits: Array, discount: float) -> Array:
    """Return sum_{k < W} discount^k S_k: [...]."""
    survival = jnp.exp(log_survival(logit_0, logits)[..., :-1])  # [..., W]
    return survival @ jnp.asarray(discount ** np.arange(survival.shape[-1]), survival.dtype)


@dataclass(frozen=True)
class SRL(Encoders):
    """Train survival reinforcement learning: hazards of reaching the goal at each future step. It has no distance."""

    needs: ClassVar[frozenset[str]] = frozenset({"future_goal", "goal_sequence", "hit_time", "hit"})
    gives: ClassVar[frozenset[str]] = frozenset({"survival"})
    from_config: ClassVar[tuple[str, ...]] = ("repr_dim",)  # the size of the latents, which only its head reads

    repr_dim: int = 64
    horizon: int | None = None
    """W: one-step bins. Default: an episode."""
    gamma: float | None = None
    """Discount of the wait for the goal. Default: 1 - 1 / W."""
    future_discount: float | None = 0.999
    """How far ahead hindsight goals lie; none: the config's discount."""
    current_share: float = 0.05
    """Of the goals: the achieved goal of the row itself."""
    random_share: float = 0.1
    """Of the goals: the achieved goal of any row of the window."""
    goal_steps: int = 1
    """m: a goal is this many achieved goals in a row, and all of them must be near (32 for a humanoid)."""

    def __post_init__(self) -> None:
        for name, least in (("horizon", 2), ("goal_steps", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UserError(f"critic.{name} {value} is too small: use {least} or more")
        for name in ("gamma", "future_discount"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value < 1.0:
                raise UserError(f"critic.{name} {value} is no discount: use a number between 0 and 1")
        shares = self.current_share, self.random_share
        if not (min(shares) >= 0.0 and sum(shares) <= 1.0):
            raise UserError(
                f"critic.current_share {shares[0]} and critic.random_share {shares[1]} are shares of the goals: "
                "use numbers from 0 to 1 whose sum is at most 1"
            )

    @property
    def hindsight(self) -> Hindsight:
        return Hindsight(
            discount=self.future_discount,
            current_share=self.current_share,
            random_share=self.random_share,
            goal_steps=self.goal_steps,
            bins=self.bins,
        )

    @property
    def bins(self) -> tuple[int, ...]:
        return ()

    def for_task(self, spec: EnvSpec, episode_length: int) -> Self:
        horizon = self.horizon or episode_length
        return replace(self, horizon=horizon, gamma=self.gamma or 1.0 - 1.0 / horizon)

    def init(self, keys: Array, problem: Problem) -> CriticState:
        spec, network = problem
        key_film, key_head, key_basis = jax.random.split(keys[1], 3)
        size, bound = self.repr_dim, 1.0 / math.sqrt(self.repr_dim)
        return CriticState(
            {
                "psi_sa": network.init(keys[0], spec.state_size + spec.action_size, size),
                "psi_g": network.init(jax.random.fold_in(keys[1], 1), self.goal_steps * spec.goal_size, size),
                "film": {
                    "kernel": jax.random.uniform(key_film, (size, 2 * size), minval=-bound, maxval=bound),
                    "bias": jnp.zeros(2 * size),
                },
                "head": network.init(key_head, 4 * size, 1 + BASIS + self._more_outputs),
                "basis": 0.02 * jax.random.normal(key_basis, (BASIS, self._bins)),
                "bias": jnp.zeros(self._bins),
            }
        )

    @property
    def _more_outputs(self) -> int:
        return 0

    @property
    def _bins(self) -> int:
        assert self.horizon is not None  # `for_task` has filled it in
        return self.horizon

    def loss(
        self, problem: Problem, params: Params, carried: tuple[()], batch: Batch, key: Array
    ) -> tuple[Array, Metrics]:
        z_sa, z_g = self._latents(problem, params, batch)
        logit_0, logits, _ = self._head(problem, params, z_sa, z_g)
        return self._likelihood(logit_0, logits, batch)

    def _likelihood(self, logit_0: Array, logits: Array, batch: Batch) -> tuple[Array, Metrics]:
        assert batch.hit_time is not None and batch.hit is not None
        loss = masked_mean(hazard_loss(logit_0, logits, batch.hit_time, batch.hit), batch.valid)
        return loss, {"critic_loss": loss, "share_reached": jnp.mean(batch.hit)}

    def _latents(self, problem: Problem, params: Params, batch: Batch) -> tuple[Array, Array]:
        assert batch.goal_sequence is not None
        z_g = self._normed(problem.network.apply(params["psi_g"], batch.goal_sequence))
        return self.psi_sa(problem, params, batch.state, batch.action), z_g

    def _head(self, problem: Problem, params: Params, z_sa: Array, z_g: Array) -> tuple[Array, Array, Array]:
        """Return l0 [...], l [..., W] and the head's other outputs [..., K] for latents [..., E], [..., E]."""
        bent = z_g @ params["film"]["kernel"] + params["film"]["bias"].reshape([1] * (z_g.ndim - 1) + [-1])
        scale, shift = jnp.split(bent, 2, axis=-1)
        z = (1.0 + FILM * scale) * z_sa + FILM * shift
        out = problem.network.apply(params["head"], jnp.concatenate([z, z_g, z - z_g, z * z_g], axis=-1))
        bias = params["bias"].reshape([1] * (out.ndim - 1) + [-1])
        return out[..., 0], out[..., 1 : 1 + BASIS] @ params["basis"] + bias, out[..., 1 + BASIS :]

    def survival(self, problem: Problem, params: Params, state: Array, action: Array, goal: Array) -> Array:
        """Return the probabilities S_k that the goal was not near before step k, for k = 0 .. W: [..., W + 1]."""
        z_sa, z_g = self.psi_sa(problem, params, state, action), self.psi_g(problem, params, goal)
        logit_0, logits, _ = self._head(problem, params, z_sa, z_g)
        return jnp.exp(log_survival(logit_0, logits))

    def representation(self, problem: Problem, params: Params) -> Representation:
        def value(state: Array, action: Array, goal: Array) -> Array:
            return self._value(problem, params, state, action, goal)[0]

        return Representation(without_psi, without_psi, value if "head" in params else without_value)

    def _value(self, problem: Problem, params: Params, state: Array, action: Array, goal: Array) -> tuple[Array, Array]:
        """Return Q [...] and the head's other outputs [..., K]."""
        z_sa, z_g = self.psi_sa(problem, params, state, action), self.psi_g(problem, params, goal)
        logit_0, logits, more = self._head(problem, params, z_sa, z_g)
        assert self.gamma is not None
        return -discounted_wait(logit_0, logits, self.gamma), more

    def deployed(self, params: Params) -> Params:
        """Return the parameters that a policy reads: none."""
        return {}

    def psi_sa(self, problem: Problem, params: Params, state: Array, action: Array) -> Array:
        """Encode state [..., S] and action [..., A] -> [..., E]."""
        return self._normed(problem.network.apply(params["psi_sa"], jnp.concatenate([state, action], axis=-1)))

    def psi_g(self, problem: Problem, params: Params, goal: Array) -> Array:
        """Encode goal [..., G] -> [..., E], repeated m times as if the body stayed there."""
        repeated = jnp.concatenate([goal] * self.goal_steps, axis=-1)
        return self._normed(problem.network.apply(params["psi_g"], repeated))

    def _normed(self, z: Array) -> Array:
        """Normalise a latent to mean 0 and variance 1."""
        z = z - jnp.mean(z, axis=-1, keepdims=True)
        return z * jax.lax.rsqrt(jnp.mean(z**2, axis=-1, keepdims=True) + 1e-6)


def occupancy_bins(horizon: int) -> tuple[int, ...]:
    """Return the bins' edges in steps: 0, then 32 of geometric widths up to the horizon, without duplicates."""
    edges = np.unique(np.rint(np.geomspace(1.0, horizon, 33)).astype(int))
    return (0, *(int(edge) for edge in edges))


def huber(x: Array) -> Array:
    return jnp.where(jnp.abs(x) < 1.0, 0.5 * x**2, jnp.abs(x) - 0.5)


@dataclass(frozen=True)
class ChronoSRL(SRL):
    """Train SRL with a distance |psi_sa(s, a) - psi_g(g)| of kappa times the steps to the goal. Four terms of weight 1:

    hazards: as in SRL;
    time: Huber(d - kappa tau) if the goal is reached at tau >= 1;
    separation: max(0, kappa W - d) for a row and another row's goal, unless that goal is within the task's threshold of
    the row's own, and for a row whose goal is never reached;
    occupancy: cross-entropy of how much the body stays near the goal, over bins of later steps.
    The actor maximises Q + beta sum_k D_k sig(o_k); D_k: a bin's discounted steps, beta: the share of falling rows.
    """

    needs: ClassVar[frozenset[str]] = frozenset({*SRL.needs, "occupancy", "occupancy_seen", "falls"})
    gives: ClassVar[frozenset[str]] = frozenset({"embedding", "distance", "steps", "survival"})

    future_discount: float | None = None
    """How far ahead hindsight goals lie. Default: the config's discount."""
    kappa: float | None = None
    """Distance of one step. Default: -log gamma."""
    time: float = 1.0
    """Weight of the time term."""
    separation: float = 1.0
    """Weight of the separation term."""
    occupancy: float = 1.0
    """Weight of the occupancy term."""
    eikonal: float = 0.0
    """Weight of (|grad d| - 1)^2 along the achieved goal; 0: none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kappa is not None and not self.kappa > 0.0:
            raise UserError(f"critic.kappa {self.kappa} is no distance of a step: use a positive number")

    def for_task(self, spec: EnvSpec, episode_length: int) -> Self:
        filled = super().for_task(spec, episode_length)
        assert filled.gamma is not None
        return replace(filled, kappa=self.kappa or -math.log(filled.gamma))

    @property
    def bins(self) -> tuple[int, ...]:
        return () if self.horizon is None else occupancy_bins(self.horizon)

    @property
    def _more_outputs(self) -> int:
        return len(self.bins) - 1

    def loss(
        self, problem: Problem, params: Params, carried: tuple[()], batch: Batch, key: Array
    ) -> tuple[Array, Metrics]:
        z_sa, z_g = self._latents(problem, params, batch)
        logit_0, logits, occupied = self._head(problem, params, z_sa, z_g)
        nll, metrics = self._likelihood(logit_0, logits, batch)
        time, separation = self.geometry(z_sa, z_g, batch, problem.spec.threshold)
        assert batch.occupancy is not None and batch.occupancy_seen is not None
        observed = batch.occupancy_seen if batch.valid is None else batch.occupancy_seen & batch.valid[:, None]
        crossed = jax.nn.softplus(occupied) - batch.occupancy * occupied  # [B, K]
        occupancy = masked_mean(crossed, observed)
        loss = nll + self.time * time + self.separation * separation + self.occupancy * occupancy
        if self.eikonal:
            loss += self.eikonal * eikonal_term(problem, partial(self.psi_g, problem, params), euclidean, batch)
        return loss, metrics | {"time_loss": time, "separation_loss": separation, "occupancy_loss": occupancy}

    def geometry(self, z_sa: Array, z_g: Array, batch: Batch, threshold: float) -> tuple[Array, Array]:
        """Return the time and separation terms of z_sa [B, D] and z_g [B, D]."""
        assert batch.hit_time is not None and batch.hit is not None and batch.goal_sequence is not None
        assert self.kappa is not None and self.horizon is not None
        valid = jnp.ones(batch.hit.shape, bool) if batch.valid is None else batch.valid
        own = euclidean(z_sa, z_g)  # [B]
        reached = valid & batch.hit & (batch.hit_time >= 1)
        time = masked_mean(huber(own - self.kappa * batch.hit_time), reached)
        apart = safe_root(pairwise_square(z_sa, z_g))  # [B, B]
        other = pairwise_square(batch.goal_sequence, batch.goal_sequence) > threshold**2  # over all m steps
        diagonal = jnp.eye(own.shape[0], dtype=bool)
        counted = jnp.where(diagonal, (valid & ~batch.hit)[:, None], other)
        hinge = jax.nn.relu(self.kappa * self.horizon - jnp.where(diagonal, own[:, None], apart))
        return time, masked_mean(hinge, counted)

    def actor_value(self, problem: Problem, params: Params, batch: Batch, action: Array, goal: Array) -> Array:
        """Return Q plus the worth of staying near the goal, weighted by the share of rows whose bodies fall: [B]."""
        value, occupied = self._value(problem, params, batch.state, action, goal)
        assert batch.falls is not None and self.gamma is not None
        discounts = self.gamma ** np.arange(self.horizon or 0)
        worth = np.array([discounts[max(a, 1) : b].sum() for a, b in zip(self.bins, self.bins[1:], strict=False)])
        share = masked_mean(batch.falls.astype(value.dtype), batch.valid)
        return value + share * (jax.nn.sigmoid(occupied) @ jnp.asarray(worth, value.dtype))

    def representation(self, problem: Problem, params: Params) -> Representation:
        def encode_goal(goal: Array) -> Array:
            return self.psi_g(problem, params, goal)

        def steps(psi_from: Array, psi_to: Array) -> Array:
            assert self.kappa is not None
            return euclidean(psi_from, psi_to) / self.kappa

        plain = super().representation(problem, params)
        return plain._replace(encode_goal=encode_goal, distance=euclidean, steps=steps)

    def deployed(self, params: Params) -> Params:
        """Return the parameters that a policy reads. psi_sa and the head serve only training."""
        return {"psi_g": params["psi_g"]}

    def _normed(self, z: Array) -> Array:
        return z
