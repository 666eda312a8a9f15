"""The command of CRL: ask for the environment's own goal."""

from dataclasses import dataclass
from typing import ClassVar, Self

from dcp.config import Config
from dcp.methods.interface import Representation
from dcp.types import Array, EnvSpec, Metrics


@dataclass(frozen=True)
class FinalGoal:
    has_pool: ClassVar[bool] = False

    @classmethod
    def make(cls, config: Config, spec: EnvSpec) -> Self:
        return cls()

    def init(self, achieved: Array, goal: Array, seed_states: Array | None = None) -> tuple[()]:
        return ()

    def step(
        self, state: tuple[()], achieved: Array, goal: Array, representation: Representation, key: Array
    ) -> tuple[tuple[()], Array]:
        return (), goal

    def metrics(self, state: tuple[()], achieved: Array, goal: Array) -> Metrics:
        return {}
