"""One update of critic, actor and temperature. Knows no method: it is handed an agent's parts."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dcp.config import Config
from dcp.interfaces import Agent, Network, Problem, Representation, read
from dcp.networks import MLP, actor_heads, alpha_loss, init_actor, sample_squashed
from dcp.types import Array, Batch, EnvSpec, Metrics, Params


class LearnerParams(NamedTuple):
    actor: Params
    critic: Params
    log_alpha: Array  # []


class LearnerState(NamedTuple):
    params: LearnerParams
    optimizer: optax.OptState
    carried: Any = ()  # the critic's: target networks, multipliers


def _by_field(params: LearnerParams) -> LearnerParams:
    """Each parameter's field, in the parameters' own structure."""
    return LearnerParams(*(jax.tree.map(lambda _, name=name: name, part) for name, part in params._asdict().items()))


@dataclass(frozen=True)
class Learner:
    """Static settings; every method is a pure function."""

    config: Config
    spec: EnvSpec
    agent: Agent

    @property
    def network(self) -> Network:
        return self.agent.network or MLP()

    @property
    def problem(self) -> Problem:
        return Problem(self.spec, self.network)

    @property
    def optimizer(self) -> optax.GradientTransformation:
        c = self.config
        rates = {"actor": c.actor_learning_rate, "critic": c.critic_learning_rate, "log_alpha": c.alpha_learning_rate}
        if len(set(rates.values())) == 1:
            return optax.adam(c.actor_learning_rate)
        return optax.partition({name: optax.adam(rate) for name, rate in rates.items()}, _by_field)

    def init(self, key: Array) -> LearnerState:
        """Every method draws the same critic from the same key."""
        key_actor, *keys_critic = jax.random.split(key, 3)
        critic = self.agent.critic.init(jnp.stack(keys_critic), self.problem)
        size = self.agent.condition.size(self.spec, self.agent.critic.repr_dim)
        params = LearnerParams(init_actor(self.network, key_actor, self.spec, size), critic.params, jnp.zeros(()))
        return LearnerState(params, self.optimizer.init(params), critic.carried)

    def representation(self, critic_params: Params) -> Representation:
        return read(self.agent.critic, self.problem, critic_params)

    def actor_loss(self, params: LearnerParams, batch: Batch, noise: Array) -> tuple[Array, Array]:
        """Algorithm 1, ActorLoss: move to where the critic values (s, a) for the goal, with SAC's entropy."""
        goal = batch.future_goal if self.agent.actor_goal == "future" else batch.commanded_goal  # [B, G]
        assert goal is not None
        representation = self.representation(params.critic)
        condition = self.agent.condition(representation, self.spec.achieved(batch.state), goal)
        mean, log_std = actor_heads(self.network, params.actor, batch.state, condition)
        action, log_prob = sample_squashed(mean, log_std, noise)  # [B, A], [B]
        value = representation.value(batch.state, action, goal)  # [B]
        alpha = jax.lax.stop_gradient(jnp.exp(params.log_alpha))
        return jnp.mean(alpha * log_prob - value), log_prob

    def loss(
        self,
        params: LearnerParams,
        batch: Batch,
        noise: Array,
        critic_batch: Batch | None = None,
        carried: Any = (),
        key: Array | None = None,
    ) -> tuple[Array, Metrics]:
        """The sum of three losses whose gradients do not meet: one backward pass serves them all.

        `critic_batch`: what the critic learns from, where that is not what the actor learns from.
        """
        target_entropy = -self.config.target_entropy_scale * self.spec.action_size
        actor, log_prob = self.actor_loss(params, batch, noise)
        for_critic = batch if critic_batch is None else critic_batch
        key = jax.random.key(0) if key is None else key
        critic, metrics = self.agent.critic.loss(self.problem, params.critic, carried, for_critic, key)
        temperature = alpha_loss(params.log_alpha, log_prob, target_entropy)
        metrics |= {"actor_loss": actor, "alpha": jnp.exp(params.log_alpha), "entropy": -jnp.mean(log_prob)}
        return critic + actor + temperature, metrics

    def update(self, state: LearnerState, batch: Batch, key: Array) -> tuple[LearnerState, Metrics]:
        return self.step(state, batch, self.noise(key, batch.action.shape[0]), key=key)

    def noise(self, key: Array, batch_size: int) -> Array:
        """The actor's noise of one update, [B, A]. Drawn for many updates at once, it costs next to nothing."""
        return jax.random.normal(key, (batch_size, self.spec.action_size))

    def step(
        self,
        state: LearnerState,
        batch: Batch,
        noise: Array,
        critic_batch: Batch | None = None,
        key: Array | None = None,
    ) -> tuple[LearnerState, Metrics]:
        """Actor and temperature step with the critic as it was: all gradients are taken before any step."""
        losses = jax.grad(self.loss, has_aux=True)
        gradients, metrics = losses(state.params, batch, noise, critic_batch, state.carried, key)
        steps, optimizer = self.optimizer.update(gradients, state.optimizer, state.params)
        params = optax.apply_updates(state.params, steps)
        assert isinstance(params, LearnerParams)
        carried = self.agent.critic.after(self.problem, params.critic, state.carried)
        return LearnerState(params, optimizer, carried), metrics
