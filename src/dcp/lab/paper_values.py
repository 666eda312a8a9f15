"""The paper's published numbers, names and settings: which runs they may stand beside. Nothing else here names a
method."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from dcp.config import Config, Settings, fields_where
from dcp.errors import printable
from dcp.presets import preset_config

METHODS = METHOD, BASELINE, _ = ("dcp", "crl", "ssgc")  # in its order; the first against the second
_MAZES = ("ant_big_maze", "ant_hardest_maze", "ant_u_maze", "humanoid_u_maze")
ENVIRONMENTS = (*_MAZES, "ant_push", "pusher_easy", "pusher_hard", "pusher_hard_far", "ant_soccer")  # the paper's order
TASKS = dict.fromkeys(ENVIRONMENTS, "Manipulation") | dict.fromkeys(_MAZES, "Navigation") | {"ant_push": "Nav + Manip"}
EPISODE = 1000  # steps
MUJOCO_IS_THE_PAPERS = ("ant_push",)  # stepped by MuJoCo under either setting of physics
REACH = 0.1  # how far an evaluation may be from the checkpoint that it represents, as a share of its steps
NOT_THERE = "not in the paper, or other settings than the paper's"
CHECKPOINTS = (10_000_000, 25_000_000, 50_000_000, 75_000_000, 100_000_000)


class Published(NamedTuple):
    """mean ± spread, rounded as printed. The spread is a 95% interval in checkpoints, a std in burst and saturation."""

    mean: float
    spread: float


@cache
def _tables() -> dict[str, Any]:
    return json.loads(files("dcp.lab").joinpath("paper.json").read_text(encoding="utf-8"))


def checkpoint(metric: str, environment: str, method: str, steps: int) -> Published | None:
    """Return the paper's value; None if it has a dash, or lacks the environment, the method or the checkpoint."""
    row = _tables().get(metric, {}).get(environment, {}).get(method)
    return _published(row[CHECKPOINTS.index(steps)]) if row and steps in CHECKPOINTS else None


def arrow(metric: str, environment: str) -> str | None:
    """Return up (DCP's final mean is higher), down (CRL's is) or about."""
    return _tables()["arrows"][metric].get(environment)


def end(environment: str) -> int | None:
    """Return the steps at which the paper's runs of this environment end: where its arrows are."""
    return next((at for at in reversed(CHECKPOINTS) if checkpoint("success_once", environment, METHOD, at)), None)


def burst(environment: str, method: str, what: str) -> Published | None:
    """Return the paper's base or delta (`what`) in percent of the episodes; of environment `all`: its overall row."""
    return _published(_burst_row(environment).get(f"{method}_{what}"))


def burst_advantage(environment: str) -> float | None:
    """Return DCP's gain minus CRL's."""
    return _burst_row(environment).get("difference" if environment == "all" else "dcp_minus_crl")


def burst_record(method: str) -> tuple[int, int, int] | None:
    """Return wins, ties and losses over all (environment, seed) pairs."""
    record = _burst_row("all").get(f"{method}_win_tie_loss")
    return tuple(record) if record else None


def _burst_row(environment: str) -> dict[str, Any]:
    tables = _tables()["burst"]
    return tables["overall"] if environment == "all" else tables["values"].get(environment, {})


def burst_setting() -> tuple[int, int]:
    """Return P and L."""
    tables = _tables()["burst"]
    return tables["period"], tables["length"]


def saturation(environment: str, method: str) -> Published | None:
    return _published(_tables()["saturation"].get(environment, {}).get(method))


def _published(cell: list[float] | None) -> Published | None:
    return Published(*cell) if cell else None


# Like with like: a published value stands beside a run only where nothing that changes its numbers differs.


def settings_apart(config: Mapping[str, Any]) -> list[str]:
    """Return in what a run's config differs from the paper's for its task and method; empty: in nothing that changes
    what is learned or measured. No environment is made: a config may be a stranger's."""
    env, method = config["env"], config["method"]
    if env not in ENVIRONMENTS or method not in METHODS:
        return [f"the paper has no {env if env not in ENVIRONMENTS else method}"]
    apart = differences(config, _papers_settings(env, method))
    return [reason for reason in apart if env not in MUJOCO_IS_THE_PAPERS or not reason.startswith("physics ")]


@cache
def _papers_settings(env: str, method: str) -> Config:
    return preset_config("paper", env=env, method=method)


def differences(config: Mapping[str, Any], published: Config, layout: str | None = None) -> list[str]:
    """Return in what a run's config differs from published settings, other than seed, budget and machine."""
    theirs = asdict(published.resolve(EPISODE))
    ours = asdict(Settings(**{name: config[name] for name in theirs if name in config}).resolve(EPISODE))  # or defaults
    free = fields_where(compared=False)
    names = [name for name in theirs if name not in free and ours[name] != theirs[name]]
    apart = [f"{name} {_shown(ours[name])} instead of {_shown(theirs[name])}" for name in names]
    layout = layout or published.eval_env or published.env
    return ([] if ours["eval_env"] == layout else [f"evaluated on {ours['eval_env']} instead of {layout}"]) + apart


def _shown(value: Any) -> str:
    return "the method's own" if value is None else printable(str(value))[:80]


def steps_apart(env: str, steps: float) -> list[str]:
    """Return a reason if a policy was not trained for about as long as the paper's final ones."""
    last = end(env)
    near = last is None or abs(steps - last) <= REACH * last
    return [] if near else [f"{steps:,.0f} steps instead of {last:,}"]


def apart_notes(apart: Mapping[tuple[str, str], Sequence[str]], methods: Mapping[tuple[str, str], str]) -> list[str]:
    """Return a sentence for each group of one of the paper's methods and environments that has other settings.

    `methods`: the method of each group, whose label may name settings.
    """
    own = [(key, reasons) for key, reasons in apart.items() if reasons and methods[key] in METHODS]
    return [
        f"{env}, {label}: not beside the paper's values, because of {'; '.join(reasons)}."
        for (env, label), reasons in own
        if env.split(" ")[0] in ENVIRONMENTS
    ]
