"""Policies as they are before training, for tests that need one and no run."""

from typing import Any

import jax

from dcp.config import Config
from dcp.learner import Learner
from dcp.methods.table import make_agent
from dcp.policies.policy import DeployedPolicy
from dcp.types import EnvSpec


def learner_of(spec: EnvSpec, **settings: Any) -> Learner:
    config = Config(**settings)
    return Learner(config, spec, make_agent(config, spec))


def untrained_policy(spec: EnvSpec, seed: int = 0, **settings: Any) -> DeployedPolicy:
    learner = learner_of(spec, **settings)
    params = jax.jit(learner.init)(jax.random.key(seed)).params
    agent = learner.agent
    return DeployedPolicy(spec, learner.network, agent.critic, agent.condition, params.actor, params.critic)
