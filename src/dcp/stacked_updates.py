"""The paper's update in few launches, for a GPU: psi_sa, psi_g and the actor are one stack of networks.

At these sizes a GPU spends its time on launches. The three networks have the same layers, so a layer of all three is
one batched product over kernels [3, in, out]. Shorter inputs and outputs are filled up with zeros, which stay zero:
their gradients are. `Learner.step` is the plain form; tests compare the two.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import optax

from dcp.critics.contrastive import Contrastive
from dcp.critics.energies import ENERGIES
from dcp.interfaces import ActorStep, Network, Problem, read
from dcp.learner import Learner, LearnerParams, LearnerState
from dcp.networks import MLP, Residual, in_few_launches, split_heads
from dcp.types import Array, Batch, Metrics, Params


class Stack(NamedTuple):
    """The parameters of psi_sa, psi_g and the actor, along a leading axis of each array."""

    kernels: list[Array]  # of several dimensions each
    vectors: Array  # [3, all biases and scales]: one kernel of Adam for all of them
    log_alpha: Array  # []


PSI_SA, PSI_G, ACTOR = range(3)


def filled(x: Array, shape: tuple[int, ...]) -> Array:
    """Fill an array up with zeros at the end of each axis."""
    return jnp.pad(x, [(0, whole - part) for whole, part in zip(shape, x.shape, strict=True)])


@dataclass(frozen=True)
class Filled:
    """A network for inputs that may be shorter than its own, of whose output only a part is used."""

    network: Network
    inputs: int
    out: int

    def init(self, key: Array, in_size: int, out_size: int) -> Params:
        return self.network.init(key, self.inputs, out_size)

    def apply(self, params: Params, x: Array) -> Array:
        return self.network.apply(params, filled(x, (*x.shape[:-1], self.inputs)))[..., : self.out]


@dataclass(frozen=True)
class StackedUpdates:
    """Has `Learner`'s `flattened`, `step` and `unflattened`. Every method is a pure function."""

    learner: Learner
    critic: Contrastive

    @classmethod
    def of(cls, learner: Learner) -> Self | None:
        """Return the stacked form, or None where the parts or the optimizer are not the paper's."""
        critic, config = learner.agent.critic, learner.config
        rates = {config.actor_learning_rate, config.critic_learning_rate, config.alpha_learning_rate}
        if type(learner.network) not in (MLP, Residual) or type(critic) is not Contrastive or len(rates) > 1:
            return None
        return None if critic.eikonal else cls(learner, critic)

    @property
    def _inputs(self) -> tuple[int, int, int]:
        spec = self.learner.spec
        condition = self.learner.agent.condition.size(spec, self.critic.repr_dim)
        return spec.state_size + spec.action_size, spec.goal_size, spec.state_size + condition

    @property
    def _outs(self) -> tuple[int, int, int]:
        return self.critic.repr_dim, self.critic.repr_dim, 2 * self.learner.spec.action_size

    def _shapes(self, in_size: int, out_size: int) -> Any:
        init = partial(self.learner.network.init, in_size=in_size, out_size=out_size)
        return jax.eval_shape(init, jax.random.key(0))

    def flattened(self, state: LearnerState) -> LearnerState:
        """Stack the parameters and both of Adam's moments."""
        return self._converted(state, self._stacked)

    def unflattened(self, state: LearnerState) -> LearnerState:
        """Undo `flattened`: what is stored and shown has one form everywhere."""
        return self._converted(state, self._parted)

    def _converted(self, state: LearnerState, convert: Callable[[Any], Any]) -> LearnerState:
        optimizer: Any = state.optimizer
        adam, empty = optimizer
        adam = adam._replace(mu=convert(adam.mu), nu=convert(adam.nu))
        return state._replace(params=convert(state.params), optimizer=(adam, empty))

    def _stacked(self, params: LearnerParams) -> Stack:
        def stacked(*leaves: Array) -> Array:
            shape = tuple(map(max, *(leaf.shape for leaf in leaves)))
            return jnp.stack([filled(leaf, shape) for leaf in leaves])

        networks = params.critic["psi_sa"], params.critic["psi_g"], params.actor
        leaves = jax.tree.leaves(jax.tree.map(stacked, *networks))
        kernels, vectors = ([leaf for leaf in leaves if (leaf.ndim > 2) is many] for many in (True, False))
        return Stack(kernels, jnp.concatenate(vectors, axis=1), params.log_alpha)

    def _networks(self, stack: Stack) -> Params:
        """Return the parameters as the network knows them, with the leading axis."""
        leaves, structure = jax.tree.flatten(self._shapes(max(self._inputs), max(self._outs)))
        kernels, vectors, found = iter(stack.kernels), stack.vectors, []
        for leaf in leaves:
            if leaf.ndim > 1:
                found.append(next(kernels))
            else:
                found.append(vectors[:, : leaf.size])
                vectors = vectors[:, leaf.size :]
        return jax.tree.unflatten(structure, found)

    def _parted(self, stack: Stack) -> LearnerParams:
        networks = self._networks(stack)

        def part(number: int) -> Params:
            shapes = self._shapes(self._inputs[number], self._outs[number])
            return jax.tree.map(lambda like, leaf: leaf[number][tuple(map(slice, like.shape))], shapes, networks)

        psi_sa, psi_g, actor = map(part, (PSI_SA, PSI_G, ACTOR))
        return LearnerParams(actor, {"psi_sa": psi_sa, "psi_g": psi_g}, stack.log_alpha)

    def loss(self, stack: Stack, batch: Batch, noise: Array) -> tuple[Array, Metrics]:
        """Return `Learner.loss`. What the actor's part reads of the critic is not trained by it."""
        learner, spec, critic = self.learner, self.learner.spec, self.critic
        assert batch.future_goal is not None
        size, networks = max(self._inputs), self._networks(stack)
        network = in_few_launches(learner.network)
        problem = Problem(spec, Filled(network, size, critic.repr_dim))
        numbers = {"psi_sa": PSI_SA, "psi_g": PSI_G}
        frozen: Params = {
            name: jax.tree.map(lambda leaf, n=number: jax.lax.stop_gradient(leaf[n]), networks)
            for name, number in numbers.items()
        }
        representation = read(critic, problem, frozen)
        hindsight = learner.agent.actor_goal == "future"
        goal = batch.future_goal if hindsight else batch.commanded_goal  # [B, G]
        achieved = spec.achieved(batch.state)  # [B, G]
        # Both ends of the direction in one pass. A condition that asks for neither costs nothing.
        psi_s, psi_z = jnp.split(representation.encode_goal(jnp.concatenate([achieved, goal])), 2)  # [B, D]

        def encode_goal(x: Array) -> Array:
            return psi_s if x is achieved else psi_z if x is goal else representation.encode_goal(x)

        condition = learner.agent.condition(representation._replace(encode_goal=encode_goal), achieved, goal)

        inputs = [
            jnp.concatenate([batch.state, batch.action], axis=-1),
            batch.future_goal,
            jnp.concatenate([batch.state, condition], axis=-1),
        ]
        every = jnp.stack([filled(x, (x.shape[0], size)) for x in inputs])  # [3, B, in]
        out = jax.vmap(network.apply)(networks, every)
        psi_sa, psi_g, heads = (part[:, :used] for part, used in zip(out, self._outs, strict=True))
        trained, metrics = critic.loss_of_embeddings(psi_sa, psi_g, batch.valid)

        psi_goal = jax.lax.stop_gradient(psi_g) if hindsight else psi_z

        def value(action: Array) -> Array:
            return ENERGIES.find(critic.energy).plain(critic.psi_sa(problem, frozen, batch.state, action), psi_goal)

        alpha = jax.lax.stop_gradient(jnp.exp(stack.log_alpha))
        actor, log_prob = learner.rule.loss(ActorStep(value, *split_heads(heads), noise, alpha, batch))
        rest, of_actor = learner.with_temperature(stack.log_alpha, actor, log_prob)
        return trained + rest, metrics | of_actor

    def step(
        self,
        state: LearnerState,
        batch: Batch,
        noise: Array,
        critic_batch: Batch | None = None,
        key: Array | None = None,
    ) -> tuple[LearnerState, Metrics]:
        """Do `Learner.step` where critic and actor have the same batch. No part of it draws from the key."""
        assert critic_batch is None
        params: Any = state.params
        gradients, metrics = jax.grad(self.loss, has_aux=True)(params, batch, noise)
        steps, optimizer = self.learner.optimizer.update(gradients, state.optimizer, params)
        return state._replace(params=optax.apply_updates(params, steps), optimizer=optimizer), metrics
