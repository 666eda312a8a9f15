"""Several seeds as one program: every array of a run's state gets a leading axis of seeds, K.

A seed computes what it would compute alone, from the same random streams; only the order of floating-point sums may
differ. Each seed has an ordinary run folder, which can be resumed alone or together with others.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dcp.algorithm import ActingState, Algorithm, RunState, may_share, same_program
from dcp.checks import available_memory, memory_parts
from dcp.compiling import compiler_options
from dcp.config import Config, Settings
from dcp.envs.registry import env_of
from dcp.errors import UserError
from dcp.evaluation.measures import measure, training_scores
from dcp.evaluation.program import evaluation_key
from dcp.evaluation.rollout import Record
from dcp.learner import LearnerParams, LearnerState
from dcp.replay import ReplayState, insert
from dcp.types import Array, Metrics

S = TypeVar("S", bound=Settings)
ALONE = "use --seeds-as processes"


def require_seeds(seeds: Sequence[int]) -> None:
    """Also for seeds as processes."""
    if not seeds:
        raise UserError("--seeds needs at least one seed, such as --seeds 0 1 2")
    for seed in seeds:
        if not 0 <= seed < 2**32:
            raise UserError(f"--seeds has {seed}: use numbers from 0, below 2**32")
    if repeated := sorted({seed for seed in seeds if list(seeds).count(seed) > 1}):
        raise UserError(f"--seeds has {repeated[0]} twice: name each seed once")


def in_one_program(settings: S, count: int) -> S:
    """The settings of each of `count` seeds: whole, on one device."""
    if jax.process_count() > 1:
        raise UserError(f"seeds as one program run in one process, not in {jax.process_count()}: {ALONE}")
    if settings.devices not in (None, 1):
        raise UserError(
            f"devices {settings.devices} would split each of {count} seeds' environments, but in one program a seed "
            f"is kept whole: leave --devices out, or {ALONE}"
        )
    return replace(settings, devices=1)


def require_whole(path: Path, stored: Config) -> None:
    """Of a run that is to go on in one program with others."""
    if stored.devices not in (None, 1):
        raise UserError(f"{path} was begun on {stored.devices} devices, and goes on so alone: {ALONE}")


def require_memory(settings: Settings, count: int) -> None:
    """For `count` seeds of settings that have passed their own checks."""
    env = env_of(settings)
    if jax.default_backend() != "cpu":
        count //= devices_for(count)  # an accelerator's memory is its own
    needed = count * sum(memory_parts(settings.resolve(env.spec.episode_length), env.spec).values())
    there = available_memory()
    if there is not None and needed > there:
        raise UserError(
            f"{count} seeds as one program need about {needed / 1e9:.1f} GB but {there / 1e9:.1f} GB are available: "
            "give fewer seeds at once, or lower replay_rows or num_envs"
        )


# The same number for every seed that has made as many unrolls. They have no axis: `lax.cond` then really skips the
# scoring between two ticks of the clock, and an unroll is inserted as a slice.
SHARED = ("unrolls", "replay/head", "replay/size", "acting/command/clock")


def axes(run: RunState) -> RunState:
    """0 where a leaf has the axis of seeds, None where it is shared: as `jax.vmap` takes it."""
    return jax.tree_util.tree_map_with_path(lambda path, _: None if is_shared(path) else 0, run)


def is_shared(path: Any) -> bool:
    return jax.tree_util.keystr(path, simple=True, separator="/") in SHARED


def stack(runs: Sequence[RunState]) -> RunState:
    """Runs of one seed each, on the host or on a device, as one of K."""

    def leaf(path: Any, *leaves: Any) -> Any:
        if is_shared(path):
            return leaves[0]
        on_host = all(isinstance(leaf, np.ndarray) for leaf in leaves)
        return np.stack(leaves) if on_host else jnp.stack(leaves)

    return jax.tree_util.tree_map_with_path(leaf, *runs)


def join(one: RunState, other: RunState) -> RunState:
    """The seeds of both."""

    def leaf(path: Any, a: Any, b: Any) -> Any:
        return a if is_shared(path) else jnp.concatenate([a, b])

    return jax.tree_util.tree_map_with_path(leaf, one, other)


def keep(run: RunState, places: Sequence[int]) -> RunState:
    """The seeds at these places alone."""
    chosen = jnp.asarray(places)
    return jax.tree_util.tree_map_with_path(lambda path, x: x if is_shared(path) else x[chosen], run)


def one_of(run: RunState, place: int) -> RunState:
    """One seed's run, as it would be alone."""
    return _one_of()(run, place)


def part_of(tree: Any, place: int) -> Any:
    """One seed's part of a tree in which every leaf has the axis."""
    return _part_of()(tree, place)


@cache
def _one_of() -> Any:
    """The place is an argument of one small program: a static one would be compiled for each seed."""

    def one(run: RunState, place: Array) -> RunState:
        take = jax.lax.dynamic_index_in_dim
        return jax.tree_util.tree_map_with_path(
            lambda path, x: x if is_shared(path) else take(x, place, keepdims=False), run
        )

    return jax.jit(one)


@cache
def _part_of() -> Any:
    take = jax.lax.dynamic_index_in_dim
    return jax.jit(lambda tree, place: jax.tree.map(lambda x: take(x, place, keepdims=False), tree))


How = Literal["vmap", "map"]
AXIS = "seeds"


class SeedPrograms:
    """`devices`: those that share the seeds out evenly; with one or none, everything is as JAX has it."""

    def __init__(self, trainer: Algorithm, donate: bool, devices: tuple[Any, ...] = ()):
        self.algorithm, self.donate, self.devices = trainer, donate, devices

    @cached_property
    def axes(self) -> RunState:
        key = jax.eval_shape(lambda: jax.random.key(0))
        acting, replay = jax.eval_shape(self.algorithm.init_experience, key)
        return axes(RunState(0, acting, replay, 0, 0))  # pyright: ignore[reportArgumentType]

    @cached_property
    def init_experience(self):
        parts = (self.axes.acting, self.axes.replay)
        return self._jit(jax.vmap(self.algorithm.init_experience, out_axes=parts), (0,), parts)

    @cached_property
    def init_learner(self):
        return self._jit(jax.vmap(self.algorithm.learner.init), (0,), 0)

    @cached_property
    def collect(self):
        acting, replay = self.axes.acting, self.axes.replay
        return self._jit(self._collect, (0, acting, replay, 0), (acting, replay, 0), donate=(1, 2))

    @cached_property
    def windows(self):
        parts = (self.axes.replay, 0)
        return self._jit(jax.vmap(self.algorithm.windows, in_axes=parts), parts, 0)

    def learn(self, how: How) -> Any:
        """The learner's pass of every seed, all at once or one after another: the same maths."""
        return self._vmapped if how == "vmap" else self._mapped

    @cached_property
    def _vmapped(self):
        return self._jit(jax.vmap(self.algorithm.learn), (0, 0, 0, 0, 0), 0, donate=(0,))

    @cached_property
    def _mapped(self):
        def learn(*inputs: Any) -> tuple[LearnerState, Metrics]:
            return jax.lax.map(lambda one: self.algorithm.learn(*one), inputs)

        return self._jit(learn, (0, 0, 0, 0, 0), 0, donate=(0,))

    @cached_property
    def evaluate(self):
        return self._jit(jax.vmap(self._episodes), (0, 0), 0)

    @cached_property
    def finite(self):
        """Per seed, whether all of the learner's numbers are: [K]"""
        return jax.jit(_finite)

    def _collect(
        self, params: LearnerParams, acting: ActingState, replay: ReplayState, keys: Array
    ) -> tuple[ActingState, ReplayState, Metrics]:
        """`Algorithm.collect` of every seed. The rows go in beside the vmap, which would make scatters of slices."""

        def unroll(params: LearnerParams, acting: ActingState, key: Array):
            return self.algorithm.unroll(params, acting, key)

        axes = self.axes.acting
        acting, rows, metrics = jax.vmap(unroll, in_axes=(0, axes, 0), out_axes=(axes, 0, 0))(params, acting, keys)
        return acting, insert(replay, rows, axis=1), metrics

    def _episodes(self, params: LearnerParams, key: Array) -> Record:
        return self.algorithm.deployment.episodes(self.algorithm.policy(params), key)

    def place(self, run: RunState) -> RunState:
        """Each seed's arrays on its device, copied: they may be donated."""
        if not self._mesh:
            return jax.device_put(run, may_alias=False)
        layout = jax.tree.map(lambda spec: NamedSharding(self._mesh, spec), _specs(axes(run)))  # pyright: ignore
        return jax.tree.map(lambda leaf, where: jax.device_put(leaf, where, may_alias=False), run, layout)

    @property
    def _mesh(self) -> Mesh | None:
        return Mesh(list(self.devices), (AXIS,)) if len(self.devices) > 1 else None

    def _jit(self, function: Any, given: tuple[Any, ...], back: Any, donate: tuple[int, ...] = ()) -> Any:
        """`given` and `back`: which arguments and results have the axis of seeds, as `axes` tells it."""
        if self._mesh:
            specs = {"in_specs": _specs(given), "out_specs": _specs(back)}
            function = jax.shard_map(function, mesh=self._mesh, check_vma=False, **specs)
        donated = donate if self.donate else ()
        return jax.jit(function, donate_argnums=donated, compiler_options=compiler_options())


def _specs(axes: Any) -> Any:
    return jax.tree.map(lambda axis: PartitionSpec(*[AXIS] * (axis == 0)), axes, is_leaf=lambda axis: axis is None)


def _finite(learner: LearnerState) -> Array:
    leaves = [jnp.isfinite(leaf).reshape(leaf.shape[0], -1).all(axis=1) for leaf in jax.tree.leaves(learner)]
    return jnp.stack(leaves).all(axis=0)


def learner_form() -> How:
    return "map" if jax.default_backend() == "cpu" else "vmap"


def devices_for(count: int) -> int:
    """As many as share so many seeds out evenly."""
    return max(n for n in range(1, jax.local_device_count() + 1) if count % n == 0)


def seed_programs(trainer: Algorithm, donate: bool, count: int) -> SeedPrograms:
    """For so many seeds, over all devices that share them out evenly.

    Groups of seeds that differ in seeds or budget alone share theirs, as single runs do.
    """
    over = devices_for(count)
    devices = tuple(jax.local_devices()[:over]) if over > 1 else ()
    if not may_share(trainer):
        return SeedPrograms(trainer, donate, devices)
    return _shared(same_program(trainer), donate, devices)


_shared = lru_cache(maxsize=4)(SeedPrograms)


class SeedStages:
    """`Programs` with a leading axis of seeds. `donate`: the state that is handed in is used up."""

    def __init__(self, trainer: Algorithm, donate: bool = True, learner: How | None = None):
        self.algorithm, self._donate = trainer, donate
        self._learner: How = learner or learner_form()

    def programs(self, count: int) -> SeedPrograms:
        """For so many seeds."""
        return seed_programs(self.algorithm, self._donate, count)

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
