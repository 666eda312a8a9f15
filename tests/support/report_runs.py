"""Run folders for tests of the report, written by hand: quick, and with every kind of trouble."""

import json
from pathlib import Path

from PIL import Image

from dcp.config import SCHEMA_VERSION, Config

HOSTILE = 'x"><img src=x onerror=alert(1)></script><script>alert(2)</script>'


def write_run(
    root: Path,
    env: str = "point_u_maze",
    method: str = "dcp",
    seed: int = 0,
    success: tuple[float, ...] = (0.0, 0.5, 1.0),
    budget: int = 3000,
    **settings: object,
) -> Path:
    """root/env/method/seed_0, with an evaluation every 1,000 steps and 60 s."""
    folder = root / env.replace("/", "_") / method / f"seed_{seed}"
    folder.mkdir(parents=True)
    settings = {"episode_length": 200, **settings}
    config = json.loads(Config(env="point_u_maze", method=method, seed=seed, steps=budget).to_json())
    config |= {"env": env, "eval_env": env, **settings}
    (folder / "config.json").write_text(
        json.dumps({"schema_version": SCHEMA_VERSION, "config": config, "versions": {}})
    )
    rows = [f"{i},{1000 * i},{value},{200 * value},{60 * i}" for i, value in enumerate(success, 1)]
    head = "evaluation,env_steps,success_once,time_near_goal,wall_seconds"
    (folder / "metrics.csv").write_text("\n".join([head, *rows, ""]))
    return folder


def write_gif(path: Path, side: int = 40) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    frames = [Image.new("RGB", (side, side), colour) for colour in ("red", "green", "blue")]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=50, loop=0)
    return path


def troubled(root: Path) -> Path:
    """Two environments and two methods; seeds missing, short, not evaluated, damaged and with a NaN."""
    for seed in range(3):
        write_run(root, "point_u_maze", "dcp", seed, (0.1, 0.4 + 0.1 * seed, 0.9))
    write_run(root, "point_u_maze", "crl", 0, (0.1, 0.2, 0.3))
    write_run(root, "point_u_maze", "crl", 1, (0.2, 0.4))  # still going
    write_run(root, "point_big_maze", "dcp", 0, (0.3, float("nan"), 0.5))
    write_run(root, "point_big_maze", "crl", 0, (0.2, 0.3, 0.25))
    write_run(root, "point_big_maze", "crl", 1, ())  # before its first evaluation
    damaged = write_run(root, "point_big_maze", "dcp", 1)
    (damaged / "config.json").write_text("{")
    write_gif(root / "point_u_maze" / "dcp" / "seed_0" / "plots" / "episode.gif")
    return root
