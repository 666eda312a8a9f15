"""The edge where a trainer's parts are jitted, each once and on its own devices.

Environments and replay are split along N; an unroll is one program over all devices. The learner lives on the first
device, where the updates run with all of its threads: on every device they would be the same work once more.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from dcp.learner import LearnerParams
from dcp.replay.buffer import ReplayState
from dcp.training.compiler import compiler_options
from dcp.training.rollout import ActingState
from dcp.training.trainer import RunState, Trainer
from dcp.types import Array, Metrics


class Stages:
    """Over a run's state. `donate`: the state that is handed in is used up, and its memory serves again."""

    def __init__(self, trainer: Trainer, donate: bool = True):
        self.trainer, self.split, self.donate = trainer, trainer.split, donate

    def init(self) -> RunState:
        key_learner, key_acting, key_run = jax.random.split(jax.random.key(self.trainer.config.seed), 3)
        acting, replay = self._init_experience(key_acting)
        learner = jax.jit(self.trainer.learner.init)(key_learner)
        return RunState(learner, acting, replay, key_run, jnp.zeros((), jnp.int32))

    def shapes(self) -> RunState:
        """What `init` would give, without its numbers."""
        key = jax.eval_shape(lambda: jax.random.key(0))
        acting, replay = jax.eval_shape(self.trainer.init_experience, key)
        learner = jax.eval_shape(self.trainer.learner.init, key)
        return RunState(learner, acting, replay, key, jax.ShapeDtypeStruct((), jnp.int32))  # pyright: ignore

    def place(self, run: RunState) -> RunState:
        """Arrays of the host, as a checkpoint gives them, where `init` and the unrolls would have them."""
        if self.split.count == 1:
            return jax.device_put(run, may_alias=False)  # the copy may be donated
        acting, replay = self._experience()
        return RunState(
            learner=jax.device_put(run.learner, self.split.devices[0], may_alias=False),
            acting=_put(run.acting, acting),
            replay=_put(run.replay, replay),
            key=run.key,
            unrolls=jax.device_put(run.unrolls),
        )

    def prefill(self, run: RunState) -> RunState:
        """One unroll by the untrained policy, with no update."""
        key, key_collect = jax.random.split(run.key)
        return self._unroll(run._replace(key=key), key_collect)[0]

    def iteration(self, run: RunState) -> tuple[RunState, Metrics]:
        """One unroll, then one pass over fresh windows of the replay."""
        key, key_collect, key_sample, key_update = jax.random.split(run.key, 4)
        key_window, key_future, key_shuffle = jax.random.split(key_sample, 3)
        run, acting_metrics = self._unroll(run._replace(key=key), key_collect)
        windows = self.split.on_first(self._windows(run.replay, key_window))
        learner, metrics = self._learn(run.learner, windows, key_future, key_shuffle, key_update)
        return run._replace(learner=learner), metrics | acting_metrics

    def evaluate(self, params: LearnerParams, key: Array) -> Metrics:
        return self._evaluate(self.split.everywhere(params), key)

    def _unroll(self, run: RunState, key: Array) -> tuple[RunState, Metrics]:
        params = self.split.everywhere(run.learner.params)
        acting, replay, metrics = self._collect(params, run.acting, run.replay, key)
        return run._replace(acting=acting, replay=replay, unrolls=run.unrolls + 1), metrics

    @cached_property
    def _init_experience(self):
        return self._jit(self.trainer.init_experience, self._experience)

    @cached_property
    def _collect(self):
        return self._jit(self.trainer.collect, lambda: (*self._experience(), self.split.whole), donate=(1, 2))

    @cached_property
    def _windows(self):
        return self._jit(self.trainer.windows, lambda: self.split.along(1))

    @cached_property
    def _learn(self):
        donated = 0 if self.donate else ()
        return jax.jit(self.trainer.learn, donate_argnums=donated, compiler_options=compiler_options())

    @cached_property
    def _evaluate(self):
        return self._jit(self.trainer.evaluate, lambda: self.split.whole)

    def _jit(self, function: Any, layout: Callable[[], Any], donate: tuple[int, ...] = ()) -> Any:
        """With several devices, results are laid out as they came: nothing is moved, and nothing compiled twice."""
        options: dict[str, Any] = {"donate_argnums": donate if self.donate else ()}
        if self.split.count == 1:
            options["compiler_options"] = compiler_options()  # the policy's products too have all threads
        else:
            options["out_shardings"] = layout()
        return jax.jit(function, **options)

    def _experience(self) -> tuple[ActingState, ReplayState]:
        """Where each part lies. The command's state, with its pool, is one for all environments."""
        return (
            ActingState(episodes=self.split.along(0), command=self.split.whole),  # pyright: ignore[reportArgumentType]
            ReplayState(rows=self.split.along(1), head=self.split.whole, size=self.split.whole),  # pyright: ignore
        )


def _put(tree: Any, layout: Any) -> Any:
    """Each part where its layout says; a layout names one place for all arrays of a part."""
    return type(tree)(*(jax.device_put(part, place, may_alias=False) for part, place in zip(tree, layout, strict=True)))
