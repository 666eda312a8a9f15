"""`dcp push` and `dcp pull`: upload policies to the Hugging Face Hub, and download them."""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from dcp.cli.flags import POSITIONAL, parse
from dcp.cli.main import COMMANDS
from dcp.errors import UserError


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
