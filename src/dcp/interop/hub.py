"""Push policies to the Hugging Face Hub and pull them: `dcp push` and `dcp pull`.

Only data is pushed: safetensors, JSON, CSV, a model card and a video. Pulling fetches only files of these names, and
loading them runs no code.
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from dcp.envs.base import Environment
from dcp.errors import UserError, install_hint, one_line
from dcp.files import write_whole
from dcp.files.run_folder import CONFIG_FILE, METRICS_FILE, POLICY_FILE, located
from dcp.files.validation import MEGABYTE, FormatError, checked, open_regular, parse_json
from dcp.lab.result_tables import finite
from dcp.lab.statistics import Interval
from dcp.lab.targets import Target, open_target
from dcp.lab.trial import Trial, arena_for, as_json, estimates
from dcp.policies.exports import is_exported
from dcp.policies.policy_file import load_policy_and_about

ENDPOINT = "HF_ENDPOINT"  # the client's own variable, for a private Hub
NO_HUB = f"the Hugging Face Hub needs its client: {install_hint('hub')}"
CARD, EVALUATION, GIF, MP4 = "README.md", "evaluation.json", "replay.gif", "replay.mp4"
FILES = (POLICY_FILE, CONFIG_FILE, METRICS_FILE, EVALUATION, CARD, GIF, MP4)  # all that is pushed or pulled
_MEDIA, _TEXT = 256 * MEGABYTE, 16 * MEGABYTE
MOST_BYTES = {POLICY_FILE: 1024 * MEGABYTE, GIF: _MEDIA, MP4: _MEDIA, **dict.fromkeys(FILES[1:5], _TEXT)}
PULL_SECONDS, SILENCE = 900, 20.0  # at most for all files; for the next bytes
TAGS = ["reinforcement-learning", "goal-conditioned-rl", "robotics", "jax", "dcp"]
_LABELS = {
    "success_once": "goal reached at least once",
    "time_near_goal": "steps near the goal",
    "first_reach": "steps until the goal is reached (of episodes that reach it)",
    "final_distance": "distance to the goal at the end",
}


@dataclass(frozen=True)
class Package:
    """Hold a folder that is ready to be pushed, and what is missing from it."""

    folder: Path
    trial: Trial
    remarks: list[str]


def make_package(
    source: str | Path,
    folder: Path,
    repo_id: str,
    *,
    episodes: int | None = None,
    seeds: tuple[int, ...] = (0,),
    video: bool = True,
    license_id: str | None = None,
    tell: Callable[[str], object] = len,
) -> Package:
    """Evaluate a policy, and write all files for its page on the Hub into a folder."""
    if is_exported(source):
        raise UserError(f"{source} is an exported policy: push the run's folder or its {POLICY_FILE}")
    target = open_target(source)
    arena = arena_for(target, episodes=episodes, seeds=seeds)
    path = located(source)
    policy = path / POLICY_FILE if path.is_dir() else path
    folder.mkdir(parents=True, exist_ok=True)
    _copy(policy, folder / POLICY_FILE)
    for name in (CONFIG_FILE, METRICS_FILE):
        if target.config is not None and (policy.parent / name).is_file():
            _copy(policy.parent / name, folder / name)
    tell(f"evaluating on {arena.env.spec.name}, {len(seeds)} x {arena.episodes} episodes")
    trial = arena.trial(target.policy)
    about = {"policy": repo_id, "about": target.about, "fidelity": target.fidelity, "physics": target.physics}
    content = finite(as_json(trial, about))
    write_whole(folder / EVALUATION, json.dumps(content, indent=1, allow_nan=False).encode())
    remarks = []
    if video:
        tell("drawing two episodes")
        remarks = _draw(target, arena.env, folder)
    card = model_card(target, trial, repo_id, (folder / GIF).is_file(), license_id)
    write_whole(folder / CARD, card.encode())
    return Package(folder, trial, remarks)


def _copy(source: Path, copy: Path) -> None:
    with open_regular(source, most=MOST_BYTES[copy.name]) as file:
        write_whole(copy, file.read())  # follows no link of this name


def _draw(target: Target, env: Environment, folder: Path) -> list[str]:
    """Write a video of an episode that reaches the goal and one that does not. -> what could not be written"""
    from dcp.lab.episodes import Shown, names_of, show_policy, side_by_side
    from dcp.lab.render import require_drawable
    from dcp.lab.render.video import Look, write_files

    try:
        require_drawable(env)
        shown = side_by_side(show_policy(target, names_of([target])[0], env, Shown(first=None)))
    except UserError as error:  # a user's own environment that cannot be rendered
        return [f"No video: {error}"]
    _, problems = write_files(env, shown, folder, Path(GIF).stem, ("mp4", "gif"), Look())
    return problems


def model_card(target: Target, trial: Trial, repo_id: str, video: bool, license_id: str | None = None) -> str:
    """Return the repository's README: the Hub's metadata, scores with intervals, and how to use the policy."""
    hub = load_hub()
    about, env = target.about, trial.spec.name
    method, steps = about.get("method", "dcp"), about.get("env_steps")
    scores = {name: value for name, value in estimates(trial.all).items() if name in _LABELS}
    data = hub.ModelCardData(
        library_name="dcp",
        tags=[*TAGS, str(about.get("env", env))],
        pipeline_tag="reinforcement-learning",
        license=license_id,
        model_name=f"{method} on {about.get('env', env)}",
        eval_results=[
            hub.EvalResult("reinforcement-learning", env, env, name, round(float(value.mean), 4), metric_name=label)
            for (name, value), label in zip(scores.items(), (_LABELS[name] for name in scores), strict=True)
            if value.mean == value.mean
        ],
    )
    rows = [f"| {_LABELS[name]} | {_shown(name, value)} |" for name, value in scores.items()]
    count = len(trial.all.success)
    trained = f", trained for {steps:,} environment steps" if steps else ""
    lines = [
        f"# {method} on {about.get('env', env)}",
        f"A goal-conditioned policy{trained} with seed {about.get('seed', 0)}. It takes a state of "
        f"{trial.spec.state_size} numbers and a goal of {trial.spec.goal_size}, and gives an action of "
        f"{trial.spec.action_size}. It was trained by dcp ({install_hint()}).",
        *([f"![Episodes of this policy]({GIF})"] if video else []),
        "## Scores",
        f"On {env}, {count:,} fresh episodes of {trial.episode_length} steps (`dcp eval`, seeds "
        f"{' '.join(map(str, trial.seeds))}); intervals are 95%, over episodes of this one trained policy.",
        "\n".join(["| | mean (95% interval) |", "|---|---|", *rows]),
        "## Use",
        f"Install dcp: {install_hint('hub')}. Then:",
        f"```\ndcp pull {repo_id} --out policy\ndcp eval policy\ndcp render policy\n```",
        '```python\nimport dcp\n\npolicy = dcp.load_policy("policy")\naction = policy(state, goal)\n```',
        "Loading runs no code: the policy is a safetensors file, its settings are JSON.",
    ]
    return f"---\n{data.to_yaml()}\n---\n\n" + "\n\n".join(lines) + "\n"


def _shown(name: str, value: Interval) -> str:
    scale, digits, unit = (100, 1, "%") if name == "success_once" else (1, 2 if name == "final_distance" else 1, "")
    if value.mean != value.mean:
        return "never"
    mean = f"{scale * value.mean:.{digits}f}{unit}"
    if value.low != value.low:
        return mean
    return f"{mean} ({scale * value.low:.{digits}f} to {scale * value.high:.{digits}f})"


def push(package: Package, repo_id: str, *, private: bool = False, message: str | None = None) -> str:
    """Upload the package's files as one commit, and create the repository if needed. -> its address"""
    hub = load_hub()
    with told_in_a_sentence(repo_id):
        api = hub.HfApi(endpoint=os.environ.get(ENDPOINT), library_name="dcp")
        url = api.create_repo(repo_id, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=url.repo_id,
            folder_path=package.folder,
            allow_patterns=list(FILES),
            commit_message=message or f"dcp push: {url.repo_id}",
        )
        return str(url)


class _File(Struct):
    rfilename: str
    size: Annotated[int, Meta(ge=0)] | None = None


class _Listing(Struct):
    """Check what the Hub says of a repository."""

    sha: Annotated[str, Meta(pattern="^[0-9a-f]{40}$")]
    siblings: Annotated[list[_File], Meta(max_length=100_000)]


def pull(repo_id: str, out: Path, *, revision: str | None = None) -> dict[str, Any]:
    """Download a policy into a new folder and check that it loads. -> the policy's metadata"""
    load_hub()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} already exists: name another folder with --out")
    with tempfile.TemporaryDirectory() as folder:
        with told_in_a_sentence(repo_id):
            names = _download(repo_id, revision, Path(folder))
        if POLICY_FILE not in names:
            raise UserError(f"{repo_id} has no {POLICY_FILE}: `dcp push` did not make it")
        _, about = load_policy_and_about(Path(folder))
        try:
            out.mkdir(parents=True, exist_ok=True)
            for name in names:
                shutil.copyfile(Path(folder) / name, out / name)
        except OSError as error:
            raise UserError(f"cannot write to {out} ({error.strerror}): name another folder with --out") from error
    return about


def _download(repo_id: str, revision: str | None, folder: Path) -> list[str]:
    """Fetch our files of a repository, each no larger and all no slower than an honest one. -> their names"""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import validate_repo_id

    validate_repo_id(repo_id)
    endpoint, deadline = os.environ.get(ENDPOINT), time.monotonic() + PULL_SECONDS
    page = hf_hub_url(repo_id, "x", revision=revision, endpoint=endpoint)  # .../owner/name/resolve/<revision>/x
    base, _, rest = page.partition(f"/{repo_id}/resolve/")
    address = f"{base}/api/models/{repo_id}/revision/{rest.removesuffix('/x')}?blobs=true"
    listing = checked(parse_json(_get(address, MOST_BYTES[CARD], deadline).decode()), _Listing)
    sizes = {file.rfilename: file.size for file in listing.siblings}
    names = [name for name in FILES if name in sizes]
    for name in names:
        if (sizes[name] or 0) > MOST_BYTES[name]:
            raise _too_large(name)
    for name in names:
        content = _get(hf_hub_url(repo_id, name, revision=listing.sha, endpoint=endpoint), MOST_BYTES[name], deadline)
        (folder / name).write_bytes(content)
    return names


def _get(url: str, most: int, deadline: float) -> bytes:
    from huggingface_hub import utils

    name, content = url.partition("?")[0].rpartition("/")[2], bytearray()
    headers = utils.build_hf_headers(library_name="dcp")
    with utils.get_session().stream("GET", url, headers=headers, follow_redirects=True, timeout=SILENCE) as response:
        for part in response.iter_bytes():
            content += part
            if len(content) > most:
                raise _too_large(name)
            if time.monotonic() > deadline:
                raise UserError(f"the Hub has taken more than {PULL_SECONDS} seconds: try again later")
        headers = {name: value for name, value in response.headers.items() if name.lower().startswith("x-")}
        whole = type(response)(response.status_code, headers=headers, content=bytes(content), request=response.request)
        utils.hf_raise_for_status(whole)
    return bytes(content)


def _too_large(name: str) -> UserError:
    return UserError(
        f"{name} has more than {MOST_BYTES.get(name, MOST_BYTES[CARD]):,} bytes: `dcp push` did not make it"
    )


def load_hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise UserError(NO_HUB) from error
    return huggingface_hub


@contextmanager
def told_in_a_sentence(repo_id: str) -> Iterator[None]:
    """Turn errors of the Hub and its client into one sentence for the user."""
    from huggingface_hub import errors

    of_the_network = (errors.LocalEntryNotFoundError, getattr(errors, "HTTPError", OSError), OSError)  # httpx's own
    try:
        yield
    except (errors.GatedRepoError, errors.LocalTokenNotFoundError) as error:
        raise UserError(f"{repo_id} needs your token: run `hf auth login`, or set HF_TOKEN") from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise UserError(
            f"the Hub has no {repo_id} that you may read: check the name and the revision, or set HF_TOKEN"
        ) from error
    except errors.HFValidationError as error:
        raise UserError(f"{repo_id!r} is not the name of a repository: write it as owner/name") from error
    except errors.HfHubHTTPError as error:
        code = getattr(getattr(error, "response", None), "status_code", None)
        if code in (401, 403):
            raise UserError(f"the Hub refuses {repo_id}: log in with `hf auth login`, or set HF_TOKEN") from error
        raise UserError(f"the Hub answered {code or 'with an error'} for {repo_id}: try again later") from error
    except UserError:
        raise
    except (FormatError, UnicodeDecodeError) as error:
        raise UserError(
            f"the Hub's answer for {repo_id} makes no sense ({one_line(error)}): check HF_ENDPOINT"
        ) from error
    except of_the_network as error:
        raise UserError(
            f"cannot reach the Hub ({type(error).__name__}): check the connection and HF_ENDPOINT"
        ) from error
