"""The residual backbone: its blocks by hand, how it starts, how many parameters it has."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.errors import UserError
from dcp.networks import MLP
from dcp.residual_network import Residual
from dcp.types import Params


def hand_weights(network: Residual) -> Params:
    """Identity kernels, a sum at the end, biases zero and LayerNorm plain: width 2, one output."""
    params = network.init(jax.random.key(0), 2, 1)
    identity = jax.tree.map(jnp.zeros_like, params)
    for part in ("first", "blocks"):
        identity[part]["kernel"] = jnp.broadcast_to(jnp.eye(2), params[part]["kernel"].shape)
        identity[part]["scale"] = params[part]["scale"]
    identity["out"]["kernel"] = jnp.ones((2, 1))
    return identity


@pytest.mark.parametrize(("depth", "want"), [(2, 0.462117), (4, 0.924234), (8, 1.386352), (64, 7.855991)])
def test_each_residual_block_adds_its_own_layers_to_what_it_was_given(depth: int, want: float):
    """LayerNorm of any (a, b), a > b, is (1, -1); swish gives (0.731059, -0.268941), whose sum is 0.462117.

    So does every layer, and each block adds one such pair: D / 4 + 1 pairs in the end. Below 4 layers nothing adds.
    """
    network = Residual(width=2, depth=depth)
    assert_allclose(network.apply(hand_weights(network), jnp.array([3.0, 1.0])), [want], rtol=1e-4)


@pytest.mark.parametrize(("depth", "layers", "skips"), [(8, 9, 4), (3, 3, 0), (1, 1, 0)])
def test_a_residual_network_is_an_mlp_with_layer_norm_of_one_layer_more_or_below_four_of_as_many(
    depth: int, layers: int, skips: int
):
    network = Residual(width=40, depth=depth)
    plain = MLP(width=40, depth=layers, layer_norm=True, residual_every=skips)
    params = network.init(jax.random.key(0), 5, 3)
    params = jax.tree.map(lambda leaf: leaf + 0.1 * jax.random.normal(jax.random.key(leaf.size), leaf.shape), params)
    stacked = {
        name: jnp.concatenate([params["first"][name][None], params["blocks"][name].reshape(-1, 40)])
        for name in ("bias", "scale", "shift")
    }
    same: Params = {"out": params["out"]}
    blocks = params["blocks"]["kernel"].reshape(-1, 40, 40)
    assert blocks.shape[0] == layers - 1
    for layer in range(layers):
        kernel = params["first"]["kernel"] if layer == 0 else blocks[layer - 1]
        same[f"hidden_{layer}"] = {"kernel": kernel, "bias": stacked["bias"][layer]}
        same[f"norm_{layer}"] = {"scale": stacked["scale"][layer], "bias": stacked["shift"][layer]}
    x = jax.random.normal(jax.random.key(1), (7, 5))
    assert_allclose(network.apply(params, x), plain.apply(same, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("depth", "layers"), [(1, 1), (2, 2), (4, 5), (12, 13)])
def test_a_residual_network_starts_like_the_others_and_counts_its_parameters(depth: int, layers: int):
    """The first layer comes on top of whole blocks, but not of fewer than four layers."""
    network = Residual(width=40, depth=depth)
    params = network.init(jax.random.key(0), 5, 3)
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    assert size == 5 * 40 + (layers - 1) * 1600 + layers * 120 + 41 * 3
    if layers == 1:
        return
    kernels = np.asarray(params["blocks"]["kernel"])
    assert 0.95 * np.sqrt(1 / 40) < np.abs(kernels).max() <= np.sqrt(1 / 40)
    assert len(np.unique(kernels)) > 0.99 * kernels.size  # every layer is drawn anew


def test_a_depth_that_is_no_whole_number_of_blocks_is_refused():
    with pytest.raises(UserError, match="depth 10 is not a whole number of blocks of 4 layers: use 8"):
        Residual(depth=10)
    with pytest.raises(UserError, match="depth 0 is not a whole number of blocks of 4 layers: use 4"):
        Residual(depth=0)
