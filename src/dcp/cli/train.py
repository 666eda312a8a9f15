"""`dcp train`: settings from flags, a preset or a saved config; then a run, its plots, and where they are."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from dcp.cli.flags import parse, value_of
from dcp.cli.hosts import among_hosts, part, several
from dcp.cli.main import COMMANDS, EXIT_CODES, EXIT_INTERRUPTED, EXIT_REQUEUE
from dcp.cli.resuming import AUTO, agreed_steps, offered, stored_settings
from dcp.config import Config, Settings
from dcp.errors import UserError
from dcp.presets import PRESETS, preset_overrides
from dcp.run_folder import CONFIG_FILE, PLOTS_DIR, read_config_file

if TYPE_CHECKING:
    from dcp.training.keeper import Cadence, Interrupted
    from dcp.training.run import TrainedRun

FlatSettings = tyro.conf.OmitArgPrefixes[Settings]


@dataclass(frozen=True)
class TrainOptions:
    """What concerns the command and not the run's results."""

    settings: FlatSettings = field(default_factory=Settings)
    seeds: tuple[int, ...] = ()
    """Several seeds in place of --seed, each with a run folder of its own."""
    seeds_as: Literal["vmapped", "processes"] | None = None
    """All seeds in one program, or one process a core. Default: vmapped on an accelerator, processes on a CPU."""
    preset: str | None = None
    """Settings to start from, by name: see above; explicit flags win."""
    config: Path | None = None
    """The config.json of a run, or its folder, to start from; explicit flags win."""
    runs_dir: Path = Path("runs")
    """Results go to <runs-dir>/<env>/<method>/seed_<n>/."""
    overwrite: bool = False
    """Replace the run that is there."""
    resume: str | None = None
    """A run's folder, to continue as if it had never stopped; --steps may be raised. auto: these settings' run."""
    checkpoint_evals: int = 1
    """A checkpoint every so many evaluations; 0: not by evaluations."""
    checkpoint_minutes: float = 15.0
    """A checkpoint when so many minutes have passed since the last; 0: not by the clock."""
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
    coordinator: str | None = None
    """HOST:PORT of host 0, to train on several hosts: the same command on each, with its own --host-id."""
    num_hosts: int | None = None
    """Hosts that train together."""
    host_id: int | None = None
    """Which of them this is, from 0. Host 0 writes the run folder and speaks."""
    hosts: Literal["auto"] | None = None
    """auto: the hosts of this SLURM or MPI job, as JAX finds them."""
    join_seconds: float = 300.0
    """How long to wait until all hosts are there."""


def main(argv: list[str]) -> int:
    return among_hosts(argv, _main)


def _main(argv: list[str]) -> int:
    options = _options(argv)
    if options.seeds:
        from dcp.cli.seeds import train_several

        return train_several(options, argv)
    if options.dry_run:
        from dcp.cli.dry_run import dry_run

        return dry_run(options.settings, options.runs_dir, options.overwrite, options.resume)
    return _train(options)


def _options(argv: list[str]) -> TrainOptions:
    from dcp.training.progress import holds_run, require_named

    given = value_of("--resume", argv)
    stored = stored_settings(Path(given)) if given not in (None, AUTO) else None
    settings = _start(value_of("--preset", argv), value_of("--config", argv), value_of("--env", argv), stored)
    require_named(settings, {flag: value_of(f"--{flag}", argv) for flag in ("env", "eval-env")})
    if stored is None and value_of("--env", argv) not in (None, settings.env):
        settings = replace(settings, eval_env=None)  # another environment is judged on itself, unless a flag says more
    if stored is None and value_of("--pool-seed", argv) is not None:
        settings = replace(settings, pool_seed_sha256=None)  # the config's: another file has another
    options = parse(TrainOptions(settings=settings), argv, "dcp train", _description())
    if given is not None and options.overwrite:
        raise UserError("--resume continues what --overwrite would replace: give only one of them")
    _require_one_way(options, argv)
    if options.resume == AUTO and not options.seeds:
        folder = options.runs_dir / options.settings.run_path
        return replace(options, resume=str(folder) if holds_run(folder) else None)
    return options


def _require_one_way(options: TrainOptions, argv: list[str]) -> None:
    """--seed, or --seeds with what goes with it."""
    if not options.seeds:
        if options.seeds_as is not None or "--seeds" in argv:
            raise UserError("--seeds needs at least one seed, such as --seeds 0 1 2")
        return
    if value_of("--seed", argv) is not None:
        raise UserError("--seed and --seeds both say which seeds: give only one of them")
    if options.resume not in (None, AUTO):
        raise UserError(f"--resume names one run's folder, and --seeds several runs: use --resume {AUTO} with --seeds")


def _start(preset: str | None, config: str | None, env: str | None, stored: Settings | None) -> Settings:
    """What the flags add to: a preset, a config file or the defaults; for a run that goes on, its own settings."""
    if preset is not None and config is not None:
        raise UserError("--preset and --config both say where to start: give only one of them")
    overrides = preset_overrides(preset, env or (stored.env if stored else None)) if preset is not None else {}
    if config is not None:
        path = Path(config)
        overrides = read_config_file(path / CONFIG_FILE if path.is_dir() else path)["config"]
    return replace(stored or Settings(), **overrides)


def _description() -> str:
    rows = [f"  {name:<8}{preset.purpose}" for name, preset in PRESETS.items()]
    codes = [f"  {code:<8}{meaning}" for code, meaning in EXIT_CODES.items()]
    return "\n".join([COMMANDS["train"], "", "presets:", *rows, "", "exit codes:", *codes])


def _train(options: TrainOptions) -> int:
    from dcp.training.keeper import Cadence, Interrupted

    cadence = Cadence(options.checkpoint_evals, options.checkpoint_minutes)
    folder = options.resume or offered(options.settings, options.runs_dir, options.overwrite)
    try:
        run = _continue(Path(folder), options, cadence) if folder else _begin(options, cadence)
    except Interrupted as stop:
        part()
        return _stopped(stop, options.plots)
    if run is None:
        if options.plots and not any((Path(folder or "") / PLOTS_DIR).glob("*")):
            show_results(Path(folder or ""), plots=True)  # the process that ended the run had no time for them
        return 0
    part()
    print(f"Trained for {outcome(run.rows[-1])}")
    show_results(run.folder, options.plots)
    return 0


def outcome(last: dict[str, float]) -> str:
    return (
        f"{last['env_steps']:,} environment steps in {last['wall_seconds']:.0f} s: "
        f"success at least once {last['success_once']:.1%}, time near goal {last['time_near_goal']:.1f} steps."
    )


def _begin(options: TrainOptions, cadence: "Cadence") -> "TrainedRun":
    from dcp.checks import check
    from dcp.cli.hints import faster_physics
    from dcp.training.run import train

    if not several():  # several hosts start JAX together, in `train`
        check(options.settings)  # before Config: it knows the environment, and so every violation
        if options.display != "none" and (hint := faster_physics(options.settings)):
            print(hint)
    config = Config(**vars(options.settings))
    return train(config, runs_dir=options.runs_dir, overwrite=options.overwrite, **_outputs(options), cadence=cadence)


def _continue(folder: Path, options: TrainOptions, cadence: "Cadence") -> "TrainedRun | None":
    from dcp.training.run import resume

    steps = agreed_steps(folder, options.settings)
    if steps is None:
        return None
    named = {"env": options.settings.env, "eval_env": options.settings.eval_env}
    return resume(folder, steps=steps, **named, **_outputs(options), cadence=cadence)


def _outputs(options: TrainOptions) -> dict[str, Any]:
    return {name: getattr(options, name) for name in ("tensorboard", "wandb", "display", "cache")}


def _stopped(stop: "Interrupted", plots: bool) -> int:
    from dcp.training.progress import resume_command

    if stop.env_steps is not None:
        print(
            f"Stopped with a checkpoint at {stop.env_steps:,} environment steps: "
            f"continue with `{resume_command(stop.folder)}`."
        )
        return EXIT_REQUEUE
    if not stop.evaluations:
        print("Stopped before the first evaluation: nothing was kept.")
        return EXIT_INTERRUPTED
    print(f"Stopped after {stop.evaluations} evaluations; what there is was kept.")
    show_results(stop.folder, plots)
    return EXIT_INTERRUPTED


def show_results(folder: Path, plots: bool) -> None:
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    if plots:
        from dcp.analysis.run_plots import save_run_plots

        paths += save_run_plots(folder)
    print("Results:")
    for path in paths:
        print(f"  {path}")
