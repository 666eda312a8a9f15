"""What the loop calls: a run's state in, its next state out, by way of the compiled programs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from dcp.evaluation.measures import measure, training_scores
from dcp.learner import LearnerParams
from dcp.training.programs import programs
from dcp.training.trainer import RunState, Trainer
from dcp.types import Array, Metrics, Transition


class Stages:
    """Over a run's state. `donate`: the state that is handed in is used up, and its memory serves again."""

    def __init__(self, trainer: Trainer, donate: bool = True):
        self.trainer, self.split, self.programs = trainer, trainer.split, programs(trainer, donate)

    def init(self) -> RunState:
        key_learner, key_acting, key_run = jax.random.split(jax.random.key(self.trainer.config.seed), 3)
        acting, replay = self.programs.init_experience(key_acting)
        learner = self.programs.init_learner(key_learner)
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
        acting, replay = self.programs.experience()
        home = self.split.whole if self.programs.learns_everywhere else SingleDeviceSharding(self.split.devices[0])
        return RunState(
            learner=_put(run.learner, home),
            acting=type(run.acting)(*map(_put, run.acting, acting)),
            replay=type(run.replay)(*map(_put, run.replay, replay)),
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
        windows = self.windows(run, key_window)
        learner, metrics = self.programs.learn(run.learner, windows, key_future, key_shuffle, key_update)
        return run._replace(learner=learner), metrics | acting_metrics

    def evaluate(self, params: LearnerParams, key: Array) -> dict[str, float]:
        """The columns of metrics.csv that say how well the policy does on fresh goals."""
        record = self.programs.evaluate(self.trainer.policy(self.split.everywhere(params)), key)
        return training_scores(measure(jax.device_get(record)))

    def windows(self, run: RunState, key: Array) -> Transition:
        """Where the learner is."""
        windows = self.programs.windows(run.replay, key)
        return windows if self.programs.learns_everywhere else self.split.on_first(windows)

    def _unroll(self, run: RunState, key: Array) -> tuple[RunState, Metrics]:
        params = self.split.everywhere(run.learner.params)
        acting, replay, metrics = self.programs.collect(params, run.acting, run.replay, key)
        return run._replace(acting=acting, replay=replay, unrolls=run.unrolls + 1), metrics


def _put(tree: Any, place: Any) -> Any:
    """Copies of the host's arrays. Of several hosts each has them all, and puts down its own part."""
    if place.is_fully_addressable:
        return jax.device_put(tree, place, may_alias=False)

    def own_part(x: Any) -> Array:
        return jax.make_array_from_callback(x.shape, place, lambda part: np.array(x[part]))

    return jax.tree.map(own_part, tree)
