"""What a single deployed step costs, and what direction conditioning adds to it: DCP against CRL, in every form.

The paper's networks (two hidden layers of 256, 64 numbers of psi) at ant_u_maze's sizes (S 29, G 2, A 8), with random
weights: time does not depend on them. All forms take turns in one process. `dcp_over_crl` is of the NumPy form, with
psi_g(goal) kept between steps; `new_goal` is the same step with another goal each time, so that nothing is kept;
`cold` is the NumPy step after 32 MB of other work, as in a robot's loop: the weights have left the nearest caches.
"""

import argparse
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: a step is too small to be shared out

sys.path.insert(0, str(Path(__file__).parent))
import jax
import numpy as np
from timing import report

from dcp.cli.export import Case, Latency, Step, measure
from dcp.config import Config
from dcp.learner import Learner
from dcp.methods.table import make_agent
from dcp.policies.exports import ENDINGS, encode, load_exported
from dcp.policies.policy import DeployedPolicy
from dcp.types import EnvSpec

ANT = EnvSpec("ant_u_maze", 29, 2, 8, (0, 1), 0.5, 1000)
PAIR = ("crl", "dcp")
Key = tuple[str, str, bool]  # form, method, same goal


def untrained(method: str) -> DeployedPolicy:
    config = Config(method=method)
    learner = Learner(config, ANT, make_agent(config, ANT))
    params, agent = learner.init(jax.random.key(0)).params, learner.agent
    return DeployedPolicy(ANT, learner.network, agent.critic, agent.condition, params.actor, params.critic)


def cases() -> dict[Key, Case]:
    """Form by form, so that the two methods of a form are neighbours in time."""
    policies = {method: untrained(method) for method in PAIR}
    found: dict[Key, Case] = {}
    with TemporaryDirectory() as folder:
        for form in ("jax", *ENDINGS):
            steps = {method: step_of(policy, form, Path(folder) / method) for method, policy in policies.items()}
            for same in (True, False):
                for method, step in steps.items():
                    found[form, method, same] = Case(step, ANT.state_size, ANT.goal_size, same)
    return found


def step_of(policy: DeployedPolicy, form: str, path: Path) -> Step:
    if form == "jax":
        return policy
    path = path.with_suffix(ENDINGS[form])
    path.write_bytes(encode(policy, form, {}))
    return load_exported(path)


def cold(warm: dict[Key, Case]) -> dict[str, float]:
    other_work = np.zeros(32 * 2**20, np.uint8)

    def evict() -> None:
        np.add(other_work, 1, other_work)

    found = measure({method: warm["numpy", method, True]._replace(before=evict) for method in PAIR}, steps=300)
    return {f"{method}_cold_p50_microseconds": latency.p50 for method, latency in found.items()}


def figures(times: dict[Key, Latency]) -> dict[str, float]:
    """By key: the NumPy form without a prefix, the others with theirs."""
    rows: dict[str, float] = {}
    for (form, method, same), latency in times.items():
        prefix = _prefix(form) + method + ("" if same else "_new_goal")
        rows |= {f"{prefix}_p50_microseconds": latency.p50, f"{prefix}_p99_microseconds": latency.p99}
    for form in ("jax", *ENDINGS):
        crl = times[form, "crl", True]
        rows[f"{_prefix(form)}dcp_over_crl"] = times[form, "dcp", True].over(crl)
        rows[f"{_prefix(form)}dcp_new_goal_over_crl"] = times[form, "dcp", False].over(crl)
    return rows


def _prefix(form: str) -> str:
    return "" if form == "numpy" else f"{form}_"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5000)
    steps = parser.parse_args().steps
    made = cases()
    report(**figures(measure(made, steps)), **cold(made))


if __name__ == "__main__":
    main()
