"""The pictures that a finished run leaves behind."""

from pathlib import Path

from dcp.analysis.curves import run_figure
from dcp.analysis.episode_gif import save_gif
from dcp.analysis.episodes import maze_of, paths, shows_maze
from dcp.analysis.landscape_figure import landscape_figure
from dcp.analysis.style import save
from dcp.config import Config
from dcp.envs.registry import env_of
from dcp.policies.policy_file import load_policy
from dcp.run_folder import RunRecord, load_run

GIF_EPISODES = 4


def save_run_plots(folder: Path) -> list[Path]:
    """Write what applies into <folder>/plots: the curve always, landscape and GIF where goals lie in a maze's plane."""
    run = load_run(folder)
    config = Config.from_dict(run.config)
    title = f"{config.env}, {config.method}, seed {config.seed}"
    curve = save(run_figure(run.metrics, title, config.method), run.plots / "learning_curve.png")
    return [curve, *_maze_plots(run, config, title)]


def _maze_plots(run: RunRecord, config: Config, title: str) -> list[Path]:
    """On the environment that the run was evaluated on. A run that was stopped early may have no policy."""
    env = env_of(config, config.eval_env)
    if not shows_maze(env.spec) or not run.policy_path.is_file():
        return []
    policy = load_policy(run.policy_path)
    length = config.episode_length or env.spec.episode_length
    landscape = save(landscape_figure(policy, env, title, episode_length=length), run.plots / "landscape.png")
    episodes = paths(env, policy, config.seed, GIF_EPISODES, length)
    return [landscape, save_gif(run.plots / "episode.gif", maze_of(env.spec), episodes, env.spec.threshold)]
