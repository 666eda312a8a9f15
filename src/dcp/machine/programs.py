"""An algorithm compiled for one machine: the one place in the library that jits training.

Environments and replay are split over the devices; the learner runs on one of them.
"""

from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from dcp.algorithm import ActingState, Algorithm, Draws, Mixed, RunState, iteration, prefill
from dcp.envs.registry import is_ours
from dcp.evaluation import measure, training_scores
from dcp.learner import LearnerParams, LearnerState
from dcp.machine import compiling
from dcp.machine.devices import make_split, with_devices
from dcp.replay import ReplayState
from dcp.types import Array, Metrics, Transition


class Programs:
    """An algorithm's parts, compiled: a run's state in, its next state out.

    Environments and replay are split along N; an unroll is one program over all devices. The learner lives on the
    first device, where the updates run with all of its threads; where batches are split, on every device.
    `donate`: the state that is passed in is used up, and its memory serves again.
    """

    def __init__(self, algorithm: Algorithm, donate: bool = True):
        self.algorithm = on_devices(algorithm)
        own = self.algorithm
        self.jitted = _shared(same_program(own), donate) if may_share(own) else _Jitted(own, donate)
        self.split = self.jitted.split

    def init(self) -> RunState:
        key_learner, key_acting, key_run = jax.random.split(jax.random.key(self.algorithm.config.seed), 3)
        acting, replay = self.jitted.init_experience(key_acting)
        return RunState(self.jitted.init_learner(key_learner), acting, replay, key_run, jnp.zeros((), jnp.int32))

    def prefill(self, run: RunState) -> RunState:
        return prefill(self, run)

    def iteration(self, run: RunState) -> tuple[RunState, Metrics]:
        return iteration(self, run)

    def evaluate(self, params: LearnerParams, key: Array) -> dict[str, float]:
        """Return the columns of metrics.csv that say how well the policy does on fresh goals."""
        record = self.jitted.evaluate(self.algorithm.policy(self.split.everywhere(params)), key)
        return training_scores(measure(jax.device_get(record)))

    def collect(
        self, params: LearnerParams, acting: ActingState, replay: ReplayState, key: Array
    ) -> tuple[ActingState, ReplayState, Metrics]:
        return self.jitted.collect(self.split.everywhere(params), acting, replay, key)

    @cached_property
    def data(self) -> Transition | None:
        """Return the run's data on every device."""
        return self.split.everywhere(jax.device_put(self.algorithm.data))

    def windows(self, replay: ReplayState, key: Array) -> Transition | Mixed:
        """Sample windows and move them to the learner's device."""
        windows = self.jitted.windows(replay, self.data, key)
        return windows if self.jitted.splits_batches else self.split.on_first(windows)

    def learn(self, learner: LearnerState, windows: Transition | Mixed, *keys: Array) -> tuple[LearnerState, Metrics]:
        return self.jitted.learn(learner, windows, *keys)

    def shapes(self) -> RunState:
        """Return what `init` would give, without its numbers."""
        return jax.eval_shape(self.algorithm.init, jax.eval_shape(lambda: jax.random.key(0)))

    def place(self, run: RunState) -> RunState:
        """Put arrays of the host, as a checkpoint gives them, where `init` and the unrolls would have them."""
        if self.split.count == 1:
            return jax.device_put(run, may_alias=False)  # the copy may be donated
        acting, replay = self.jitted.experience_layout()
        return RunState(
            learner=_put(run.learner, self.jitted.home),
            acting=type(run.acting)(*map(_put, run.acting, acting)),
            replay=type(run.replay)(*map(_put, run.replay, replay)),
            key=run.key,
            unrolls=jax.device_put(run.unrolls),
        )


class _Jitted:
    """The compiled functions themselves, each made when it is first used."""

    def __init__(self, algorithm: Algorithm, donate: bool):
        self.split = make_split(algorithm.config.devices or 1)
        self.algorithm, self.donate = replace(algorithm, vmap=self.split), donate

    @property
    def splits_batches(self) -> bool:
        return self.split.count > 1 and self.algorithm.config.split_batches == "on"

    @property
    def home(self) -> Any:
        """Return where the learner lies."""
        return self.split.whole if self.splits_batches else SingleDeviceSharding(self.split.devices[0])

    @cached_property
    def init_experience(self):
        return self._jit(self.algorithm.init_experience, self.experience_layout)

    @cached_property
    def init_learner(self):
        """Begin where the updates leave the learner: `learn` is then compiled once."""
        layout: dict[str, Any] = {"out_shardings": self.home} if self.split.count > 1 else {}
        return jax.jit(self.algorithm.learner.init, **layout)

    @cached_property
    def collect(self):
        return self._jit(self.algorithm.collect, lambda: (*self.experience_layout(), self.split.whole), donate=(1, 2))

    @cached_property
    def windows(self):
        """Sharded by environment; replicated if every device learns, as data are."""
        whole, own = self.split.whole, self.split.whole if self.splits_batches else self.split.along(1)
        layout = own if self.algorithm.config.data is None else Mixed(own, whole)  # pyright: ignore[reportArgumentType]
        return self._jit(self.algorithm.windows_of, lambda: layout)

    @cached_property
    def learn(self):
        donated = 0 if self.donate else ()
        if not self.splits_batches:
            return compiling.jit(self.algorithm.learn, donate_argnums=donated)
        whole = self.split.whole
        return compiling.jit(self._learn_from_split_batches, donate_argnums=donated, out_shardings=(whole, whole))

    def _learn_from_split_batches(self, *inputs: Any) -> tuple[LearnerState, Metrics]:
        """Do `Algorithm.learn` where each device takes its share of every batch; XLA sums what all must know."""

        def lay_out(draws: Draws) -> Draws:
            indices, noise = jax.lax.with_sharding_constraint((draws.indices, draws.noise), self.split.along(1))
            return draws._replace(indices=indices, noise=noise)

        return self.algorithm.learn(*inputs, lay_out=lay_out)

    @cached_property
    def evaluate(self):
        deployment = self.algorithm.deployment
        return compiling.jit(replace(deployment, vmap=self.split.if_divides(deployment.num_episodes)).episodes)

    def _jit(self, function: Any, layout: Any, donate: tuple[int, ...] = ()) -> Any:
        """With several devices, results are laid out as they came: nothing is moved, and nothing compiled twice."""
        options = {"out_shardings": layout()} if self.split.count > 1 else {}
        return compiling.jit(function, donate_argnums=donate if self.donate else (), **options)

    def experience_layout(self) -> tuple[ActingState, ReplayState]:
        """Return where each part lies. The command's state, with its pool, is one for all environments."""
        along, whole = self.split.along, self.split.whole
        return (
            ActingState(episodes=along(0), command=whole, plan=along(0)),  # pyright: ignore[reportArgumentType]
            ReplayState(rows=along(1), head=whole, size=whole),  # pyright: ignore[reportArgumentType]
        )


def on_devices(algorithm: Algorithm) -> Algorithm:
    """Return the algorithm whose config says on how many devices of this machine it runs."""
    config = with_devices(algorithm.config, algorithm.env.spec)
    compiling.keep_precision()
    return algorithm if config == algorithm.config else replace(algorithm, config=config)


_shared = lru_cache(maxsize=4)(_Jitted)  # runs that differ only in seed or budget: five seeds are compiled once


def may_share(algorithm: Algorithm) -> bool:
    """Share programs only for our own, immutable parts."""
    return type(algorithm) is Algorithm and is_ours(algorithm.env) and is_ours(algorithm.eval_env)


def same_program(algorithm: Algorithm) -> Algorithm:
    """Return the algorithm that represents all with the same programs: those that differ only in seed or budget."""
    config = algorithm.config
    first = (config.num_prefill_unrolls + 1) * config.env_steps_per_unroll  # the least that makes a valid config
    return replace(algorithm, config=replace(config, seed=0, steps=first, num_evals=1))


def _put(tree: Any, place: Any) -> Any:
    return jax.device_put(tree, place, may_alias=False)
