"""Draw a finished run: its curve, and in a maze its landscape and a GIF of its episodes."""

from pathlib import Path

import jax

from dcp.config import Config
from dcp.envs.registry import env_of
from dcp.files.run_folder import load_run
from dcp.files.writing import require_no_links_out
from dcp.lab.curves import run_figure
from dcp.lab.episodes import play, shows_maze
from dcp.lab.landscape_figure import landscapes_figure
from dcp.lab.psi_landscape import ROLLOUTS, view
from dcp.lab.render.pictures import MazePicture
from dcp.lab.render.shown_episodes import ShownPolicy
from dcp.lab.render.video import draw_files
from dcp.lab.style import save
from dcp.lab.targets import open_target

GIF_EPISODES = 4
SIDE = 420  # pixels


def save_run_plots(folder: Path) -> list[Path]:
    """Write into <folder>/plots: the curve, and landscape and GIF if goals lie in a maze's plane.

    They are drawn in the environment that the run was evaluated on. A run that was stopped early may have no policy.
    """
    run = load_run(folder)
    require_no_links_out(run.plots, of=run.folder)
    config = Config.from_dict(run.config)
    title = f"{config.env}, {config.method}, seed {config.seed}"
    curve = save(run_figure(run.metrics, title, config.method), run.plots / "learning_curve.png")
    env = env_of(config, config.eval_env)
    if not shows_maze(env.spec) or not run.policy_path.is_file():
        return [curve]
    target = open_target(folder)
    landscape = save(landscapes_figure([view(target, env, rollouts=ROLLOUTS)]), run.plots / "landscape.png")
    length = config.episode_length or env.spec.episode_length
    episodes = play(env, target.policy, jax.random.key(config.seed), GIF_EPISODES, length)
    if env.spec.physics != "none":  # a plan needs no OpenGL, and shows no bodies
        episodes = [episode._replace(q=None) for episode in episodes]
    shown = ShownPolicy(config.method, None, episodes)
    return [curve, landscape, *draw_files([shown], MazePicture(env, SIDE, SIDE), run.plots / "episode", ["gif"])]
