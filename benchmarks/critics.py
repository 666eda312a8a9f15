"""One update of each critic at the ant's sizes, as ratios to the contrastive critic's, all in one run.

On one core, as `dcp grid` trains, by the process's own clock, in turns; the least of the rounds counts. With NPROC=2 on
two cores by the median of the wall clock, where gcbc and IQE lose by a second core and the others gain.

`ratios`: milliseconds of an update over those of `contrastive` with the same backbone. `flops`: the same of XLA's count
of floating-point operations. `excess`: the one over the other; above 1.3 a critic is slower than its arithmetic says.
XLA counts a loop's body once, so the count is of a form that does at once what IQE does in a loop.
ChronoSRL and the contrastive critic it is compared with are also measured with the residual backbone at depth 4.
"""

import os

os.environ.setdefault("NPROC", "1")

import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp

sys.path.insert(0, str(Path(__file__).parent))
from timing import in_turns, least_in_turns, report

from dcp.config import Config
from dcp.interfaces import hindsight_of
from dcp.learner import Learner
from dcp.machine.compiling import compiler_options
from dcp.methods.table import CRITICS, make_agent, needs
from dcp.replay import relabel
from dcp.types import Array, Batch, EnvSpec, Transition

ANT = EnvSpec("ant", state_size=29, goal_size=2, action_size=8, goal_dims=(0, 1), threshold=0.5, episode_length=1000)
ONE_CORE = os.environ["NPROC"] == "1"
if ONE_CORE and hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
UPDATES, BATCH, ROUNDS = 32, 256, 5  # in a call: so many that its own cost does not count
DEEP = {"network": "residual", "depth": 4}


def batches(learner: Learner, key: Array) -> Batch:
    """[UPDATES, B, ...] of random walks, with whatever the critic needs."""
    keys, length, num_envs = jax.random.split(key, 3), 1000, 9
    walk = jnp.cumsum(0.1 * jax.random.normal(keys[0], (length, num_envs, 29)), axis=0)
    windows = Transition(
        walk, jax.random.uniform(keys[1], (length, num_envs, 8), minval=-1.0), walk[..., :2],
        jnp.zeros((length, num_envs), jnp.int32), jnp.zeros((length, num_envs), bool),
    )  # fmt: skip
    hindsight = hindsight_of(learner.agent.critic)
    pairs = relabel(windows, ANT, 0.99, keys[2], needs(learner.agent), hindsight)
    return jax.tree.map(lambda x: x[: UPDATES * BATCH].reshape(UPDATES, BATCH, *x.shape[1:]), pairs)


def program(critic: str, **settings: Any) -> tuple[Any, float]:
    """-> a call of UPDATES updates in a scan, as training makes them, and XLA's count of the scan's FLOPs"""
    config = Config(method="crl", critic=critic, **settings).resolve(ANT.episode_length)
    learner = Learner(config, ANT, make_agent(config, ANT))
    data = jax.jit(lambda key: batches(learner, key))(jax.random.key(1))
    keys = jax.random.split(jax.random.key(2), UPDATES)
    state = jax.jit(learner.init)(jax.random.key(0))

    def run(state: Any, data: Any) -> Any:
        noise = jax.vmap(learner.noise, in_axes=(0, None))(keys, BATCH)
        return jax.lax.scan(lambda s, x: learner.step(s, x[0], x[1], key=x[2]), state, (data, noise, keys))[0]

    def compiled() -> Any:
        return jax.jit(lambda *args: run(*args), compiler_options=compiler_options()).lower(state, data).compile()

    work = compiled()
    with patch.object(jax.lax, "map", lambda function, xs: jax.vmap(function)(xs)):
        counted = compiled() if critic == "quasimetric" else work
    return (lambda: work(state, data)), float((counted.cost_analysis() or {}).get("flops", 0.0))


def compared(cases: dict[str, dict[str, Any]], base: str) -> dict[str, dict[str, float]]:
    made = {name: program(**case) for name, case in cases.items()}
    measure = least_in_turns if ONE_CORE else in_turns
    seconds = measure({name: work for name, (work, _) in made.items()}, ROUNDS)
    milliseconds = {name: 1e3 * s / UPDATES for name, s in seconds.items()}
    ratios = {name: ms / milliseconds[base] for name, ms in milliseconds.items()}
    flops = {name: made[name][1] / made[base][1] for name in made}
    excess = {name: ratios[name] / flops[name] for name in made}
    return {"milliseconds": milliseconds, "ratios": ratios, "flops": flops, "excess": excess}


def main() -> None:
    plain: dict[str, dict[str, Any]] = {name: {"critic": name} for name in CRITICS}
    plain["quasimetric_iqe"] = {"critic": "quasimetric", "component_settings": {"critic.quasimetric": "iqe"}}
    found = compared(plain, "contrastive")
    deep = compared({name: {"critic": name, **DEEP} for name in ("contrastive", "chronosrl")}, "contrastive")
    for key, values in deep.items():
        found[key] |= {f"{name}_depth_4": value for name, value in values.items()}
    report(**{key: {name: round(value, 3) for name, value in values.items()} for key, values in found.items()})


if __name__ == "__main__":
    main()
