"""The condition of CRL and SSGC: the actor reads the goal's coordinates."""

from dataclasses import dataclass
from typing import ClassVar

from dcp.methods.interface import Representation
from dcp.types import Array, EnvSpec


@dataclass(frozen=True)
class RawGoal:
    name: ClassVar[str] = "raw_goal"

    def size(self, spec: EnvSpec, repr_dim: int) -> int:
        return spec.goal_size

    def __call__(self, representation: Representation, achieved: Array, commanded: Array) -> Array:
        return commanded
