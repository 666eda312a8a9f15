"""examples/jaxgcrl_to_npz.py: a checkpoint in JaxGCRL 0.2.8's form acts in dcp as its own actor does."""

import pickle
from pathlib import Path

import flax.linen as nn
import jax
import numpy as np
import pytest

from dcp.policies.exports import load_exported
from examples import jaxgcrl_to_npz

STATES, GOALS, ACTIONS = 29, 2, 8


class Actor(nn.Module):
    """JaxGCRL's actor, by its source (agents/crl/networks.py of 0.2.8): hidden layers, skips, two heads."""

    depth: int
    skip_connections: int

    @nn.compact
    def __call__(self, x):
        skip = x
        for i in range(self.depth):
            x = nn.swish(nn.Dense(16)(x))
            if self.skip_connections and i == 0:
                skip = x
            if self.skip_connections and i > 0 and i % self.skip_connections == 0:
                x = skip = x + skip
        return nn.Dense(ACTIONS)(x), nn.Dense(ACTIONS)(x)


@pytest.mark.parametrize(("depth", "skips"), [(2, 4), (5, 2)])
def test_a_converted_checkpoint_acts_as_jaxgcrls_actor(depth: int, skips: int, tmp_path: Path):
    actor = Actor(depth, skips)
    params = actor.init(jax.random.key(0), np.zeros((1, STATES + GOALS)))
    encoder = {"params": {"Dense_0": {"kernel": np.ones((3, 4)), "bias": np.zeros(4)}}}
    checkpoint = tmp_path / "step_1000.pkl"
    saved = (
        {"log_alpha": np.zeros(())},
        jax.tree.map(np.asarray, params),
        {"sa_encoder": encoder, "g_encoder": encoder},
    )
    checkpoint.write_bytes(pickle.dumps(saved))
    out = tmp_path / "crl.npz"
    flags = ["--env", "ant_u_maze", "--skip_connections", str(skips), "--out", str(out)]

    jaxgcrl_to_npz.main([str(checkpoint), *flags])

    policy = load_exported(out)
    state, goal = np.random.default_rng(0).normal(size=(5, STATES)), np.random.default_rng(1).normal(size=(5, GOALS))
    mean, _ = actor.apply(params, np.concatenate([state, goal], axis=1).astype(np.float32))
    np.testing.assert_allclose(policy(state, goal), np.tanh(mean), atol=1e-5)
    assert (policy.state_size, policy.goal_dims, policy.about["env"]) == (STATES, (0, 1), "ant_u_maze")
