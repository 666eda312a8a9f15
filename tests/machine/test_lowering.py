"""Every program of training lowers for CUDA and TPU, so that nothing that only a CPU has slips in.

Lowered, not compiled: that needs no such device. `benchmarks/gpu_launches.py` compiles for a GPU and counts.
"""

from dataclasses import replace

import jax
import pytest
from jax import export

from dcp.algorithm import Algorithm
from dcp.envs.ant_tasks import AntPush
from dcp.envs.registry import make_env
from dcp.lab.paper_values import ENVIRONMENTS
from dcp.methods.table import CRITICS, METHODS
from dcp.presets import preset_config
from dcp.robots.so101_tasks import TASKS

PLATFORMS = ("cuda", "tpu")


def lower(function, *shapes) -> None:
    for platform in PLATFORMS:
        exported = export.export(jax.jit(function), platforms=[platform])(*shapes)
        assert exported.platforms == (platform,)
        assert "callback" not in exported.mlir_module()


def lower_all(algorithm: Algorithm, *, with_physics: bool = True) -> None:
    key = jax.eval_shape(lambda: jax.random.key(0))
    learner = jax.eval_shape(algorithm.learner.init, key)
    acting, replay = jax.eval_shape(algorithm.init_experience, key)
    windows = jax.eval_shape(algorithm.windows, replay, key)
    lower(algorithm.windows, replay, key)
    lower(algorithm.learn, learner, windows, key, key, key)
    if with_physics:
        lower(algorithm.init_experience, key)
        lower(algorithm.collect, learner.params, acting, replay, key)
        lower(algorithm.deployment.episodes, algorithm.policy(learner.params), key)


def algorithm_of(env: str, method: str, **settings) -> Algorithm:
    config = preset_config("smoke", env=env, method=method, devices=1, **settings)
    # On a CPU, MuJoCo's own engine steps AntPush; on GPUs and TPUs MJX does.
    return Algorithm(AntPush(engine="mjx") if env == "ant_push" else make_env(env), config=replace(config, env=env))


@pytest.mark.parametrize("method", METHODS)
def test_a_method_lowers_for_gpus_and_tpus(method):
    lower_all(algorithm_of("point_u_maze", method), with_physics=method == "dcp")


@pytest.mark.slow
@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_an_environment_of_the_nine_lowers_for_gpus_and_tpus(env):
    lower_all(algorithm_of(env, "dcp"))


@pytest.mark.slow
@pytest.mark.parametrize("critic", CRITICS)
def test_a_critic_lowers_for_gpus_and_tpus_with_its_rollouts(critic):
    lower_all(algorithm_of("point_u_maze", "crl", critic=critic))


@pytest.mark.slow
@pytest.mark.parametrize("critic", ["quasimetric", "tmd"])
def test_a_critic_with_iqe_distances_lowers_for_gpus_and_tpus(critic):
    settings = {"critic.quasimetric": "iqe"}
    algorithm = algorithm_of("point_u_maze", "crl", critic=critic, component_settings=settings)
    assert vars(algorithm.agent.critic)["quasimetric"] == "iqe"
    lower_all(algorithm, with_physics=False)


@pytest.mark.slow
def test_residual_networks_lower_for_gpus_and_tpus():
    lower_all(algorithm_of("point_u_maze", "dcp", network="residual", depth=4))


@pytest.mark.slow
@pytest.mark.parametrize("env", TASKS)
def test_learning_on_an_arms_task_lowers_for_gpus_and_tpus(env):
    """Not its rollouts: MuJoCo's own engine steps the arm, which is a call back to the host on every device."""
    lower_all(algorithm_of(env, "dcp"), with_physics=False)
