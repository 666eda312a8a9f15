"""One update of critic, actor and temperature, from an agent's parts; the learner knows no method."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dcp.actor import actor_heads, actor_rule_of, alpha_loss, init_actor
from dcp.config import Config
from dcp.interfaces import (
    ActorRule,
    ActorStep,
    Agent,
    Network,
    Problem,
    Representation,
    actor_value,
    needs,
    representation_of,
)
from dcp.networks import MLP, in_task_units, init_scale, observe, scaled_batch, scaled_goal, scaled_state
from dcp.types import Array, Batch, EnvSpec, Metrics, Params


class LearnerParams(NamedTuple):
    actor: Params
    critic: Params
    log_alpha: Array  # []
    scale: Any = ()  # a Scale, where inputs are normalised; no gradient reaches it


class Delayed(NamedTuple):
    """Hold the state of delayed actor updates (TD3)."""

    updates: Array  # []
    actor: Params  # a moving average of the actor at rate TARGET_RATE, which moves when the actor does


class Average(NamedTuple):
    """Hold the mean of the weights after the last iterations, where the deployed policy has it."""

    iterations: Array  # []
    actor: Params
    critic: Params


class LearnerState(NamedTuple):
    params: LearnerParams
    optimizer: optax.OptState
    carried: Any = ()  # the critic's: target networks, multipliers
    delayed: Any = ()  # a Delayed, where the critic's actor rule has a delay
    average: Any = ()  # an Average, where the config asks for one

    @property
    def deployed(self) -> LearnerParams:
        """Return what is evaluated and saved as the policy. The rollout has `params`."""
        if not self.average:
            return self.params
        return self.params._replace(actor=self.average.actor, critic=self.average.critic)


TARGET_RATE = 0.005
_NEXT_ACTION = 0x6E657874  # keeps the draw of the next action apart from the actor's own


def _by_field(params: LearnerParams) -> LearnerParams:
    """Return the name of each parameter's field, in the parameters' own structure."""
    return LearnerParams(*(jax.tree.map(lambda _, name=name: name, part) for name, part in params._asdict().items()))


@dataclass(frozen=True)
class Learner:
    """Hold static settings; every method is a pure function."""

    config: Config
    spec: EnvSpec  # its actions are whole chunks
    agent: Agent

    @property
    def network(self) -> Network:
        return self.agent.network or MLP()

    @property
    def problem(self) -> Problem:
        return Problem(self.spec, self.network)

    @property
    def rule(self) -> ActorRule:
        return actor_rule_of(self.agent.critic)

    @property
    def needs(self) -> frozenset[str]:
        """Return the fields of a Batch that the losses read besides state, action and commanded goal."""
        return needs(self.agent) | (frozenset({"next_state"}) if self.config.action_change_penalty else frozenset())

    @property
    def optimizer(self) -> optax.GradientTransformation:
        c, delay = self.config, self.rule.delay
        rates = {"actor": c.actor_learning_rate, "critic": c.critic_learning_rate, "log_alpha": c.alpha_learning_rate}
        if len(set(rates.values())) == 1 and delay == 1:
            return optax.adam(c.actor_learning_rate)
        of_each: dict[Any, Any] = {name: optax.adam(rate) for name, rate in rates.items()}
        of_each["scale"] = optax.set_to_zero()  # it is observed, not trained
        if delay > 1:
            adam = of_each["actor"]
            of_each["actor"] = optax.conditionally_mask(adam, lambda step, **_: jnp.asarray(step) % delay == 0)
        return optax.partition(of_each, _by_field)

    def init(self, key: Array) -> LearnerState:
        """Return the first state. Every method draws the same critic from the same key."""
        key_actor, *keys_critic = jax.random.split(key, 3)
        critic = self.agent.critic.init(jnp.stack(keys_critic), self.problem)
        size = self.agent.condition.size(self.spec, self.agent.critic.repr_dim)
        params = LearnerParams(
            init_actor(self.network, key_actor, self.spec, size),
            critic.params,
            jnp.zeros(()),
            init_scale(self.config.normalize, self.spec),
        )
        delayed = Delayed(jnp.zeros((), jnp.int32), params.actor) if self.rule.delay > 1 else ()
        average = Average(jnp.zeros((), jnp.int32), params.actor, params.critic) if self.config.average_weights else ()
        return LearnerState(params, self.optimizer.init(params), critic.carried, delayed, average)

    def representation(self, critic_params: Params) -> Representation:
        """Read the critic, for states and goals as networks see them."""
        return representation_of(self.agent.critic, self.problem, critic_params)

    def task_representation(self, params: LearnerParams) -> Representation:
        """Read the critic, for states and goals in the task's own units."""
        return in_task_units(self.representation(params.critic), params.scale, self.spec)

    def heads(self, params: LearnerParams, state: Array, goal: Array) -> tuple[Array, Array]:
        """Return the actor's mean and log std for states and goals in the task's own units."""
        state, goal = scaled_state(params.scale, state), scaled_goal(params.scale, self.spec, goal)
        condition = self.agent.condition(self.representation(params.critic), self.spec.achieved(state), goal)
        return actor_heads(self.network, params.actor, state, condition)

    def observed(self, learner: LearnerState, states: Array) -> LearnerState:
        """Return the learner whose running scale has seen these states [..., S]."""
        if self.config.normalize != "running":
            return learner
        params = learner.params
        return learner._replace(params=params._replace(scale=observe(params.scale, states)))

    def averaged(self, learner: LearnerState) -> LearnerState:
        """Return the learner whose average counts the weights of one more iteration: at first a plain mean."""
        if not learner.average:
            return learner
        iterations, *before = learner.average
        rate = jnp.maximum(1 / self.config.average_weights, 1 / (iterations + 1))
        now: Any = optax.incremental_update([learner.params.actor, learner.params.critic], before, rate)  # pyright: ignore
        return learner._replace(average=Average(iterations + 1, *now))

    def actor_loss(self, params: LearnerParams, batch: Batch, noise: Array) -> tuple[Array, Array]:
        """Return Algorithm 1's ActorLoss, by the critic's actor rule, and the log probability of a draw [B]."""
        goal = self.actor_goal(batch)  # [B, G]
        representation = self.representation(params.critic)
        condition = self.agent.condition(representation, self.spec.achieved(batch.state), goal)
        mean, log_std = actor_heads(self.network, params.actor, batch.state, condition)
        value = actor_value(self.agent.critic, self.problem, params.critic, batch, goal)
        alpha = jax.lax.stop_gradient(jnp.exp(params.log_alpha))
        loss, log_prob = self.rule.loss(ActorStep(value, mean, log_std, noise, alpha, batch))
        if weight := self.config.action_change_penalty:
            assert batch.next_state is not None
            condition = self.agent.condition(representation, self.spec.achieved(batch.next_state), goal)
            after, _ = actor_heads(self.network, params.actor, batch.next_state, condition)
            change = jnp.tanh(mean) - jnp.tanh(after)  # [B, A]
            loss = loss + weight * jnp.mean(jnp.sum(change**2, axis=-1))
        return loss, log_prob

    def actor_goal(self, batch: Batch) -> Array:
        """Return what the actor's loss aims at: [B, G]."""
        if self.agent.actor_goal == "commanded":
            return batch.commanded_goal
        assert batch.future_goal is not None
        if self.agent.actor_goal == "future":
            return batch.future_goal
        own = jnp.arange(batch.state.shape[0])[:, None] < batch.state.shape[0] // 2  # [B, 1]
        return jnp.where(own, batch.future_goal, jnp.roll(batch.future_goal, 1, axis=0))

    def with_next_action(self, params: LearnerParams, actor: Params, batch: Batch, key: Array) -> Batch:
        """Add what this actor would do at the next state, for a critic that bootstraps from it."""
        if "next_action" not in needs(self.agent):
            return batch
        assert batch.next_state is not None and batch.future_goal is not None
        params, actor = jax.lax.stop_gradient((params, actor))
        achieved = self.spec.achieved(batch.next_state)
        condition = self.agent.condition(self.representation(params.critic), achieved, batch.future_goal)
        heads = actor_heads(self.network, actor, batch.next_state, condition)
        noise = self.noise(jax.random.fold_in(key, _NEXT_ACTION), batch.state.shape[0])
        action, log_prob = self.rule.next_action(*heads, noise)
        if self.rule.learns_temperature:
            return batch._replace(next_action=action, next_bonus=-jnp.exp(params.log_alpha) * log_prob)
        return batch._replace(next_action=action, next_bonus=jnp.zeros_like(log_prob))

    def loss(
        self,
        params: LearnerParams,
        batch: Batch,
        noise: Array,
        critic_batch: Batch | None = None,
        carried: Any = (),
        key: Array | None = None,
        delayed: Any = (),
    ) -> tuple[Array, Metrics]:
        """Return the sum of three losses that share no trained parameter: one backward pass serves them all.

        `critic_batch`: what the critic learns from, where that is not what the actor learns from.
        """
        scale = jax.lax.stop_gradient(params.scale)
        batch = scaled_batch(scale, self.spec, batch)
        actor, of_actor = self.with_temperature(params.log_alpha, *self.actor_loss(params, batch, noise))
        for_critic = batch if critic_batch is None else scaled_batch(scale, self.spec, critic_batch)
        key = jax.random.key(0) if key is None else key
        for_critic = self.with_next_action(params, delayed.actor if delayed else params.actor, for_critic, key)
        critic, of_critic = self.agent.critic.loss(self.problem, params.critic, carried, for_critic, key)
        return critic + actor, of_critic | of_actor

    def with_temperature(self, log_alpha: Array, actor: Array, log_prob: Array) -> tuple[Array, Metrics]:
        """Add the temperature's loss to the actor's, where the actor's rule has one."""
        metrics = {"actor_loss": actor}
        if not self.rule.learns_temperature:
            return actor, metrics
        target_entropy = -self.config.target_entropy_scale * self.spec.action_size
        temperature = alpha_loss(log_alpha, log_prob, target_entropy)
        metrics |= {"alpha": jnp.exp(log_alpha), "entropy": -jnp.mean(log_prob)}
        return actor + temperature, metrics

    def update(self, state: LearnerState, batch: Batch, key: Array) -> tuple[LearnerState, Metrics]:
        return self.step(state, batch, self.noise(key, batch.action.shape[0]), key=key)

    def noise(self, key: Array, batch_size: int) -> Array:
        """Return the actor's noise of one update, [B, A]. Drawn for many updates at once, it costs next to nothing."""
        return jax.random.normal(key, (batch_size, self.spec.action_size))

    def step(
        self,
        state: LearnerState,
        batch: Batch,
        noise: Array,
        critic_batch: Batch | None = None,
        key: Array | None = None,
    ) -> tuple[LearnerState, Metrics]:
        """Do one update. All gradients are taken before any step: actor and temperature see the critic as it was."""
        gradients_of = jax.grad(self.loss, has_aux=True)
        gradients, metrics = gradients_of(state.params, batch, noise, critic_batch, state.carried, key, state.delayed)
        changes, optimizer = self.optimizer.update(gradients, state.optimizer, state.params)
        params: Any = optax.apply_updates(state.params, changes)
        carried = self.agent.critic.after(self.problem, params.critic, state.carried)
        delayed = self._follow(state.delayed, params.actor)
        return LearnerState(params, optimizer, carried, delayed, state.average), metrics

    def _follow(self, delayed: Any, actor: Params) -> Any:
        """Update the slow copy: it moves when the actor does."""
        if not delayed:
            return ()
        rate = jnp.where(delayed.updates % self.rule.delay == 0, TARGET_RATE, 0.0)
        return Delayed(delayed.updates + 1, optax.incremental_update(actor, delayed.actor, rate))
