"""`dcp eval`: evaluate policies on the same fresh episodes; print a table, write JSON and CSV to each run's folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dcp.cli.flags import POSITIONAL, Burst, parse
from dcp.cli.main import COMMANDS
from dcp.config import Physics
from dcp.errors import UserError

if TYPE_CHECKING:
    from dcp.cli.record import RecordOptions
    from dcp.lab.targets import Target
    from dcp.lab.trial import Arena


@dataclass(frozen=True)
class EvalOptions:
    runs: Annotated[tuple[str, ...], POSITIONAL] = ()
    """Run folders, policy files, exported policies, or zoo/<env>/<method>."""
    episodes: int | None = None
    """Episodes of each seed. Default: as in the run's own evaluations."""
    seeds: tuple[int, ...] = (0,)
    """Each names a frozen set of starts and goals, the same for every policy."""
    env: str | None = None
    """Evaluate on this environment. Default: the one that the run was evaluated on."""
    eval_layout: bool = False
    """On the environment's evaluation layout, which keeps only far goals."""
    physics: Physics | None = None
    """What steps simulated bodies. Default: what the run was trained with."""
    randomize: str | None = None
    """What changes between episodes of a so101 task: all, none, or names like gains,delay. Default: as in training."""
    burst: Burst = None
    """P L: random actions in the last L of every P steps, next to none on the same episodes. Without values: 100 10."""
    burst_sweep: bool = False
    """Try every burst of --periods and --lengths, and confirm the best on other episodes."""
    periods: tuple[int, ...] = (50, 100, 200)
    """P of the sweep."""
    lengths: tuple[int, ...] = (5, 10, 20)
    """L of the sweep."""
    stochastic: bool = False
    """Explore as in training: draw actions instead of using the actor's mean."""
    as_logged: bool = False
    """Repeat the run's last evaluation on the same episodes, and compare with metrics.csv."""
    out: Path | None = None
    """Write here instead of the run's folder."""
    json: bool = False
    """Print the results as JSON instead of the table."""


def main(argv: list[str]) -> int:
    options = parse(EvalOptions(), argv, "dcp eval", COMMANDS["eval"])
    _require_sense(options)

    from dcp.cli import eval_policies
    from dcp.lab.targets import open_target
    from dcp.lab.trial import combinations
    from dcp.machine import compiling

    compiling.enable_cache()
    targets = [open_target(run) for run in options.runs]
    arenas = [_arena(target, options) for target in targets]  # report every mistake before the slow work starts
    if options.as_logged:
        return eval_policies.repeat(targets)
    bursts = combinations(options.periods, options.lengths) if options.burst_sweep else []
    eval_policies.require_writable_results(targets, options.out)
    if options.burst_sweep:
        return eval_policies.sweep_bursts(targets, arenas, bursts, options)
    return eval_policies.evaluate(targets, arenas, options)


def arena_of(target: "Target", options: "EvalOptions | RecordOptions", randomize: str | None = None) -> "Arena":
    """Return where to evaluate a target, as the flags say; by default, where its run was evaluated."""
    from dcp.lab.trial import arena_for

    return arena_for(
        target,
        options.env,
        episodes=options.episodes,
        seeds=options.seeds,
        eval_layout=options.eval_layout,
        physics=options.physics,
        randomize=randomize,
    )


def _arena(target: "Target", options: EvalOptions) -> "Arena":
    from dcp.lab.trial import variant

    variant(target.policy, options.burst, options.stochastic)
    if target.burst and (options.burst or options.burst_sweep):
        raise UserError(f"{target.label} already has a burst inside: leave out --burst, or export it without one")
    return arena_of(target, options, options.randomize)


def _require_sense(options: EvalOptions) -> None:
    if not options.runs:
        from dcp.files.run_folder import zoo_names

        such = f", such as {zoo_names()[0]}" if zoo_names() else ""
        raise UserError(f"nothing to evaluate: name a run's folder, a policy file or one of the zoo{such}")
    plain = EvalOptions()
    if not options.burst_sweep and (options.periods, options.lengths) != (plain.periods, plain.lengths):
        raise UserError("--periods and --lengths belong to a sweep: add --burst-sweep, or give --burst P L")
    if options.burst and options.burst_sweep:
        raise UserError("--burst tries one burst and --burst-sweep many: give only one of them")
    elsewhere = options.env or options.eval_layout or options.physics or options.randomize
    if options.as_logged and (elsewhere or options.burst or options.burst_sweep):
        raise UserError(
            "--as-logged repeats the run's own evaluation: leave out --env, --eval-layout, --physics, --randomize and "
            "bursts"
        )
    if options.as_logged and (options.stochastic or options.episodes or options.seeds != (0,)):
        raise UserError("--as-logged repeats the run's own evaluation: leave out --episodes, --seeds and --stochastic")
    if options.as_logged and (options.out or options.json):
        raise UserError("--as-logged compares on the screen and writes nothing: leave out --out and --json")
