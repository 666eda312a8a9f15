"""Numbers that are no numbers stop a run before they reach a checkpoint."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from dcp.learner import LearnerState
from dcp.types import Array


class NotFiniteError(Exception):
    """A loss or a parameter is NaN or infinite."""

    def __init__(self, env_steps: int, metrics: dict[str, float], arrays: dict[str, str]):
        self.env_steps, self.metrics, self.arrays = env_steps, metrics, arrays
        first = [f"{name} is {value}" for name, value in metrics.items() if not math.isfinite(value)]
        first += [f"{name} has {what}" for name, what in arrays.items()]
        super().__init__(f"{first[0]} at {env_steps:,} environment steps")

    def seen(self) -> dict[str, object]:
        """As JSON can hold it: what is not finite as a word."""
        metrics = {name: value if math.isfinite(value) else str(value) for name, value in self.metrics.items()}
        return {"env_steps": self.env_steps, "metrics": metrics, "arrays_not_finite": self.arrays}


def require_finite(metrics: dict[str, float], learner: LearnerState, env_steps: int) -> None:
    """Raise `NotFiniteError` with all that can be seen. Of parameters and Adam's moments alike."""
    if all(map(math.isfinite, metrics.values())) and bool(_all_finite(learner)):
        return
    raise NotFiniteError(env_steps, metrics, _not_finite(learner))


@jax.jit
def _all_finite(learner: LearnerState) -> Array:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(learner)]))


def _not_finite(learner: LearnerState) -> dict[str, str]:
    """{"params/actor/out/bias": "3 of 8 numbers not finite"}"""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(learner):
        if count := int(np.sum(~np.isfinite(leaf))):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            found[name] = f"{count} of {np.size(leaf)} numbers not finite"
    return found
