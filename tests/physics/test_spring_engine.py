"""Our spring frames against Brax's pipeline, one frame at a time, from Brax's own states."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brax.spring import pipeline

from dcp.envs.registry import make_env
from dcp.physics.kinematics import Motion, System, Transform
from dcp.physics.spring_engine import SpringEngine, SpringState
from tests.support.brax_models import brax_system


def ours_of(state) -> SpringState:
    x, x_i = (Transform(frames.pos, frames.rot) for frames in (state.x, state.x_i))
    xd, xd_i = (Motion(frames.ang, frames.vel) for frames in (state.xd, state.xd_i))
    return SpringState(state.q, state.qd, x, xd, x_i, xd_i)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ant_u_maze", "ant_soccer", "humanoid_u_maze"])
def test_a_frame_is_braxs_own(name: str):
    """From 30 states on a path of random actions each, in 16 environments: joints, limits, floor, walls, the ball."""
    env = make_env(name)
    engine = SpringEngine(env.engine.sys, 1, env.engine.contacts)
    sys = brax_system(engine.sys.model)
    q, qd = jax.vmap(env.draw)(jax.random.split(jax.random.key(0), 16))
    actions = jax.random.uniform(jax.random.key(1), (30, 16, env.spec.action_size), minval=-1.0)

    def frame(state, action):
        control = jax.vmap(env.control)(action)
        brax = jax.vmap(lambda s, a: pipeline.step(sys, s, a))(state, control)
        ours = jax.vmap(engine.step)(ours_of(state), control)
        gap = jnp.stack(
            [
                jnp.max(jnp.abs(a - b))
                for a, b in zip(ours_of(brax)[2:], ours[2:], strict=True)
                for a, b in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
            ]
        )
        for _ in range(9):
            brax = jax.vmap(lambda s, a: pipeline.step(sys, s, a))(brax, control)
        return brax, gap

    with jax.numpy_rank_promotion("allow"):
        run = jax.jit(
            lambda q, qd: jax.lax.scan(frame, jax.vmap(lambda q, qd: pipeline.init(sys, q, qd))(q, qd), actions)[1]
        )
        gaps = np.asarray(run(q, qd))
    assert gaps.max() < 2e-5, gaps.max(0)


def test_a_model_with_springs_of_another_kind_is_refused():
    task = make_env("ant_soccer")
    spec = task.model()
    (scale,) = (number for number in spec.numerics if number.name == "spring_inertia_scale")
    scale.data = [0.0]
    with pytest.raises(ValueError, match="inertia"):
        SpringEngine(System(spec.compile()), 1, task.engine.contacts)
