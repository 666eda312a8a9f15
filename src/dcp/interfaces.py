"""The seams: what a critic, a command, a condition and a network are, and the agent that composes them.

Every part is a frozen dataclass whose fields are its settings; all of their methods are pure. Nothing here has a body:
a part of your own needs these methods, and inherits from nothing.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import jax

from dcp.types import Array, Batch, EnvSpec, Metrics, Params

CommandState = Any
ActorGoal = Literal["future", "commanded"]


class Representation(NamedTuple):
    """The critic as commands, conditions and the actor's loss may see it: gradients stopped, networks hidden."""

    encode_goal: Callable[[Array], Array]  # [..., G] -> [..., D]: psi_g
    distance: Callable[[Array, Array], Array]  # psi_from [..., D], psi_to [..., D] -> [...]: the critic's own
    value: Callable[[Array, Array, Array], Array]  # state, action, goal -> [...]: what the actor maximises


class Network(Protocol):
    """A backbone: any function of an array with parameters. A frozen dataclass: its fields are its settings."""

    def init(self, key: Array, in_size: int, out_size: int) -> Params: ...

    def apply(self, params: Params, x: Array) -> Array:
        """x [..., in] -> [..., out]"""
        ...


class Problem(NamedTuple):
    """What a critic is built for: the task's sizes, and the backbone for its networks."""

    spec: EnvSpec
    network: Network


class CriticState(NamedTuple):
    params: Params  # trained by the gradient of `loss`
    carried: Any = ()  # whatever else it keeps: target networks, multipliers, counters


class Critic(Protocol):
    """Learns how good an action is for a goal, and may learn an embedding psi that others read."""

    needs: ClassVar[frozenset[str]]  # fields of a Batch beyond state, action and commanded_goal; see `replay.relabel`
    gives: ClassVar[frozenset[str]]  # of "embedding", "distance", "steps": what others may read besides the value

    @property
    def repr_dim(self) -> int:
        """D, the size of the embedding; 0 for a critic without one."""
        ...

    def init(self, keys: Array, problem: Problem) -> CriticState:
        """keys [2]: two independent keys, to be split further as needed"""
        ...

    def loss(self, problem: Problem, params: Params, carried: Any, batch: Batch, key: Array) -> tuple[Array, Metrics]:
        """Return the loss of one batch, and what metrics.csv shows of it: at least `critic_loss`."""
        ...

    def after(self, problem: Problem, params: Params, carried: Any) -> Any:
        """Return what is carried on after a step of the optimizer: the identity for most."""
        ...

    def representation(self, problem: Problem, params: Params) -> Representation:
        """Return what others may read. Whoever calls it stops the gradients of params first."""
        ...


class Command(Protocol):
    """Decides which goal the rollout asks for. Exists in training alone. A frozen dataclass: fields are settings."""

    has_pool: ClassVar[bool]  # that can be seeded

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

    A frozen dataclass: its fields are its settings, and two equal conditions share their compiled programs.
    """

    def size(self, spec: EnvSpec, repr_dim: int) -> int:
        """How many numbers it gives the actor."""
        ...

    def __call__(self, representation: Representation, achieved: Array, commanded: Array) -> Array:
        """achieved [..., G], commanded [..., G] -> [..., size]"""
        ...


class Agent(NamedTuple):
    """The parts that a method composes. `network` is the backbone of actor and critic; None: the config's."""

    critic: Critic
    command: Command
    condition: Condition
    actor_goal: ActorGoal = "commanded"
    network: Network | None = None


def read(critic: Critic, problem: Problem, params: Params) -> Representation:
    """The one gradient boundary: whoever reads a critic through this never trains it."""
    return critic.representation(problem, jax.lax.stop_gradient(params))


def needs_embedding(part: Any) -> bool:
    """Tell whether a condition or score reads psi, which not every critic has. Without a word of its own: it does."""
    return getattr(part, "needs_embedding", True)
