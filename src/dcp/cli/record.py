"""`dcp record`: write a policy's evaluation episodes as a Minari data set."""

import os
import sys
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from dcp.cli.eval import arena_of
from dcp.cli.flags import POSITIONAL, Burst, parse
from dcp.cli.main import COMMANDS
from dcp.config import Physics
from dcp.errors import UserError, install_hint

if TYPE_CHECKING:
    from dcp.lab.trial import Arena

FOLDER = "MINARI_DATASETS_PATH"  # Minari's own variable


@dataclass(frozen=True)
class RecordOptions:
    policy: Annotated[str, POSITIONAL] = ""
    """A run's folder, a policy file, an exported policy, or zoo/<env>/<method>."""
    episodes: int = 100
    """Episodes of each seed."""
    seeds: tuple[int, ...] = (0,)
    """Each names a frozen set of starts and goals: those of `dcp eval --seeds`."""
    dataset: str | None = None
    """The data set's name in Minari. Default: dcp/<env>/<method>-v0."""
    reward: Literal["zero_one", "minus_one"] = "zero_one"
    """1 near the goal, else 0; or 0 near the goal, else -1."""
    env: str | None = None
    """Record on this environment. Default: the one that the run was evaluated on."""
    eval_layout: bool = False
    """On the environment's evaluation layout, which keeps only far goals."""
    physics: Physics | None = None
    """What steps simulated bodies. Default: what the run was trained with."""
    burst: Burst = None
    """P L: random actions in the last L of every P steps. Without values: 100 10."""
    stochastic: bool = False
    """Draw actions from the actor's distribution instead of using its mean."""
    out: Path | None = None
    """Folder of data sets. Default: $MINARI_DATASETS_PATH, else Minari's own, ~/.minari/datasets."""


def main(argv: list[str]) -> int:
    options = parse(RecordOptions(), argv, "dcp record", COMMANDS["record"])
    if not options.policy:
        raise UserError("nothing to record: name a run's folder, a policy file or one of the zoo")
    if options.out is not None:
        os.environ[FOLDER] = str(options.out.expanduser().absolute())

    from dcp.lab.targets import open_target
    from dcp.lab.trial import variant
    from dcp.machine import compiling

    try:
        from dcp.interop.minari import load_minari, record_episodes, write_dataset
    except ImportError as error:  # Gymnasium comes with Minari
        raise UserError(f"recording needs Minari: {install_hint('minari')}") from error

    load_minari()
    compiling.enable_cache()
    target = open_target(options.policy)
    arena = arena_of(target, options)
    policy = variant(target.policy, options.burst, options.stochastic)
    method = str(target.about.get("method") or Path(target.label).stem)
    name = arena.env.spec.name
    dataset_id = options.dataset or f"dcp/{name.replace(':', '.')}/{method}-v0"
    print(f"playing {target.label} on {name}: {len(arena.seeds)} x {arena.episodes} episodes", file=sys.stderr)
    dataset = write_dataset(
        dataset_id,
        arena.env,
        record_episodes(arena, policy),
        reward=options.reward,
        env_spec=_gymnasium_spec(arena, target.fidelity),
        algorithm=method,
        description=f"Episodes of {target.label} on {name}, seeds {' '.join(map(str, arena.seeds))}, by dcp record.",
    )
    reached = sum(bool(episode.infos["is_success"][-1]) for episode in dataset)
    print(
        f"Wrote {dataset_id}: {dataset.total_episodes:,} episodes, {dataset.total_steps:,} steps, goal reached in "
        f"{reached} of them. Read it with minari.load_dataset({dataset_id!r})."
    )
    print(f"  {dataset.storage.data_path}")
    return 0


def _gymnasium_spec(arena: "Arena", fidelity: str) -> Any:
    """Return Gymnasium's spec, from which Minari rebuilds the environment; None for a user's own environment."""
    from gymnasium.envs import registration

    from dcp.gym import gymnasium_id

    gym_id = gymnasium_id(arena.env.spec.name)
    if gym_id not in registration.registry:
        return None
    spec = deepcopy(registration.spec(gym_id))
    spec.kwargs |= {"fidelity": fidelity, "physics": arena.env.spec.stepped_by, "control": arena.env.spec.control}
    spec.max_episode_steps = arena.length
    return spec
