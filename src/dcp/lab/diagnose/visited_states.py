"""Gather what a diagnosis needs: visited states, the true path from each, and the networks' outputs there.

Letters as in `types`; K states, H episodes.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.config import Config
from dcp.envs.base import Environment, EnvState
from dcp.envs.mazes import has_plane, unit
from dcp.envs.point_tasks import things_of
from dcp.errors import UserError
from dcp.evaluation import Record, rollout
from dcp.lab.paths import TruePaths, along
from dcp.lab.trial import cached_by_env
from dcp.machine.compiling import QUICK_COMPILE
from dcp.methods.conditions import direction_and_magnitude
from dcp.methods.more_conditions import pulled_back
from dcp.policies.policy import DeployedPolicy
from dcp.policies.wrappers import SampledPolicy
from dcp.types import Array, EnvSpec, MazeLayout


class Visits(NamedTuple):
    """Hold H episodes of T steps, and K of their states that are not at their goal yet."""

    spec: EnvSpec
    states: np.ndarray  # [T + 1, H, S]
    goals: np.ndarray  # [H, G]
    ends: np.ndarray  # [H]: the index of each episode's last state
    reached: np.ndarray  # [H]: the index of the first state near the goal; -1 if none is
    env_states: EnvState  # [T + 1, H, ...]: complete, including physics
    at: np.ndarray  # [K, 2]: time and episode of the sampled states

    @property
    def episode(self) -> np.ndarray:
        """Return the sampled states' episodes: [K]."""
        return self.at[:, 1]

    @property
    def state(self) -> np.ndarray:
        """Return the sampled states: [K, S]."""
        return self.states[tuple(self.at.T)]

    @property
    def achieved(self) -> np.ndarray:
        """Return the sampled states' achieved goals: [K, G]."""
        return self.spec.achieved(self.state)

    @property
    def goal(self) -> np.ndarray:
        """Return the sampled states' goals: [K, G]."""
        return self.goals[self.episode]

    def env_state(self, count: int) -> EnvState:
        """Return the first `count` sampled states, ready to be stepped: [count, ...]."""
        time, episode = self.at[:count].T
        return jax.tree.map(lambda x: x[time, episode], self.env_states)

    def pool(self, size: int, seed: int) -> np.ndarray:
        """Return random achieved goals [size, G], as in training's pool; repeated if there are fewer."""
        alive = np.arange(len(self.states))[:, None] <= self.ends[None]  # [T + 1, H]
        achieved = self.spec.achieved(self.states[alive])
        return achieved[np.resize(np.random.default_rng(seed).permutation(len(achieved)), size)]


def gather(env: Environment, policy: DeployedPolicy, seed: int, episodes: int, length: int, states: int) -> Visits:
    """Play episodes with the stochastic actor, which also fills training's pool. The seed decides everything."""
    record: Record = jax.device_get(_program(env, episodes, length)(policy, jax.random.key(seed)))
    observed, goals = env.spec.split(record.watched.obs)  # [T + 1, H, ...]
    ends, near = np.asarray(record.alive).sum(axis=0), record.near_goal
    reached = np.where(near.any(axis=0), near.argmax(axis=0) + 1, -1)
    far = np.linalg.norm(env.spec.achieved(observed) - goals, axis=-1) >= env.spec.threshold  # [T + 1, H]
    counts = far & (np.arange(length + 1)[:, None] <= ends[None])
    at = sample_moments(counts, states, np.random.default_rng(seed))
    return Visits(env.spec, observed, goals[0], ends, reached, record.watched, at)


@cached_by_env
def _program(env: Environment, episodes: int, length: int) -> Any:
    def run(policy: DeployedPolicy, key: Array) -> Record:
        return rollout(env, SampledPolicy(policy), key, episodes, length, watch=lambda state: state)

    return jax.jit(run, compiler_options=QUICK_COMPILE)


def sample_moments(counts: np.ndarray, states: int, rng: np.random.Generator) -> np.ndarray:
    """Return random moments [K, 2] where `counts` [T + 1, H] holds, as evenly over the episodes as possible."""
    ranked = []
    for episode in range(counts.shape[1]):
        times = rng.permutation(np.flatnonzero(counts[:, episode]))
        ranked += [(rank, time, episode) for rank, time in enumerate(times[:states])]
    if not ranked:
        raise UserError("every state of these episodes is at its goal already: choose another --env or --seed")
    return np.array([(time, episode) for _, time, episode in sorted(ranked, key=lambda x: x[0])[:states]])


# The true path to a goal, in the goal's own coordinates: through the maze, else straight.


class StraightTruth:
    """Take the straight line as the true path."""

    name: ClassVar[str] = "straight"

    def lengths(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return lengths: [K, G], [K, G] -> [K]; inf if there is no path."""
        return np.linalg.norm(b - a, axis=1)

    def directions(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the unit vectors that shorten the path fastest: [K, G], [K, G] -> [K, G]; nan if there is none."""
        far = self.lengths(a, b)[:, None] > 0.0
        return np.where(far, unit(np.asarray(b - a, float)), np.nan)

    def between(self, a: np.ndarray, b: np.ndarray, share: np.ndarray) -> np.ndarray:
        """Return the points after these shares of the path: [K, G], [K, G], [K] -> [K, G]; nan if there is no path."""
        return a + share[:, None] * (b - a)


class PathTruth:
    """Take the maze's shortest paths of a point without size. Goal coordinates outside the plane are ignored."""

    name: ClassVar[str] = "path"

    def __init__(self, layout: MazeLayout):
        self.paths = TruePaths(layout)

    def lengths(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.paths.lengths(a[:, :2], b[:, :2])

    def directions(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        in_plane = self.paths.directions(a[:, :2], b[:, :2])
        return np.concatenate([in_plane, np.zeros((len(a), a.shape[1] - 2))], axis=1)

    def between(self, a: np.ndarray, b: np.ndarray, share: np.ndarray) -> np.ndarray:
        points = [along(*each) for each in zip(self.paths.routes(a[:, :2], b[:, :2]), share, strict=True)]
        return np.concatenate([np.stack(points), a[:, 2:] + share[:, None] * (b - a)[:, 2:]], axis=1)


Truth = StraightTruth | PathTruth


def leads_through_things(env: Any) -> bool:
    """Return whether the true path ignores an object that blocks it until it is pushed away."""
    return has_plane(env.spec) and any(not thing.acts for thing in things_of(env))


def truth_of(spec: EnvSpec) -> Truth:
    return PathTruth(spec.maze) if spec.maze is not None and has_plane(spec) else StraightTruth()


# The networks' outputs at many states: each program compiles once for policies of one shape.


class Learned(NamedTuple):
    """Hold psi's direction and distance from s to a goal."""

    direction: Array  # [K, D]: u, in psi-space
    magnitude: Array  # [K]: d_psi, the critic's own distance
    pulled: Array  # [K, G]: J^T u
    descent: Array  # [K, G]: -grad_s d_psi, by differentiating the distance itself


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def learned(policy: DeployedPolicy, achieved: Array, commanded: Array) -> Learned:
    """Return direction and distance from achieved [K, G] to commanded [K, G]; all zero if both are one point."""
    representation = policy.representation

    def of_one(s: Array, z: Array) -> Learned:
        psi_s, psi_z = representation.encode_goal(s), representation.encode_goal(z)
        direction, length = direction_and_magnitude(psi_s, psi_z)
        slope = jax.grad(lambda at: representation.distance(representation.encode_goal(at), psi_z))(s)
        descent = jnp.where(length > 0.0, -slope, 0.0)  # a norm has no slope at zero
        return Learned(direction, representation.distance(psi_s, psi_z), pulled_back(representation, s, z), descent)

    return jax.vmap(of_one)(achieved, commanded)


@partial(jax.jit, compiler_options=QUICK_COMPILE)
def actions(policy: DeployedPolicy, state: Array, goal: Array) -> Array:
    """Return the deployed actor's actions: state [K, S], goal [K, G] -> [K, A]."""
    return policy.act((), state, goal)[1]


Result = tuple[dict[str, Any], dict[str, Any]]  # what a part returns: its numbers, and what to draw


@dataclass(frozen=True)
class Study:
    """Hold an agent, its environment, and the states at which it is measured."""

    policy: DeployedPolicy
    env: Environment
    config: Config
    truth: Truth
    visits: Visits
    seed: int
    folder: Path | None = None  # the run's, if the policy is known to be its own
    notes: list[str] = field(default_factory=list)  # a sentence for each thing that was left out
