"""The real W&B, offline, and the real trackio: train, stop, resume, overwrite. `make test-trackers` installs both."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from dcp.cli.flags import parse
from dcp.cli.train import TrainOptions
from dcp.config import Config
from dcp.errors import UserError
from dcp.files import require_no_links_out
from dcp.runs.tracking import Tracking, _identity
from tests.support.tiny import LONGER_FLAGS, tiny_config

needs_trackers = pytest.mark.skipif(
    find_spec("wandb") is None or find_spec("trackio") is None, reason="make test-trackers installs wandb and trackio"
)
FLAGS = ["--wandb", "--trackio", "--wandb-project", "mazes", "--wandb-group", "tiny ones"]


def train(tmp_path: Path, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "dcp", "train", *flags, "--runs-dir", str(tmp_path / "runs")]
    places = {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "TRACKIO_DIR": str(tmp_path / "trackio")}
    with (tmp_path / "output").open("a") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | places)


def ended(process: subprocess.Popen[str], tmp_path: Path) -> int:
    code = process.wait(timeout=500)
    assert code in (0, 75), (tmp_path / "output").read_text()[-2000:]
    return code


def wandb_ids(tmp_path: Path) -> list[str]:
    """Return the id of each time that W&B was started, in order."""
    return [folder.name.rsplit("-", 1)[1] for folder in sorted((tmp_path / "wandb").glob("offline-run-*"))]


def rows(tmp_path: Path) -> list[tuple[str, int]]:
    """Return the names and steps of trackio's rows, but for the pictures."""
    with sqlite3.connect(tmp_path / "trackio" / "mazes.db") as base:
        found = base.execute("select run_name, step, metrics from metrics order by id").fetchall()
    return [(name, step) for name, step, metrics in found if b"env_steps" in bytes(metrics)]


@pytest.mark.slow
@needs_trackers
def test_a_stopped_run_continues_its_run_at_wandb_and_trackio_and_an_overwriting_one_begins_another(tmp_path: Path):
    folder = tmp_path / "runs" / tiny_config().run_path
    process = train(tmp_path, *LONGER_FLAGS, *FLAGS)
    deadline = time.monotonic() + 300
    while not (folder / "metrics.csv").exists() or (folder / "metrics.csv").read_text().count("\n") < 3:
        assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "output").read_text()[-2000:]
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    assert ended(process, tmp_path) == 75
    first = json.loads((folder / "tracking.json").read_text())
    assert (first["project"], first["group"], first["name"]) == ("mazes", "tiny ones", tiny_config().run_path)
    assert not (folder / "wandb").exists() and wandb_ids(tmp_path) == [first["id"]]

    assert ended(train(tmp_path, "--resume", str(folder), "--wandb", "--trackio"), tmp_path) == 0
    assert json.loads((folder / "tracking.json").read_text()) == first
    assert set(wandb_ids(tmp_path)) == {first["id"]}
    logged, table = rows(tmp_path), (folder / "metrics.csv").read_text().splitlines()
    assert {name for name, _ in logged} == {f"{tiny_config().run_path.replace('/', ' ')} {first['id']}"}
    assert len(logged) == len(set(logged)) == len(table) - 1  # each evaluation once
    assert [path.name[:7] for path in tmp_path.glob("wandb/offline-run-*/files/media/videos/*.gif")] == ["episode"]
    told = b"".join(path.read_bytes() for path in tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert all(word in told for word in (b"tiny ones", b"mazes", b"discount", b"success_once", b"landscape"))

    assert ended(train(tmp_path, *LONGER_FLAGS, *FLAGS, "--overwrite", "--no-plots"), tmp_path) == 0
    second = json.loads((folder / "tracking.json").read_text())["id"]
    assert second != first["id"] and wandb_ids(tmp_path)[-1] == second


@pytest.mark.slow
@needs_trackers
def test_each_seed_of_one_program_has_its_run_in_the_group(tmp_path: Path):
    flags = ["--preset", "smoke", "--seeds", "0", "1", "--seeds-as", "vmapped", "--no-plots"]
    assert ended(train(tmp_path, *flags, "--wandb", "--trackio"), tmp_path) == 0
    files = sorted((tmp_path / "runs").rglob("tracking.json"))
    told = [json.loads(file.read_text()) for file in files]
    assert [one["name"] for one in told] == ["point_u_maze/dcp/seed_0", "point_u_maze/dcp/seed_1"]
    assert {one["group"] for one in told} == {"point_u_maze dcp"}
    assert sorted(wandb_ids(tmp_path)) == sorted(one["id"] for one in told)


def test_the_flags_say_where_and_a_resumed_run_keeps_it_unless_they_name_another_project(tmp_path: Path):
    flags = ["--wandb", "--wandb-project", "p", "--wandb-name", "n", "--wandb-entity", "e", "--wandb-group", "g"]
    tracking = parse(TrainOptions(), flags, "dcp train", "").tracking
    assert tracking == Tracking(wandb=True, wandb_project="p", wandb_name="n", wandb_entity="e", wandb_group="g")
    config = Config(env="point_u_maze", method="crl", seed=3)
    default = _identity(tmp_path, config, Tracking(wandb=True))
    assert (default.project, default.group, default.name, default.entity) == (
        "dcp", "point_u_maze crl", "point_u_maze/crl/seed_3", None,
    )  # fmt: skip
    (tmp_path / "tracking.json").write_text(json.dumps({"id": "a1", "project": "p", "group": "g", "name": "n"}))
    assert _identity(tmp_path, config, Tracking(wandb=True)).id == "a1"
    assert _identity(tmp_path, config, Tracking(wandb=True, wandb_name="m")).id == "a1"
    assert _identity(tmp_path, config, Tracking(wandb=True, wandb_project="q")).id != "a1"
    (tmp_path / "tracking.json").write_text('{"id": "\\u001b[2J"}')
    with pytest.raises(UserError, match=r"tracking.json is damaged .*: remove it"):
        _identity(tmp_path, config, Tracking(wandb=True))


def test_a_link_that_wandb_made_in_a_run_folder_is_no_reason_to_refuse_it_and_others_are(tmp_path: Path):
    """W&B links to its logs in the user's cache folder; runs of older versions hold its folder."""
    logs = tmp_path / "run" / "wandb" / "offline-run-1" / "logs"
    logs.mkdir(parents=True)
    (logs / "debug-core.log").symlink_to(tmp_path / "cache.log")
    require_no_links_out(tmp_path / "run")
    (tmp_path / "run" / "policies").mkdir()
    (tmp_path / "run" / "policies" / "wandb").symlink_to(tmp_path)
    with pytest.raises(UserError, match="is a link that leads out"):
        require_no_links_out(tmp_path / "run")
