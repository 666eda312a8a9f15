"""Several seeds from config to folders, as one program; and on from where earlier processes stopped."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from dcp import compiling
from dcp.checks import check
from dcp.config import Config
from dcp.errors import RunError
from dcp.policies.policy import DeployedPolicy
from dcp.training import sinks
from dcp.training.display import DisplayKind
from dcp.training.folder import claim, reopen
from dcp.training.keeper import Cadence
from dcp.training.progress import holds_run, read_plan, require_named, steps_to_go_on_with
from dcp.training.results import Results
from dcp.training.seeds.requirements import in_one_program, require_memory, require_seeds, require_whole
from dcp.training.seeds.session import Session
from dcp.training.trainer import make_trainer

OnEval = Callable[[int, dict[str, float]], None]  # seed, row


@dataclass(frozen=True)
class SeedRun:
    """One seed's results, all of them in its folder too."""

    seed: int
    folder: Path
    rows: list[dict[str, float]]  # as in metrics.csv: one an evaluation
    policy: DeployedPolicy


class SeedsFaultError(RunError):
    """Some seeds dropped out; `trained` are the others."""

    def __init__(self, faults: Sequence[str], trained: dict[int, SeedRun]):
        others = ", the others are trained" if trained else ""
        count = "1 seed" if len(faults) == 1 else f"{len(faults)} seeds"
        super().__init__(f"{count} dropped out{others}: {'; '.join(faults)}")
        self.trained = trained


def train_seeds(
    config: Config,
    seeds: Sequence[int],
    on_eval: OnEval | None = None,
    *,
    runs_dir: str | Path = "runs",
    overwrite: bool = False,
    resume: bool = False,
    tensorboard: bool = False,
    display: DisplayKind = "auto",
    cache: str | Path | None = None,
    cadence: Cadence = Cadence(),  # noqa: B008
) -> dict[int, SeedRun]:
    """Train these seeds as one program; `config.seed` is not used. -> the runs that were trained here, by seed.

    Each seed's results are those that it would have alone, but for the order of floating-point sums, in an ordinary
    run folder. `steps_per_second` of a seed are its own steps by the time that all took together, `wall_seconds` the
    whole time in which it took part: the speed of all is the sum, the time is shared.

    With `resume`, finished seeds are left as they are and others go on from their checkpoints. Where these stand at
    different points, the ones that are behind go first, and the others join as they catch up.

    A seed whose loss is not finite drops out with a fault.json, and the others go on; `SeedsFaultError` tells it then.
    """
    compiling.enable_cache(cache)
    seeds = tuple(seeds)
    require_seeds(seeds)
    config = in_one_program(replace(config, seed=seeds[0]), len(seeds))
    check(config)
    require_memory(config, len(seeds))
    sinks.require(tensorboard, wandb=False)
    config = make_trainer(config).config  # resolved
    runs = _begin(config, seeds, Path(runs_dir), overwrite, resume, tensorboard)
    session = Session(display, cadence, on_eval or (lambda seed, row: None))
    trained = session.run(runs)
    done = {seed: SeedRun(seed, run.folder.path, run.rows, policy) for seed, run, policy in trained}
    if session.faults:
        raise SeedsFaultError(session.faults, done)
    return done


def _begin(
    config: Config, seeds: Sequence[int], runs_dir: Path, overwrite: bool, resume: bool, tensorboard: bool
) -> list[Results]:
    """Those that are to be trained, each with its folder locked; all of them or, after an error, none."""
    with ExitStack() as undo:
        runs = []
        for seed in seeds:
            mine = replace(config, seed=seed)
            path = runs_dir / mine.run_path
            if resume and holds_run(path):
                require_whole(path, read_plan(path)[0])
                require_named(mine, {"env": config.env, "eval-env": config.eval_env})
                if (steps := steps_to_go_on_with(path, mine)) is None:
                    continue
                folder = reopen(path, steps)
                undo.callback(folder.lock.release)
                runs.append(Results(folder, resumed=True, tensorboard=tensorboard))
            else:
                folder = claim(runs_dir, mine, overwrite)
                undo.callback(folder.discard)
                runs.append(Results(folder, resumed=False, tensorboard=tensorboard))
        undo.pop_all()
    return runs
