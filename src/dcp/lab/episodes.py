"""Play episodes of a policy and keep what pictures need: fresh ones, all toward one goal, or those that are shown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.config import Config
from dcp.envs.base import Environment, EnvState
from dcp.envs.mazes import unit
from dcp.envs.point_tasks import places, things_of
from dcp.errors import UserError
from dcp.evaluation import Record, rollout
from dcp.lab.style import human_count
from dcp.lab.targets import Target, environment_of, require_known_parts
from dcp.lab.trial import COMPILING, cached_by_env, goal_set_key, require_room, variant
from dcp.machine.compiling import QUICK_COMPILE
from dcp.methods import more_conditions
from dcp.methods.commands import PooledSubgoal
from dcp.methods.conditions import Direction
from dcp.methods.table import METHODS, make_agent
from dcp.policies.policy import DeployedPolicy, Policy, PolicyState
from dcp.types import Array, EnvSpec

AFTER_SUCCESS = 30  # steps shown after the goal is reached


class Episode(NamedTuple):
    """One episode up to its end; T is the number of its steps."""

    achieved: np.ndarray  # [T + 1, G]
    goal: np.ndarray  # [G]
    q: np.ndarray | None  # [T + 1, Q]: the bodies' poses, under simulated physics; or the places of things in a plane
    reached: int | None  # the first step that is near the goal
    directions: np.ndarray | None = None  # [T + 1, 2]
    subgoals: np.ndarray | None = None  # [T + 1, G]

    @property
    def steps(self) -> int:
        return len(self.achieved) - 1

    @property
    def last(self) -> int:
        """Return the last step that is shown."""
        return self.steps if self.reached is None else min(self.steps, self.reached + AFTER_SUCCESS)

    @property
    def path(self) -> np.ndarray:
        """Return the places in the plane up to the success, without what the agent does at the goal: [K, 2]."""
        return self.achieved[: None if self.reached is None else self.reached + 1, :2]

    @property
    def distance(self) -> np.ndarray:
        """Return the distances to the goal: [T + 1]."""
        return np.linalg.norm(self.achieved - self.goal, axis=-1)


def play(
    env: Environment, policy: Policy, key: Array, num_episodes: int, steps: int, tell: Callable[[str], object] = len
) -> list[Episode]:
    """Play fresh episodes; the key decides starts and goals."""
    if getattr(policy, "on_host", False):
        run = partial(_run, env, num_episodes, steps)
    else:
        run = _program(env, num_episodes, steps)
        tell(COMPILING)
    record = jax.device_get(run(policy, key))
    obs, q = record.watched
    state, goal = env.spec.split(obs)  # [T + 1, N, ...]
    achieved = env.spec.achieved(state)
    if things := things_of(env):
        q = places(things, state)
    episodes = []
    for i in range(num_episodes):
        end = int(record.alive[:, i].sum()) + 1
        poses = None if q is None else q[:end, i]
        episodes.append(Episode(achieved[:end, i], goal[0, i], poses, _first(record.near_goal[:, i])))
    return episodes


def _first(near: np.ndarray) -> int | None:
    """Return the first state that is near the goal: step t of `near` [T] leads to state t + 1."""
    return int(near.argmax()) + 1 if near.any() else None


def _run(env: Environment, num_episodes: int, steps: int, policy: Policy, key: Array) -> Record:
    def watch(state: EnvState) -> tuple[Array, Array | None]:
        return state.obs, getattr(state.physics, "q", None)

    return rollout(env, policy, key, num_episodes, steps, watch=watch)


@cached_by_env
def _program(env: Environment, num_episodes: int, steps: int) -> Callable[[Policy, Array], Record]:
    """Compile once for all policies that differ only in their parameters."""
    return jax.jit(partial(_run, env, num_episodes, steps), compiler_options=QUICK_COMPILE)


def play_toward(env: Environment, policy: Policy, goal: np.ndarray, num_episodes: int, steps: int) -> list[Episode]:
    """Play fresh episodes in which the policy gets the same goal [G], even if the environment never draws that one. It
    also decides the success; the environment's own goal is never overwritten, because the physics may hold it."""
    goal = np.asarray(goal)
    played = play(env, Aimed(policy, goal.astype(np.float32)), jax.random.key(0), num_episodes, steps)
    aimed_at = [episode._replace(goal=goal) for episode in played]
    return [e._replace(reached=_first(e.distance[1:] < env.spec.threshold)) for e in aimed_at]


@partial(jax.tree_util.register_dataclass, data_fields=["policy", "goal"], meta_fields=[])
@dataclass(frozen=True)
class Aimed:
    """Wrap a policy so that it always gets this goal, whatever the episode's goal is."""

    policy: Policy
    goal: Any  # [G]

    def init(self, key: Array) -> PolicyState:
        return self.policy.init(key)

    def act(self, policy_state: PolicyState, state: Array, goal: Array) -> tuple[PolicyState, Array]:
        return self.policy.act(policy_state, state, jnp.broadcast_to(jnp.asarray(self.goal, goal.dtype), goal.shape))


def shows_maze(spec: EnvSpec) -> bool:
    """Return whether goals are points of a maze's plane, so that the maze can be drawn with them."""
    return spec.maze is not None and spec.goal_dims == spec.maze_dims


# The policies that are shown, and their episodes with everything that a picture needs. The seed decides starts and
# goals, so all policies are shown on the same episodes: those that `dcp eval` measures. Two things inside a method can
# be drawn: the direction that the actor sees, and the subgoal that training would have commanded here, chosen from
# states that the policy itself visits. The policy uses neither: at deployment z is the goal.

# Episodes are played in batches of this size, even if only one is shown: one compiled program serves all, and an
# episode does not depend on how many others are shown (programs round differently, and contacts amplify that).
TOGETHER = 32
_POOL_STREAM = 0x706F6F6C  # keeps the pool's episodes apart from the ones that are shown


class ShownPolicy(NamedTuple):
    """A policy as it is shown: its name, its steps of training, and its episodes."""

    name: str
    env_steps: int | None
    episodes: list[Episode]
    numbers: tuple[int, ...] = ()  # of these episodes in the seed's set, if the title shows them
    outcomes: tuple[bool, ...] = ()  # for every episode that was played: whether it reached the goal

    @property
    def title(self) -> str:
        steps = [] if self.env_steps is None else [f"{human_count(self.env_steps)} steps"]
        return ", ".join([self.name, *steps, *(f"episode {number}" for number in self.numbers)])

    @property
    def rate(self) -> str:
        return f"reached in {sum(self.outcomes)} of {len(self.outcomes)} episodes" if self.outcomes else ""


@dataclass(frozen=True)
class Shown:
    """Say which episodes to show, and what to draw."""

    seed: int = 0
    first: int | None = 0  # of the seed's episodes; None: one that arrives and one that does not
    num_episodes: int = 1
    steps: int | None = None
    burst: tuple[int, int] | None = None
    direction: Literal["auto", "on", "off"] = "auto"
    subgoal: bool = False


def common_env(targets: Sequence[Target], env: str | None, physics: str | None = None) -> Environment:
    """Return the named environment, or the first target's; refuse one that does not fit another target."""
    made = environment_of(targets[0], env, physics=physics)
    for other in targets[1:]:
        environment_of(other, env or targets[0].env, targets[0].fidelity, physics or targets[0].physics)
    return made


def names_of(targets: Sequence[Target]) -> list[str]:
    """Return the methods as names; add seeds, or use paths, if these do not tell the policies apart."""
    methods = [str(target.about.get("method") or Path(target.label).stem) for target in targets]
    seeded = [f"{name} seed {target.about.get('seed')}" for name, target in zip(methods, targets, strict=True)]
    for names in (methods, seeded):
        if len(set(names)) == len(names):
            return names
    return [target.label for target in targets]


def show_policy(
    target: Target, name: str, env: Environment, shown: Shown, tell: Callable[[str], object] = len
) -> ShownPolicy:
    """Play the target's episodes. With simulated physics the first time takes most of a minute; `tell` reports it."""
    length = shown.steps or (target.config.episode_length if target.config else None) or env.spec.episode_length
    policy, acting = target.policy, variant(target.policy, shown.burst)
    has_psi = isinstance(policy, DeployedPolicy)
    if shown.direction == "on" and not has_psi:
        raise UserError(f"{target.label} has no representation to show a direction of: leave out --direction")
    command = pooled_command(target, env.spec) if shown.subgoal and has_psi else None
    last = (shown.first or 0) + shown.num_episodes
    together = -(-last // TOGETHER) * TOGETHER
    kept = 2 * env.spec.state_size + env.spec.goal_size  # per step: the observation, and q with as many numbers
    require_room(env.spec, together, length, kept)
    played = play(env, acting, goal_set_key(shown.seed), together, length, tell)
    numbers = one_of_each(played) if shown.first is None else tuple(range(shown.first, last))
    episodes = [played[number] for number in numbers]
    if has_psi and (shown.direction == "on" or (shown.direction == "auto" and sees_direction(policy))):
        episodes = [e._replace(directions=directions(policy, e.achieved, e.goal)) for e in episodes]
    if command is not None and isinstance(policy, DeployedPolicy):
        pool = visited_pool(env, acting, command, shown.seed, length)
        keyed = zip(episodes, jax.random.split(jax.random.key(shown.seed), len(episodes)), strict=True)
        episodes = [e._replace(subgoals=subgoals(command, policy, pool, e, key)) for e, key in keyed]
    outcomes = tuple(episode.reached is not None for episode in played)
    titled = numbers if shown.first is None else ()
    return ShownPolicy(name, target.about.get("env_steps"), episodes, titled, outcomes)


def one_of_each(played: Sequence[Episode]) -> tuple[int, ...]:
    """Return the arriving episode with the median time, and the first one that does not arrive."""
    arriving = [number for number, episode in enumerate(played) if episode.reached is not None]
    arriving.sort(key=lambda number: played[number].reached or 0)
    failing = [number for number, episode in enumerate(played) if episode.reached is None]
    return (*arriving[len(arriving) // 2 :][:1], *failing[:1])


def side_by_side(shown: ShownPolicy) -> list[ShownPolicy]:
    """Return a policy per episode, so that they are shown side by side instead of one after another."""
    numbered = zip(shown.episodes, shown.numbers, strict=True)
    return [shown._replace(episodes=[episode], numbers=(number,)) for episode, number in numbered]


def pooled_command(target: Target, spec: EnvSpec) -> PooledSubgoal | None:
    """Return what chose z in training, if something did. A policy file without its run's config is scored with the
    paper's settings."""
    config = target.config
    if config is None and target.about.get("method") in METHODS:
        config = Config(env=spec.name, method=target.about["method"])
    if config is None:
        return None
    require_known_parts(config, target.label)
    command = make_agent(config, spec).command
    return command if isinstance(command, PooledSubgoal) else None


def sees_direction(policy: Any) -> bool:
    return isinstance(getattr(policy, "condition", None), Direction)


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def pulled_back(policy: DeployedPolicy, at: Array, goal: Array) -> Array:
    """Return the direction in the goal's own coordinates, at many points. [K, G] -> [K, G]"""
    return jax.vmap(lambda achieved: more_conditions.pulled_back(policy.representation, achieved, goal))(at)


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def distances(policy: DeployedPolicy, achieved: Array, goal: Array) -> Array:
    """Return d_psi, the critic's own distance: [K, G], [K or 1, G] -> [K]."""
    representation = policy.representation
    return representation.distance(representation.encode_goal(achieved), representation.encode_goal(goal))


def directions(policy: DeployedPolicy, at: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Return the direction that a direction-conditioned actor sees at [K, G] toward goal [G]: unit vectors of the plane
    [K, 2], zero where there is none."""
    return unit(np.asarray(pulled_back(policy, jnp.asarray(at), jnp.asarray(goal, jnp.float32)))[:, :2])


def visited_pool(env: Environment, acting: Policy, command: PooledSubgoal, seed: int, steps: int) -> np.ndarray:
    """Return [P, G]: states that `acting`, the policy or a burst around it, visits in separate episodes."""
    key = jax.random.fold_in(jax.random.key(seed), _POOL_STREAM)
    states = np.concatenate([episode.achieved for episode in play(env, acting, key, TOGETHER, steps)])  # [K, G]
    order = np.random.default_rng(seed).permutation(len(states))
    return states[np.resize(order, command.pool_size)]


def subgoals(
    command: PooledSubgoal, policy: DeployedPolicy, pool: np.ndarray, episode: Episode, key: Array
) -> np.ndarray:
    """Return [T + 1, G]: training's choice of z from the pool [P, G], which changes every period as in training."""
    at = jnp.asarray(episode.achieved[:: command.subgoal_period])  # [K, G]: each tick as if it were another environment
    goal = jnp.broadcast_to(jnp.asarray(episode.goal), at.shape)
    chosen = command.select_subgoal(jnp.asarray(pool), at, goal, policy.representation, key)
    return np.repeat(np.asarray(chosen), command.subgoal_period, axis=0)[: len(episode.achieved)]
