"""A critic of two: one values actions, the other embeds goals. The paper's third future direction.

The actor sees directions in the embedding's psi and maximises the other's value, so what a representation does can be
told from what the actor's interface does. `--critic sac+contrastive`, or `Pair(value=SAC(), embedding=Contrastive())`.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax

from dcp.critics.contrastive import Contrastive
from dcp.critics.value import SAC
from dcp.interfaces import (
    ActorRule,
    Critic,
    CriticState,
    Hindsight,
    Problem,
    Representation,
    hindsight_of,
    part_for_task,
)
from dcp.types import Array, Batch, EnvSpec, Metrics, Params


@dataclass(frozen=True)
class Pair:
    """Train both critics on the same batch, each by its own loss; the sum's gradients do not meet."""

    value: Critic = SAC()  # noqa: RUF009
    embedding: Critic = Contrastive()  # noqa: RUF009

    def halves(self) -> dict[str, Critic]:
        """Return both critics by the names of their settings."""
        return {"value": self.value, "embedding": self.embedding}

    @property
    def needs(self) -> frozenset[str]:
        return self.value.needs | self.embedding.needs | {"future_goal", "future_steps"}

    @property
    def gives(self) -> frozenset[str]:
        return self.embedding.gives

    @property
    def repr_dim(self) -> int:
        return self.embedding.repr_dim

    @property
    def hindsight(self) -> Hindsight:
        return hindsight_of(self.value)

    @property
    def actor_rule(self) -> ActorRule | None:
        return getattr(self.value, "actor_rule", None)

    def for_task(self, spec: EnvSpec, episode_length: int) -> "Pair":
        """Fill in what the task decides in both."""
        halves = {name: part_for_task(half, spec, episode_length) for name, half in self.halves().items()}
        return replace(self, **halves)

    def init(self, keys: Array, problem: Problem) -> CriticState:
        of_value, of_embedding = (jax.vmap(lambda key, n=n: jax.random.fold_in(key, n))(keys) for n in (0, 1))
        value, embedding = self.value.init(of_value, problem), self.embedding.init(of_embedding, problem)
        return CriticState(
            {"value": value.params, "embedding": embedding.params},
            {"value": value.carried, "embedding": embedding.carried},
        )

    def loss(self, problem: Problem, params: Params, carried: Any, batch: Batch, key: Array) -> tuple[Array, Metrics]:
        """Return the sum of both losses. A goal that is not in its row's own future serves only as a negative."""
        assert batch.future_steps is not None
        value, of_value = self.value.loss(problem, params["value"], carried["value"], batch, key)
        own = batch.future_steps > 0  # [B]
        own_pairs = batch._replace(valid=own if batch.valid is None else own & batch.valid)
        embedding, of_embedding = self.embedding.loss(
            problem, params["embedding"], carried["embedding"], own_pairs, jax.random.fold_in(key, 1)
        )
        metrics = {**of_value, **{f"embedding_{name.removeprefix('critic_')}": x for name, x in of_embedding.items()}}
        return value + embedding, metrics

    def after(self, problem: Problem, params: Params, carried: Any) -> Any:
        return {name: half.after(problem, params[name], carried[name]) for name, half in self.halves().items()}

    def representation(self, problem: Problem, params: Params) -> Representation:
        embedding = self.embedding.representation(problem, params["embedding"])
        return embedding._replace(value=self.value.representation(problem, params.get("value", {})).value)

    def deployed(self, params: Params) -> Params:
        """Return the parameters that a policy reads: the embedding's."""
        keep = getattr(self.embedding, "deployed", None)
        return {"embedding": params["embedding"] if keep is None else keep(params["embedding"])}
