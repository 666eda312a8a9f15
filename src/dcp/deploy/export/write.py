"""Writes a policy in one of the exported forms, after comparing the file with the policy itself."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dcp.deploy.export.metadata import describe
from dcp.deploy.exported import ENDINGS, load_exported
from dcp.errors import RunError, UserError
from dcp.policies.policy import DeployedPolicy
from dcp.policies.policy_file import load_policy_and_about, write_whole

TOLERANCE = 1e-4  # of the mean difference of actions in [-1, 1]: rounding stays far below, a forgotten layer far above
CHECKED = 64  # inputs that a file is compared on


def export_policy(
    path: str | Path, form: str, out: str | Path | None = None, burst: tuple[int, int] | None = None
) -> Path:
    """From a run folder or policy file to one file, by default beside it. -> its path"""
    if form not in ENDINGS:
        raise UserError(f"unknown format {form!r}: choose one of {', '.join(ENDINGS)}")
    (policy, about), ending = load_policy_and_about(path), ENDINGS[form]
    out = Path(out) if out is not None else _folder(Path(path)) / f"policy{ending}"
    if out.suffix != ending:
        raise UserError(f"{out} does not end in {ending}, by which its readers know the format: rename it")
    if out.is_dir():
        raise UserError(f"{out} is a folder: name a file by --out")
    content = encode(policy, form, describe(policy, about, burst))
    compare(policy, content, form)
    try:
        write_whole(out, content)
    except OSError as error:
        raise UserError(f"cannot write {out} ({error.strerror}): name another --out") from error
    return out


def _folder(path: Path) -> Path:
    """The run's; a policy of the zoo lies in the package, where nothing is written."""
    if not path.exists():
        return Path()
    return path if path.is_dir() else path.parent


def encode(policy: DeployedPolicy, form: str, metadata: dict[str, Any]) -> bytes:
    """Only the chosen form's module is loaded: onnx may be missing."""
    try:
        module = import_module(f"dcp.deploy.export.{form}_form")
    except ModuleNotFoundError as error:
        raise UserError(f"the {form} form needs {error.name}: pip install 'dcp[onnx]'") from error
    make: Callable[[DeployedPolicy, dict[str, Any]], bytes] = getattr(module, f"{form}_bytes")
    return make(policy, metadata)


def compare(policy: DeployedPolicy, content: bytes, form: str) -> None:
    """The file's actions are the policy's: small inputs and large, together and one by one, and at the goal itself."""
    random, spec = np.random.default_rng(0), policy.spec
    scale = np.geomspace(0.1, 3.0, CHECKED)[:, None]
    state = (scale * random.standard_normal((CHECKED, spec.state_size))).astype(np.float32)
    goal = (scale * random.standard_normal((CHECKED, spec.goal_size))).astype(np.float32)
    goal[0] = spec.achieved(state[0])
    with TemporaryDirectory() as folder:
        draft = Path(folder) / f"policy{ENDINGS[form]}"
        draft.write_bytes(content)
        infer = load_exported(draft).infer
        alone = np.stack([infer(*pair) for pair in zip(state, goal, strict=True)])
        actions = np.stack([infer(state, goal), alone])
    apart = np.mean(np.abs(actions - np.asarray(policy(state, goal))))
    if not apart <= TOLERANCE:
        raise RunError(
            f"the {form} file's actions differ from the policy's by {apart:.1g} on average: nothing was written; "
            "choose another --format, and please report it"
        )
