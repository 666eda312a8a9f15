"""Theorem 3 on a trained agent: how much of the learned direction can actions follow, and is that the useful part?

psi_g reads goal coordinates and torques enter velocities, so at one instant no action moves what psi reads, for every
body with inertia. So the map over k environment steps is measured: x_k(e) are the goal coordinates after k steps from s
under the actor's own actions with an offset e held throughout, and M_k = d x_k / d e [G, A] by central differences.

    v   = unit(-grad_s d_psi(s, g))        the learned direction, in goal coordinates
    P_k = projection onto the image of M_k: the directions in which actions can move the goal coordinates in k steps
    share    = |P_k v|                     of the learned direction that actions can move
    cosine   = cos(P_k v, t)               of that part with t, the direction that reduces the true distance
    progress = (P_k v) . t                 both at once: 0 where actions move nothing

A direction counts as movable if the offset moves the goal coordinates by 1% of the environment's threshold or more.
"""

from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dcp.compiling import QUICK_COMPILE
from dcp.envs.base import Environment, EnvState, is_sound
from dcp.envs.plane import unit
from dcp.policies.policy import DeployedPolicy
from dcp.statistics import clustered_mean, clustered_share
from dcp.types import Array

STEPS = (1, 10, 50)  # k
OFFSET = 0.25  # of an action, whose range is [-1, 1]
MOVES = 0.01  # of the threshold: a smaller move is none


class Controllability(NamedTuple):
    """At K states, after k steps."""

    share: np.ndarray  # [K]: |P v|
    cosine: np.ndarray  # [K]: nan where nothing can be moved
    progress: np.ndarray  # [K]
    true_share: np.ndarray  # [K]: |P t|, of the true direction
    movable: np.ndarray  # [K]: whether actions can move the goal coordinates at all
    reach: np.ndarray  # [K]: how far the strongest offset moves them


def maps(env: Environment, policy: DeployedPolicy, start: EnvState, goal: np.ndarray, steps: tuple[int, ...]) -> Any:
    """M_k of states [K, ...]: {k: [K, G, A]}; nan where a body diverged"""
    try:
        run = _program(env, steps)
    except TypeError:  # a user's environment may have no hash
        run = _program.__wrapped__(env, steps)
    found = np.asarray(run(policy, start, jnp.asarray(goal)))  # [len(steps), K, G, A]
    return dict(zip(steps, found, strict=True))


@lru_cache(maxsize=4)
def _program(env: Environment, steps: tuple[int, ...]) -> Any:
    return jax.jit(partial(_maps, env, steps), compiler_options=QUICK_COMPILE)


def _maps(env: Environment, steps: tuple[int, ...], policy: DeployedPolicy, start: EnvState, goal: Array) -> Array:
    """All offsets of all states side by side, [K, 1 + 2A, ...]; the first has none and leads the others."""
    size = env.spec.action_size
    offsets = OFFSET * jnp.concatenate([jnp.zeros((1, size)), jnp.eye(size), -jnp.eye(size)])  # [1 + 2A, A]
    lanes = jax.tree.map(lambda x: jnp.repeat(x, len(offsets), axis=0), start)  # [K * (1 + 2A), ...]

    def step(lanes: EnvState, _: None) -> tuple[EnvState, Array]:
        leaders = env.spec.split(lanes.obs[:: len(offsets)])[0]  # [K, S]
        action = policy.act((), leaders, goal)[1]
        action = jnp.clip(action, -1.0 + OFFSET, 1.0 - OFFSET)  # so that every offset stays within the range
        offset = (action[:, None] + offsets[None]).reshape(-1, size)
        after = jax.vmap(env.step)(lanes, offset)
        sound = jax.vmap(partial(is_sound, env.spec))(after)
        achieved = env.spec.achieved(env.spec.split(after.obs)[0])
        return after, jnp.where(sound[:, None], achieved, jnp.nan)

    _, achieved = jax.lax.scan(step, lanes, None, max(steps))  # [T, K * (1 + 2A), G]
    chosen = achieved[jnp.asarray(steps) - 1].reshape(len(steps), -1, len(offsets), env.spec.goal_size)
    ahead, behind = chosen[:, :, 1 : 1 + size], chosen[:, :, 1 + size :]
    return jnp.swapaxes(ahead - behind, 2, 3) / (2.0 * OFFSET)  # [len(steps), K, G, A]


def compare(moves: np.ndarray, descent: np.ndarray, true: np.ndarray, threshold: float) -> Controllability:
    """moves M [K, G, A], descent [K, G], true [K, G]"""
    sound = np.all(np.isfinite(moves), axis=(1, 2), keepdims=True)[:, 0, 0]  # [K]
    left, strength, _ = np.linalg.svd(np.where(sound[:, None, None], moves, 0.0), full_matrices=False)
    movable = OFFSET * strength >= MOVES * threshold  # [K, R]
    basis = np.where(movable[:, None, :], left, 0.0)  # [K, G, R]

    def onto(vectors: np.ndarray) -> np.ndarray:
        return np.einsum("kgr,khr,kh->kg", basis, basis, vectors)

    direction = unit(np.asarray(descent, float))
    known = sound & np.any(direction != 0.0, axis=1) & np.isfinite(true).all(axis=1)
    part = onto(direction)
    share = np.linalg.norm(part, axis=1)
    progress = np.sum(part * true, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = np.where(share > 1e-9, progress / share, np.nan)
    blank = np.where(known, 0.0, np.nan)
    return Controllability(
        share=share + blank,
        cosine=cosine + blank,
        progress=progress + blank,
        true_share=np.linalg.norm(onto(np.nan_to_num(true)), axis=1) + blank,
        movable=np.where(known, movable.any(axis=1), np.nan),
        reach=OFFSET * strength[:, 0] + blank,
    )


def measure(found: Controllability, episodes: np.ndarray) -> dict[str, Any]:
    known = np.isfinite(found.share)
    bounds = {"share": (0, 1), "cosine": (-1, 1), "progress": (-1, 1), "true_share": (0, 1), "reach": (0, np.inf)}
    return {
        **{name: clustered_mean(getattr(found, name), episodes, *bound).as_json() for name, bound in bounds.items()},
        "movable": clustered_share(found.movable[known] > 0.0, episodes[known]).as_json(),
        "states": int(known.sum()),
    }
