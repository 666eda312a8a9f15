"""An environment in the form of Brax or MuJoCo Playground becomes a goal task by functions of its state."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

import dcp
from dcp.envs.brax_task import BraxTask
from dcp.envs.contract import contract_violations
from dcp.errors import UserError
from tests.support.tiny import tiny_config


@struct.dataclass
class State:
    data: Any
    obs: Any
    reward: Any
    done: Any
    metrics: Any
    info: Any


class Slider:
    """A point on a line in Playground's form, with a dictionary of observations and its target in `info`."""

    action_size = 1

    def reset(self, rng):
        rng, of_place = jax.random.split(rng)
        place, target = jax.random.uniform(of_place, (2, 1), minval=-1.0)
        obs = {"state": place, "privileged_state": jnp.zeros(9)}
        return State({"qpos": place}, obs, jnp.zeros(()), jnp.zeros(()), {}, {"rng": rng, "target": target})

    def step(self, state, action):
        place = state.data["qpos"] + 0.1 * action
        obs = {**state.obs, "state": place}
        return state.replace(data={"qpos": place}, obs=obs, done=jnp.where(jnp.abs(place[0]) > 1.5, 1.0, 0.0))


def place(state):
    return state.data["qpos"]


def task(**changes) -> BraxTask:
    settings = {"achieved": place, "goal": lambda state: state.info["target"], "threshold": 0.1, "episode_length": 20}
    return BraxTask("slider", Slider(), **(settings | changes))


def test_its_states_goals_and_ends_are_those_of_the_environment():
    env = task()
    assert (env.spec.state_size, env.spec.goal_size, env.spec.action_size, env.spec.goal_dims) == (2, 1, 1, (0,))
    assert env.spec.physics == "mjx" and not contract_violations("slider", env)
    state = env.reset(jax.random.key(0))
    own = state.physics.state
    np.testing.assert_array_equal(state.obs, [own.data["qpos"][0], own.data["qpos"][0], own.info["target"][0]])
    for _ in range(40):
        state = jax.jit(env.step)(state, jnp.full(1, 5.0))  # clipped to 1
    assert state.obs[0] == pytest.approx(float(own.data["qpos"][0]) + 4.0, abs=1e-5) and bool(state.done)


def test_the_threshold_or_a_function_of_the_state_says_what_is_near():
    state = task(threshold=10.0).reset(jax.random.key(0))
    assert bool(state.near_goal) and state.reward == 1.0
    never = task(threshold=10.0, near=lambda state: state.data["qpos"][0] > 5.0)
    assert not bool(never.reset(jax.random.key(0)).near_goal)


def test_goals_can_be_drawn_and_stay():
    env = task(goal=None, goals=lambda key, achieved: achieved + jax.random.uniform(key, (1,)))
    state = env.reset(jax.random.key(0))
    after = env.step(state, jnp.ones(1))
    assert state.obs[2] > state.obs[0] and after.obs[2] == state.obs[2]


def test_mistakes_get_a_sentence():
    with pytest.raises(UserError, match="either goal, a function of the state, or goals"):
        task(goal=None)
    with pytest.raises(UserError, match="goals of 2 numbers and achieves 1"):
        task(goal=lambda state: jnp.zeros(2))
    with pytest.raises(UserError, match=r"slider cannot be reset \(KeyError"):
        task(achieved=lambda state: state.data["qvel"])


def test_it_trains():
    run = dcp.train(
        dcp.Algorithm(task(), config=tiny_config(fidelity="fixed", devices=1)), runs_dir=None, display="none"
    )
    assert np.isfinite(run.rows[-1]["critic_loss"])


def test_an_environment_of_brax():
    envs = pytest.importorskip("brax.envs")
    env = BraxTask(
        "fast",
        envs.create("fast", auto_reset=False, episode_length=None),
        achieved=lambda state: state.obs[:1],
        goals=lambda key, achieved: achieved + 3.0,
        threshold=0.5,
        episode_length=10,
    )
    state = env.reset(jax.random.key(0))
    assert np.all(np.isfinite(env.step(state, jnp.zeros(env.spec.action_size)).obs))


@pytest.mark.slow
def test_a_task_of_mujoco_playground_trains():
    suite = pytest.importorskip("mujoco_playground").dm_control_suite
    reacher = suite.load("ReacherEasy", config_overrides={"impl": "jax"})
    finger, target = (reacher.mj_model.geom(name).id for name in ("finger", "target"))
    env = BraxTask(
        "reacher",
        reacher,
        achieved=lambda state: state.data.geom_xpos[finger, :2],
        goal=lambda state: state.data.geom_xpos[target, :2],
        threshold=0.05,
        episode_length=50,
    )
    assert (env.spec.state_size, env.spec.goal_size, env.spec.action_size) == (8, 2, 2)  # with 6 of its own
    run = dcp.train(dcp.Algorithm(env, config=tiny_config(fidelity="fixed", devices=1)), runs_dir=None, display="none")
    assert np.isfinite(run.rows[-1]["critic_loss"]) and run.rows[-1]["eval_diverged_episodes"] == 0
