"""An algorithm compiled for one machine: the one place in the library that jits training.

Environments and replay are split over the devices; the learner runs on one of them, or on two cores side by side.
"""

from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from dcp.algorithm import ActingState, Algorithm, RunState, iteration, prefill
from dcp.compiling import compiler_options
from dcp.envs.registry import is_ours
from dcp.evaluation.measures import measure, training_scores
from dcp.evaluation.rollout import compiled
from dcp.learner import LearnerParams, LearnerState
from dcp.replay import ReplayState
from dcp.side_by_side import SideBySide
from dcp.side_by_side import pays as pays_side_by_side
from dcp.types import Array, Metrics, Transition


class Programs:
    """An algorithm's parts, compiled: a run's state in, its next state out.

    Environments and replay are split along N; an unroll is one program over all devices. The learner lives on the
    first device, where the updates run with all of its threads. Where batches are split, or where there are several
    hosts, it lives on every device. `donate`: the state that is handed in is used up, and its memory serves again.
    """

    def __init__(self, algorithm: Algorithm, donate: bool = True):
        self.algorithm, self.split = algorithm, algorithm.split
        self.jitted = _jitted(algorithm, donate)

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

    def windows(self, replay: ReplayState, key: Array) -> Transition:
        """Where the learner is."""
        windows = self.jitted.windows(replay, key)
        return windows if self.jitted.learns_everywhere else self.split.on_first(windows)

    def learn(self, learner: LearnerState, windows: Transition, *keys: Array) -> tuple[LearnerState, Metrics]:
        """Learn by one program; on a CPU by two side by side, where that pays."""
        side_by_side = self.jitted.side_by_side
        if side_by_side is None:
            return self.jitted.learn(learner, windows, *keys)
        return side_by_side.updates(learner, *self.jitted.pairs_and_steps(windows, *keys))

    def shapes(self) -> RunState:
        """Return what `init` would give, without its numbers."""
        key = jax.eval_shape(lambda: jax.random.key(0))
        acting, replay = jax.eval_shape(self.algorithm.init_experience, key)
        learner = jax.eval_shape(self.algorithm.learner.init, key)
        return RunState(learner, acting, replay, key, jax.ShapeDtypeStruct((), jnp.int32))  # pyright: ignore

    def place(self, run: RunState) -> RunState:
        """Arrays of the host, as a checkpoint gives them, where `init` and the unrolls would have them."""
        if self.split.count == 1:
            return jax.device_put(run, may_alias=False)  # the copy may be donated
        acting, replay = self.jitted.experience_layout()
        home = self.split.whole if self.jitted.learns_everywhere else SingleDeviceSharding(self.split.devices[0])
        return RunState(
            learner=_put(run.learner, home),
            acting=type(run.acting)(*map(_put, run.acting, acting)),
            replay=type(run.replay)(*map(_put, run.replay, replay)),
            key=run.key,
            unrolls=jax.device_put(run.unrolls),
        )


class _Jitted:
    """The compiled functions themselves, each made when it is first used."""

    def __init__(self, algorithm: Algorithm, donate: bool):
        self.algorithm, self.split, self.donate = algorithm, algorithm.split, donate

    @cached_property
    def init_experience(self):
        return self._jit(self.algorithm.init_experience, self.experience_layout)

    @cached_property
    def init_learner(self):
        layout: dict[str, Any] = {"out_shardings": self.split.whole} if self.learns_everywhere else {}
        return jax.jit(self.algorithm.learner.init, **layout)

    @cached_property
    def collect(self):
        return self._jit(self.algorithm.collect, lambda: (*self.experience_layout(), self.split.whole), donate=(1, 2))

    @cached_property
    def windows(self):
        """Each device those of its own environments; all of them, where every device learns."""
        split = self.split
        return self._jit(self.algorithm.windows, lambda: split.whole if self.learns_everywhere else split.along(1))

    @cached_property
    def learn(self):
        whole: dict[str, Any] = {"out_shardings": (self.split.whole, self.split.whole)}
        layout = whole if self.learns_everywhere else {}
        donated = 0 if self.donate else ()
        return jax.jit(self.algorithm.learn, donate_argnums=donated, compiler_options=compiler_options(), **layout)

    @cached_property
    def side_by_side(self) -> SideBySide | None:
        """Not where the learner is on several devices, or where somebody has a `learn` of their own."""
        learner = self.algorithm.learner
        alone = not self.learns_everywhere and type(self.algorithm) is Algorithm
        return SideBySide(learner) if alone and pays_side_by_side(learner) else None

    @cached_property
    def pairs_and_steps(self):
        return jax.jit(self.algorithm.pairs_and_steps, compiler_options=compiler_options())

    @cached_property
    def evaluate(self):
        return compiled(self.algorithm.deployment)

    @property
    def learns_everywhere(self) -> bool:
        return self.split.spans_hosts or self.algorithm.splits_batches

    def _jit(self, function: Any, layout: Any, donate: tuple[int, ...] = ()) -> Any:
        """With several devices, results are laid out as they came: nothing is moved, and nothing compiled twice."""
        # Our options on several devices too: XLA's own choice runs a pusher's small products there far more slowly.
        options: dict[str, Any] = {"compiler_options": compiler_options()}
        if self.split.count > 1:
            options["out_shardings"] = layout()
        return jax.jit(function, donate_argnums=donate if self.donate else (), **options)

    def experience_layout(self) -> tuple[ActingState, ReplayState]:
        """Return where each part lies. The command's state, with its pool, is one for all environments."""
        along, whole = self.split.along, self.split.whole
        return (
            ActingState(episodes=along(0), command=whole, plan=along(0)),  # pyright: ignore[reportArgumentType]
            ReplayState(rows=along(1), head=whole, size=whole),  # pyright: ignore[reportArgumentType]
        )


def _jitted(algorithm: Algorithm, donate: bool) -> _Jitted:
    """Share programs between runs that differ only in seed or budget: five seeds in one process are compiled once."""
    return _shared(same_program(algorithm), donate) if may_share(algorithm) else _Jitted(algorithm, donate)


_shared = lru_cache(maxsize=4)(_Jitted)  # equal algorithms are one


def may_share(algorithm: Algorithm) -> bool:
    """Not where something may change unseen: a subclass, or a user's own environment."""
    return type(algorithm) is Algorithm and is_ours(algorithm.env) and is_ours(algorithm.eval_env)


def same_program(algorithm: Algorithm) -> Algorithm:
    """Return the algorithm that represents all with the same programs: those that differ only in seed or budget."""
    config = algorithm.config
    first = (config.num_prefill_unrolls + 1) * config.env_steps_per_unroll  # the least that makes a valid config
    return replace(algorithm, config=replace(config, seed=0, steps=first, num_evals=1))


def _put(tree: Any, place: Any) -> Any:
    """Return copies of the host's arrays. Of several hosts each has them all, and puts down its own part."""
    if place.is_fully_addressable:
        return jax.device_put(tree, place, may_alias=False)

    def own_part(x: Any) -> Array:
        return jax.make_array_from_callback(x.shape, place, lambda part: np.array(x[part]))

    return jax.tree.map(own_part, tree)
