"""When a run evaluates, also one whose budget was raised: what was planned stays, and the rest goes on at its pace."""

from dataclasses import dataclass, replace

from dcp.config import Config


@dataclass(frozen=True)
class Budget:
    """One that a run had before it was raised."""

    steps: int
    num_evals: int


def evaluation_points(config: Config, earlier: tuple[Budget, ...] = ()) -> list[int]:
    """Iterations done at each evaluation: evenly spread within each budget, the last one at its end."""
    points: list[int] = []
    start = 0
    for budget in (*earlier, Budget(config.steps, config.num_evals)):
        end = _iterations(config, budget.steps)
        count = budget.num_evals - len(points)
        points += [start + round((i + 1) * (end - start) / count) for i in range(count)]
        start = end
    return points


def raised(config: Config, earlier: tuple[Budget, ...], steps: int) -> tuple[Config, tuple[Budget, ...]]:
    """The same run with more steps; its further evaluations lie as far apart as the last ones that were planned."""
    more = _iterations(config, steps) - config.num_iterations
    if more <= 0:  # the same number of whole unrolls
        return config, earlier
    before = earlier[-1] if earlier else None
    iterations = config.num_iterations - (_iterations(config, before.steps) if before else 0)
    evaluations = config.num_evals - (before.num_evals if before else 0)
    further = max(1, round(more * evaluations / iterations))
    now = Budget(config.steps, config.num_evals)
    return replace(config, steps=steps, num_evals=config.num_evals + further), (*earlier, now)


def _iterations(config: Config, steps: int) -> int:
    return replace(config, steps=steps).num_iterations
