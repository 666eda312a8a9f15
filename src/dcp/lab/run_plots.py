"""Draw a finished run into its own folder, in a process of its own: the trainer loads no figures.

`python -P -m dcp.lab.run_plots FOLDER [module:name ...]` draws. The names are code that the user of the trainer has
named. It prints the files that it wrote, or one sentence why it could not; the exit status says which.
"""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C also reaches the trainer, which says that it stopped

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

import jax

from dcp.config import Config
from dcp.envs.registry import env_of
from dcp.errors import EXIT_MISTAKE, UserError, one_line
from dcp.files import require_no_links_out
from dcp.files.run_folder import load_run
from dcp.lab.curves import methods_figure
from dcp.lab.episodes import ShownPolicy, play, shows_maze
from dcp.lab.landscape_figure import landscapes_figure
from dcp.lab.psi_landscape import ROLLOUTS, view
from dcp.lab.render import MazePicture
from dcp.lab.render.video import draw_files
from dcp.lab.style import save
from dcp.lab.targets import open_target
from dcp.machine import compiling
from dcp.named_code import import_named, imported_modules, only_allowed, user_import_path

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
    curve = save(methods_figure({config.method: [run.metrics]}, title), run.plots / "learning_curve.png")
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


def main(argv: Sequence[str]) -> int:
    """Draw the run of a folder; import no code but what the user has named."""
    folder, *code = argv
    try:
        home = Path.cwd() if code or imported_modules() else None
        with redirect_stdout(sys.stderr), user_import_path(home), only_allowed(code):
            for name in code:
                import_named(name)  # a policy may name it, and reading a policy imports nothing
            compiling.enable_cache()
            written = save_run_plots(Path(folder))
    except UserError as error:
        print(one_line(error))
        return EXIT_MISTAKE
    for path in written:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
