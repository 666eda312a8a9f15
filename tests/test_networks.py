"""The networks: how they start, what they give, how many parameters they have."""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.actor import actor_heads, init_actor
from dcp.critics.contrastive import Contrastive
from dcp.interfaces import Problem
from dcp.networks import MLP, transpose_with_unfused_gradient
from dcp.types import Array, EnvSpec, Params

SPEC = EnvSpec("five", state_size=5, goal_size=2, action_size=3, goal_dims=(0, 1), threshold=0.5, episode_length=10)
CRITIC = Contrastive(repr_dim=8)
SHAPE = MLP(width=40, depth=2)
VARIANTS = {
    "plain": SHAPE,
    "relu": replace(SHAPE, activation="relu"),
    "layer_norm": replace(SHAPE, layer_norm=True),
    "residual": replace(SHAPE, depth=5, residual_every=2),
    "deep": replace(SHAPE, depth=4, layer_norm=True, residual_every=1),
}


class Networks(NamedTuple):
    """The actor and the two encoders over one backbone. The condition is a direction of 8 and its magnitude."""

    shape: MLP
    spec: EnvSpec = SPEC
    critic: Contrastive = CRITIC
    condition_size: int = 9

    @property
    def problem(self) -> Problem:
        return Problem(self.spec, self.shape)

    def init(self, key: Array) -> tuple[Params, Params]:
        keys = jax.random.split(key, 3)
        actor = init_actor(self.shape, keys[0], self.spec, self.condition_size)
        return actor, self.critic.init(keys[1:], self.problem).params

    def actor(self, params: Params, state: Array, condition: Array):
        return actor_heads(self.shape, params, state, condition)

    def psi_sa(self, params: Params, state: Array, action: Array) -> Array:
        return self.critic.psi_sa(self.problem, params, state, action)

    def psi_g(self, params: Params, goal: Array) -> Array:
        return self.critic.psi_g(self.problem, params, goal)


@pytest.fixture(scope="module", params=["plain", "deep"])
def variant(request: pytest.FixtureRequest):
    """networks, actor, encoders"""
    networks = Networks(VARIANTS[request.param])
    return networks, *jax.jit(networks.init)(jax.random.key(0))


def mlp_size(inputs: int, outputs: int, shape: MLP) -> int:
    """Kernels and biases layer by layer, and a scale and a bias for each LayerNorm."""
    hidden = (inputs + 1) * shape.width + (shape.depth - 1) * (shape.width + 1) * shape.width
    norms = 2 * shape.width * shape.depth if shape.layer_norm else 0
    return hidden + norms + (shape.width + 1) * outputs


def count(params) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(params))


@pytest.mark.parametrize("name", VARIANTS)
def test_the_numbers_of_parameters_are_those_counted_by_hand(name: str):
    shape = VARIANTS[name]
    actor, encoders = jax.eval_shape(Networks(shape).init, jax.random.key(0))
    assert count(actor) == mlp_size(5 + 9, 2 * 3, shape)
    assert count(encoders["psi_sa"]) == mlp_size(5 + 3, 8, shape)
    assert count(encoders["psi_g"]) == mlp_size(2, 8, shape)


def test_the_papers_ant_has_the_papers_numbers_of_parameters():
    """S 29, A 8, G 2, two hidden layers of 256, D 64; DCP's condition has 65 numbers."""
    spec = EnvSpec("ant", 29, 2, 8, (0, 1), 0.5, 1000)
    actor, encoders = jax.eval_shape(Networks(MLP(), spec, Contrastive(), 65).init, jax.random.key(0))
    assert count(actor) == (29 + 65 + 1) * 256 + 257 * 256 + 257 * 16
    assert count(encoders["psi_sa"]) == (29 + 8 + 1) * 256 + 257 * 256 + 257 * 64
    assert count(encoders["psi_g"]) == (2 + 1) * 256 + 257 * 256 + 257 * 64


def test_kernels_are_uniform_within_the_root_of_one_over_fan_in_and_biases_zero(variant):
    _, actor, encoders = variant
    kernels = 0
    for path, leaf in jax.tree.leaves_with_path((actor, encoders)):
        name, values = jax.tree_util.keystr(path), np.asarray(leaf)
        if "kernel" in name:
            kernels += 1
            limit = np.sqrt(1 / values.shape[0])
            assert np.abs(values).max() <= limit
            if values.size >= 300:
                assert np.abs(values).max() > 0.95 * limit  # it uses the whole range
                assert_allclose(values.std(), limit / np.sqrt(3), rtol=0.1)  # a uniform's deviation
        elif "bias" in name:
            assert np.all(values == 0.0)
        else:
            assert np.all(values == 1.0)  # a LayerNorm's scale
    assert kernels == 3 * (variant[0].shape.depth + 1)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_network_maps_any_leading_shape(name: str):
    networks = Networks(VARIANTS[name])

    def apply():
        actor, encoders = networks.init(jax.random.key(0))
        state, action, goal = jnp.ones((4, 6, 5)), jnp.ones((4, 6, 3)), jnp.ones((4, 6, 2))
        heads = networks.actor(actor, state, jnp.ones((4, 6, 9)))
        return heads, networks.psi_sa(encoders, state, action), networks.psi_g(encoders, goal)

    (mean, log_std), psi_sa, psi_g = jax.eval_shape(apply)
    assert mean.shape == log_std.shape == (4, 6, 3)
    assert psi_sa.shape == psi_g.shape == (4, 6, 8)


def test_a_representation_is_finite_and_tells_goals_apart(variant):
    networks, _, encoders = variant
    psi_g = np.asarray(networks.psi_g(encoders, jnp.array([[0.0, 0.0], [1.0, 2.0], [100.0, -50.0]])))
    assert np.all(np.isfinite(psi_g))
    assert len({tuple(row) for row in psi_g}) == 3


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_the_log_deviation_stays_between_minus_five_and_two(scale: float):
    networks = Networks(SHAPE)
    actor, _ = networks.init(jax.random.key(0))
    state = scale * jax.random.normal(jax.random.key(1), (500, 5))
    _, log_std = networks.actor(actor, state, jnp.zeros((500, 9)))
    assert log_std.min() >= -5.0 and log_std.max() <= 2.0
    if scale > 1.0:
        assert log_std.min() < -4.99 and log_std.max() > 1.99


def test_a_raw_log_deviation_of_zero_is_the_middle():
    """-5 + 3.5 (tanh(0) + 1) = -1.5: with every parameter zero the head's output is zero."""
    networks = Networks(SHAPE)
    actor = jax.tree.map(jnp.zeros_like, networks.init(jax.random.key(0))[0])
    mean, log_std = networks.actor(actor, jnp.ones((1, 5)), jnp.ones((1, 9)))
    assert np.array_equal(mean, np.zeros((1, 3)))
    assert_allclose(log_std, np.full((1, 3), -1.5), rtol=1e-6)


def test_the_plain_network_is_the_formula():
    """out = W3 swish(W2 swish(W1 x + b1) + b2) + b3, with every bias set to 0.1, in NumPy"""
    networks = Networks(SHAPE)
    _, encoders = networks.init(jax.random.key(2))
    psi = jax.tree.map(lambda leaf: leaf + 0.1 if leaf.ndim == 1 else leaf, encoders)
    x = np.linspace(-1, 1, 2, dtype=np.float32)
    kernels = [leaf for leaf in jax.tree.leaves(psi["psi_g"]) if leaf.ndim == 2]
    kernels.sort(key=lambda leaf: (leaf.shape[0] != 2, leaf.shape[1] == 8))  # in, hidden, out
    for index, kernel in enumerate(kernels):
        x = x @ np.asarray(kernel) + 0.1
        x = x / (1 + np.exp(-x)) if index < 2 else x
    assert_allclose(networks.psi_g(psi, jnp.linspace(-1, 1, 2)), x, rtol=1e-4, atol=1e-6)


def test_residual_connections_carry_the_first_layer_past_dead_ones():
    """With every later hidden layer zero, a residual network still sees its input; a plain one does not."""
    for residual_every, sees in ((0, False), (2, True)):
        networks = Networks(replace(SHAPE, depth=5, residual_every=residual_every))
        _, encoders = networks.init(jax.random.key(0))
        dead = jax.tree.map(lambda x: jnp.zeros_like(x) if x.shape == (40, 40) else x, encoders)
        one, other = (networks.psi_g(dead, jnp.array([goal, 1.0])) for goal in (0.0, 2.0))
        assert bool(np.any(np.asarray(one) != np.asarray(other))) is sees


def test_every_method_draws_the_same_encoders_from_the_same_key():
    """The condition's size changes the actor alone."""
    raw, direction = (Networks(SHAPE, condition_size=size).init(jax.random.key(7))[1] for size in (2, 9))
    for one, other in zip(jax.tree.leaves(raw), jax.tree.leaves(direction), strict=True):
        assert np.array_equal(one, other)


def test_a_gradient_that_is_turned_is_the_same_and_its_wide_factor_is_left_as_it_lies():
    """x^T g of 256 rows and 16 columns, as (g^T x)^T: XLA must not write the second as the first."""
    x, kernel = (jnp.array(np.random.default_rng(n).normal(size=(256, n)), jnp.float32) for n in (256, 16))

    def loss(kernel: Array, turn) -> Array:
        return jnp.sum(jnp.tanh(jax.lax.dot_general(x, turn(kernel), (((1,), (1,)), ((), ())))) ** 2)

    turned = jax.jit(jax.grad(lambda kernel: loss(kernel, transpose_with_unfused_gradient)))
    plain = jax.jit(jax.grad(lambda kernel: loss(kernel, jnp.transpose)))
    assert_allclose(turned(kernel), plain(kernel), rtol=1e-5, atol=1e-5)
    assert "f32[16,256]" in str(turned.lower(kernel).compile().as_text())
    assert "f32[16,256]" not in str(plain.lower(kernel).compile().as_text())


def test_the_last_layer_of_a_wide_network_takes_that_form_and_a_narrow_one_does_not():
    for width, turned in ((256, True), (64, False)):
        network = MLP(width=width, depth=1)
        params = network.init(jax.random.key(0), 3, 16)

        def loss(params: Params, network: MLP = network) -> Array:
            return jnp.sum(network.apply(params, jnp.ones((256, 3))) ** 2)

        assert ("optimization_barrier" in jax.jit(jax.grad(loss)).lower(params).as_text()) is turned


def test_a_wide_network_can_be_differentiated_forward_in_its_input_and_within_a_gradient():
    """As a condition does that shows the actor how psi turns."""
    network = MLP(width=128, depth=1)
    params, x = network.init(jax.random.key(0), 2, 4), jnp.array([[0.3, -0.2]])

    def speed(params: Params) -> Array:
        return jnp.sum(jax.jvp(lambda x: network.apply(params, x), (x,), (jnp.ones_like(x),))[1] ** 2)

    step = 1e-3 * jax.tree.map(jnp.ones_like, params)["out"]["kernel"]
    moved = {**params, "out": {**params["out"], "kernel": params["out"]["kernel"] + step}}
    slope = jnp.sum(jax.grad(speed)(params)["out"]["kernel"] * step)
    assert_allclose(speed(moved) - speed(params), slope, rtol=0.05)
