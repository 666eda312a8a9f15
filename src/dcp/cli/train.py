"""`dcp train`: settings from flags, a preset or a saved config; then a run, its plots, and where they are."""

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import tyro

from dcp.cli.flags import parse, value_of
from dcp.cli.main import COMMANDS, EXIT_INTERRUPTED
from dcp.config import Config, Settings
from dcp.deploy.run_folder import CONFIG_FILE, read_config_file
from dcp.errors import UserError
from dcp.presets import PRESETS, preset_overrides

FlatSettings = tyro.conf.OmitArgPrefixes[Settings]


@dataclass(frozen=True)
class TrainOptions:
    """What concerns the command and not the run's results."""

    settings: FlatSettings = field(default_factory=Settings)
    preset: str | None = None
    """Settings to start from, by name: see above; explicit flags win."""
    config: Path | None = None
    """The config.json of a run, or its folder, to start from; explicit flags win."""
    runs_dir: Path = Path("runs")
    """Results go to <runs-dir>/<env>/<method>/seed_<n>/."""
    overwrite: bool = False
    """Replace the run that is there."""
    dry_run: bool = False
    """Print what would run and everything that is wrong with it, and train nothing."""
    plots: bool = True
    """Draw the learning curve, landscape and episodes at the end."""
    tensorboard: bool = False
    """Also write TensorBoard events into the run folder."""
    wandb: bool = False
    """Also log to Weights & Biases."""
    display: Literal["auto", "live", "plain", "none"] = "auto"
    """auto: live on a terminal, plain lines elsewhere."""
    cache: str | None = None
    """Folder of compiled programs, or off. Default: $DCP_CACHE_DIR, else the user's cache folder."""


def main(argv: list[str]) -> int:
    settings = _start(value_of("--preset", argv), value_of("--config", argv), value_of("--env", argv))
    if value_of("--env", argv) not in (None, settings.env):
        settings = replace(settings, eval_env=None)  # another environment is judged on itself, unless a flag says more
    start = TrainOptions(settings=settings)
    options = parse(start, argv, "dcp train", _description())
    sys.path.insert(0, str(Path.cwd()))  # an environment named as module:factory may lie here
    try:
        if options.dry_run:
            from dcp.cli.dry_run import dry_run

            return dry_run(options.settings, options.runs_dir, options.overwrite)
        return _train(options)
    finally:
        sys.path.pop(0)


def _start(preset: str | None, config: str | None, env: str | None) -> Settings:
    if preset is not None and config is not None:
        raise UserError("--preset and --config both say where to start: give only one of them")
    if config is not None:
        path = Path(config)
        return Settings(**read_config_file(path / CONFIG_FILE if path.is_dir() else path)["config"])
    return Settings(**preset_overrides(preset, env)) if preset is not None else Settings()


def _description() -> str:
    rows = [f"  {name:<8}{preset.purpose}" for name, preset in PRESETS.items()]
    return "\n".join([COMMANDS["train"], "", "presets:", *rows])


def _train(options: TrainOptions) -> int:
    from dcp.checks import check
    from dcp.training.run import Interrupted, train

    check(options.settings)  # before Config: it knows the environment, and so every violation
    config = Config(**vars(options.settings))
    try:
        run = train(
            config,
            runs_dir=options.runs_dir,
            overwrite=options.overwrite,
            tensorboard=options.tensorboard,
            wandb=options.wandb,
            display=options.display,
            cache=options.cache,
        )
    except Interrupted as stop:
        if not stop.evaluations:
            print("Stopped before the first evaluation: nothing was kept.")
            return EXIT_INTERRUPTED
        print(f"Stopped after {stop.evaluations} of {config.num_evals} evaluations; what there is was kept.")
        _show_results(stop.folder, options.plots)
        return EXIT_INTERRUPTED
    last = run.rows[-1]
    print(
        f"Trained for {last['env_steps']:,} environment steps in {last['wall_seconds']:.0f} s: "
        f"success at least once {last['success_once']:.1%}, time near goal {last['time_near_goal']:.1f} steps."
    )
    _show_results(run.folder, options.plots)
    return 0


def _show_results(folder: Path, plots: bool) -> None:
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    if plots:
        from dcp.analysis.run_plots import save_run_plots

        paths += save_run_plots(folder)
    print("Results:")
    for path in paths:
        print(f"  {path}")
