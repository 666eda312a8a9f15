"""What steps a model: engines behind one protocol, their contacts, and the paper's bodies.

An engine is written for one instance, as environments are.
"""

from typing import Any, Protocol

from dcp.types import Array


class PhysicsState(Protocol):
    """Declare what a task may read, whichever engine made it."""

    @property
    def q(self) -> Array: ...  # [Q]: generalized positions

    @property
    def qd(self) -> Array: ...  # [V]: generalized velocities

    @property
    def x(self) -> Any: ...  # link frames in the world: pos [L, 3], rot [L, 4]

    @property
    def xd(self) -> Any: ...  # their motion: vel [L, 3], ang [L, 3]; only engines of tasks that ask for it have it


class Engine(Protocol):
    def init(self, q: Array, qd: Array) -> Any: ...

    def step(self, state: Any, control: Array) -> Any:
        """Take one environment step: the model's frames under one control [A]."""
        ...
