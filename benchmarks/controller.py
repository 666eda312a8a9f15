"""How well the controller keeps its rate on this machine, under whatever load it has at the moment.

    python benchmarks/controller.py [POLICY] [--rates 50 100 500] [--seconds 10]

POLICY is a file of `dcp export`; without one a NumPy network of two layers of 256 stands in. Reads and sends cost
nothing here, so what is left is the clock, the machine's scheduler, the checks and the policy. Under Linux a real-time
priority (`chrt -f 50 python ...`, as root) shows what the scheduler's share is.
"""

import argparse
import os
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from timing import report as print_json

from dcp.policies.exports import load_exported
from dcp.robots import Controller


class StandIn:
    """State [27], goal [2] -> action [8], as an ant's."""

    state_size, goal_size, action_size = 27, 2, 8

    def __init__(self):
        random, sizes = np.random.default_rng(0), (29, 256, 256, 8)
        self._kernels = [random.normal(0.0, a**-0.5, (a, b)).astype(np.float32) for a, b in pairwise(sizes)]

    def __call__(self, state: np.ndarray, goal: np.ndarray) -> np.ndarray:
        x = np.concatenate([state, goal]).astype(np.float32)
        for kernel in self._kernels:
            x = np.tanh(x @ kernel)
        return x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy", nargs="?")
    parser.add_argument("--rates", type=float, nargs="+", default=[50, 100, 500])
    parser.add_argument("--seconds", type=float, default=10.0)
    args = parser.parse_args()

    policy = load_exported(args.policy) if args.policy else StandIn()
    state, goal = np.zeros(policy.state_size), np.ones(policy.goal_size)
    numbers = {}
    for rate in args.rates:
        controller = Controller(
            policy,
            lambda: state,
            lambda: goal,
            lambda action: None,
            rate_hz=rate,
            safe_action=np.zeros(policy.action_size),
            stale_after=2.0,
            max_overruns=None,
        )
        report = controller.run(seconds=args.seconds)
        print(report, end="\n\n", flush=True)
        for name in ("p50", "p99", "max"):
            numbers[f"period_{rate:g}_hz_{name}_ms"] = getattr(report.period, name)
        numbers[f"overruns_{rate:g}_hz"] = report.overruns
        numbers[f"compute_{rate:g}_hz_p50_ms"] = report.compute.p50
    print_json(**numbers, load_average=os.getloadavg()[0], cores=os.cpu_count())


if __name__ == "__main__":
    main()
