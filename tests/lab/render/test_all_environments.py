"""Every physics environment, stepped at random and drawn. Their physics compiles for half a minute each."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from dcp.envs.registry import make_env
from dcp.lab.render import make_picture, moment_of
from dcp.lab.render.body_pictures import PageScene

NAMES = (
    *("ant_u_maze", "ant_big_maze", "ant_hardest_maze", "humanoid_u_maze", "ant_push", "ant_soccer"),
    *("pusher_easy", "pusher_hard", "pusher_hard_far", "so101_reach"),
)
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", NAMES)
def test_links_are_drawn_where_the_engine_has_them(name):
    """At a random pose. The noisy start's quaternion has no unit length, which Brax takes as it is: so it gets one."""
    env = make_env(name)
    q, qd = env.draw(jax.random.key(1))
    q = q + 0.2 * jax.random.normal(jax.random.key(2), q.shape)
    if not name.startswith(("pusher", "so101")):
        q = q.at[3:7].divide(jnp.linalg.norm(q[3:7]))
    links = np.asarray(jax.jit(env.reset_to)(q, qd).physics.x.pos)
    scene = PageScene(env)
    scene.data.qpos[:] = np.asarray(q)
    mujoco.mj_kinematics(scene.model, scene.data)
    np.testing.assert_allclose(scene.data.xpos[1:], links, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_after_random_actions_the_goal_is_in_the_picture(name, renderer):
    env = make_env(name)
    state = jax.jit(env.reset)(jax.random.key(0))
    step = jax.jit(env.step)
    for key in jax.random.split(jax.random.key(1), 5):
        state = step(state, jax.random.uniform(key, (env.spec.action_size,), minval=-1.0, maxval=1.0))
    picture = make_picture(env, 320, 260)
    moment = moment_of(env, state)
    image = picture(state).astype(float)
    without = picture.drawing.draw(moment._replace(goal=moment.goal + 1e3)).astype(float)
    picture.close()
    assert np.isfinite(moment.q).all()
    changed = image[np.abs(image - without).max(axis=-1) > 20]  # where the goal is, [K, 3]
    assert len(changed) > 15
    red, green, blue = changed.mean(axis=0)
    assert red > green + 20 > blue + 40  # vermilion, over whatever is seen through it
    acts = (image[..., 2] > 1.5 * image[..., 0]) & (image[..., 2] > 1.2 * image[..., 1])
    assert acts.sum() > 8
