import json
import shutil

import pytest

from dcp.analysis.collection import collect
from dcp.analysis.landscape_section import sections


@pytest.fixture
def runs(tiny_run, tmp_path):
    """Seeds 0 and 1 of dcp; seed 0 has no policy."""
    for seed in (0, 1):
        folder = tmp_path / f"seed_{seed}"
        shutil.copytree(tiny_run.folder, folder, ignore=shutil.ignore_patterns("checkpoints"))
        stored = json.loads((folder / "config.json").read_text())
        stored["config"]["seed"] = seed
        (folder / "config.json").write_text(json.dumps(stored))
    (tmp_path / "seed_0" / "policy.safetensors").unlink()
    return tmp_path


def test_the_first_seed_that_has_a_policy_is_shown_beside_a_straight_line(runs):
    (section,) = sections(collect([runs]))
    (figure,) = section.figures
    assert figure.environment == collect([runs]).environments[0]
    (table,) = section.tables
    names = [row.cells[1].text for row in table.rows]
    assert names == ["dcp, seed 1", "straight line"]
    assert [row.method for row in table.rows] == ["dcp", ""]
    assert -1.0 <= table.rows[0].cells[3].value <= 1.0
    titles = [axes.get_title() for axes in figure.make().axes]
    assert any(title.startswith("dcp, seed 1") for title in titles)


def test_a_damaged_policy_is_said_and_harms_nothing(runs):
    shutil.copytree(runs / "seed_1", runs / "crl")
    stored = json.loads((runs / "crl" / "config.json").read_text())
    stored["config"]["method"] = "crl"
    (runs / "crl" / "config.json").write_text(json.dumps(stored))
    (runs / "crl" / "policy.safetensors").write_bytes(b"nothing")
    (section,) = sections(collect([runs]))
    assert [row.cells[1].text for row in section.tables[0].rows] == ["dcp, seed 1", "straight line"]
    assert "crl has no landscape" in section.text


def test_without_a_maze_or_a_policy_there_is_no_section(runs):
    (runs / "seed_1" / "policy.safetensors").unlink()
    assert sections(collect([runs])) == []
