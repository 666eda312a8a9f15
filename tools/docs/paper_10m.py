"""Make the figures and tables of docs/results_paper.md, the paper's comparison with seeds, from the ledger alone.

    python -m tools.docs.paper_10m deploy     # every policy with and without bursts -> paper_10m_deploy.csv
    python -m tools.docs.paper_10m            # figures and tables, from ledger/ and that CSV

The runs are those of paper_10m.toml; `python -m tools.ledger add` put them into ledger/.
"""

import csv
import sys
from collections import defaultdict

import numpy as np
from matplotlib.figure import Figure

from dcp.lab import paper_values
from dcp.lab.curves import methods_figure
from dcp.lab.landscape_figure import landscapes_figure
from dcp.lab.psi_landscape import maze_env, view
from dcp.lab.run_collection import METRICS, Collection, collect
from dcp.lab.statistics import t_interval
from dcp.lab.style import colours, save
from dcp.lab.targets import open_target
from dcp.lab.trial import evaluate
from tools.docs.pages import RESULTS, ROOT, put
from tools.ledger.entries import check_all
from tools.ledger.tables import tables

LEDGER = ROOT / "ledger"
DEPLOYED = RESULTS / "paper_10m_deploy.csv"
ENVIRONMENTS = ("ant_u_maze", "pusher_hard", "ant_soccer")  # docs/results_paper.md has markers for each
EPISODES = 256
LAST = 5  # evaluations


def deploy(collection: Collection) -> None:
    """Evaluate each policy on the same 256 episodes with and without the paper's bursts; a row for each.

    Rows of policies that the CSV already has are kept.
    """
    rows, known = [], {}
    if DEPLOYED.is_file():
        with DEPLOYED.open(newline="") as file:
            known = {(row["env"], row["method"], row["seed"], row["env_steps"]): row for row in csv.DictReader(file)}
    for env in ENVIRONMENTS:
        for method in collection.methods:
            for run in collection.of(env, method):
                if kept := known.get((env, method, str(run.seed), str(int(run.env_steps)))):
                    rows.append(kept)
                    continue
                plain = evaluate(run.folder, episodes=EPISODES).all.summary()
                burst = evaluate(run.folder, episodes=EPISODES, burst=paper_values.burst_setting()).all.summary()
                row = {"env": env, "method": method, "seed": run.seed, "env_steps": int(run.env_steps)}
                scores = {"reach": plain["success_once"], "with_burst": burst["success_once"]}
                rows.append(row | scores | {"saturation": plain["saturation"]})
                print(rows[-1], flush=True)
    if not rows:
        raise SystemExit(f"{LEDGER} has no run of {', '.join(ENVIRONMENTS)}: add one with `python -m tools.ledger add`")
    with DEPLOYED.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def curves(collection: Collection, env: str) -> Figure:
    """Draw our seeds, and the paper's values with their intervals where it has them."""
    runs = {method: collection.of(env, method) for method in collection.methods if collection.of(env, method)}
    title = f"{env}, the paper's settings; dots with bars: the paper, five seeds"
    figure = methods_figure({method: [run.metrics for run in seeds] for method, seeds in runs.items()}, title)
    colour_of = colours(list(runs))
    for axes, metric in zip(figure.axes, METRICS, strict=True):
        for shift, method in enumerate(runs):
            for steps in (at for at in paper_values.CHECKPOINTS if at <= max(run.budget for run in runs[method])):
                if value := paper_values.checkpoint(metric, env, method, steps):
                    at = steps * (1.0 - 0.012 * shift)
                    axes.errorbar(at, *value, color=colour_of[method], fmt="o", capsize=3, markersize=4)
    return figure


def last_five_table(collection: Collection, env: str) -> str:
    """Return each seed's mean over its last five evaluations, which move less than one does, and DCP minus CRL."""
    means = {
        method: {run.seed: 100 * float(np.mean(run.metrics["success_once"][-LAST:])) for run in runs}
        for method in collection.methods
        if (runs := collection.of(env, method))
    }
    seeds = sorted({seed for values in means.values() for seed in values})
    lines = ["| success (%), last five | " + " | ".join(f"seed {seed}" for seed in seeds) + " | all |"]
    lines.append("|---" * (len(seeds) + 2) + "|")
    if "dcp" in means and "crl" in means:
        shared = means["dcp"].keys() & means["crl"].keys()
        means["dcp minus crl"] = {seed: means["dcp"][seed] - means["crl"][seed] for seed in shared}
    for method, values in means.items():
        cells = [f"{values[seed]:.1f}" if seed in values else "" for seed in seeds]
        lines.append(f"| {method} | " + " | ".join(cells) + f" | {t_interval(list(values.values()))} |")
    return "\n".join(lines)


def deployed_table() -> str:
    """Return reach without bursts, the gain by them and the saturation, over seeds. The paper's are of longer runs."""
    with DEPLOYED.open(newline="") as file:
        rows = list(csv.DictReader(file))
    groups = defaultdict(list)
    for row in rows:
        groups[row["env"], row["method"]].append(row)
    head = ["", "seeds", "reach (%)", "gain by bursts", "saturation (%)"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for (env, method), seeds in groups.items():
        reach, burst, full = (
            100 * np.array([float(row[name]) for row in seeds]) for name in ("reach", "with_burst", "saturation")
        )
        cells = [f"{env}, {method}", ", ".join(row["seed"] for row in seeds)]
        cells += [_spread(values) for values in (reach, burst - reach, full)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _spread(values: np.ndarray) -> str:
    """Return mean and population standard deviation over seeds, as the paper prints them."""
    return f"{values.mean():.1f} ± {values.std():.1f}" if len(values) > 1 else f"{values.mean():.1f}"


def main(arguments: list[str]) -> None:
    collection = collect([LEDGER])
    if arguments[:1] == ["deploy"]:
        deploy(collection)
    present = [env for env in ENVIRONMENTS if any(collection.of(env, method) for method in collection.methods)]
    sections = dict(part.split("\n\n", 1) for part in tables(check_all(LEDGER)).split("### ") if part)
    for env in present:
        save(curves(collection, env), RESULTS / f"paper_10m_{env}.png")
        put(f"paper_10m_{env}", sections[env].strip())
        put(f"last_five_{env}", last_five_table(collection, env))
    put("deployed", deployed_table())
    firsts = [
        open_target(seeds[0].folder) for method in ("dcp", "crl") if (seeds := collection.of("ant_u_maze", method))
    ]
    save(landscapes_figure([view(first, maze_env(first)) for first in firsts]), RESULTS / "paper_10m_landscapes.png")


if __name__ == "__main__":
    main(sys.argv[1:])
