"""Make src/dcp/zoo: trained policies with their configs, curves and measured scores.

    python -m tools.docs.zoo train --out /somewhere/outside     # the point mazes, about forty minutes on two cores
    python -m tools.docs.zoo collect --out /somewhere/outside   # -> src/dcp/zoo
    python -m tools.docs.zoo add RUN                            # one more run, such as an ant's of many hours

Every point maze run is `--preset laptop`, seed 0, for every method alike; nothing is chosen by its result. Evaluated
on the mazes' evaluation layouts, which keep only far goals; the hardest maze has none, and is evaluated on itself.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from dcp.files.run_folder import CONFIG_FILE, METRICS_FILE, POLICY_FILE
from dcp.files.run_folder import ZOO as NAME
from dcp.files.run_folder import ZOO_FOLDER as FOLDER
from dcp.lab.result_tables import finite
from dcp.lab.trial import as_json, evaluate
from dcp.methods.table import PAPER
from dcp.policies.policy_file import load_policy, policy_about, save_policy

SETTINGS = {
    "point_u_maze": ["--eval-env", "point_u_maze_eval"],
    "point_big_maze": ["--eval-env", "point_big_maze_eval", "--steps", "6000000"],
    "point_hardest_maze": ["--steps", "6000000"],
}
EPISODES = 256


def train(out: Path) -> None:
    for env, settings in SETTINGS.items():
        for method in PAPER:
            flags = ["--preset", "laptop", "--env", env, "--method", method, "--runs-dir", str(out), "--resume", "auto"]
            subprocess.run([sys.executable, "-m", "dcp.cli.main", "train", *flags, *settings], check=True)


def add(run: Path) -> None:
    """Without the critic psi_sa, which no deployment needs."""
    about = policy_about(run)
    folder = FOLDER / about["env"] / about["method"]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in (CONFIG_FILE, METRICS_FILE):
        shutil.copyfile(run / name, folder / name)
    save_policy(folder / POLICY_FILE, load_policy(run).without_critic(), about)
    trial = evaluate(run, episodes=EPISODES)
    name = f"{NAME}/{about['env']}/{about['method']}"
    score = finite(as_json(trial, {"policy": name, "about": about, "burst": None}))
    (folder / "score.json").write_text(json.dumps(score) + "\n")
    success = score["summary"]["success_once"]
    print(f"{name}: success {success['mean']:.1%} ({success['low']:.1%} to {success['high']:.1%})", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "collect", "add"))
    parser.add_argument("run", nargs="?", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.what == "train":
        train(given.out)
    elif given.what == "add":
        add(given.run)
    else:
        for config in sorted(given.out.glob(f"point_*/*/seed_0/{CONFIG_FILE}")):
            add(config.parent)
