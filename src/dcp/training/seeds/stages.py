"""What the loop over K seeds calls: their joint state in, the next one out. The keys are those of single runs."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from dcp.evaluation.measures import measure, training_scores
from dcp.evaluation.program import evaluation_key
from dcp.learner import LearnerParams
from dcp.training.seeds.programs import How, SeedPrograms, learner_form, seed_programs
from dcp.training.trainer import RunState, Trainer
from dcp.types import Array, Metrics


class SeedStages:
    """`Stages` with a leading axis of seeds. `donate`: the state that is handed in is used up."""

    def __init__(self, trainer: Trainer, donate: bool = True, learner: How | None = None):
        self.trainer, self._donate = trainer, donate
        self._learner: How = learner or learner_form()

    def programs(self, count: int) -> SeedPrograms:
        """For so many seeds."""
        return seed_programs(self.trainer, self._donate, count)

    def init(self, seeds: Sequence[int]) -> RunState:
        programs, keys = self.programs(len(seeds)), _splits(jnp.stack([jax.random.key(seed) for seed in seeds]), 3)
        acting, replay = programs.init_experience(keys[1])
        return RunState(programs.init_learner(keys[0]), acting, replay, keys[2], jnp.zeros((), jnp.int32))

    def place(self, run: RunState) -> RunState:
        """Seeds that were put together, or that are left, on the devices that share them out."""
        return self.programs(len(run.key)).place(run)

    def prefill(self, run: RunState) -> RunState:
        key, key_collect = _splits(run.key, 2)
        return self._unroll(run._replace(key=key), key_collect)[0]

    def iteration(self, run: RunState) -> tuple[RunState, Metrics]:
        """-> the next state, metrics [K]"""
        key, key_collect, key_sample, key_update = _splits(run.key, 4)
        key_window, key_future, key_shuffle = _splits(key_sample, 3)
        run, acting_metrics = self._unroll(run._replace(key=key), key_collect)
        programs = self.programs(len(key))
        windows = programs.windows(run.replay, key_window)
        learn = programs.learn(self._learner)
        learner, metrics = learn(run.learner, windows, key_future, key_shuffle, key_update)
        return run._replace(learner=learner), metrics | acting_metrics

    def evaluate(self, params: LearnerParams, seeds: Sequence[int], index: int) -> list[dict[str, float]]:
        """Each seed's evaluation of this index, on the episodes that it would have alone."""
        keys = jnp.stack([evaluation_key(seed, index) for seed in seeds])
        records = jax.device_get(self.programs(len(seeds)).evaluate(params, keys))
        return [training_scores(measure(jax.tree.map(lambda x, i=i: x[i], records))) for i in range(len(seeds))]

    def diverged(self, run: RunState) -> list[int]:
        """Episodes since each seed's start that ended because their environment diverged."""
        return np.sum(run.acting.episodes.diverged, axis=1).tolist()

    def finite(self, run: RunState) -> list[bool]:
        return self.programs(len(run.key)).finite(run.learner).tolist()

    def _unroll(self, run: RunState, keys: Array) -> tuple[RunState, Metrics]:
        acting, replay, metrics = self.programs(len(keys)).collect(run.learner.params, run.acting, run.replay, keys)
        return run._replace(acting=acting, replay=replay, unrolls=run.unrolls + 1), metrics


def _splits(keys: Array, number: int) -> tuple[Array, ...]:
    """keys [K] -> `number` of [K]: each seed's key split as it would be alone"""
    return tuple(jnp.moveaxis(_split(keys, number), 1, 0))


@partial(jax.jit, static_argnums=1)
def _split(keys: Array, number: int) -> Array:
    return jax.vmap(lambda key: jax.random.split(key, number))(keys)
