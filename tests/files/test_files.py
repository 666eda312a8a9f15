"""A file is written whole or not at all, and never through a link."""

import os
from pathlib import Path

import pytest

from dcp.errors import UserError
from dcp.files import require_no_links_out, write_whole


def test_a_link_in_place_of_the_draft_is_not_followed(tmp_path: Path):
    precious, out = tmp_path / "precious", tmp_path / "out"
    precious.write_text("mine")
    out.mkdir()
    (out / f".policy.npz.{os.getpid()}.tmp").symlink_to(precious)
    write_whole(out / "policy.npz", b"new")
    assert precious.read_text() == "mine" and (out / "policy.npz").read_bytes() == b"new"
    assert not (out / "policy.npz").is_symlink() and len(list(out.iterdir())) == 1


def test_a_link_that_leads_out_of_the_folder_is_found_wherever_it_is(tmp_path: Path):
    run, outside = tmp_path / "run", tmp_path / "outside"
    (run / "a" / "b").mkdir(parents=True)
    outside.mkdir()
    (run / "within").symlink_to("a")
    (tmp_path / "alias").symlink_to(run)
    require_no_links_out(run)
    require_no_links_out(tmp_path / "alias")
    for link, target in (("a/b/out", outside), ("out", "../outside"), ("gone", "/nowhere"), ("loop", "loop")):
        (run / link).symlink_to(target)
        with pytest.raises(UserError, match="leads out of the run folder") as error:
            require_no_links_out(run)
        assert str(run / link) in str(error.value)
        (run / link).unlink()
    (run / "evals").symlink_to(outside)
    require_no_links_out(run / "a", of=run)
    with pytest.raises(UserError, match="evals is a link"):
        require_no_links_out(run / "evals", of=run)
