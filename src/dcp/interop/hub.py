"""Push policies to the Hugging Face Hub and pull them: `dcp push` and `dcp pull`.

Only data is pushed: safetensors, JSON, CSV, a model card and a video. Pulling fetches only files of these names, and
loading them runs no code.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dcp.envs.base import Environment
from dcp.errors import UserError, install_hint
from dcp.files.run_folder import CONFIG_FILE, METRICS_FILE, POLICY_FILE, located
from dcp.lab.evaluation_results import as_json, estimates, finite
from dcp.lab.statistics import Interval
from dcp.lab.targets import Target, open_target
from dcp.lab.trial import Trial, arena_for
from dcp.policies.exports import is_exported
from dcp.policies.policy_file import load_policy_and_about

ENDPOINT = "HF_ENDPOINT"  # the client's own variable, for a private Hub
NO_HUB = f"the Hugging Face Hub needs its client: {install_hint('hub')}"
CARD, EVALUATION, GIF, MP4 = "README.md", "evaluation.json", "replay.gif", "replay.mp4"
FILES = (POLICY_FILE, CONFIG_FILE, METRICS_FILE, EVALUATION, CARD, GIF, MP4)  # all that is pushed or pulled
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
    shutil.copyfile(policy, folder / POLICY_FILE)
    for name in (CONFIG_FILE, METRICS_FILE):
        if target.config is not None and (policy.parent / name).is_file():
            shutil.copyfile(policy.parent / name, folder / name)
    tell(f"evaluating on {arena.env.spec.name}, {len(seeds)} x {arena.episodes} episodes")
    trial = arena.trial(target.policy)
    about = {"policy": repo_id, "about": target.about, "fidelity": target.fidelity, "physics": target.physics}
    content = finite(as_json(trial, about))
    (folder / EVALUATION).write_text(json.dumps(content, indent=1, allow_nan=False))
    remarks = []
    if video:
        tell("drawing two episodes")
        remarks = _draw(target, arena.env, folder)
    card = model_card(target, trial, repo_id, (folder / GIF).is_file(), license_id)
    (folder / CARD).write_text(card, encoding="utf-8")
    return Package(folder, trial, remarks)


def _draw(target: Target, env: Environment, folder: Path) -> list[str]:
    """Write a video of an episode that reaches the goal and one that does not. -> what could not be written"""
    from dcp.lab.render.pictures import require_drawable
    from dcp.lab.render.shown_episodes import Shown, make_subject, names_of, side_by_side
    from dcp.lab.render.video import Look, write_files

    try:
        require_drawable(env)
        subjects = side_by_side(make_subject(target, names_of([target])[0], env, Shown(first=None)))
    except UserError as error:  # a user's own environment that cannot be rendered
        return [f"No video: {error}"]
    _, problems = write_files(env, subjects, folder, Path(GIF).stem, ("mp4", "gif"), Look())
    return problems


def model_card(target: Target, trial: Trial, repo_id: str, video: bool, license_id: str | None = None) -> str:
    """Return the repository's README: the Hub's metadata, scores with intervals, and how to use the policy."""
    hub = load_hub()
    about, env = target.about, trial.spec.name
    method, steps = about.get("method", "dcp"), about.get("env_steps")
    found = {name: value for name, value in estimates(trial.all).items() if name in _LABELS}
    data = hub.ModelCardData(
        library_name="dcp",
        tags=[*TAGS, str(about.get("env", env))],
        pipeline_tag="reinforcement-learning",
        license=license_id,
        model_name=f"{method} on {about.get('env', env)}",
        eval_results=[
            hub.EvalResult("reinforcement-learning", env, env, name, round(float(value.mean), 4), metric_name=label)
            for (name, value), label in zip(found.items(), (_LABELS[name] for name in found), strict=True)
            if value.mean == value.mean
        ],
    )
    rows = [f"| {_LABELS[name]} | {_shown(name, value)} |" for name, value in found.items()]
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


def pull(repo_id: str, out: Path, *, revision: str | None = None) -> dict[str, Any]:
    """Download a policy into a new folder and check that it loads. -> the policy's metadata"""
    hub = load_hub()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} already exists: name another folder with --out")
    with tempfile.TemporaryDirectory() as folder:
        with told_in_a_sentence(repo_id):
            where = {"local_dir": folder, "endpoint": os.environ.get(ENDPOINT)}
            hub.snapshot_download(repo_id, revision=revision, allow_patterns=list(FILES), **where)
        found = [name for name in FILES if (Path(folder) / name).is_file()]
        if POLICY_FILE not in found:
            raise UserError(f"{repo_id} has no {POLICY_FILE}: `dcp push` did not make it")
        _, about = load_policy_and_about(Path(folder))
        try:
            out.mkdir(parents=True, exist_ok=True)
            for name in found:
                shutil.copyfile(Path(folder) / name, out / name)
        except OSError as error:
            raise UserError(f"cannot write to {out} ({error.strerror}): name another folder with --out") from error
    return about


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
    except of_the_network as error:
        raise UserError(
            f"cannot reach the Hub ({type(error).__name__}): check the connection and HF_ENDPOINT"
        ) from error
