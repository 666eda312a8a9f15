"""Every critic's loss, and what its actor maximises, on two or three rows whose numbers are worked out by hand.

The networks are matrices, so that latents are sums of the inputs: state [s], action [a], goal [g].
"""

from dataclasses import dataclass
from functools import partial
from math import exp, log, sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp import replay
from dcp.critics.quasimetric import TMD, Quasimetric
from dcp.critics.survival import BASIS, ChronoSRL
from dcp.critics.value import SAC, TD3, Targets, TDInfoNCE
from dcp.interfaces import Problem, hindsight_of
from dcp.types import Array, Batch, EnvSpec, Transition

SPEC = EnvSpec("line", state_size=1, goal_size=1, action_size=1, goal_dims=(0,), threshold=0.5, episode_length=3)
KEY = jax.random.key(0)
S, A, G = ([1.0], [0.0], [0.0]), ([0.0], [1.0], [0.0]), ([0.0], [0.0], [1.0])  # kernels that read one of [s, a, g]


@dataclass(frozen=True)
class Matrix:
    """A network of one product, or a lookup by the first number where the kernel is a table [places]."""

    def init(self, key: Array, in_size: int, out_size: int) -> Array:
        return jnp.zeros((in_size, out_size))

    def apply(self, params: Array, x: Array) -> Array:
        return params[x[..., :1].astype(int)] if params.ndim == 1 else x @ params


PROBLEM = Problem(SPEC, Matrix())


def column(*values: float) -> Array:
    return jnp.array(values)[:, None]


def softplus(x: float) -> float:
    return log(1 + exp(x))


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


# Distances of CMD and TMD: latents of two numbers, d(x, y) = relu(x_1 - y_1) + |x_2 - y_2|.
# phi = (s, a): (1, 0.5), (3, -1). psi = (g, g / 2): (2, 1), (0, 0). c = g / 2: 1, 0.
APART = [[0 + 0.5, 1 + 0.5], [1 + 2, 3 + 1]]
ENCODERS = {"psi_sa": jnp.eye(2), "psi_g": jnp.array([[1.0, 0.5]]), "mix": jnp.zeros(())}
TWO_ROWS = Batch(
    column(1.0, 3.0), column(0.5, -1.0), column(0.0, 0.0), future_goal=column(2.0, 0.0),
    next_state=column(2.0, 3.0), has_next=jnp.array([True, False]),
)  # fmt: skip


def test_cmds_loss_and_asymmetry():
    """Between the goals' latents: 2 + 1 one way, 0 + 1 the other. |3 - 1| is half of 3 + 1."""
    critic = Quasimetric(repr_dim=2, components=1)
    params = {**ENCODERS, "commonness": jnp.array([[0.5]])}
    loss, metrics = critic.loss(PROBLEM, params, (), TWO_ROWS, KEY)
    logits = [[(1 - 0.5) / sqrt(2), (0 - 1.5) / sqrt(2)], [(1 - 3) / sqrt(2), (0 - 4) / sqrt(2)]]
    whole = [log(sum(exp(logit) for logit in row)) for row in logits]
    infonce = (whole[0] - logits[0][0] + whole[1] - logits[1][1]) / 2
    assert_allclose(loss, infonce + 0.01 * (whole[0] ** 2 + whole[1] ** 2) / 2, rtol=1e-5)
    assert_allclose(metrics["asymmetry"], 0.5, rtol=1e-6)


@pytest.mark.parametrize("valid", [None, [True, False]])
def test_tmds_loss(valid: list[bool] | None):
    """psi(s) = (1, 0.5), (3, 1.5): 0 and 2.5 from their own phi. psi(s') = (2, 1): 0 and 2 + 1 from the goals.

    Row 1 has no next state. A row that is not valid is no positive and says nothing about its own action.
    """
    batch = TWO_ROWS._replace(valid=None if valid is None else jnp.array(valid))
    critic = TMD(repr_dim=2, components=1, discount=0.9)
    loss, metrics = critic.loss(PROBLEM, ENCODERS, (), batch, KEY)
    goals = [APART[j][j] / sqrt(2) + log(sum(exp(-APART[i][j] / sqrt(2)) for i in (0, 1))) for j in (0, 1)]
    con, inv = (sum(goals) / 2, (0 + 2.5) / 2) if valid is None else (goals[0], 0.0)
    own, other = 0.9 * exp(0.5 - 0) - 0.5, 0.9 * exp(1.5 - 3) - 1.5
    assert_allclose(metrics["invariance"], inv, rtol=1e-6)
    assert_allclose(loss, con + inv + 0.05 * (0.5 * (own + other) / 2 + 0.5 * own), rtol=1e-5)


# ChronoSRL with W = 3: psi_sa = s + a: 1, 2. psi_g = g: 0.4, 3. All hazards are 1/2, and the occupancy's three logits
# are psi_sa - psi_g: 0.6, -1. Row 0 arrives at step 1, row 1 never. A step is 0.7 long, and an episode 2.1.
CHRONOSRL = ChronoSRL(repr_dim=1, horizon=3, gamma=0.5, kappa=0.7).for_task(SPEC, 3)
SURVIVAL_PARAMS = {
    "psi_sa": jnp.ones((2, 1)), "psi_g": jnp.ones((1, 1)),
    "film": {"kernel": jnp.zeros((1, 2)), "bias": jnp.zeros(2)},
    "head": jnp.zeros((4, 1 + BASIS + 3)).at[2, 1 + BASIS :].set(1.0),
    "basis": jnp.zeros((BASIS, 3)), "bias": jnp.zeros(3),
}  # fmt: skip
SURVIVAL_ROWS = Batch(
    column(0.8, 2.5), column(0.2, -0.5), column(0.0, 0.0), future_goal=column(0.4, 3.0),
    goal_sequence=column(0.4, 3.0), hit_time=jnp.array([1, 0]), hit=jnp.array([True, False]),
    occupancy=jnp.array([[0.0, 1.0, 0.5], [0.0, 0.0, 9.0]]),
    occupancy_seen=jnp.array([[False, True, True], [False, True, False]]), falls=jnp.array([True, False]),
)  # fmt: skip


@pytest.mark.parametrize("valid", [None, [True, False]])
def test_chronosrls_four_terms(valid: list[bool] | None):
    """Row 0: S_1 h = 1/4 * 1/2. Row 1: S_3 = 1/16. Across rows the latents are 2 and 1.6 apart, row 1's own 1."""
    batch = SURVIVAL_ROWS._replace(valid=None if valid is None else jnp.array(valid))
    loss, metrics = CHRONOSRL.loss(PROBLEM, SURVIVAL_PARAMS, (), batch, KEY)
    time, across = (0.6 - 0.7) ** 2 / 2, [2.1 - 2.0, 2.1 - 1.6]
    crossed = [softplus(0.6) - 1.0 * 0.6, softplus(0.6) - 0.5 * 0.6]
    if valid is None:
        likelihood, separation = (log(8) + log(16)) / 2, (sum(across) + 2.1 - 1.0) / 3
        occupancy = (sum(crossed) + softplus(-1.0)) / 3
    else:
        likelihood, separation, occupancy = log(8), sum(across) / 2, sum(crossed) / 2
    found = [metrics[name] for name in ("critic_loss", "time_loss", "separation_loss", "occupancy_loss")]
    assert_allclose(found, [likelihood, time, separation, occupancy], rtol=1e-4)
    assert_allclose(loss, likelihood + time + separation + occupancy, rtol=1e-5)


@pytest.mark.parametrize(("valid", "share"), [(None, 0.5), ([True, False], 1.0), ([False, True], 0.0)])
def test_chronosrls_actor(valid: list[bool] | None, share: float):
    """S = 1/2, 1/4, 1/8 at discount 1/2 is a wait of 0.65625. The two later bins are worth 1/2 and 1/4."""
    batch = SURVIVAL_ROWS._replace(valid=None if valid is None else jnp.array(valid))
    found = CHRONOSRL.actor_value(PROBLEM, SURVIVAL_PARAMS, batch, batch.action, batch.future_goal)
    assert_allclose(found, [-0.65625 + share * 0.75 * sigmoid(o) for o in (0.6, -1.0)], rtol=1e-5)


def test_goals_of_several_steps_are_apart_if_any_of_their_steps_are():
    """Two goals of two steps with the same first step, (0, 0) and (0, 9): the rows' latents, 0 apart, are pushed."""
    critic = ChronoSRL(repr_dim=1, horizon=3, gamma=0.5, kappa=0.7, goal_steps=2)
    batch = SURVIVAL_ROWS._replace(
        future_goal=column(0.0, 0.0), goal_sequence=jnp.array([[0.0, 0.0], [0.0, 9.0]]), hit=jnp.array([True, True])
    )
    _, separation = critic.geometry(jnp.zeros((2, 1)), jnp.zeros((2, 1)), batch, SPEC.threshold)
    assert_allclose(separation, 2.1, rtol=1e-6)
    same = batch._replace(goal_sequence=jnp.zeros((2, 2)))
    assert critic.geometry(jnp.zeros((2, 1)), jnp.zeros((2, 1)), same, SPEC.threshold)[1] == 0.0


@pytest.mark.parametrize("make", [SAC, TD3])
def test_the_bellman_error_of_sac_and_td3(make: type[SAC]):
    """Q_1 = s + a, Q_2 = g; slowly 2 s and a + g. Row 1 falls: its target is its reward. Row 2 knows no next state."""
    params = {"q_1": jnp.array(S) + jnp.array(A), "q_2": jnp.array(G)}
    slow = {"q_1": 2 * jnp.array(S), "q_2": jnp.array(A) + jnp.array(G)}
    batch = Batch(
        column(1.0, 3.0, 9.0), column(0.5, -1.0, 9.0), column(0.0, 0.0, 0.0), future_goal=column(2.0, 0.5, 9.0),
        next_state=column(1.5, 3.0, 9.0), next_action=column(0.5, 9.0, 9.0), next_bonus=jnp.array([0.1, 9.0, 9.0]),
        reward=jnp.array([1.0, 1.0, 9.0]), has_next=jnp.array([True, False, False]),
        terminal=jnp.array([False, True, False]),
    )  # fmt: skip
    loss, _ = make(discount=0.8).loss(PROBLEM, params, Targets(slow, jnp.zeros((), int)), batch, KEY)
    target = 1 + 0.8 * (min(2 * 1.5, 0.5 + 2.0) + 0.1)  # 3.08
    errors = [((1.5 - target) ** 2 + (2.0 - target) ** 2) / 4, ((2.0 - 1.0) ** 2 + (0.5 - 1.0) ** 2) / 4]
    assert_allclose(loss, sum(errors) / 2, rtol=1e-5)


@pytest.mark.parametrize("chunk", [1, 2])
def test_sacs_values_on_a_line_become_the_discounted_rewards(chunk: int):
    """A body walks 0, 1, 2, 3 and stays at 3, its goal. At discount 1/2: 2 at the goal and before it, then 1, 1/2.

    Each place has one row with a next state, so a step of 2 B sets each value to its target.
    """
    spec = SPEC.in_chunks(chunk)
    places = [0.0, 1.0, 2.0, *[3.0] * (chunk + 1), 0.0]
    walk = jnp.array(places).reshape(-1, 1, 1)
    made = Transition(
        walk, 0 * walk, walk, jnp.array([0] * (4 + chunk) + [1])[:, None], jnp.zeros((5 + chunk, 1), bool)
    )
    critic, problem = SAC(discount=0.5, target_rate=1.0), Problem(spec, Matrix())
    needed = critic.needs - {"next_action"}
    batch = replay.relabel(made, SPEC, 0.5, KEY, needed, hindsight_of(critic), chunk)
    assert batch.has_next is not None and int(jnp.sum(batch.has_next)) == 4
    batch = batch._replace(next_action=jnp.zeros_like(batch.action), next_bonus=jnp.zeros(batch.action.shape[0]))
    params: Any = {"q_1": jnp.zeros(4), "q_2": jnp.zeros(4)}
    carried = Targets(params, jnp.zeros((), jnp.int32))
    slope = jax.jit(jax.grad(lambda params, carried: critic.loss(problem, params, carried, batch, KEY)[0]))
    for _ in range(25):
        params = jax.tree.map(lambda x, step: x - 8.0 * step, params, slope(params, carried))
        carried = critic.after(problem, params, carried)
    for values in params.values():
        assert_allclose(values, [0.5, 1.0, 2.0, 2.0], atol=1e-5)


def test_td_infonces_loss():
    """Latents are signs: phi of s, psi of x, slow phi of s' and of a'. q is the larger share of logits 1 and -1.

    Random goals: -1, 1. Next states: 1, -1, and each row's phi has its sign. From s' both slow networks of row 0 see
    the random goals as its phi does; those of row 1 disagree, so that their lesser logits are equal.
    """
    online = {"phi_1": jnp.array(S), "phi_2": jnp.array(S), "psi_1": jnp.ones((1, 1)), "psi_2": jnp.ones((1, 1))}
    batch = Batch(
        column(1.0, -1.0), column(1.0, 1.0), column(0.0, 0.0), future_goal=column(1.0, -2.0),
        next_state=column(1.0, -1.0), next_action=column(1.0, 1.0), has_next=jnp.array([True, True]),
    )  # fmt: skip
    carried = Targets({**online, "phi_2": jnp.array(A)}, jnp.zeros((), int))
    critic = TDInfoNCE(discount=0.8, latent=1)
    more, less = log(1 + exp(-2)), 2 + log(1 + exp(-2))  # -log q, -log (1 - q)
    q = exp(-more)
    onward = [(1 - q) * less + q * more, 0.5 * less + 0.5 * more]
    loss, _ = critic.loss(PROBLEM, online, carried, batch, KEY)
    assert_allclose(loss, 0.2 * more + 0.8 * sum(onward) / 2, rtol=1e-5)
    assert_allclose(loss, 0.62229, rtol=1e-4)
    one, _ = critic.loss(PROBLEM, online, carried, batch._replace(has_next=jnp.array([True, False])), KEY)
    assert_allclose(one, 0.2 * more + 0.8 * onward[0], rtol=1e-5)


@pytest.mark.parametrize("critic", [TMD(repr_dim=2, components=1), TDInfoNCE(latent=1)], ids=["tmd", "td_infonce"])
def test_a_fall_teaches_no_step_from_a_state_to_itself(critic: Any):
    """Places 0.5, 1, 2 and a fall at 2: the loss does not depend on what would have followed there."""
    walk = jnp.array([0.5, 1.0, 2.0, 7.0]).reshape(-1, 1, 1)
    made = Transition(walk, 0.1 * walk, walk, jnp.array([0, 0, 0, 1])[:, None], jnp.array([0, 0, 1, 0], bool)[:, None])
    batch = replay.relabel(made, SPEC, 0.9, KEY, critic.needs - {"next_action"}, hindsight_of(critic))
    assert batch.next_state is not None and np.array_equal(batch.next_state[:, 0], [1.0, 2.0, 2.0])
    if isinstance(critic, TMD):
        of = partial(critic.loss, PROBLEM, ENCODERS, ())
        other = batch._replace(next_state=batch.next_state.at[2].set(50.0))
        counts = batch._replace(next_state=batch.next_state.at[1].set(50.0))
    else:
        online = {name: jnp.array(S) for name in ("phi_1", "phi_2")} | {f"psi_{k}": jnp.ones((1, 1)) for k in (1, 2)}
        of = partial(critic.loss, PROBLEM, online, Targets(online, jnp.zeros((), int)))
        batch = batch._replace(next_action=batch.action, future_goal=column(1.0, -1.0, 1.0))
        other = batch._replace(state=batch.state.at[2].set(-50.0))  # another sign of phi
        counts = batch._replace(state=batch.state.at[1].set(-50.0))
    losses = [float(of(each, KEY)[0]) for each in (batch, other, counts)]
    assert losses[0] == losses[1] != losses[2]
