"""Named settings. A preset gives defaults; whatever is set explicitly wins."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, NamedTuple

from dcp.config import Config
from dcp.errors import QUOTED, UserError, did_you_mean


class Preset(NamedTuple):
    purpose: str
    overrides: dict[str, Any]
    rows: Mapping[str, dict[str, Any]] = MappingProxyType({})  # by environment, instead of these: the first that fits
    methods: Mapping[str, dict[str, Any]] = MappingProxyType({})  # by "method environment", besides these: all that fit


# The paper's rows where they differ from the defaults (512 environments, batches of 256, 50M steps). Its text names
# three budgets of 100M; pusher_hard_far is not among them, and its tables end at 50M there.
_PAPER_ROWS = {
    "humanoid*": {"steps": 100_000_000, "num_envs": 128, "batch_size": 128},
    "ant_push": {"steps": 100_000_000},
    "pusher_hard": {"steps": 100_000_000},
}

# A minute or two on two cores: small networks with LayerNorm and a higher learning rate, for every method alike.
# Half of the environments are commanded g itself; the paper's literal share is 0. Both are in docs/results.md.
_LAPTOP = {
    "steps": 3_000_000,
    "num_envs": 256,
    "unroll_length": 124,
    "batch_size": 128,
    "min_replay_rows": 250,
    "num_evals": 10,
    "width": 64,
    "layer_norm": True,
    "actor_learning_rate": 1e-3,
    "critic_learning_rate": 1e-3,
    "alpha_learning_rate": 1e-3,
    "final_goal_share": 0.5,
}

# Under physics we have measured no better learner than the paper's, so its own, on a budget of about an hour on two
# cores, with evaluations that take a small part of it. MuJoCo's own engine takes what it steps as fast as ours of the
# paper's physics or faster; ants in mazes it steps more slowly, and they fall thrice as often (docs/physics.md).
_PHYSICS_EVALS = {"num_evals": 10, "eval_episodes": 64}
_BY_MUJOCO = {"steps": 5_000_000, "physics": "mujoco", **_PHYSICS_EVALS}
# An object that has to be moved: few environments and many updates, inputs of unit size, and more of the rows after
# which the object moves. Searched for each method alike on pushing a cube by the tool (docs/recipes.md).
_OBJECT = {
    "method": "sac_direction",
    "steps": 1_200_000,
    "num_envs": 64,
    "unroll_length": 5,
    "batch_size": 256,
    "updates_per_iteration": 32,
    "min_replay_rows": 250,
    "num_evals": 12,
    "layer_norm": True,
    "discount": 0.95,
    "actor_learning_rate": 1e-3,
    "critic_learning_rate": 2e-3,
    "alpha_learning_rate": 1e-3,
    "normalize": "running",
    "fidelity": "fixed",
    "hindsight": "future",
    "component_settings": {"hindsight.moving_share": 0.5},
    "average_weights": 30,  # scores swing from one evaluation to the next without
}
_CUBE = {**_OBJECT, "normalize": "task", "control": "tool"}
# Fixed, because every episode of Gymnasium's tasks draws a start and a goal. An episode has 50 steps, too few for
# 32 whole batches: three are drawn at once.
_FETCH = {**_OBJECT, "normalize": "task", "window": 150}
_LAPTOP_ROWS = {
    "so101_push": _CUBE,
    "so101_lift": _CUBE,
    "so101_*": {**_LAPTOP, "fidelity": "fixed"},
    "fetch_reach": {**_FETCH, "steps": 100_000, "num_evals": 5},
    "fetch_push": {**_FETCH, "steps": 400_000, "num_evals": 8},
    "fetch_*": _FETCH,
    "ant_push": _BY_MUJOCO,
    "pusher_*": _BY_MUJOCO,
    "humanoid*": {"steps": 3_000_000, "num_envs": 128, "batch_size": 128, **_PHYSICS_EVALS},
    "ant_*": {"steps": 5_000_000, **_PHYSICS_EVALS},
}

# What a value learns from: HER's goals of the future and of other rows, not JaxGCRL's final ones.
_HER = {f"{method} *": {"hindsight": "her"} for method in ("sac_her", "td3_her", "sac_direction")}
# Where the search gave a method other settings than its row has, for every object that has to be moved.
_MOVING = {"hindsight.moving_share": 0.25}
_DCP = {"noise_hold": 3, "component_settings": _MOVING}
_CRL = {
    "actor_goal": "commanded",
    "discount": 0.98,
    "actor_learning_rate": 2e-3,
    "critic_learning_rate": 1e-3,
    "component_settings": _MOVING,
}
_SEARCHED = {
    f"{method} {tasks}": settings
    for tasks in ("so101_[pl]*", "fetch_*")
    for method, settings in (("dcp", _DCP), ("crl", _CRL))
}

_SMOKE = {
    "steps": 4_000,
    "num_envs": 16,
    "unroll_length": 25,
    "window": 33,
    "batch_size": 64,
    "replay_rows": 500,
    "min_replay_rows": 50,
    "num_evals": 2,
    "eval_episodes": 16,
    "pool_size": 32,
    "num_candidates": 8,
    "width": 32,
    "repr_dim": 16,
}
# Four unrolls, and episodes that end before an evaluation grows long.
_SMOKE_PHYSICS = {**_SMOKE, "steps": 1_600, "episode_length": 50}

# The loop that Scaled CRL (arXiv 2503.14858), SRL and ChronoSRL share: 800 updates of 512 pairs per 31,744 steps,
# residual networks, InfoNCE by rows, 100 evaluations. Depth 4 is the shallowest of their tables.
_PUBLISHED_LOOP = {
    "steps": 100_000_000,
    "batch_size": 512,
    "updates_per_iteration": 800,
    "num_evals": 100,
    "eval_episodes": 128,
    "network": "residual",
    "depth": 4,
    "contrastive_loss": "forward",
}
_SHORT_EPISODES = {name: value for name, value in _PUBLISHED_LOOP.items() if name != "updates_per_iteration"}
_SCALED_CRL = {"method": "crl", **_PUBLISHED_LOOP}
# Scaled CRL's table evaluates these three mazes only on far goals, and has its own budgets.
_SCALED_CRL_ROWS = {
    "ant_u4_maze": {**_SCALED_CRL, "eval_env": "ant_u4_maze_eval"},
    "ant_u5_maze": {**_SCALED_CRL, "eval_env": "ant_u5_maze_eval", "steps": 400_000_000},
    "ant_big_maze": {**_SCALED_CRL, "eval_env": "ant_big_maze_eval"},
    "ant_hardest_maze": {**_SCALED_CRL, "steps": 200_000_000},
    "humanoid_*": {**_SCALED_CRL, "steps": 400_000_000},
    "point_*": {"method": "crl", **_SHORT_EPISODES},  # 249 batches per iteration, all of them used
}
# ChronoSRL's own settings; it evaluates 100 episodes on the training layout, at 100M steps everywhere. Humanoids have
# goals of 32 steps and batches of 1,024. The last 31 of a window's 1,000 rows begin no such goal, and its loop takes
# every full batch of the rest: 512 * 969 // 1,024 = 484.
_CHRONOSRL_OWN = {"method": "chronosrl", "action_chunk": 2, "eval_episodes": 100}
_CHRONOSRL = {**_PUBLISHED_LOOP, **_CHRONOSRL_OWN}
_HUMANOID = {"batch_size": 1024, "updates_per_iteration": 484, "component_settings": {"critic.goal_steps": 32}}
_CHRONOSRL_ROWS = {
    "humanoid*": {**_CHRONOSRL, **_HUMANOID},
    "point_*": {**_SHORT_EPISODES, **_CHRONOSRL_OWN},
}

PRESETS = {
    "paper": Preset("the paper's row for the environment: hours on a GPU, days on two cores", {}, _PAPER_ROWS),
    "demo": Preset(
        "point_u_maze in three minutes on two cores, judged on far goals",
        {"env": "point_u_maze", "eval_env": "point_u_maze_eval", **_LAPTOP},
        methods=_HER,
    ),
    "laptop": Preset(
        "two cores: minutes in a point maze, about an hour under physics (ant_push and pushers by MuJoCo's own engine)",
        _LAPTOP,
        _LAPTOP_ROWS,
        {**_HER, **_SEARCHED},
    ),
    "scaled_crl": Preset(
        "Scaled CRL's row for the environment: CRL at depth 4 in the published loop, 800 updates of 512 per unroll",
        _SCALED_CRL,
        _SCALED_CRL_ROWS,
    ),
    "chronosrl": Preset(
        "ChronoSRL at depth 4 in the same loop, on the training layout",
        _CHRONOSRL,
        _CHRONOSRL_ROWS,
    ),
    "smoke": Preset(
        "seconds, once compiled: shows that everything runs, learns nothing",
        _SMOKE,
        dict.fromkeys(("ant_*", "humanoid*", "pusher_*", "so101_*", "fetch_*"), _SMOKE_PHYSICS),
    ),
}


def preset_overrides(name: str, env: str | None = None, method: str | None = None) -> dict[str, Any]:
    """Return what the preset sets for this environment and method. An evaluation layout has its maze's row."""
    if name not in PRESETS:
        raise UserError(f"unknown preset {name!r}: {did_you_mean(name, PRESETS, form=QUOTED)}")
    preset = PRESETS[name]
    task = (env or preset.overrides.get("env") or Config.env).removesuffix("_eval")
    row = next((row for pattern, row in preset.rows.items() if fnmatchcase(task, pattern)), None)
    row = preset.overrides if row is None else row
    method_and_task = f"{method or row.get('method', Config.method)} {task}"
    for pattern, overrides in preset.methods.items():
        row = {**row, **overrides} if fnmatchcase(method_and_task, pattern) else row
    return dict(row)


def preset_config(name: str, **overrides: Any) -> Config:
    """Return the preset's settings, with these on top."""
    return Config.from_dict({**preset_overrides(name, overrides.get("env"), overrides.get("method")), **overrides})
