"""The three things in which methods differ. The learner and the trainer know these, and no method's name."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

from dcp.config import Config
from dcp.types import Array, EnvSpec, Metrics

CommandState = Any
ActorGoal = Literal["future", "commanded"]


class Representation(NamedTuple):
    """The critic as commands and conditions may see it: gradients stopped, networks hidden."""

    encode_goal: Callable[[Array], Array]  # [..., G] -> [..., D]: psi_g
    distance: Callable[[Array, Array], Array]  # psi [..., D], psi [..., D] -> [...]: a norm
    energy: Callable[[Array, Array, Array], Array]  # state [..., S], action [..., A], goal [..., G] -> [...]


class Command(Protocol):
    """Decides which goal the rollout asks for. Exists in training alone."""

    has_pool: ClassVar[bool]  # that can be seeded

    @classmethod
    def make(cls, config: Config, spec: EnvSpec) -> Self:
        """As this config sets it, for this environment."""
        ...

    def init(self, achieved: Array, goal: Array, seed_states: Array | None = None) -> CommandState:
        """achieved [N, G], goal [N, G], seed_states [K, G] -> the state before the first step."""
        ...

    def step(
        self, state: CommandState, achieved: Array, goal: Array, representation: Representation, key: Array
    ) -> tuple[CommandState, Array]:
        """achieved [N, G], goal [N, G] -> state, commanded goals [N, G]"""
        ...

    def metrics(self, state: CommandState, achieved: Array, goal: Array) -> Metrics:
        """What the command is doing now; the same names at every call, none for a command without memory."""
        ...


class Condition(Protocol):
    """Decides what the actor sees of the goal it is given, in training and at deployment alike.

    Two conditions of one kind are equal: a program compiled for the one serves the other.
    """

    name: ClassVar[str]

    def size(self, spec: EnvSpec, repr_dim: int) -> int: ...

    def __call__(self, representation: Representation, achieved: Array, commanded: Array) -> Array:
        """achieved [..., G], commanded [..., G] -> [..., size]"""
        ...


class Agent(NamedTuple):
    """A method with its settings: a row of the table, made concrete."""

    command: Command
    condition: Condition
    actor_goal: ActorGoal
