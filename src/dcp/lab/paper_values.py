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
    if steps not in CHECKPOINTS:
        return None
    return _published(_row(metric, environment, method)[CHECKPOINTS.index(steps)])


def arrow(metric: str, environment: str) -> str | None:
    """Return up (DCP's final mean is higher), down (CRL's is) or about."""
    return _tables()["arrows"][metric].get(environment)


def end(environment: str) -> int | None:
    """Return the steps at which the paper's runs of this environment end: where its arrows are."""
    found = [at for at in CHECKPOINTS if checkpoint("success_once", environment, METHOD, at)]
    return found[-1] if found else None


def burst(environment: str, method: str, what: str) -> Published | None:
    """`what`: base or delta, in percent of the episodes, at the paper's P and L; environment `all`: the overall row."""
    tables = _tables()["burst"]
    row = tables["overall"] if environment == "all" else tables["values"].get(environment, {})
    return _published(row.get(f"{method}_{what}"))


def burst_advantage(environment: str) -> float | None:
    """Return DCP's gain minus CRL's."""
    tables = _tables()["burst"]
    if environment == "all":
        return tables["overall"]["difference"]
    return tables["values"].get(environment, {}).get("dcp_minus_crl")


def burst_record(method: str) -> tuple[int, int, int] | None:
    """Return wins, ties and losses over all (environment, seed) pairs."""
    found = _tables()["burst"]["overall"].get(f"{method}_win_tie_loss")
    return tuple(found) if found else None


def burst_setting() -> tuple[int, int]:
    """Return P and L."""
    tables = _tables()["burst"]
    return tables["period"], tables["length"]


def saturation(environment: str, method: str) -> Published | None:
    return _published(_tables()["saturation"].get(environment, {}).get(method))


def _row(metric: str, environment: str, method: str) -> list[Any]:
    return _tables().get(metric, {}).get(environment, {}).get(method, [None] * len(CHECKPOINTS))


def _published(cell: list[float] | None) -> Published | None:
    return Published(*cell) if cell else None
