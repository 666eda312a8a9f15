"""Every preset must be a run that can start."""

import pytest

from dcp.config import Config
from dcp.envs.registry import ENVIRONMENTS
from dcp.machine.checks import violations
from dcp.methods.table import make_agent
from dcp.presets import PRESETS, preset_config
from dcp.types import EnvSpec

MILLION = 1_000_000


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_valid_on_every_point_maze(preset: str):
    for env in ("point_u_maze", "point_big_maze_inertia", "point_hardest_maze"):
        assert violations(preset_config(preset, env=env, eval_env=None)) == [], env


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_fits_episodes_of_every_length_in_use(preset: str):
    """Nothing but a physics environment's names and its 1,000 steps are needed to see that."""
    for env in (*ENVIRONMENTS, "my_module:factory"):
        length = 250 if env.startswith("point_") else 1_000
        assert preset_config(preset, env=env, eval_env=None).resolve(length).violations() == [], env


def test_the_paper_preset_is_the_defaults():
    assert preset_config("paper") == Config()


@pytest.mark.parametrize(
    ("env", "steps", "num_envs", "batch_size"),
    [
        ("ant_u_maze", 50, 512, 256),
        ("ant_big_maze", 50, 512, 256),
        ("ant_hardest_maze", 50, 512, 256),
        ("humanoid_u_maze", 100, 128, 128),
        ("ant_push", 100, 512, 256),
        ("pusher_easy", 50, 512, 256),
        ("pusher_hard", 100, 512, 256),
        ("pusher_hard_far", 50, 512, 256),
        ("ant_soccer", 50, 512, 256),
    ],
)
def test_the_papers_nine_rows(env: str, steps: int, num_envs: int, batch_size: int):
    """As its text and the captions of its figures state them; everything else is the default."""
    row = preset_config("paper", env=env)
    assert row == Config(env=env, steps=steps * MILLION, num_envs=num_envs, batch_size=batch_size)


@pytest.mark.parametrize(
    ("env", "eval_env", "steps"),
    [
        ("ant_u4_maze", "ant_u4_maze_eval", 100),
        ("ant_u5_maze", "ant_u5_maze_eval", 400),
        ("ant_big_maze", "ant_big_maze_eval", 100),
        ("ant_hardest_maze", None, 200),
        ("humanoid", None, 100),
        ("humanoid_u_maze", None, 400),
        ("humanoid_big_maze", None, 400),
    ],
)
def test_scaled_crls_rows(env: str, eval_env: str | None, steps: int):
    """The budgets and evaluation layouts of its table 1, and one update per 39.68 steps."""
    config = preset_config("scaled_crl", env=env)
    assert (config.eval_env, config.steps, config.method) == (eval_env, steps * MILLION, "crl")
    assert (config.num_updates, config.batch_size, config.env_steps_per_unroll) == (800, 512, 31_744)
    assert (config.network, config.depth, config.contrastive_loss) == ("residual", 4, "forward")


@pytest.mark.parametrize(
    ("env", "batch_size", "updates", "goal_steps"),
    [("ant_u4_maze", 512, 800, None), ("humanoid", 1024, 484, 32), ("humanoid_u_maze", 1024, 484, 32)],
)
def test_chronosrls_rows(env: str, batch_size: int, updates: int, goal_steps: int | None):
    """100M steps on the training layout, 100 episodes; a humanoid's goals of 32 steps leave 512 * 969 // 1,024."""
    config = preset_config("chronosrl", env=env).resolve(1000)
    assert (config.eval_env, config.steps, config.method) == (env, 100 * MILLION, "chronosrl")
    assert (config.action_chunk, config.num_evals, config.eval_episodes) == (2, 100, 100)
    assert (config.batch_size, config.num_updates) == (batch_size, updates)
    assert config.settings_of("critic") == ({} if goal_steps is None else {"goal_steps": goal_steps})
    agent = make_agent(config, EnvSpec(env, 29, 2, 8, (0, 1), 0.5, 1000))
    assert getattr(agent.critic, "goal_steps", None) == (goal_steps or 1)


def test_an_evaluation_layout_shares_its_mazes_row():
    assert preset_config("paper", env="humanoid_u_maze_eval").num_envs == 128
    assert preset_config("laptop", env="ant_u_maze_eval").steps == preset_config("laptop", env="ant_u_maze").steps


def test_ones_own_environment_gets_the_presets_common_settings():
    assert preset_config("laptop", env="my_module:factory").width == preset_config("laptop").width == 64
    assert preset_config("laptop", env="ant_big_maze").width == 256


def test_an_override_wins():
    assert preset_config("smoke", seed=3, width=8).width == 8
    assert preset_config("paper", env="humanoid_u_maze", num_envs=64).num_envs == 64


def test_on_a_laptop_mujocos_own_engine_takes_what_it_steps_as_fast_or_faster():
    physics = {env: preset_config("laptop", env=env, eval_env=None).physics for env in ENVIRONMENTS}
    by_mujoco = {"ant_push", *(env for env in ENVIRONMENTS if env.startswith("pusher_"))}
    assert {name for name, by in physics.items() if by == "mujoco"} == by_mujoco
    assert all(preset_config("paper", env=env).physics == "brax" for env in ENVIRONMENTS)


def test_on_a_laptop_a_value_learns_from_hers_goals_and_every_other_critic_from_its_own():
    assert preset_config("laptop", env="so101_push", method="sac_her").hindsight == "her"
    assert preset_config("laptop", env="point_u_maze", method="dcp").hindsight is None
    assert preset_config("paper", env="pusher_easy", method="sac_her").hindsight is None


def test_on_a_laptop_a_cube_has_the_searched_settings_of_its_method():
    push = preset_config("laptop", env="so101_push")
    assert (push.method, push.hindsight, push.control) == ("sac_direction", "her", "tool")
    assert push.component_settings == {"hindsight.moving_share": 0.5}
    crl = preset_config("laptop", env="so101_push", method="crl")
    assert (crl.hindsight, crl.actor_goal, crl.discount, crl.normalize) == ("future", "commanded", 0.98, "task")
    assert preset_config("laptop", env="so101_push", control="joints").control == "joints"
    assert preset_config("laptop", env="so101_reach").hindsight is None  # a reaching arm keeps its row


def test_on_a_laptop_an_episode_of_fetch_has_batches_enough_for_its_updates():
    fetch = preset_config("laptop", env="fetch_push").resolve(50)  # its models are not installed with dcp
    assert fetch.num_updates == 32 <= fetch.num_batches


def test_on_a_laptop_fetch_has_the_settings_that_were_searched_for_the_other_arm():
    """All but the robot's own controls, and longer windows for its short episodes."""
    for method in ("sac_direction", "sac_her", "dcp", "crl"):
        cube = vars(preset_config("laptop", env="so101_push", method=method))
        fetch = vars(preset_config("laptop", env="fetch_push", method=method))
        differing = {name for name in cube if cube[name] != fetch[name]}
        assert differing == {"env", "steps", "num_evals", "control", "window"}, method
    steps = {task: preset_config("laptop", env=f"fetch_{task}").steps for task in ("reach", "push", "slide")}
    assert steps == {"reach": 100_000, "push": 400_000, "slide": 1_200_000}
