"""`dcp push` and `dcp pull`: policies on the Hugging Face Hub. `dcp record`: episodes as a Minari data set."""

import os
import sys
import tempfile
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from dcp.cli.flags import POSITIONAL, Burst, parse
from dcp.cli.main import COMMANDS
from dcp.config import Physics
from dcp.errors import UserError, install_hint

if TYPE_CHECKING:
    from dcp.lab.trial import Arena

MINARI_FOLDER = "MINARI_DATASETS_PATH"  # Minari's own variable


@dataclass(frozen=True)
class PushOptions:
    names: Annotated[tuple[str, ...], POSITIONAL] = ()
    """A run's folder, a policy file or zoo/<env>/<method>; then the repository, as owner/name."""
    episodes: int | None = None
    """Episodes of each seed for the card's scores. Default: as in the run's own evaluations."""
    seeds: tuple[int, ...] = (0,)
    """Each names a frozen set of starts and goals, as in `dcp eval`."""
    video: bool = True
    """Draw an episode that arrives and one that does not."""
    license: str | None = None
    """The license that the card names, such as apache-2.0."""
    private: bool = False
    """Make a repository that only you can see."""
    message: str | None = None
    """The commit's message."""
    dry_run: bool = False
    """Write what would be pushed into --out, and push nothing."""
    out: Path | None = None
    """Also keep what is pushed in this folder."""


@dataclass(frozen=True)
class PullOptions:
    repository: Annotated[str, POSITIONAL] = ""
    """owner/name."""
    revision: str | None = None
    """A branch, tag or commit. Default: main."""
    out: Path | None = None
    """Folder for the policy. Default: runs/hub/<owner>/<name>."""


def push(argv: list[str]) -> int:
    options = parse(PushOptions(), argv, "dcp push", COMMANDS["push"])
    if len(options.names) != 2:
        raise UserError("name what to push, and the repository: `dcp push runs/ant_u_maze/dcp/seed_0 owner/name`")
    if options.dry_run and options.out is None:
        raise UserError("--dry-run writes what would be pushed into a folder: name it with --out")
    from dcp.interop.hub import load_hub, make_package
    from dcp.interop.hub import push as upload
    from dcp.machine import compiling

    load_hub()
    compiling.enable_cache()
    (source, repo_id), seeds = options.names, options.seeds
    with tempfile.TemporaryDirectory() as temporary:
        package = make_package(
            source,
            options.out or Path(temporary),
            repo_id,
            episodes=options.episodes,
            seeds=seeds,
            video=options.video,
            license_id=options.license,
            tell=lambda what: print(what, file=sys.stderr, flush=True),
        )
        for remark in package.remarks:
            print(remark, file=sys.stderr)
        files = sorted(path.name for path in package.folder.iterdir() if path.is_file())
        if options.dry_run:
            print(f"{package.folder}: {', '.join(files)}")
            return 0
        url = upload(package, repo_id, private=options.private, message=options.message)
    print(f"{url}: {', '.join(files)}")
    return 0


def pull(argv: list[str]) -> int:
    options = parse(PullOptions(), argv, "dcp pull", COMMANDS["pull"])
    if not options.repository:
        raise UserError("name what to pull: `dcp pull owner/name`")
    from dcp.interop.hub import pull as fetch

    out = options.out or Path("runs") / "hub" / options.repository
    about = fetch(options.repository, out, revision=options.revision)
    steps = f", {about['env_steps']:,} steps" if isinstance(about.get("env_steps"), int) else ""
    print(f"{out}: {about.get('method', 'a policy')} on {about.get('env', 'an environment of its own')}{steps}")
    print(f"Try `dcp eval {out}` or `dcp render {out}`.")
    return 0


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
    physics: Physics | None = None
    """What steps simulated bodies. Default: what the run was trained with."""
    burst: Burst = None
    """P L: random actions in the last L of every P steps. Without values: 100 10."""
    stochastic: bool = False
    """Draw actions from the actor's distribution instead of using its mean."""
    out: Path | None = None
    """Folder of data sets. Default: $MINARI_DATASETS_PATH, else Minari's own, ~/.minari/datasets."""


def record(argv: list[str]) -> int:
    options = parse(RecordOptions(), argv, "dcp record", COMMANDS["record"])
    if not options.policy:
        raise UserError("nothing to record: name a run's folder, a policy file or one of the zoo")
    if options.out is not None:
        from dcp.lab.result_tables import require_writable

        require_writable(options.out)
        os.environ[MINARI_FOLDER] = str(options.out.expanduser().absolute())

    from dcp.cli.eval import arena_of
    from dcp.lab.targets import open_target
    from dcp.lab.trial import variant
    from dcp.machine import compiling

    try:
        from dcp.interop.minari import load_minari, record_episodes, write_dataset

        load_minari()
    except ImportError as error:  # Gymnasium comes with Minari
        raise UserError(f"recording needs Minari: {install_hint('minari')}") from error
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
