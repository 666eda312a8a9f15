"""Send a run's rows to TensorBoard, Weights & Biases and trackio too, if asked for, and its pictures at the end.

W&B and trackio write their own files where they always do (./wandb or $WANDB_DIR; $TRACKIO_DIR), never into the run
folder: W&B's hold links that lead out of it.
"""

import dataclasses
import json
import secrets
from collections.abc import Mapping, Sequence
from contextvars import Context
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import msgspec

from dcp.config import Config, Tracking
from dcp.errors import UserError, install_hint
from dcp.files import CONFIG_FILE, TENSORBOARD_DIR, TRACKING_FILE, write_whole
from dcp.files.run_folder import read_config_file
from dcp.files.validation import FormatError, Name, checked, read_json

Row = Mapping[str, float]
PROJECT = "dcp"
_MODULES = {"tensorboard": "tensorboardX", "wandb": "wandb", "trackio": "trackio"}  # by extra
_PICTURES = {"episode.gif": "Video", "landscape.png": "Image"}  # in plots/, and what W&B and trackio call them


def require(tracking: Tracking) -> None:
    """Refuse, before training, a logger whose package is missing."""
    for extra in tracking.loggers:
        if find_spec(_MODULES[extra]) is None:
            raise UserError(f"--{extra} needs a package that is not installed: {install_hint(extra)}")


class Identity(msgspec.Struct, frozen=True):
    """Hold what finds a run again at W&B and trackio; the run folder keeps it."""

    id: Name
    project: Name
    group: Name
    name: Name
    entity: Name | None = None


class Sink(Protocol):
    def write(self, row: Row) -> None: ...

    def close(self) -> None: ...


class TensorboardSink:
    def __init__(self, folder: Path, rows: Sequence[Row] = ()):
        from tensorboardX import SummaryWriter

        again = int(rows[-1]["env_steps"]) + 1 if rows else None  # TensorBoard drops older points from this step on
        self._writer = SummaryWriter(str(folder / TENSORBOARD_DIR), purge_step=again)

    def write(self, row: Row) -> None:
        for name, value in row.items():
            self._writer.add_scalar(name, value, int(row["env_steps"]))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class TrackerSink:
    """Log to a run of W&B or trackio, which is continued if it exists. Several may be open, one for each seed."""

    def __init__(self, package: str, identity: Identity, config: dict[str, Any]):
        self._tracker: Any = import_module(package)
        about: dict[str, Any] = {"project": identity.project, "group": identity.group, "resume": "allow"}
        if package == "wandb":
            about |= {"id": identity.id, "name": identity.name, "entity": identity.entity, "reinit": "create_new"}
        else:  # trackio finds a run by its name
            about |= {"name": f"{identity.name} {identity.id}".replace("/", " "), "embed": False}
        try:  # in a context of its own, since trackio ends the run that it finds in the present one
            self._run: Any = Context().run(self._tracker.init, **about, config=config)
        except Exception as error:
            advice = {"wandb": "run `wandb login`, or set WANDB_MODE=offline"}.get(package, "check $TRACKIO_DIR")
            raise UserError(f"{package} did not start ({error}): {advice}") from error

    def write(self, row: Row) -> None:
        self._run.log(dict(row), step=int(row["env_steps"]))

    def show(self, pictures: Sequence[Path]) -> None:
        media = {path.stem: getattr(self._tracker, _PICTURES[path.name])(str(path)) for path in pictures}
        self._run.log(media)

    def close(self) -> None:
        self._run.finish()


def make_sinks(folder: Path, config: Config, tracking: Tracking, rows: Sequence[Row] = ()) -> list[Sink]:
    """Open the loggers that are asked for. `rows`: those of a resumed run."""
    sinks: list[Sink] = [TensorboardSink(folder, rows)] if tracking.tensorboard else []
    if tracking.trackers:
        identity = _identity(folder, config, tracking)
        write_whole(folder / TRACKING_FILE, json.dumps(msgspec.to_builtins(identity), indent=2).encode())
        sinks += [TrackerSink(package, identity, dataclasses.asdict(config)) for package in tracking.trackers]
    return sinks


def show_pictures(folder: Path, plots: Path, tracking: Tracking) -> None:
    """Add the finished run's episode and landscape to its runs at W&B and trackio, which are closed by then."""
    pictures = [plots / name for name in _PICTURES if (plots / name).is_file()]
    identity = _stored(folder) if pictures and tracking.trackers else None
    if identity is None:
        return
    for package in tracking.trackers:
        sink = TrackerSink(package, identity, read_config_file(folder / CONFIG_FILE)["config"])
        sink.show(pictures)
        sink.close()


def _identity(folder: Path, config: Config, tracking: Tracking) -> Identity:
    """Return the run's identity, as it is stored in its folder except for what the flags say. Another project or
    entity is another run there."""
    flags = {name: getattr(tracking, f"wandb_{name}") for name in ("project", "group", "name", "entity")}
    flags = {name: value for name, value in flags.items() if value is not None}
    stored = _stored(folder)
    if stored is not None:
        changed = msgspec.structs.replace(stored, **flags)
        if (changed.project, changed.entity) == (stored.project, stored.entity):
            return changed
        return msgspec.structs.replace(changed, id=secrets.token_hex(4))
    default = {"project": PROJECT, "group": f"{config.env} {config.method}", "name": config.run_path}
    return Identity(secrets.token_hex(4), **(default | flags))


def _stored(folder: Path) -> Identity | None:
    path = folder / TRACKING_FILE
    if not path.exists():
        return None
    try:
        return checked(read_json(path, most=100_000), Identity)
    except (OSError, FormatError) as error:
        raise UserError(f"{path} is damaged ({error}): remove it to start another run at W&B or trackio") from error
