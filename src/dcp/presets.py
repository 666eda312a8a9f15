"""Named settings. A preset gives defaults; whatever is set explicitly wins."""

from difflib import get_close_matches
from typing import Any, NamedTuple

from dcp.config import Config
from dcp.errors import UserError


class Preset(NamedTuple):
    purpose: str
    overrides: dict[str, Any]


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

PRESETS = {
    "paper": Preset("the paper's settings, hours on a GPU", {}),
    "demo": Preset(
        "point_u_maze in three minutes on two cores, judged on far goals",
        {"env": "point_u_maze", "eval_env": "point_u_maze_eval", **_LAPTOP},
    ),
    "laptop": Preset("the demo's sizes for any environment", _LAPTOP),
    "smoke": Preset(
        "seconds: shows that everything runs, learns nothing",
        {
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
        },
    ),
}


def preset_overrides(name: str) -> dict[str, Any]:
    if name not in PRESETS:
        close = get_close_matches(name, PRESETS, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(PRESETS)}"
        raise UserError(f"unknown preset {name!r}: {hint}")
    return PRESETS[name].overrides


def preset_config(name: str, **overrides: Any) -> Config:
    """The preset's settings, with these on top."""
    return Config.from_dict({**preset_overrides(name), **overrides})
