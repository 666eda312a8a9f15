"""The seams: what a critic, a command, a condition and a network are, and the agent that composes them.

Every part is a frozen dataclass whose fields are its settings; all of their methods are pure. The
protocols contain no code: a part of your own needs these methods, and inherits from nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import jax

from dcp.types import Array, Batch, EnvSpec, Metrics, Params

CommandState = Any
ActorGoal = Literal["future", "commanded", "mixed"]  # mixed: half the rows' own future, half another row's


class Representation(NamedTuple):
    """The critic as commands, conditions and the actor's loss may see it: gradients stopped, networks hidden."""

    encode_goal: Callable[[Array], Array]  # [..., G] -> [..., D]: psi_g
    distance: Callable[[Array, Array], Array]  # psi_from [..., D], psi_to [..., D] -> [...]: the critic's own
    value: Callable[[Array, Array, Array], Array]  # state, action, goal -> [...]: what the actor maximises
    steps: Callable[[Array, Array], Array] | None = None  # as `distance`, in environment steps, where `gives` has it


class Network(Protocol):
    """A backbone: any function of an array with parameters. A frozen dataclass: its fields are its settings."""

    def init(self, key: Array, in_size: int, out_size: int) -> Params: ...

    def apply(self, params: Params, x: Array) -> Array:
        """x [..., in] -> [..., out]"""
        ...


class Problem(NamedTuple):
    """Say what a critic is built for: the task's sizes, and the backbone for its networks."""

    spec: EnvSpec  # its actions are whole chunks, where the actor plans several steps at once
    network: Network


@dataclass(frozen=True)
class Hindsight:
    """Say which goal the replay gives each row, `future_goal`: the paper's unless a critic says otherwise.

    "future": the achieved goal k >= 1 steps later in the same episode, with probability proportional to discount^k.
    "final": that of the episode's last row, where its time limit lies in the window; elsewhere the commanded goal.
    """

    draws: Literal["future", "final"] = "future"
    discount: float | None = None  # above 0 and up to 1, which is uniform; None: the config's
    current_share: float = 0.0  # of the rows: the row's own achieved goal
    random_share: float = 0.0  # of the rows: that of any row of the window
    others_share: float = 0.0  # of the rows: that of any row of any environment
    commanded_share: float = 0.0  # of the rows: the goal that was commanded
    moving_share: float = 0.0  # of each batch: rows after which the achieved goal still moves, drawn once more
    goal_steps: int = 1  # m of `goal_sequence`
    within: float | None = None  # how near counts as a hit; None: the task's threshold
    bins: tuple[int, ...] = ()  # edges of the bins of `occupancy`, in steps


class ActorStep(NamedTuple):
    """Hold what the actor's loss is computed from."""

    value: Callable[[Array], Array]  # action [B, A] -> [B]: what the actor maximises
    mean: Array  # [B, A], before the tanh
    log_std: Array  # [B, A]
    noise: Array  # [B, A]
    alpha: Array  # []: the temperature
    batch: Batch


class ActorRule(Protocol):
    """Decide how the actor acts while it is trained, and what it learns from. `actor.py` has ours."""

    learns_temperature: ClassVar[bool]

    @property
    def delay(self) -> int:
        """Update the actor once in this many updates; above 1 its slow copy draws `next_action`."""
        ...

    def explore(self, mean: Array, log_std: Array, noise: Array) -> Array:
        """[N, A] each -> the action that is taken, [N, A]"""
        ...

    def next_action(self, mean: Array, log_std: Array, noise: Array) -> tuple[Array, Array]:
        """[B, A] each -> the action that a critic bootstraps from [B, A], its log probability [B]"""
        ...

    def loss(self, step: ActorStep) -> tuple[Array, Array]:
        """Return the loss [] and the log probability of an action [B]."""
        ...


class CriticState(NamedTuple):
    params: Params  # trained by the gradient of `loss`
    carried: Any = ()  # whatever else it keeps: target networks, multipliers, counters


class Critic(Protocol):
    """Learn how good an action is for a goal, and maybe learn an embedding psi that others read.

    What it may have besides:
    `hindsight`: a Hindsight, where goals are not drawn as the paper draws them;
    `actor_rule`: an ActorRule, where the actor does not learn as SAC's does;
    `actor_value(problem, params, batch, action, goal)`: what the actor maximises, if that is not only the value;
    `for_task(spec, episode_length)`: itself with what the task decides filled in;
    `deployed(params)`: what of its parameters a policy reads;
    `actor_goals`: the actor goals that it allows, where not all;
    `from_config`: names of its fields that are settings of the config.
    """

    needs: ClassVar[frozenset[str]]  # fields of a Batch beyond state, action and commanded_goal; see `replay.relabel`
    # What others may read besides the value, of "embedding", "distance", "steps" (all of psi) and "survival".
    gives: ClassVar[frozenset[str]]

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
    """Decide which goal the rollout asks for. Exists only in training. A frozen dataclass: fields are settings.

    What it may have besides:
    `for_task(spec, episode_length)`: itself with what the task decides filled in;
    `begin(state, achieved, begins)`: the state before each step, where `begins` [N] says who begins an episode;
    `explores(state)`: which environments [N] take a uniform random action instead of the actor's.
    """

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
        """Return what the command is doing now; the same names at every call, none for a command without memory."""
        ...


class Condition(Protocol):
    """Decide what the actor sees of the goal it is given, in training and at deployment alike.

    A frozen dataclass: its fields are its settings, and two equal conditions share their compiled programs.
    """

    def size(self, spec: EnvSpec, repr_dim: int) -> int:
        """Return how many numbers it gives the actor."""
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
    hindsight: Hindsight | None = None  # where the learner's goals come from; None: the critic's own


def representation_of(critic: Critic, problem: Problem, params: Params) -> Representation:
    """Read a critic without training it: the one gradient boundary."""
    return critic.representation(problem, jax.lax.stop_gradient(params))


def part_for_task(part: Any, spec: EnvSpec, episode_length: int) -> Any:
    """Return a critic, command or condition with the defaults filled in that depend on the task."""
    fill_in = getattr(part, "for_task", None)
    return part if fill_in is None else fill_in(spec, episode_length)


def needs_embedding(part: Any) -> bool:
    """Tell whether a condition or score reads psi, which not every critic has. Defaults to True."""
    return getattr(part, "needs_embedding", True)


_OF_NEXT_ACTION = frozenset({"next_action", "next_bonus"})


def needs(agent: Agent) -> frozenset[str]:
    """Return the fields of a Batch that this agent's losses read besides state, action and commanded goal.

    The next action, and what its entropy is worth, are drawn at the next state for the hindsight goal.
    """
    fields = agent.critic.needs | ({"future_goal"} if agent.actor_goal != "commanded" else frozenset())
    return fields | {"next_action", "next_state", "future_goal"} if fields & _OF_NEXT_ACTION else fields


def hindsight_of(critic: Critic) -> Hindsight:
    """Return how the critic wants its goals drawn."""
    return getattr(critic, "hindsight", None) or Hindsight()


_DRAWS = ("draws", "discount", "current_share", "random_share", "others_share", "commanded_share", "moving_share")


def goals_of(agent: Agent) -> Hindsight:
    """Return how the agent's goals are drawn: its own choice, else its critic's."""
    of_critic = hindsight_of(agent.critic)
    if agent.hindsight is None:
        return of_critic
    return replace(of_critic, **{name: getattr(agent.hindsight, name) for name in _DRAWS})


def actor_value(
    critic: Critic, problem: Problem, params: Params, batch: Batch, goal: Array
) -> Callable[[Array], Array]:
    """Return what the actor maximises on this batch: action [B, A] -> [B]. Gradients of params are stopped here."""
    own = getattr(critic, "actor_value", None)
    if own is None:
        representation = representation_of(critic, problem, params)
        return lambda action: representation.value(batch.state, action, goal)
    params = jax.lax.stop_gradient(params)
    return lambda action: own(problem, params, batch, action, goal)
