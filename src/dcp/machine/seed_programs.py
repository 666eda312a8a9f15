"""Several seeds as one program: every array of a run's state gets a leading axis of seeds, K.

A seed computes what it would compute alone, from the same random streams; only the order of floating-point sums may
differ. It is for accelerators, whose time goes into launches that the seeds then share.

On an accelerator every part is one `jax.vmap` over the seeds. On a CPU the learner's pass takes one seed after another
inside its program (`lax.map`): single matrix products already fill the cores, and batched ones are slower.
With several devices, each trains whole seeds of its own, and nothing passes between devices.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dcp.algorithm import Algorithm, RunState
from dcp.evaluation import Record, evaluation_key, measure, training_scores
from dcp.learner import LearnerParams, LearnerState
from dcp.loop import all_finite
from dcp.machine import compiling
from dcp.machine.programs import Programs, may_share, same_program
from dcp.replay import insert
from dcp.types import Array, Metrics, Transition

How = Literal["vmap", "map"]
AXIS = "seeds"


def axes(tree: Any) -> Any:
    """Return 0 for each array with an axis of seeds, and None for each that all seeds share, as `jax.vmap` expects it.

    Arrays are shared where they are equal for all seeds with the same number of unrolls: then `lax.cond` really skips
    the scoring between two ticks of the clock, and an unroll is inserted as a slice. The states' own types say which.
    """
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        shared = getattr(type(tree), "same_for_all_seeds", ())
        return type(tree)(*(
            jax.tree.map(lambda _: None, part) if name in shared else axes(part)
            for name, part in zip(tree._fields, tree, strict=True)  # pyright: ignore[reportAttributeAccessIssue]
        ))  # fmt: skip
    return jax.tree.map(lambda _: 0, tree)


def _map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Apply a function to the arrays with an axis of seeds. Shared ones are those of the first tree."""

    def leaf(axis: int | None, first: Any, *rest: Any) -> Any:
        return first if axis is None else function(first, *rest)

    return jax.tree.map(leaf, axes(tree), tree, *others, is_leaf=lambda axis: axis is None)


def keep(run: RunState, places: Sequence[int]) -> RunState:
    """Return the state with only the seeds at these places."""
    chosen = jnp.asarray(places)
    return _map(lambda x: x[chosen], run)


@jax.jit
def _one_of(tree: Any, place: Array) -> Any:
    """Return one seed's part. The place is traced, because a static one would compile once per seed."""
    return _map(lambda x: jax.lax.dynamic_index_in_dim(x, place, keepdims=False), tree)


class SeedPrograms:
    """Run an algorithm with a leading axis of seeds: the state of K seeds in, the next one out. Each seed has the keys
    of a single run.

    `donate`: calls consume the state that they get. `learner`: how the learner's pass goes over the seeds.
    """

    def __init__(self, algorithm: Algorithm, donate: bool = True, learner: How | None = None):
        self.algorithm, self._donate = algorithm, donate
        self._learner: How = learner or learner_form()

    def jitted(self, count: int) -> "_Jitted":
        """Return the programs for this many seeds, over as many devices as divide them evenly."""
        over = devices_for(count)
        devices = tuple(jax.local_devices()[:over]) if over > 1 else ()
        form = (self._donate, self._learner, devices)
        own = self.algorithm
        return _shared(same_program(own), *form) if may_share(own) else _Jitted(own, *form)

    def shapes(self) -> RunState:
        """Return the shapes of one seed's run."""
        return Programs(self.algorithm).shapes()

    def init(self, seeds: Sequence[int]) -> RunState:
        return self.jitted(len(seeds)).init(jnp.stack([jax.random.key(seed) for seed in seeds]))

    def stack(self, runs: Sequence[RunState]) -> RunState:
        """Stack single-seed runs, on the host or on a device, into one of K seeds."""

        def stacked(*leaves: Any) -> Any:
            on_host = all(isinstance(leaf, np.ndarray) for leaf in leaves)
            return np.stack(leaves) if on_host else jnp.stack(leaves)

        return _map(stacked, *runs)

    def place(self, run: RunState) -> RunState:
        """Distribute the seeds over the devices, after seeds have joined or dropped out."""
        return self.jitted(len(run.key)).place(run)

    def prefill(self, run: RunState) -> RunState:
        return self.jitted(len(run.key)).prefill(run)

    def iteration(self, run: RunState) -> tuple[RunState, Metrics]:
        """Return the next state and metrics [K], in the order of a single run's."""
        run, of_updates, of_acting = self.jitted(len(run.key)).iteration(run, self.data)
        return run, of_updates | of_acting

    @cached_property
    def data(self) -> Transition | None:
        """Return the runs' data on the device: all seeds have the same."""
        return jax.device_put(self.algorithm.data)

    def scores(self, run: RunState, seeds: Sequence[int], index: int) -> list[dict[str, float]]:
        """Evaluate each seed on the same episodes as when it trains alone, for the evaluation of this index."""
        keys = jnp.stack([evaluation_key(seed, index) for seed in seeds])
        records = jax.device_get(self.jitted(len(seeds)).evaluate(run.learner.deployed, keys))
        return [training_scores(measure(jax.tree.map(lambda x, i=i: x[i], records))) for i in range(len(seeds))]

    def diverged(self, run: RunState) -> list[int]:
        """Count each seed's episodes so far that ended because their environment diverged."""
        return np.sum(run.acting.episodes.diverged, axis=1).tolist()

    def finite(self, run: RunState) -> list[bool]:
        """Return, per seed, whether all of the learner's numbers are finite."""
        return jax.vmap(all_finite)(run.learner).tolist()

    def one_of(self, run: RunState, place: int) -> RunState:
        """Return one seed's run in the form of a single run."""
        return _one_of(run, place)  # pyright: ignore[reportArgumentType]

    def learner_of(self, run: RunState, place: int) -> LearnerState:
        return _one_of(run.learner, place)  # pyright: ignore[reportArgumentType]


class _Jitted:
    """Compile an algorithm's `init`, `prefill`, `iteration` and evaluation over K seeds, each when it is first used.

    `devices`: those that divide the seeds evenly; with one or none, JAX's default placement applies.
    """

    def __init__(self, algorithm: Algorithm, donate: bool, learner: How, devices: tuple[Any, ...] = ()):
        self.algorithm, self.donate, self.learner, self.devices = algorithm, donate, learner, devices

    @cached_property
    def axes(self) -> RunState:
        return axes(jax.eval_shape(self.algorithm.init, jax.eval_shape(lambda: jax.random.key(0))))

    @cached_property
    def init(self):
        return self._jit(jax.vmap(self.algorithm.init, out_axes=self.axes), (0,), self.axes)

    @cached_property
    def prefill(self):
        def prefill(run: RunState) -> RunState:
            key, key_collect = _splits(run.key, 2)
            return self._unroll(run._replace(key=key), key_collect)[0]

        return self._jit(prefill, (self.axes,), self.axes, donate=(0,))

    @cached_property
    def iteration(self):
        return self._jit(self._iteration, (self.axes, None), (self.axes, 0, 0), donate=(0,))

    @cached_property
    def evaluate(self):
        def episodes(params: LearnerParams, key: Array) -> Record:
            return self.algorithm.deployment.episodes(self.algorithm.policy(params), key)

        return self._jit(jax.vmap(episodes), (0, 0), 0)

    def _iteration(self, run: RunState, data: Transition | None) -> tuple[RunState, Metrics, Metrics]:
        """Do `algorithm.iteration` for every seed."""
        algorithm = self.algorithm
        key, key_collect, key_sample, key_update = _splits(run.key, 4)
        key_window, key_future, key_shuffle = _splits(key_sample, 3)
        run, acting_metrics = self._unroll(run._replace(key=key), key_collect)
        windows = jax.vmap(algorithm.windows_of, in_axes=(self.axes.replay, None, 0))(run.replay, data, key_window)
        inputs = (run.learner, windows, key_future, key_shuffle, key_update)
        if self.learner == "vmap":
            learner, metrics = jax.vmap(algorithm.learn)(*inputs)
        else:
            learner, metrics = jax.lax.map(lambda one: algorithm.learn(*one), inputs)
        return run._replace(learner=learner), metrics, acting_metrics

    def _unroll(self, run: RunState, keys: Array) -> tuple[RunState, Metrics]:
        """Do `Algorithm.collect` for every seed. Rows are inserted outside the vmap, which would turn slices into
        scatters."""
        axes = self.axes.acting
        unroll = jax.vmap(self.algorithm.unroll, in_axes=(0, axes, 0), out_axes=(axes, 0, 0))
        acting, rows, metrics = unroll(run.learner.params, run.acting, keys)
        replay = insert(run.replay, rows, axis=1)
        return run._replace(acting=acting, replay=replay, unrolls=run.unrolls + 1), metrics

    def place(self, run: RunState) -> RunState:
        """Copy each seed's arrays to its device. The copies may be donated."""
        if not self._mesh:
            return jax.device_put(run, may_alias=False)
        layout = jax.tree.map(lambda spec: NamedSharding(self._mesh, spec), _specs(axes(run)))  # pyright: ignore
        return jax.tree.map(lambda leaf, where: jax.device_put(leaf, where, may_alias=False), run, layout)

    @property
    def _mesh(self) -> Mesh | None:
        return Mesh(list(self.devices), (AXIS,)) if len(self.devices) > 1 else None

    def _jit(self, function: Any, inputs: Any, outputs: Any, donate: tuple[int, ...] = ()) -> Any:
        """Compile a function. `inputs` and `outputs` mark, like `axes`, what has an axis of seeds."""
        if self._mesh:
            specs = {"in_specs": _specs(inputs), "out_specs": _specs(outputs)}
            function = jax.shard_map(function, mesh=self._mesh, check_vma=False, **specs)
        return compiling.jit(function, donate_argnums=donate if self.donate else ())


_shared = lru_cache(maxsize=4)(_Jitted)  # groups that differ only in seeds or budget share programs


def learner_form() -> How:
    return "map" if jax.default_backend() == "cpu" else "vmap"


def devices_for(count: int) -> int:
    """Return the largest number of devices that divides these seeds evenly."""
    return max(n for n in range(1, jax.local_device_count() + 1) if count % n == 0)


def _specs(axes: Any) -> Any:
    return jax.tree.map(lambda axis: PartitionSpec(*[AXIS] * (axis == 0)), axes, is_leaf=lambda axis: axis is None)


def _splits(keys: Array, number: int) -> tuple[Array, ...]:
    """Split keys [K] into `number` arrays [K], each seed's key as in a single run."""
    return tuple(jnp.moveaxis(jax.vmap(lambda key: jax.random.split(key, number))(keys), 1, 0))
