"""`dcp diagnose` on a run that trained for a moment, and what the report makes of it."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from dcp.cli.main import main
from dcp.errors import UserError
from dcp.lab.diagnose import PARTS
from dcp.lab.diagnose import results as diagnosis_results
from dcp.lab.diagnose.results import diagnosis_sections, figures, findings
from dcp.lab.run_collection import collect
from dcp.lab.style import save
from dcp.runs.training import TrainedRun


@pytest.fixture(scope="module")
def diagnosed(tiny_run: TrainedRun, tmp_path_factory) -> Path:
    """A copy of the run with its diagnosis, without figures."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    shutil.copytree(tiny_run.folder, folder)
    assert main(["diagnose", str(folder), "--episodes", "4", "--states", "32", "--no-figures"]) == 0
    return folder


def test_a_run_s_diagnosis_lies_in_its_folder(diagnosed: Path):
    content = diagnosis_results.read_diagnosis(diagnosed)
    assert content is not None and set(PARTS) <= set(content)
    assert (content["env"], content["episodes"], content["states"]) == ("point_u_maze", 4, 32)
    assert content["seconds"] > 0.0
    for kind in ("scorer", "random", "oracle"):
        assert 0.0 <= content["gaps"]["kinds"][kind]["state"]["mean"] <= 2.0
    assert list(content["controllability"]["steps"]) == ["1", "10", "50"]


def test_figures_are_drawn_whole(diagnosed: Path, tmp_path: Path):
    content = diagnosis_results.read_diagnosis(diagnosed)
    assert content is not None
    drawn = figures(content)
    assert list(drawn) == ["overview", "regime"]
    for name, make in drawn.items():
        file = save(make(), tmp_path / f"{name}.png")
        with Image.open(file) as picture:
            pixels = np.asarray(picture.convert("L"))
        assert len(np.unique(pixels)) > 50  # not blank
        assert np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]]).min() == 255, (
            file
        )  # nothing cut off


def test_only_one_part_is_measured(diagnosed: Path, tmp_path: Path, capsys):
    os.link(diagnosed / "policy.safetensors", tmp_path / "mine.safetensors")
    arguments = [str(tmp_path / "mine.safetensors"), "--only", "calibration", "--episodes", "4", "--states", "32"]
    assert main(["diagnose", *arguments, "--out", str(tmp_path / "here")]) == 0
    content = json.loads((tmp_path / "here" / "diagnosis.json").read_text())
    assert set(content) & set(PARTS) == {"calibration"}
    assert sorted(file.name for file in (tmp_path / "here").iterdir()) == ["diagnosis.json", "overview.png"]
    assert any("no config" in note for note in content["notes"])


def test_words_for_readers_who_have_not_read_the_paper(diagnosed: Path, tmp_path: Path, capsys):
    arguments = [str(diagnosed), "--skip", "controllability", "alignment", "--episodes", "4", "--states", "32"]
    assert main(["diagnose", *arguments, "--out", str(tmp_path), "--no-figures"]) == 0
    shown = capsys.readouterr().out
    assert (
        "Gap between the directions" in shown
        and "of random visited z" in shown
        and "Learned distance and steps to the goal" in shown
    )
    assert "Movable part" not in shown


def test_a_method_without_a_pool_is_not_said_to_train_with_waypoints(diagnosed: Path):
    content = diagnosis_results.read_diagnosis(diagnosed)
    assert content is not None and content["gaps"]["has_pool"]
    without = {**content, "gaps": {**content["gaps"], "has_pool": False}}
    (with_pool, crl) = (" ".join(_texts(figures(each)["overview"]())) for each in (content, without))
    assert "In training a waypoint replaces the goal" in with_pool and "chosen by" in with_pool
    assert "trains without waypoints" in crl and "chosen by" not in crl and "would choose" in crl
    assert "would choose" in findings(without)[0].measure and "would choose" not in findings(content)[0].measure


def _texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]


def test_the_histogram_of_cosines_names_the_measured_chance(diagnosed: Path):
    content = diagnosis_results.read_diagnosis(diagnosed)
    assert content is not None
    visited = {**content["alignment"]["visited"], "pulled_back": {"mean": 0.5}, "another_goal": {"mean": 0.25}}
    bare = {**content, "alignment": {"visited": visited}, "drawn": {"alignment": {"visited": [0.5, None, 0.5]}}}
    bare |= {part: None for part in ("gaps", "controllability", "calibration")}
    assert "Its cosine with the straight way, mean 0.50; chance 0.25" in _texts(figures(bare)["overview"]())


def test_the_report_shows_what_lies_there(diagnosed: Path):
    (section,) = diagnosis_sections(collect([diagnosed.parent]))
    assert len(section.figures) == 1 and section.figures[0].environment == "point_u_maze"
    (table,) = section.tables
    measures = [row.cells[2].text for row in table.rows]
    assert len(measures) == len(set(measures)) > 12
    said = diagnosis_results.read_diagnosis(diagnosed)
    assert said is not None
    gap = said["gaps"]["kinds"]["scorer"]["state"]["mean"]
    assert table.rows[0].cells[3].value == gap and table.rows[0].cells[3].text == f"{gap:.2f}"


@pytest.mark.parametrize(
    "content", ["", "[]", '{"schema_version": 1, "drawn": {}, "gaps": {"kinds": 3}}', '{"drawn": {}}']
)
def test_a_damaged_diagnosis_is_a_sentence_of_the_report(tiny_run: TrainedRun, tmp_path: Path, content: str):
    shutil.copytree(tiny_run.folder, tmp_path / "run")
    (tmp_path / "run" / "diagnosis").mkdir()
    (tmp_path / "run" / "diagnosis" / "diagnosis.json").write_text(content)
    (section,) = diagnosis_sections(collect([tmp_path]))
    assert "has no readable diagnosis" in section.text and not section.tables


def test_a_report_without_diagnoses_has_no_section(tiny_run: TrainedRun):
    assert diagnosis_sections(collect([tiny_run.folder])) == []


def test_figures_of_another_diagnosis_do_not_stay(diagnosed: Path, tmp_path: Path):
    content = diagnosis_results.read_diagnosis(diagnosed)
    assert content is not None
    for name in ("overview.png", "holiday.png"):
        (tmp_path / name).write_bytes(b"old")
    diagnosis_results.write_diagnosis(tmp_path, content, with_figures=False)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["diagnosis.json", "holiday.png"]
    assert list(figures({**content, "regime": {}})) == ["overview"]


BAD = [
    ([], "nothing to diagnose"),
    (["{run}", "--only", "gap"], "there is no part 'gap'"),
    (["{run}", "--only", "gaps", "--skip", "regime"], "give one of them"),
    (["{run}", "{run}", "--out", "here"], "several runs"),
    (["{run}", "--env", "pusher_easy"], "sizes"),
    (["{run}", "--episodes", "1"], "use 2 or more"),
    (["{run}/nothing"], "no policy at"),
    (["zoo/nothing/dcp"], "the zoo has no"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD, ids=[" ".join(arguments) or "nothing" for arguments, _ in BAD])
def test_a_mistake_is_one_sentence(diagnosed: Path, arguments: list[str], words: str, capsys):
    assert main(["diagnose", *(argument.format(run=diagnosed) for argument in arguments)]) == 2
    error = capsys.readouterr().err.strip()
    assert words in error
    assert "\n" not in error


def test_a_folder_that_cannot_be_written_is_one_sentence(diagnosed: Path, tmp_path: Path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert main(["diagnose", str(diagnosed), "--out", str(tmp_path / "file" / "here")]) == 2
    assert "choose another folder with --out" in capsys.readouterr().err


def test_a_result_of_another_version_is_refused(tmp_path: Path):
    (tmp_path / "diagnosis").mkdir()
    (tmp_path / "diagnosis" / "diagnosis.json").write_text('{"schema_version": 99, "drawn": {}}')
    with pytest.raises(UserError, match="has schema 99"):
        diagnosis_results.read_diagnosis(tmp_path)
