"""Brax's own pipelines, as they are: what ours are measured against."""

from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import jax

from dcp.types import Array

if TYPE_CHECKING:
    from brax.base import System


@dataclass(frozen=True)
class PlainEngine:
    pipeline: ModuleType  # brax.spring.pipeline, brax.generalized.pipeline or brax.mjx.pipeline
    sys: "System"
    frames: int

    def init(self, q: Array, qd: Array) -> Any:
        return self.pipeline.init(self.sys, q, qd)

    def step(self, state: Any, control: Array) -> Any:
        def frame(state: Any, _: None) -> tuple[Any, None]:
            return self.pipeline.step(self.sys, state, control), None

        return jax.lax.scan(frame, state, None, self.frames)[0]
