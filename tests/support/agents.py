"""Agents whose psi is known: real networks with weights that make it a linear map, exactly; and random ones."""

import dataclasses

import jax
import numpy as np

from dcp.critics.contrastive import Contrastive
from dcp.envs.mazes import PointMaze, parse_layout
from dcp.methods.conditions import Direction
from dcp.networks import MLP
from dcp.policies.policy import DeployedPolicy
from dcp.types import EnvSpec
from tests.support.untrained import untrained_policy

ROOM = parse_layout("######\n#r...#\n#....#\n#....#\n#...g#\n######", 1.0)
OPEN = PointMaze("open_room", ROOM)
DIM, WIDTH, DEPTH, GAIN = 8, 32, 2, 2.0  # D; units; layers; how strongly the actor follows the direction
EYE = np.eye(DIM, 2)
STRETCH = EYE * np.array([1.0, 2.0])  # psi(x, y) = (x, 2y, 0, ...)


def linear(matrix: np.ndarray, size: int) -> dict:
    """The parameters of an MLP that computes `matrix` [out, in] on the first of its inputs.

    swish(x) - swish(-x) = x: units in pairs of opposite sign pass numbers on unchanged, through any depth.
    """
    out, used = matrix.shape
    first = np.zeros((size, WIDTH))
    first[:used, : 2 * used] = np.concatenate([np.eye(used), -np.eye(used)], axis=1)
    join = np.concatenate([np.eye(used), -np.eye(used)])  # [2 used, used]
    inner = np.zeros((WIDTH, WIDTH))
    inner[: 2 * used, : 2 * used] = join @ join.T
    last = np.zeros((WIDTH, out))
    last[: 2 * used] = join @ matrix.T
    layers = {"hidden_0": first, **{f"hidden_{i}": inner for i in range(1, DEPTH)}, "out": last}
    return {name: {"kernel": np.float32(k), "bias": np.zeros(k.shape[1], np.float32)} for name, k in layers.items()}


def known_agent(matrix: np.ndarray = EYE, spec: EnvSpec = OPEN.spec) -> DeployedPolicy:
    """psi_g(x) = matrix x [D, G]; psi_sa(s, a) = psi_g(achieved(s)); the actor goes along the direction, straight.

    The goal must be the state's first coordinates.
    """
    states = spec.state_size
    follow = np.zeros((2 * spec.action_size, states + DIM))
    follow[: spec.action_size, states:] = GAIN * np.linalg.pinv(matrix)
    actor = linear(follow, states + DIM + 1)
    actor["out"]["bias"][spec.action_size :] = -10.0  # the smallest standard deviation, exp(-5)
    encoders = {
        "psi_sa": linear(matrix, states + spec.action_size),
        "psi_g": linear(matrix, spec.goal_size),
    }
    return DeployedPolicy(spec, MLP(WIDTH, DEPTH), Contrastive(repr_dim=DIM), Direction(), actor, encoders)


def random_agent(seed: int, spec: EnvSpec = OPEN.spec) -> DeployedPolicy:
    """As training starts."""
    policy = untrained_policy(spec, seed, method="dcp", width=WIDTH, depth=DEPTH, repr_dim=DIM)
    return jax.tree.map(np.asarray, policy)


def folded_agent() -> DeployedPolicy:
    """psi(x, y) = (wave(x), wave(y)): triangle waves of eight periods across the room. Of a goal's direction psi keeps
    no more than a coin does: on each axis the sign is right half of the time.
    """
    kinks = 0.37 + 0.27 * np.arange(16)  # in no step with the maze's cells
    sharp = 300.0  # swish(300 x) / 300 is max(x, 0), nearly
    slopes = np.resize([2.0, -2.0], 16)
    slopes[0] = 1.0  # then 1 - 2 + 2 - 2 ...: slopes of +1 and -1 in turn
    encoder = linear(EYE, 2)
    first, second = np.zeros((2, WIDTH)), np.zeros((WIDTH, WIDTH))
    for axis in (0, 1):
        units = slice(16 * axis, 16 * axis + 16)
        first[axis, units] = sharp
        second[units, axis], second[units, 2 + axis] = slopes / sharp, -slopes / sharp
    encoder["hidden_0"] = {"kernel": np.float32(first), "bias": np.float32(-sharp * np.tile(kinks, 2))}
    encoder["hidden_1"]["kernel"] = np.float32(second)
    known = known_agent()
    return dataclasses.replace(known, critic_params={**known.critic_params, "psi_g": encoder})
