"""The two distributions in the real LeRobot: `make test-lerobot` runs this in an environment of its own."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from lerobot.configs.policies import PreTrainedConfig
from lerobot.envs.configs import EnvConfig
from lerobot.envs.factory import make_env
from lerobot.policies.factory import get_policy_class, make_policy, make_pre_post_processors
from lerobot.utils.import_utils import register_third_party_plugins

register_third_party_plugins()

import lerobot_env_dcp  # noqa: E402
from lerobot_policy_dcp import DcpConfig  # noqa: E402

ZOO = "zoo/so101_reach/dcp"
BIN = Path(sys.executable).parent


def batch(n: int) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(0)
    state, goal = rng.normal(size=(n, 13)), rng.normal(size=(n, 3))
    return {"observation.state": torch.tensor(state).float(), "observation.goal": torch.tensor(goal).float()}


def policy(**settings):
    config = EnvConfig.get_choice_class("dcp_so101_reach")()
    return make_policy(DcpConfig(policy_file=ZOO, **settings), env_cfg=config)


def test_both_are_found_by_lerobots_discovery():
    assert PreTrainedConfig.get_choice_class("dcp") is DcpConfig
    assert get_policy_class("dcp").__name__ == "DcpPolicy"
    for name in lerobot_env_dcp.TASKS:
        assert EnvConfig.get_choice_class(f"dcp_{name}")().task == name


def test_an_action_is_ours_within_1e_6(tmp_path: Path):
    """Of the exported form that it runs. XLA rounds otherwise than NumPy, so JAX's own form is within 1e-5."""
    import dcp
    from dcp.policies.exports import export_policy, load_exported

    given = batch(64)
    numbers = given["observation.state"].numpy(), given["observation.goal"].numpy()
    action = policy().select_action(given).numpy()
    exported = load_exported(export_policy(ZOO, "numpy", tmp_path / "policy.npz"))
    np.testing.assert_allclose(action, exported(*numbers), rtol=0.0, atol=1e-6)
    np.testing.assert_allclose(action, np.asarray(dcp.load_policy(ZOO)(*numbers)), rtol=0.0, atol=1e-5)


def test_a_goal_in_the_config_goes_before_the_observations():
    given, goal = batch(8), [0.25, 0.1, 0.2]
    same = {**given, "observation.goal": torch.tensor([goal] * 8)}
    assert torch.equal(policy(goal=goal).select_action(given), policy().select_action(same))
    with pytest.raises(ValueError, match="no goal: set"):
        policy().select_action({"observation.state": given["observation.state"]})


def test_a_chunk_is_one_action_and_the_loss_is_its_distance_from_the_batchs():
    given, dcp_policy = batch(8), policy()
    action = dcp_policy.select_action(given)
    assert torch.equal(dcp_policy.predict_action_chunk(given), action[:, None])
    loss, output = dcp_policy.forward({**given, "action": action + 0.5})
    assert loss.item() == pytest.approx(0.25, abs=1e-5) and output["action_mse"] == pytest.approx(0.25, abs=1e-5)
    assert dcp_policy.get_optim_params() == {}


def test_a_saved_policy_needs_the_file_no_more(tmp_path: Path):
    given, first = batch(8), policy()
    first.save_pretrained(tmp_path)
    config = PreTrainedConfig.from_pretrained(tmp_path)
    config.policy_file = "nowhere.npz"
    again = get_policy_class("dcp").from_pretrained(tmp_path, config=config)
    assert torch.equal(first.select_action(given), again.select_action(given))


def test_processors_change_no_number():
    before, after = make_pre_post_processors(DcpConfig())
    given = batch(4)
    seen = before(dict(given))
    assert torch.equal(seen["observation.state"], given["observation.state"])
    assert torch.equal(seen["observation.goal"], given["observation.goal"])
    assert torch.equal(after(torch.ones(4, 5)), torch.ones(4, 5))


def test_sizes_are_those_of_dcps_own_tasks():
    from dcp.envs.registry import make_env as make_task

    for name, (state, goal, action, steps, _) in lerobot_env_dcp.TASKS.items():
        spec = make_task(name).spec
        assert (spec.state_size, spec.goal_size, spec.action_size, spec.episode_length) == (state, goal, action, steps)
    for name, sizes in lerobot_env_dcp.BY_TOOL.items():
        spec = make_task(name, control="tool").spec
        assert (spec.state_size, spec.action_size) == sizes
        config = EnvConfig.get_choice_class(f"dcp_{name}")(control="tool")
        assert config.features["agent_pos"].shape == sizes[:1] and config.features["action"].shape == sizes[1:]


def test_an_environment_has_what_lerobot_asks_for():
    envs = make_env(EnvConfig.get_choice_class("dcp_so101_reach")(), n_envs=2)
    env = envs["dcp_so101_reach"][0]
    observation, _ = env.reset(seed=[1, 2], options={"lerobot_new_rollout": True})
    assert observation["agent_pos"].shape == (2, 13) and observation["goal"].shape == (2, 3)
    assert env.call("_max_episode_steps") == (100, 100) and env.unwrapped.metadata["render_fps"] == 30
    for _ in range(100):
        observation, _, _, truncated, info = env.step(np.zeros((2, 5), np.float32))
    assert truncated.all() and "is_success" in info["final_info"]
    assert env.call("render")[0].shape[-1] == 3
    env.close()


@pytest.mark.parametrize("use_async", [False, True])
def test_lerobot_eval_runs_as_a_user_types_it(tmp_path: Path, use_async: bool):
    flags = ["--policy.type=dcp", f"--policy.policy_file={ZOO}", "--env.type=dcp_so101_reach", "--eval.n_episodes=10"]
    flags += [
        "--eval.batch_size=5",
        f"--eval.use_async_envs={str(use_async).lower()}",
        f"--output_dir={tmp_path / 'out'}",
    ]
    subprocess.run([str(BIN / "lerobot-eval"), *flags], check=True, cwd=tmp_path, timeout=1200)
    overall = json.loads((tmp_path / "out" / "eval_info.json").read_text())["overall"]
    assert overall["pc_success"] >= 80.0 and overall["n_episodes"] == 10
