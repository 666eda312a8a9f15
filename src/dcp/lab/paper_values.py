"""The paper's published numbers and names. Nothing else in analysis names a method."""

import json
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

METHODS = METHOD, BASELINE, _ = ("dcp", "crl", "ssgc")  # in its order; the first against the second
_MAZES = ("ant_big_maze", "ant_hardest_maze", "ant_u_maze", "humanoid_u_maze")
ENVIRONMENTS = (*_MAZES, "ant_push", "pusher_easy", "pusher_hard", "pusher_hard_far", "ant_soccer")  # the paper's order
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
    """`what`: base or delta, in percent of the episodes, at the paper's P and L; environment `all`: the overall row."""
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
