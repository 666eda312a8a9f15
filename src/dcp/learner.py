"""One update of critic, actor and temperature. Knows no method: it is handed a condition and an actor goal."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from dcp.config import Config, Settings
from dcp.critics.contrastive import CONTRASTIVE_LOSSES, infonce_accuracy, logsumexp_penalty
from dcp.critics.energies import ENERGIES
from dcp.methods.interface import ActorGoal, Condition, Representation
from dcp.networks import Networks, NetworkShape, alpha_loss, sample_squashed
from dcp.representation import bind
from dcp.types import Array, Batch, EnvSpec, Metrics, Params


class LearnerParams(NamedTuple):
    actor: Params
    encoders: Params  # psi_sa, psi_g
    log_alpha: Array  # []


class LearnerState(NamedTuple):
    params: LearnerParams
    optimizer: optax.OptState


def _by_field(params: LearnerParams) -> LearnerParams:
    """Each parameter's field, in the parameters' own structure."""
    return LearnerParams(*(jax.tree.map(lambda _, name=name: name, part) for name, part in params._asdict().items()))


def network_shape(config: Settings, spec: EnvSpec, condition: Condition) -> NetworkShape:
    return NetworkShape(
        state_size=spec.state_size,
        goal_size=spec.goal_size,
        action_size=spec.action_size,
        condition_size=condition.size(spec, config.repr_dim),
        repr_dim=config.repr_dim,
        width=config.width,
        depth=config.depth,
        activation=config.activation,
        layer_norm=config.layer_norm,
        residual_every=config.residual_every,
    )


def make_networks(config: Config, spec: EnvSpec, condition: Condition) -> Networks:
    return Networks(network_shape(config, spec, condition))


@dataclass(frozen=True)
class Learner:
    """Static settings; every method is a pure function."""

    config: Config
    spec: EnvSpec
    networks: Networks
    condition: Condition
    actor_goal: ActorGoal

    @property
    def optimizer(self) -> optax.GradientTransformation:
        c = self.config
        rates = {
            "actor": c.actor_learning_rate,
            "encoders": c.critic_learning_rate,
            "log_alpha": c.alpha_learning_rate,
        }
        if len(set(rates.values())) == 1:
            return optax.adam(c.actor_learning_rate)
        return optax.partition({name: optax.adam(rate) for name, rate in rates.items()}, _by_field)

    def init(self, key: Array) -> LearnerState:
        actor, encoders = self.networks.init(key)
        params = LearnerParams(actor, encoders, jnp.zeros(()))
        return LearnerState(params, self.optimizer.init(params))

    def representation(self, encoders: Params) -> Representation:
        return bind(self.networks, encoders, self.config.energy)

    def critic_loss(self, encoders: Params, batch: Batch) -> tuple[Array, Metrics]:
        """Algorithm 1, CriticLoss: InfoNCE on hindsight goals. The commanded goal plays no part in it."""
        psi_sa = self.networks.psi_sa(encoders, batch.state, batch.action)  # [B, D]
        psi_g = self.networks.psi_g(encoders, batch.future_goal)  # [B, D]
        logits = ENERGIES[self.config.energy].pairwise(psi_sa, psi_g)  # [B, B]
        infonce = CONTRASTIVE_LOSSES[self.config.contrastive_loss](logits)
        loss = infonce + self.config.logsumexp_penalty * logsumexp_penalty(logits)
        return loss, {"critic_loss": infonce, "infonce_accuracy": infonce_accuracy(logits)}

    def actor_loss(self, actor: Params, encoders: Params, alpha: Array, batch: Batch, noise: Array):
        """Algorithm 1, ActorLoss: move to where psi_sa(s, a) meets psi_g(goal), with SAC's entropy."""
        goal = batch.future_goal if self.actor_goal == "future" else batch.commanded_goal  # [B, G]
        representation = self.representation(encoders)
        condition = self.condition(representation, self.spec.achieved(batch.state), goal)
        mean, log_std = self.networks.actor(actor, batch.state, condition)
        action, log_prob = sample_squashed(mean, log_std, noise)  # [B, A], [B]
        energy = representation.energy(batch.state, action, goal)  # [B]
        return jnp.mean(jax.lax.stop_gradient(alpha) * log_prob - energy), log_prob

    def loss(
        self, params: LearnerParams, batch: Batch, noise: Array, critic_batch: Batch | None = None
    ) -> tuple[Array, Metrics]:
        """The sum of three losses whose gradients do not meet: one backward pass serves them all.

        `critic_batch`: what the critic learns from, where that is not all the same as what the actor does.
        """
        alpha = jnp.exp(params.log_alpha)
        target_entropy = -self.config.target_entropy_scale * self.spec.action_size
        actor, log_prob = self.actor_loss(params.actor, params.encoders, alpha, batch, noise)
        critic, metrics = self.critic_loss(params.encoders, batch if critic_batch is None else critic_batch)
        temperature = alpha_loss(params.log_alpha, log_prob, target_entropy)
        metrics |= {"actor_loss": actor, "alpha": alpha, "entropy": -jnp.mean(log_prob)}
        return critic + actor + temperature, metrics

    def update(self, state: LearnerState, batch: Batch, key: Array) -> tuple[LearnerState, Metrics]:
        return self.step(state, batch, self.noise(key, batch.action.shape[0]))

    def noise(self, key: Array, batch_size: int) -> Array:
        """The actor's noise of one update, [B, A]. Drawn for many updates at once, it costs next to nothing."""
        return jax.random.normal(key, (batch_size, self.spec.action_size))

    def step(
        self, state: LearnerState, batch: Batch, noise: Array, critic_batch: Batch | None = None
    ) -> tuple[LearnerState, Metrics]:
        """Actor and temperature step with the encoders as they were: all gradients are taken before any step."""
        gradients, metrics = jax.grad(self.loss, has_aux=True)(state.params, batch, noise, critic_batch)
        steps, optimizer = self.optimizer.update(gradients, state.optimizer, state.params)
        params = optax.apply_updates(state.params, steps)
        assert isinstance(params, LearnerParams)
        return LearnerState(params, optimizer), metrics
