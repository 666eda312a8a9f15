"""`dcp train`: read settings from flags, a preset or a saved config; train, plot, and say where the files are."""

import os
import subprocess
import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from dcp.cli.flags import parse, read
from dcp.cli.main import COMMANDS, EXIT_CODES
from dcp.config import PARTS, WITH_SETTINGS, Config, Settings, Tracking
from dcp.errors import EXIT_MISTAKE, RunError, UserError
from dcp.files import CONFIG_FILE, PLOTS_DIR
from dcp.named_code import allowed_and_imported, require_allowed
from dcp.presets import PRESETS, preset_overrides


@dataclass(frozen=True)
class TrainOptions:
    """Hold the run's settings and how to run them: nothing but the settings decides its numbers."""

    settings: Settings = field(default_factory=Settings)
    seeds: tuple[int, ...] = ()
    """Several seeds instead of --seed, each with its own run folder."""
    seeds_as: Literal["vmapped", "processes"] | None = None
    """All seeds in one program, or one process per core. Default: vmapped on an accelerator, processes on a CPU."""
    preset: str | None = None
    """Settings to start from, by name: see above; explicit flags win."""
    config: Path | None = None
    """The config.json of a run, or its folder, to start from; explicit flags win."""
    runs_dir: Path = Path("runs")
    """Results go to <runs-dir>/<env>/<method>/seed_<n>/."""
    overwrite: bool = False
    """Replace the run that is there."""
    resume: str | None = None
    """A run's folder, to resume as if it had never stopped; --steps may be raised. auto: the run of these settings."""
    checkpoint_evals: int = 1
    """Checkpoint after this many evaluations; 0: not after evaluations."""
    checkpoint_minutes: float = 15.0
    """Checkpoint this many minutes after the last one; 0: not by time."""
    dry_run: bool = False
    """Print what would run and everything that is wrong with it, and train nothing."""
    plots: bool = True
    """Draw the learning curve, landscape and episodes at the end."""
    keep_policies: bool = False
    """Keep the policy of every evaluation, in policies/ of the run folder, for `dcp diagnose` and `dcp explore`."""
    display: Literal["auto", "live", "plain", "none"] = "auto"
    """auto: live on a terminal, plain lines elsewhere."""
    cache: str | None = None
    """Folder of compiled programs, or off. Default: $DCP_CACHE_DIR, else the user's cache folder."""
    tracking: Tracking = field(default_factory=Tracking)


AUTO = "auto"  # --resume auto
FIRST_FLAGS = ("preset", "env", "method")  # of the help


def main(argv: list[str]) -> int:
    values = read(TrainOptions(), argv, "dcp train")
    options = _options(argv, values)
    if options.seeds:
        from dcp.cli.around_training import train_several

        return train_several(options, values)
    if options.dry_run:
        from dcp.cli.around_training import dry_run

        return dry_run(options.settings, options.runs_dir, options.overwrite, options.resume)
    from dcp.machine.checks import check
    from dcp.machine.signals import Interrupted
    from dcp.runs.checkpoint import Cadence
    from dcp.runs.training import train

    resumed = options.resume
    names = ("tracking", "keep_policies", "display", "cache")
    outputs: dict[str, Any] = {name: getattr(options, name) for name in names}
    outputs["cadence"] = Cadence(options.checkpoint_evals, options.checkpoint_minutes)
    try:
        if resumed is None:
            check(options.settings)  # before Config is made: this knows the environment, so it reports every violation
            config = Config(**vars(options.settings))
            run = train(config, runs_dir=options.runs_dir, overwrite=options.overwrite, **outputs)
        else:
            from dcp.cli.around_training import finished, steps_to_resume
            from dcp.runs.resuming import resume

            steps = steps_to_resume(Path(resumed), options.settings)
            if steps is None:
                return finished(Path(resumed), options)
            run = resume(resumed, steps=steps, code=options.settings.code.values(), **outputs)
    except Interrupted as stop:
        from dcp.cli.around_training import stopped

        return stopped(stop, options)
    assert run.folder is not None
    print(f"Trained for {outcome(run.rows[-1])}")
    show_results(run.folder, options)
    return 0


def _options(argv: list[str], values: dict[str, Any]) -> TrainOptions:
    """Return the options. The flags that say where to start decide the defaults of all others."""
    resumed, stored = values.get("resume"), None
    if resumed not in (None, AUTO):
        from dcp.runs.run_status import read_plan

        stored = Settings(**asdict(read_plan(Path(resumed))[0]))
    settings = _start(values, stored)
    if stored is not None or values.get("config") is not None:  # a config may name code
        require_allowed(settings.code)
    if stored is None and values.get("env") not in (None, settings.env):
        settings = replace(settings, eval_env=None)  # evaluate a new environment on itself by default
    if stored is None and values.get("pool_seed") is not None:
        settings = replace(settings, pool_seed_sha256=None)  # the stored checksum belongs to the config's own file
    if stored is None and values.get("data") is not None:
        settings = replace(settings, data_sha256=None)
    settings = _without_settings_of_replaced_parts(settings, values)
    parts: dict[str, type] = {}
    names_part = bool({"method", *WITH_SETTINGS} & set(values)) and bool({"-h", "--help"} & set(argv))  # in the help
    if names_part or any("." in name for name in values):
        from dcp.cli.around_training import chosen_parts

        parts = chosen_parts(settings, values)
    options = parse(TrainOptions(settings=settings), argv, "dcp train", _description(), parts, FIRST_FLAGS)
    if options.resume or options.seeds or {"seeds", "seeds_as"} & set(values):
        from dcp.cli.around_training import require_sense

        require_sense(options, values)
    if "steps" in values and not {"num_evals", "config"} & set(values) and stored is None:
        from dcp.cli.around_training import with_evaluations_that_fit

        options = replace(options, settings=with_evaluations_that_fit(options.settings))
    if options.resume == AUTO and not options.seeds:
        from dcp.cli.around_training import resumed_automatically

        return resumed_automatically(options, values)
    return options


def _start(values: dict[str, Any], stored: Settings | None) -> Settings:
    """Return the settings that the flags modify: a preset, a config file, the defaults, or those of a resumed run."""
    preset, config = values.get("preset"), values.get("config")
    if preset is not None and config is not None:
        raise UserError("--preset and --config both say where to start: give only one of them")
    overrides: dict[str, Any] = {}
    if preset is not None:
        env, method = (values.get(name) or (getattr(stored, name) if stored else None) for name in ("env", "method"))
        overrides = preset_overrides(preset, env, method)
    if config is not None:
        from dcp.files.run_folder import read_config_file

        overrides = read_config_file(config / CONFIG_FILE if config.is_dir() else config)["config"]
    return replace(stored or Settings(), **overrides)


def _without_settings_of_replaced_parts(settings: Settings, values: dict[str, Any]) -> Settings:
    """Drop a config's settings for a part that a flag replaces."""
    replaced = [kind for kind in WITH_SETTINGS if values.get(kind) not in (None, getattr(settings, kind))]
    if values.get("method") not in (None, settings.method):
        replaced += [kind for kind in PARTS if getattr(settings, kind) is None]
    kept = {name: value for name, value in settings.component_settings.items() if name.split(".")[0] not in replaced}
    return replace(settings, component_settings=kept)


def _description() -> str:
    width = max(map(len, PRESETS)) + 2
    rows = [f"  {name:<{width}}{preset.purpose}" for name, preset in PRESETS.items()]
    codes = [f"  {code:<{width}}{meaning}" for code, meaning in EXIT_CODES.items()]
    return "\n".join([COMMANDS["train"], "", "presets:", *rows, "", "exit codes:", *codes])


def outcome(last: dict[str, float]) -> str:
    return (
        f"{last['env_steps']:,} environment steps in {last['wall_seconds']:.0f} s: "
        f"success at least once {last['success_once']:.1%}, time near goal {last['time_near_goal']:.1f} steps."
    )


def show_results(folder: Path, options: TrainOptions) -> None:
    """Print the run's files, and draw its pictures. Raise after that if they could not be drawn."""
    print("Results:")
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        print(f"  {path}")
    if options.plots:
        for path in _draw(folder, options.cache):
            print(f"  {path}")
        if options.tracking.trackers:
            from dcp.runs.tracking import show_pictures

            show_pictures(folder, folder / PLOTS_DIR, options.tracking)


def _draw(folder: Path, cache: str | None) -> list[str]:
    """Draw a run in a process of its own, on the CPU, since this one may hold the GPU's memory. -> the files"""
    command = [sys.executable, "-P", "-m", "dcp.lab.run_plots", str(folder), *allowed_and_imported()]
    chosen = {"JAX_PLATFORMS": "cpu"} | ({} if cache is None else {"DCP_CACHE_DIR": cache})
    sys.stdout.flush()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | chosen)
    lines = done.stdout.splitlines()
    if done.returncode:
        why = lines[-1] if lines else f"the process that draws them ended with {done.returncode}"
        kind = UserError if done.returncode == EXIT_MISTAKE else RunError
        raise kind(f"the run is kept, but its pictures could not be drawn: {why}")
    return lines
