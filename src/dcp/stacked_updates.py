"""The paper's update in few launches, for a GPU: psi_sa, psi_g and the actor are a stack of networks, one product each.

At these sizes a GPU spends its time on launches. The three networks have the same layers, so a layer of all three is
one batched product over kernels [3, in, out]. Shorter inputs and outputs are filled up with zeros, which stay zero:
their gradients are. The bias is a row of the kernel whose input is 1, so its gradient is part of the kernel's.
`Learner.step` is the plain form; tests compare the two.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import optax

from dcp.critics.contrastive import Contrastive
from dcp.critics.energies import ENERGIES
from dcp.interfaces import ActorStep, Problem, read
from dcp.learner import Learner, LearnerParams, LearnerState
from dcp.networks import ACTIVATIONS, MLP, split_heads
from dcp.types import Array, Batch, Metrics, Params

PSI_SA, PSI_G, ACTOR = range(3)
TILE = 16  # rows of a kernel are a multiple of it: what a GPU's products like


class Stack(NamedTuple):
    kernels: tuple[Array, ...]  # [3, rows, out] of each layer; the row after the inputs is the bias
    log_alpha: Array  # []


def with_one(x: Array, size: int) -> Array:
    """Fill x [..., in] up to `size` columns, then a column of ones for the bias, then zeros up to whole tiles."""
    columns = jnp.arange(x.shape[-1], _rows(size))
    filled = jnp.broadcast_to((columns == size).astype(x.dtype), (*x.shape[:-1], columns.size))
    return jnp.concatenate([x, filled], axis=-1)


def _rows(inputs: int) -> int:
    return -(-(inputs + 1) // TILE) * TILE


@dataclass(frozen=True)
class Joined:
    """An MLP whose kernels have their bias as a row; with a leading axis, several MLPs at once."""

    inputs: int
    width: int
    out: int
    activation: str

    def apply(self, params: Params, x: Array) -> Array:
        """x [..., in] -> [..., out]"""
        *hidden, last = params["kernels"]
        x = with_one(x, self.inputs)
        for kernel in hidden:
            x = with_one(ACTIVATIONS.find(self.activation)(x @ kernel), self.width)
        return (x @ last)[..., : self.out]


@dataclass(frozen=True)
class StackedUpdates:
    """Has `Learner`'s `flattened`, `step` and `unflattened`. Every method is a pure function."""

    learner: Learner
    mlp: MLP
    critic: Contrastive

    @classmethod
    def of(cls, learner: Learner) -> Self | None:
        """Return the stacked form, or None where the parts or the optimizer are not the paper's."""
        network, critic, config = learner.network, learner.agent.critic, learner.config
        rates = {config.actor_learning_rate, config.critic_learning_rate, config.alpha_learning_rate}
        if type(network) is not MLP or type(critic) is not Contrastive or len(rates) > 1:
            return None
        return None if network.layer_norm or network.residual_every or critic.eikonal else cls(learner, network, critic)

    @property
    def _inputs(self) -> tuple[int, int, int]:
        spec = self.learner.spec
        condition = self.learner.agent.condition.size(spec, self.critic.repr_dim)
        return spec.state_size + spec.action_size, spec.goal_size, spec.state_size + condition

    def _network(self, out: int) -> Any:
        return Joined(max(self._inputs), self.mlp.width, out, self.mlp.activation)

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
        networks = params.critic["psi_sa"], params.critic["psi_g"], params.actor
        kernels = []
        for name, rows in self._layers:
            layers = [network[name] for network in networks]
            columns = max(layer["bias"].size for layer in layers)
            kernels.append(jnp.stack([_with_bias(layer, rows, columns) for layer in layers]))
        return Stack(tuple(kernels), params.log_alpha)

    def _parted(self, stack: Stack) -> LearnerParams:
        outs = self.critic.repr_dim, self.critic.repr_dim, 2 * self.learner.spec.action_size
        networks: list[Params] = [{}, {}, {}]
        for number, (name, rows) in enumerate(self._layers):
            for network, inputs, out, kernel in zip(networks, self._inputs, outs, stack.kernels[number], strict=True):
                used = kernel[:, :out] if name == "out" else kernel
                network[name] = {"kernel": used[: inputs if number == 0 else rows], "bias": used[rows]}
        psi_sa, psi_g, actor = networks
        return LearnerParams(actor, {"psi_sa": psi_sa, "psi_g": psi_g}, stack.log_alpha)

    @property
    def _layers(self) -> list[tuple[str, int]]:
        """Return each layer's name and its inputs without the bias."""
        names = [f"hidden_{number}" for number in range(self.mlp.depth)] + ["out"]
        return [(name, self.mlp.width if number else max(self._inputs)) for number, name in enumerate(names)]

    def loss(self, stack: Stack, batch: Batch, noise: Array) -> tuple[Array, Metrics]:
        """Return `Learner.loss`. What the actor's part reads of the critic is not trained by it."""
        learner, spec, critic = self.learner, self.learner.spec, self.critic
        assert batch.future_goal is not None
        known = jax.lax.stop_gradient(stack.kernels)
        psi = self._network(critic.repr_dim)
        frozen = {
            name: {"kernels": tuple(kernel[number] for kernel in known)}
            for name, number in (("psi_sa", PSI_SA), ("psi_g", PSI_G))
        }
        problem = Problem(spec, psi)
        hindsight = learner.agent.actor_goal == "future"
        goal = batch.future_goal if hindsight else batch.commanded_goal  # [B, G]
        achieved = spec.achieved(batch.state)  # [B, G]
        # Both ends of the direction in one pass. A condition that asks for neither costs nothing.
        psi_s, psi_z = jnp.split(psi.apply(frozen["psi_g"], jnp.concatenate([achieved, goal])), 2)  # [B, D]
        representation = read(critic, problem, frozen)

        def encode_goal(x: Array) -> Array:
            return psi_s if x is achieved else psi_z if x is goal else representation.encode_goal(x)

        condition = learner.agent.condition(representation._replace(encode_goal=encode_goal), achieved, goal)

        inputs = [
            jnp.concatenate([batch.state, batch.action], axis=-1),
            batch.future_goal,
            jnp.concatenate([batch.state, condition], axis=-1),
        ]
        size = max(self._inputs)
        filled = jnp.stack([jnp.pad(x, ((0, 0), (0, size - x.shape[-1]))) for x in inputs])  # [3, B, size]
        out = self._network(stack.kernels[-1].shape[-1]).apply({"kernels": stack.kernels}, filled)
        psi_sa, psi_g = out[PSI_SA, :, : critic.repr_dim], out[PSI_G, :, : critic.repr_dim]
        trained, metrics = critic.loss_of_embeddings(psi_sa, psi_g, batch.valid)

        psi_goal = jax.lax.stop_gradient(psi_g) if hindsight else psi_z

        def value(action: Array) -> Array:
            return ENERGIES.find(critic.energy).plain(critic.psi_sa(problem, frozen, batch.state, action), psi_goal)

        mean, log_std = split_heads(out[ACTOR, :, : 2 * spec.action_size])
        alpha = jax.lax.stop_gradient(jnp.exp(stack.log_alpha))
        actor, log_prob = learner.rule.loss(ActorStep(value, mean, log_std, noise, alpha, batch))
        rest, of_actor = learner.with_temperature(stack.log_alpha, actor, log_prob)
        return trained + rest, metrics | of_actor

    def step(self, state: LearnerState, batch: Batch, noise: Array) -> tuple[LearnerState, Metrics]:
        """Actor and temperature step with the critic as it was: all gradients are taken before any step."""
        gradients, metrics = jax.grad(self.loss, has_aux=True)(state.params, batch, noise)
        steps, optimizer = self.learner.optimizer.update(gradients, state.optimizer, state.params)
        return state._replace(params=optax.apply_updates(state.params, steps), optimizer=optimizer), metrics


def _with_bias(layer: Params, rows: int, columns: int) -> Array:
    """kernel [in, out], bias [out] -> [whole tiles above `rows`, columns], the bias in row `rows`"""
    kernel, bias = layer["kernel"], layer["bias"]
    joined = jnp.zeros((_rows(rows), columns), kernel.dtype)
    return joined.at[: kernel.shape[0], : kernel.shape[1]].set(kernel).at[rows, : bias.size].set(bias)
