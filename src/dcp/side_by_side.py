"""The critic's and the actor's updates on two cores at once, one thread each.

The paper's critic learns without the actor, and all that the actor needs of it is its parameters before each update. So
the critic goes ahead and leaves its parameters of the next few updates; the actor takes the same updates with them,
while the critic is at the next few. Each side is about half of the arithmetic, and they wait for each other once in
LENGTH updates; in one program XLA passes every product and every sum from core to core. The updates are
`Learner.step`'s.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from queue import SimpleQueue
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dcp.compiling import Program, compiler_options_of_a_side
from dcp.devices import cores
from dcp.learner import Learner, LearnerState
from dcp.replay import with_resting_pairs
from dcp.types import Array, Batch, Metrics

LENGTH = 8  # updates from one hand-over to the next
BUFFERS = 2  # the critic fills one while the actor reads the other
MOST_BYTES = 64e6  # of parameters in a buffer
LEAST_WORK = 1 << 23  # parameters times rows of a batch, below which handing over costs more than it saves


def pays(learner: Learner) -> bool:
    """Tell whether this learner's updates are to be taken side by side on this machine."""
    if jax.default_backend() != "cpu" or cores() < 2 or not learner.has_sides:
        return False
    params = jax.eval_shape(learner.init, jax.eval_shape(lambda: jax.random.key(0))).params
    work = learner.config.batch_size * sum(leaf.size for leaf in jax.tree.leaves(params))
    return work >= LEAST_WORK and bool(jax.tree.leaves(params.critic))


def spans(number: int, length: int) -> list[tuple[np.int32, np.int32]]:
    """Divide the updates into hand-overs: short ones first and last, where one side waits for the other."""
    ramp = [1 << n for n in range(length.bit_length() - 1)]
    whole, rest = divmod(number - 2 * sum(ramp), length)
    sizes = [*ramp, *[length] * whole, rest, *ramp[::-1]] if whole > 0 else [length] * (number // length + 1)
    bounds = [np.int32(min(bound, number)) for bound in np.cumsum([0, *sizes])]
    return [(start, stop) for start, stop in pairwise(bounds) if stop > start]


class SideBySide:
    """A pass of updates by two programs on two threads."""

    def __init__(self, learner: Learner):
        options: Any = {"compiler_options": compiler_options_of_a_side()}
        self.learner = learner
        self._begin = jax.jit(self._begun)
        self._critic = Program(jax.jit(self._critic_updates, donate_argnums=(0, 1, 2), **options))
        self._actor = Program(jax.jit(self._actor_updates, donate_argnums=(0, 1), **options))
        self._end = jax.jit(self._ended)

    def updates(self, state: LearnerState, pairs: Batch, steps: Any) -> tuple[LearnerState, Metrics]:
        """Take all updates; steps: what `Algorithm.steps` gives. -> the state after them, mean metrics"""
        critic, actor, of_critic, of_actor, *buffers = self._begin(state, pairs, steps)
        handovers = spans(steps[0].shape[0], length=jax.tree.leaves(buffers[0])[0].shape[0])
        run_critic = self._critic.compiled_for(critic, buffers[0], of_critic, pairs, steps, *handovers[0])
        run_actor = self._actor.compiled_for(actor, of_actor, buffers[0], pairs, steps, *handovers[0])
        empty, full = SimpleQueue(), SimpleQueue()
        for buffer in buffers:
            empty.put(buffer)

        def act(actor: LearnerState, metrics: Metrics) -> tuple[LearnerState, Metrics]:
            try:
                while given := full.get():
                    history, span = given
                    actor, metrics = run_actor(actor, metrics, history, pairs, steps, *span)
                    jax.block_until_ready(metrics)
                    empty.put(history)
                return actor, metrics
            finally:
                empty.put(None)  # nobody waits for a thread that has ended

        with ThreadPoolExecutor(1, "dcp-actor") as thread:
            acted = thread.submit(act, actor, of_actor)
            try:
                for span in handovers:
                    if (history := empty.get()) is None:
                        break
                    critic, history, of_critic = run_critic(critic, history, of_critic, pairs, steps, *span)
                    full.put((history, span))
            finally:
                full.put(None)
            return self._end(critic, of_critic, *acted.result())

    def _begun(self, state: LearnerState, pairs: Batch, steps: Any) -> tuple[Any, ...]:
        """-> the two sides, room for their metrics, and buffers; all of them copies, which may be used up"""
        critic, actor = self.learner.sides(state)
        number, first = steps[0].shape[0], jax.tree.map(lambda x: x[0], steps)
        metrics = [
            jax.tree.map(lambda x: jnp.zeros((number, *x.shape), x.dtype), jax.eval_shape(step, *arguments)[1])
            for step, arguments in (
                (self._critic_update, (critic, pairs, first)),
                (self._actor_update, (actor, critic.params.critic, pairs, first)),
            )
        ]
        params = critic.params.critic
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
        length = max(1, min(LENGTH, number, int(MOST_BYTES // size)))
        buffers = (jax.tree.map(lambda x: jnp.zeros((length, *x.shape), x.dtype), params) for _ in range(BUFFERS))
        return *jax.tree.map(jnp.copy, (critic, actor)), *metrics, *buffers

    def _critic_updates(
        self, state: LearnerState, history: Any, metrics: Metrics, pairs: Batch, steps: Any, start: Array, stop: Array
    ) -> tuple[LearnerState, Any, Metrics]:
        """Take the critic's updates from `start` to `stop`, and note its parameters before each."""

        def one(update: Array, carry: Any) -> Any:
            state, history, metrics = carry
            history = _noted(history, state.params.critic, update - start)
            state, found = self._critic_update(state, pairs, jax.tree.map(lambda x: x[update], steps))
            return state, history, _noted(metrics, found, update)

        return jax.lax.fori_loop(start, stop, one, (state, history, metrics))

    def _actor_updates(
        self, state: LearnerState, metrics: Metrics, history: Any, pairs: Batch, steps: Any, start: Array, stop: Array
    ) -> tuple[LearnerState, Metrics]:
        """Take the actor's updates from `start` to `stop`."""

        def one(update: Array, carry: Any) -> Any:
            state, metrics = carry
            critic = jax.tree.map(lambda x: x[update - start], history)
            state, found = self._actor_update(state, critic, pairs, jax.tree.map(lambda x: x[update], steps))
            return state, _noted(metrics, found, update)

        return jax.lax.fori_loop(start, stop, one, (state, metrics))

    def _critic_update(self, state: LearnerState, pairs: Batch, step: Any) -> tuple[LearnerState, Metrics]:
        indices, _, key, resting = step
        batch = jax.tree.map(lambda x: x[indices], pairs)
        if resting is not None:
            batch = with_resting_pairs(batch, resting, self.learner.spec)
        return self.learner.critic_step(state, batch, key)

    def _actor_update(self, state: LearnerState, critic: Any, pairs: Batch, step: Any) -> tuple[LearnerState, Metrics]:
        indices, noise, _, _ = step
        return self.learner.actor_step(state, critic, jax.tree.map(lambda x: x[indices], pairs), noise)

    def _ended(self, critic: LearnerState, of_critic: Metrics, actor: LearnerState, of_actor: Metrics) -> Any:
        return self.learner.joined(critic, actor), jax.tree.map(jnp.mean, of_critic | of_actor)


def _noted(all_of_them: Any, one: Any, at: Array) -> Any:
    """Return arrays [number, ...] with one entry written, in place where XLA may."""
    return jax.tree.map(lambda x, y: jax.lax.dynamic_update_index_in_dim(x, y, at, 0), all_of_them, one)
