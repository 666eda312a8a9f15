"""The trainer's parts as programs over K seeds, each made once.

On an accelerator every part is one `jax.vmap` over the seeds. On a CPU the learner's pass takes one seed after another
inside its program (`lax.map`): its matrix products fill the cores already, and batched ones do so worse.
With several devices each has its share of the seeds, whole, and nothing passes between them.
"""

from functools import cached_property, lru_cache
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dcp.compiling import compiler_options
from dcp.evaluation.rollout import Record
from dcp.learner import LearnerParams, LearnerState
from dcp.replay import ReplayState, insert
from dcp.training.programs import may_share, same_program
from dcp.training.rollout import ActingState
from dcp.training.seeds.axis import axes
from dcp.training.trainer import RunState, Trainer
from dcp.types import Array, Metrics

How = Literal["vmap", "map"]
AXIS = "seeds"


class SeedPrograms:
    """`devices`: those that share the seeds out evenly; with one or none, everything is as JAX has it."""

    def __init__(self, trainer: Trainer, donate: bool, devices: tuple[Any, ...] = ()):
        self.trainer, self.donate, self.devices = trainer, donate, devices

    @cached_property
    def axes(self) -> RunState:
        key = jax.eval_shape(lambda: jax.random.key(0))
        acting, replay = jax.eval_shape(self.trainer.init_experience, key)
        return axes(RunState(0, acting, replay, 0, 0))  # pyright: ignore[reportArgumentType]

    @cached_property
    def init_experience(self):
        parts = (self.axes.acting, self.axes.replay)
        return self._jit(jax.vmap(self.trainer.init_experience, out_axes=parts), (0,), parts)

    @cached_property
    def init_learner(self):
        return self._jit(jax.vmap(self.trainer.learner.init), (0,), 0)

    @cached_property
    def collect(self):
        acting, replay = self.axes.acting, self.axes.replay
        return self._jit(self._collect, (0, acting, replay, 0), (acting, replay, 0), donate=(1, 2))

    @cached_property
    def windows(self):
        parts = (self.axes.replay, 0)
        return self._jit(jax.vmap(self.trainer.windows, in_axes=parts), parts, 0)

    def learn(self, how: How) -> Any:
        """The learner's pass of every seed, all at once or one after another: the same maths."""
        return self._vmapped if how == "vmap" else self._mapped

    @cached_property
    def _vmapped(self):
        return self._jit(jax.vmap(self.trainer.learn), (0, 0, 0, 0, 0), 0, donate=(0,))

    @cached_property
    def _mapped(self):
        def learn(*inputs: Any) -> tuple[LearnerState, Metrics]:
            return jax.lax.map(lambda one: self.trainer.learn(*one), inputs)

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
        """`Trainer.collect` of every seed. The rows go in beside the vmap, which would make scatters of slices."""

        def unroll(params: LearnerParams, acting: ActingState, key: Array):
            return self.trainer.rollout.collect(params, acting, key, self.trainer.config.unroll_length)

        axes = self.axes.acting
        acting, rows, metrics = jax.vmap(unroll, in_axes=(0, axes, 0), out_axes=(axes, 0, 0))(params, acting, keys)
        return acting, insert(replay, rows, axis=1), metrics

    def _episodes(self, params: LearnerParams, key: Array) -> Record:
        return self.trainer.deployment.episodes(self.trainer.policy(params), key)

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


def seed_programs(trainer: Trainer, donate: bool, count: int) -> SeedPrograms:
    """For so many seeds, over all devices that share them out evenly.

    Groups of seeds that differ in seeds or budget alone share theirs, as single runs do.
    """
    over = devices_for(count)
    devices = tuple(jax.local_devices()[:over]) if over > 1 else ()
    if not may_share(trainer):
        return SeedPrograms(trainer, donate, devices)
    return _shared(same_program(trainer), donate, devices)


_shared = lru_cache(maxsize=4)(SeedPrograms)
