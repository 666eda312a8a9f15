"""The trainer's parts as compiled programs, each made once and on its own devices.

Environments and replay are split along N; an unroll is one program over all devices. The learner lives on the first
device, where the updates run with all of its threads: on every device they would be the same work once more. Where
batches are split, or where there are several hosts, it lives on every device.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

import jax

from dcp.compiling import compiler_options
from dcp.envs.registry import is_ours
from dcp.evaluation.program import compiled
from dcp.replay import ReplayState
from dcp.training.rollout import ActingState
from dcp.training.trainer import Trainer


class Programs:
    def __init__(self, trainer: Trainer, donate: bool):
        self.trainer, self.split, self.donate = trainer, trainer.split, donate

    @cached_property
    def init_experience(self):
        return self._jit(self.trainer.init_experience, self.experience)

    @cached_property
    def init_learner(self):
        return jax.jit(self.trainer.learner.init, **self._learner_layout(lambda: self.split.whole))

    @cached_property
    def collect(self):
        return self._jit(self.trainer.collect, lambda: (*self.experience(), self.split.whole), donate=(1, 2))

    @cached_property
    def windows(self):
        """Each device those of its own environments; all of them, where every device learns."""
        split, everywhere = self.split, self.learns_everywhere
        return self._jit(self.trainer.windows, lambda: split.whole if everywhere else split.along(1))

    @cached_property
    def learn(self):
        donated = 0 if self.donate else ()
        layout = self._learner_layout(lambda: (self.split.whole, self.split.whole))
        return jax.jit(self.trainer.learn, donate_argnums=donated, compiler_options=compiler_options(), **layout)

    @cached_property
    def evaluate(self):
        return compiled(self.trainer.deployment)

    @property
    def learns_everywhere(self) -> bool:
        return self.split.spans_hosts or self.trainer.splits_batches

    def _learner_layout(self, layout: Callable[[], Any]) -> dict[str, Any]:
        return {"out_shardings": layout()} if self.learns_everywhere else {}

    def _jit(self, function: Any, layout: Callable[[], Any], donate: tuple[int, ...] = ()) -> Any:
        """With several devices, results are laid out as they came: nothing is moved, and nothing compiled twice."""
        options: dict[str, Any] = {"donate_argnums": donate if self.donate else ()}
        # On several devices too: XLA's own choice runs a pusher's small products there six times as slowly.
        options["compiler_options"] = compiler_options()
        if self.split.count > 1:
            options["out_shardings"] = layout()
        return jax.jit(function, **options)

    def experience(self) -> tuple[ActingState, ReplayState]:
        """Where each part lies. The command's state, with its pool, is one for all environments."""
        return (
            ActingState(episodes=self.split.along(0), command=self.split.whole),  # pyright: ignore[reportArgumentType]
            ReplayState(rows=self.split.along(1), head=self.split.whole, size=self.split.whole),  # pyright: ignore
        )


def programs(trainer: Trainer, donate: bool) -> Programs:
    """Runs that differ in seed or budget alone share theirs: five seeds in one process are compiled once.

    Not where something may change behind our back: another kind of trainer, or a user's own environment.
    """
    return _shared(same_program(trainer), donate) if may_share(trainer) else Programs(trainer, donate)


def may_share(trainer: Trainer) -> bool:
    return type(trainer) is Trainer and is_ours(trainer.env) and is_ours(trainer.eval_env)


def same_program(trainer: Trainer) -> Trainer:
    """The one trainer that stands for all whose programs are the same: those that differ in seed or budget alone."""
    config = trainer.config
    first = (config.num_prefill_unrolls + 1) * config.env_steps_per_unroll  # the least that makes a valid config
    config = replace(config, seed=0, steps=first, num_evals=1)
    learner = replace(trainer.learner, config=config)
    return replace(trainer, config=config, learner=learner, rollout=replace(trainer.rollout, learner=learner))


_shared = lru_cache(maxsize=4)(Programs)  # equal trainers are one
