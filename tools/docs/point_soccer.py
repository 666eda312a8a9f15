"""The paper's prediction on point_soccer: does a pool seeded with displaced balls help DCP?

    python -m tools.docs.point_soccer run --out /somewhere/outside       # 54 runs, two programs at a time, one a core
    python -m tools.docs.point_soccer collect --out /somewhere/outside   # -> docs/results/point_soccer.csv
    python -m tools.docs.point_soccer diagnose --out /somewhere/outside  # -> docs/results/point_soccer_diagnosis.csv
    python -m tools.docs.point_soccer make                               # the figure and tables, from the CSVs

Arms x five seeds on point_soccer and point_soccer_slick; two arms, two seeds on point_push. Every run is
`--preset laptop` with the overrides below and nothing else, the same for every arm; an arm's seeds are one program.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from dcp.lab.curves import Columns, plot_methods
from dcp.lab.run_collection import METRICS
from dcp.lab.statistics import holm, paired_test, t_interval
from dcp.lab.style import house_style, save
from tools.docs.pages import RESULTS, ROOT, put

CSV = RESULTS / "point_soccer.csv"
DIAGNOSES = RESULTS / "point_soccer_diagnosis.csv"
EPISODES = 256
COMMON: dict[str, Any] = {"final_goal_share": 0.0, "min_replay_rows": 500, "num_evals": 6}
# The first fitted into an hour. No curve had settled by then, so all arms continued to the preset's own budget.
BUDGETS: dict[str, tuple[int, ...]] = {
    "point_soccer": (1_200_000, 3_000_000),
    "point_push": (1_200_000,),
    "point_soccer_slick": (1_200_000,),
}
SEEDED = {"method": "dcp", "pool_seed": "seed.npz", "pool_seed_fraction": 0.25}
ARMS: dict[str, dict[str, Any]] = {
    "crl": {"method": "crl"},
    "dcp": {"method": "dcp"},
    "dcp, seeded pool": SEEDED,
    "dcp, seeded pool and critic": {**SEEDED, "pool_seed_in_critic": True},
}
# Asked when the four above were known: is CRL's distance the actor's goal's, and what does the pool do at all?
LATER: dict[str, dict[str, Any]] = {
    "crl-commanded": {"method": "crl", "actor_goal": "commanded"},
    "dcp_no_pool": {"method": "dcp_no_pool"},
}
BOTH: dict[str, dict[str, Any]] = {"crl": {"method": "crl"}, "dcp": {"method": "dcp"}}
STUDIES: dict[str, tuple[dict[str, dict[str, Any]], tuple[int, ...]]] = {
    "point_soccer": (ARMS | LATER, (0, 1, 2, 3, 4)),
    "point_push": (BOTH, (0, 1)),
    "point_soccer_slick": (ARMS, (0, 1, 2, 3, 4)),
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
        seeds = [sys.executable, "-m", "tools.docs.soccer_seeds", "point_soccer", str(out.resolve() / "seed.npz")]
        subprocess.run(seeds, cwd=ROOT, check=True)
    cores: Queue[int] = Queue()
    for core in sorted(os.sched_getaffinity(0)):
        cores.put(core)

    def run_one(job: tuple[str, str]) -> None:
        study, arm = job
        core = cores.get()
        try:
            for steps in BUDGETS[study]:
                asked = command(out, study, arm, core, steps)
                result = subprocess.run(asked, cwd=out, capture_output=True, text=True, env=one_core())
                print(f"{study} | {arm} | {steps}: {(result.stdout or result.stderr).splitlines()[-1:]}", flush=True)
        finally:
            cores.put(core)

    jobs = [(study, arm) for study, (arms, _) in STUDIES.items() for arm in arms]
    with ThreadPoolExecutor(cores.qsize()) as pool:
        list(pool.map(run_one, jobs))


def command(out: Path, study: str, arm: str, core: int, steps: int) -> list[str]:
    """A run that has this budget already is left as it is, one with a smaller budget goes on."""
    arms, seeds = STUDIES[study]
    flags = ["--env", study, "--seeds", *(str(seed) for seed in seeds), "--seeds-as", "vmapped"]
    for name, value in {**COMMON, **arms[arm], "steps": steps}.items():
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
    scores = {"env_steps": 0, "success_once": np.mean(np.any(near, axis=0)), "final_distance": distance.mean()}
    return {**scores, "time_near_goal": np.mean(np.sum(near, axis=0))}


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
                        print(f"missing: {study} | {arm} | seed {seed}")
                        continue
                    for row in csv.DictReader(path.open()):
                        values = [row.get(name, "") for name in KEPT]
                        writer.writerow([study, arm, seed, *(f"{float(v):.6g}" if v else "" for v in values)])


def diagnose(out: Path) -> None:
    """`dcp diagnose` of every run: how far actions can move the ball, and along what psi asks for."""
    studies = {name: study for name, study in STUDIES.items() if name.startswith("point_soccer")}
    runs = {
        (study, arm, seed): folder(out, study, arm, seed)
        for study, (arms, seeds) in studies.items()
        for arm in arms
        for seed in seeds
    }
    asked = [sys.executable, "-m", "dcp.cli.main", "diagnose", *map(str, runs.values()), "--only", "controllability"]
    subprocess.run([*asked, "--no-figures"], cwd=out, check=True)
    rows = []
    for (study, arm, seed), run in runs.items():
        names, cosine = {"study": study, "arm": arm, "seed": seed}, common_cosine(run)
        rows.append({**names, **_controllability(run), "cosine, common places": f"{cosine:.4g}"})
    with DIAGNOSES.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _controllability(run: Path) -> dict[str, str]:
    by_steps = json.loads((run / "diagnosis" / "diagnosis.json").read_text())["controllability"]["steps"]
    names = [(what, k) for what in ("movable", "share", "cosine") for k in (1, 10, 50)]
    means = {f"{what}, k = {k}": by_steps[str(k)][what]["mean"] for what, k in names}
    return {name: "" if mean is None else f"{mean:.4g}" for name, mean in means.items()}


def common_cosine(run: Path, pairs: int = 2000) -> float:
    """Of -grad d_psi with the straight way, at places of ball and goal that are the same for every agent.

    psi_g reads the ball alone, so this needs no states: the ball anywhere within the circle of goals, the goal on it.
    """
    import jax
    import jax.numpy as jnp

    from dcp import load_policy
    from dcp.envs.point_tasks import CENTRE, TARGET_DISTANCE
    from dcp.methods.more_conditions import pulled_back

    policy, (key_angle, key_radius, key_goal) = load_policy(run), jax.random.split(jax.random.key(0), 3)
    angle, other = (jax.random.uniform(key, (pairs, 1), maxval=2 * jnp.pi) for key in (key_angle, key_goal))
    radius = TARGET_DISTANCE * jnp.sqrt(jax.random.uniform(key_radius, (pairs, 1)))
    ball = jnp.array([CENTRE]) + radius * jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=1)
    goal = jnp.array([CENTRE]) + TARGET_DISTANCE * jnp.concatenate([jnp.cos(other), jnp.sin(other)], axis=1)
    learned = jax.vmap(lambda a, b: pulled_back(policy.representation, a, b))(ball, goal)
    way = goal - ball
    lengths = jnp.linalg.norm(learned, axis=1) * jnp.linalg.norm(way, axis=1)
    return float(jnp.mean(jnp.sum(learned * way, axis=1) / jnp.maximum(lengths, 1e-12)))


# The tables and the figure, from the two CSV files alone.

RANDOM = "random actions"
PAIRS = (
    ("dcp", "crl"),
    ("dcp, seeded pool", "dcp"),
    ("dcp, seeded pool and critic", "dcp"),
    ("dcp, seeded pool and critic", "dcp, seeded pool"),
    ("crl-commanded", "crl"),
    ("dcp", "crl-commanded"),
    ("dcp", "dcp_no_pool"),
)
FIRST = 1_200_000  # environment steps of the first budget
COMMON_COSINE = "cosine, common places"
DIAGNOSED = ("movable, k = 1", "movable, k = 50", "cosine, k = 1", COMMON_COSINE)  # of the controllability

Runs = dict[str, dict[str, list[Columns]]]  # study -> arm -> one record per seed


def read() -> Runs:
    rows: dict[tuple[str, str, str], list[dict[str, str]]] = defaultdict(list)
    for row in csv.DictReader(CSV.open()):
        rows[row["study"], row["arm"], row["seed"]].append(row)
    runs: Runs = defaultdict(lambda: defaultdict(list))
    for (study, arm, _), records in rows.items():
        names = [name for name in records[0] if name not in ("study", "arm", "seed") and records[0][name]]
        runs[study][arm].append({name: np.array([float(row[name]) for row in records]) for name in names})
    return runs


def last(runs: list[Columns], metric: str, scale: float = 1.0) -> np.ndarray:
    return scale * np.array([run[metric][-1] for run in runs])


def whole(runs: list[Columns], metric: str, scale: float = 1.0) -> np.ndarray:
    return scale * np.array([run[metric].mean() for run in runs])


def early(runs: list[Columns], metric: str, scale: float = 1.0) -> np.ndarray:
    """At the end of the first budget"""
    return scale * np.array([run[metric][np.argmax(run["env_steps"] >= FIRST)] for run in runs])


def results_table(arms: dict[str, list[Columns]]) -> str:
    """Success at the end of the first budget too, where a run went on after it."""
    longer = any(run["env_steps"][-1] > 2 * FIRST for runs in arms.values() for run in runs)
    columns = {"success at 1.2M steps (%)": (early, "success_once", 100.0, 1)} if longer else {}
    columns |= {
        "success, last (%)": (last, "success_once", 100.0, 1),
        "time near goal, last": (last, "time_near_goal", 1.0, 1),
    }
    lines = [_line(["", *columns]), "|---" * (len(columns) + 1) + "|"]
    for arm, runs in arms.items():
        cells = [_interval(of(runs, metric, scale), digits) for of, metric, scale, digits in columns.values()]
        lines.append(_line([arm, *cells]))
    return "\n".join(lines)


def paired_table(arms: dict[str, list[Columns]]) -> str:
    """Holm's correction is over all tests of the table."""
    ways = {"last": last, "mean over the run": whole}
    pairs = [pair for pair in PAIRS if set(pair) <= set(arms)]
    tests = []
    for ours, theirs in pairs:
        for of in ways.values():
            sides = [dict(enumerate(of(arms[arm], "success_once", 100.0))) for arm in (ours, theirs)]
            tests.append(paired_test(*sides))
    corrected = holm([test.p_value for test in tests])
    cells = iter([f"{t.difference}, p {_p(t.p_value)} ({_p(p)})" for t, p in zip(tests, corrected, strict=True)])
    lines = [_line(["difference", *ways]), "|---" * (len(ways) + 1) + "|"]
    for ours, theirs in pairs:
        lines.append(_line([f"{ours} less {theirs}", *(next(cells) for _ in ways)]))
    return "\n".join(lines)


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def diagnosis_table(study: str) -> str:
    """Means over seeds of what `dcp diagnose` measured at the states that each agent visits."""
    rows = [row for row in csv.DictReader(DIAGNOSES.open()) if row["study"] == study]
    head = ["", *DIAGNOSED]
    lines = [_line(head), "|---" * len(head) + "|"]
    for arm in dict.fromkeys(row["arm"] for row in rows):
        mine = [row for row in rows if row["arm"] == arm]
        cells = [arm]
        for name in head[1:]:
            values = np.array([float(row[name]) for row in mine if row[name]])
            cells.append(_interval(values, 2) if len(values) else "")
        lines.append(_line(cells))
    return "\n".join(lines)


def curves_figure(arms: dict[str, list[Columns]]) -> Figure:
    with house_style():
        figure = Figure(figsize=(9.2, 3.4), layout="constrained")
        for axes, metric in zip(figure.subplots(1, len(METRICS)), METRICS, strict=True):
            plot_methods(axes, {arm: runs for arm, runs in arms.items() if arm != RANDOM}, metric)
            axes.set_title("point_soccer")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def make() -> None:
    runs = read()
    arms = runs["point_soccer"]
    save(curves_figure(arms), RESULTS / "point_soccer.png")
    put("soccer", results_table(arms))
    for study in ("point_soccer", "point_soccer_slick"):
        print(f"{study}\n\n{results_table(runs[study])}\n\n{paired_table(runs[study])}\n\n{diagnosis_table(study)}\n")
    print(f"point_push\n\n{results_table(runs['point_push'])}")


def _interval(values: np.ndarray, digits: int) -> str:
    """Two seeds make no interval worth the name: both numbers are given instead."""
    if len(values) < 3:
        return ", ".join(f"{value:.{digits}f}" for value in values)
    interval = t_interval(values)
    return f"{interval.mean:.{digits}f} ± {interval.half_width:.{digits}f}"


def _line(cells) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "collect", "diagnose", "make"])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "make":
        make()
    else:
        {"run": run_all, "collect": collect, "diagnose": diagnose}[arguments.what](arguments.out)
