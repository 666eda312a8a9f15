"""The paper's prediction on point_soccer: does a pool seeded with displaced balls help DCP?

    python docs/results/point_soccer.py run --out /somewhere/outside       # 22 runs, two at a time, one a core
    python docs/results/point_soccer.py collect --out /somewhere/outside   # -> docs/results/point_soccer.csv
    python docs/results/point_soccer.py diagnose --out /somewhere/outside  # -> docs/results/point_soccer_diagnosis.csv
    python docs/results/point_soccer.py make                               # tables and figure, from the CSV alone

Four arms x five seeds, then point_push: CRL and DCP, two seeds. Every run is `--preset laptop` with the overrides below
and nothing else, the same for every arm; seeds of an arm are one program (`dcp train --seeds`).
"""

import argparse
import csv
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

HERE = Path(__file__).parent
CSV = HERE / "point_soccer.csv"
DIAGNOSES = HERE / "point_soccer_diagnosis.csv"
EPISODES = 256
COMMON: dict[str, Any] = {"final_goal_share": 0.0, "min_replay_rows": 500, "steps": 1_200_000, "num_evals": 6}
SEEDED = {"method": "dcp", "pool_seed": "seed.npz", "pool_seed_fraction": 0.25}
ARMS: dict[str, dict[str, Any]] = {
    "crl": {"method": "crl"},
    "dcp": {"method": "dcp"},
    "dcp, seeded pool": SEEDED,
    "dcp, seeded pool and critic": {**SEEDED, "pool_seed_in_critic": True},
}
STUDIES: dict[str, tuple[dict[str, dict[str, Any]], tuple[int, ...]]] = {
    "point_soccer": (ARMS, (0, 1, 2, 3, 4)),
    "point_push": ({"crl": {"method": "crl"}, "dcp": {"method": "dcp"}}, (0, 1)),
}
KEPT = ("env_steps", "updates", "success_once", "time_near_goal", "final_distance", "infonce_accuracy")
KEPT += ("pool_spread", "time_at_subgoal", "train_near_goal", "wall_seconds")


def runs_dir(out: Path, study: str, arm: str) -> Path:
    return out / study / arm.replace(", ", "__").replace(" ", "_")


def folder(out: Path, study: str, arm: str, seed: int) -> Path:
    return runs_dir(out, study, arm) / study / STUDIES[study][0][arm]["method"] / f"seed_{seed}"


def run_all(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    if not (out / "seed.npz").exists():
        subprocess.run([sys.executable, HERE / "make_seed.py", "point_soccer", out / "seed.npz"], check=True)
    cores: Queue[int] = Queue()
    for core in sorted(os.sched_getaffinity(0)):
        cores.put(core)

    def run_one(job: tuple[str, str]) -> None:
        study, arm = job
        core = cores.get()
        try:
            asked = command(out, study, arm, core)
            result = subprocess.run(asked, cwd=out, capture_output=True, text=True, env=one_core())
        finally:
            cores.put(core)
        print(f"{study} | {arm}: {(result.stdout or result.stderr).splitlines()[-1:]}", flush=True)

    jobs = [(study, arm) for study, (arms, _) in STUDIES.items() for arm in arms]
    with ThreadPoolExecutor(cores.qsize()) as pool:
        list(pool.map(run_one, jobs))


def command(out: Path, study: str, arm: str, core: int) -> list[str]:
    arms, seeds = STUDIES[study]
    flags = ["--env", study, "--seeds", *(str(seed) for seed in seeds), "--seeds-as", "vmapped"]
    for name, value in {**COMMON, **arms[arm]}.items():
        flag = f"--{name.replace('_', '-')}"
        flags += [flag] if value is True else [flag, str(value)]
    program = ["nice", "-n", "5", "taskset", "-c", str(core), sys.executable, "-m", "dcp.cli.main", "train"]
    where = ["--runs-dir", str(runs_dir(out, study, arm)), "--resume", "auto", "--no-plots", "--display", "none"]
    return [*program, "--preset", "laptop", *flags, *where]


def one_core() -> dict[str, str]:
    return os.environ | {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}


def random_actions(study: str, seed: int) -> dict[str, float]:
    """What uniformly random actions reach: the level of chance."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from dcp.envs.registry import make_env

    env, key = make_env(study), jax.random.key(seed)
    first = jax.vmap(env.reset)(jax.random.split(key, EPISODES))

    def step(state, key):
        actions = jax.random.uniform(key, (EPISODES, env.spec.action_size), minval=-1.0)
        state = jax.vmap(env.step)(state, actions)
        return state, state.near_goal

    end, near = jax.jit(lambda: jax.lax.scan(step, first, jax.random.split(key, env.spec.episode_length)))()
    state, goal = env.spec.split(np.asarray(end.obs))
    distance = jnp.linalg.norm(env.spec.achieved(state) - goal, axis=-1)
    found = {"env_steps": 0, "success_once": np.mean(np.any(near, axis=0)), "final_distance": distance.mean()}
    return {**found, "time_near_goal": np.mean(np.sum(near, axis=0))}


def collect(out: Path) -> None:
    """Every evaluation of every run, and what chance reaches."""
    with CSV.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["study", "arm", "seed", *KEPT])
        for study, (arms, seeds) in STUDIES.items():
            for seed in seeds:
                chance = random_actions(study, seed)
                writer.writerow(
                    [study, "random actions", seed, *(f"{chance[n]:.6g}" if n in chance else "" for n in KEPT)]
                )
            for arm in arms:
                for seed in seeds:
                    path = folder(out, study, arm, seed) / "metrics.csv"
                    if not path.exists():
                        print(f"not there: {study} | {arm} | seed {seed}")
                        continue
                    for row in csv.DictReader(path.open()):
                        values = [row.get(name, "") for name in KEPT]
                        writer.writerow([study, arm, seed, *(f"{float(v):.6g}" if v else "" for v in values)])


def diagnose(out: Path) -> None:
    """`dcp diagnose` of every finished run: how far actions can move the ball, and along what psi asks for."""
    rows = []
    for arm in ARMS:
        for seed in STUDIES["point_soccer"][1]:
            run = folder(out, "point_soccer", arm, seed)
            asked = [sys.executable, "-m", "dcp.cli.main", "diagnose", str(run), "--only", "controllability"]
            subprocess.run([*asked, "--no-figures"], cwd=out, check=True, capture_output=True)
            rows.append({"arm": arm, "seed": seed, **_controllability(run)})
            print(rows[-1], flush=True)
    with DIAGNOSES.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _controllability(run: Path) -> dict[str, str]:
    found = json.loads((run / "diagnosis" / "diagnosis.json").read_text())["controllability"]
    columns = {}
    for what in ("movable", "share", "cosine"):
        for k in (1, 10, 50):
            value = found[str(k)][what]["value"]
            columns[f"{what}, k = {k}"] = "" if value is None else f"{value:.4g}"
    return columns


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "collect", "diagnose", "make"])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "make":
        from point_soccer_page import make

        make()
    else:
        {"run": run_all, "collect": collect, "diagnose": diagnose}[arguments.what](arguments.out)
