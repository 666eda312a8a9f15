"""The report's page and files, read as text; test_report_browser.py opens it as a reader would."""

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from dcp.errors import UserError
from dcp.lab.build_report import Report, build_report, draw, episode_cards, runs_table, with_safe_names
from dcp.lab.curves import curve_data, curve_notes, numbers
from dcp.lab.pages import script_json
from dcp.lab.report_html import Names, figure_html, table_html
from dcp.lab.result_tables import DASH, Cell, FigureSpec, Row, Section, Table
from dcp.lab.run_collection import collect
from tests.support.report_runs import HOSTILE, troubled, write_gif, write_run

CHECKPOINTS = (1000, 3000)


class Page(HTMLParser):
    """Start tags with their attributes, and the text of the page's data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("report")
    runs = troubled(folder / "runs")
    write_run(runs, HOSTILE)
    write_run(runs, HOSTILE, seed=1, score=HOSTILE)
    return build_report([runs], folder / "out", CHECKPOINTS)


@pytest.fixture(scope="module")
def page(report: Report) -> Page:
    return Page(report.page.read_text())


def test_every_figure_is_there_as_png_and_pdf(report: Report):
    stems = {path.stem for path in (report.page.parent / "figures").iterdir()}
    assert {"curves_point_u_maze", "curves_point_big_maze"} <= stems
    for stem in stems:
        assert (report.page.parent / "figures" / f"{stem}.pdf").read_bytes().startswith(b"%PDF")
        with Image.open(report.page.parent / "figures" / f"{stem}.png") as picture:
            assert np.asarray(picture.convert("L")).std() > 1.0  # not blank


def test_every_table_is_there_as_csv_markdown_and_latex(report: Report, page: Page):
    tables = report.page.parent / "tables"
    names = {table["name"] for table in page.data["tables"]}
    assert "runs" in names
    assert {path.name for path in tables.iterdir()} == {f"{n}.{kind}" for n in names for kind in ("csv", "md", "tex")}
    for table in page.data["tables"]:
        assert table["texts"]["tex"] == (tables / f"{table['name']}.tex").read_text()
    assert len(names) == report.num_tables
    for path in tables.glob("*.csv"):
        head, *rows = list(csv.reader(path.open(newline="")))
        assert len(set(head)) == len(head) and {len(row) for row in rows} == {len(head)}, path.name
    with (tables / "runs.csv").open(newline="") as file:
        assert {row["seed"] for row in csv.DictReader(file)} <= {"", "0", "1", "2", "3", "4"}  # not 0.0


def test_a_mistake_leaves_no_folder(tmp_path: Path):
    with pytest.raises(UserError, match="no run below"):
        build_report([tmp_path], tmp_path / "out", CHECKPOINTS)
    assert not (tmp_path / "out").exists()


def test_the_page_loads_nothing(page: Page):
    for tag, attributes in page.tags:
        assert tag not in ("link", "iframe", "object", "embed")
        for name in ("src", "srcset", "poster", "data"):
            assert (attributes.get(name) or "data:").startswith("data:"), (tag, attributes)
        if tag == "a":
            assert not re.match(r"[a-z]+:|//", attributes["href"])
    [policy] = [a["content"] for tag, a in page.tags if tag == "meta" and "http-equiv" in a]
    assert policy.startswith("default-src 'none'")


def test_the_means_in_the_page_are_those_of_the_statistics(page: Page):
    u = page.data["curves"][
        [page.data["environments"][c["environment"]] for c in page.data["curves"]].index("point_u_maze")
    ]
    dcp, crl = u["groups"]
    assert page.data["methods"][dcp["method"]]["name"] == "dcp"
    success = dcp["metrics"]["success_once"]
    assert success["steps"] == [1000, 2000, 3000]
    assert success["seconds"] == [60, 120, 180]
    assert success["mean"] == [10, 50, 90]
    # 40, 50, 60: s = 10, t(0.975, 2) = 4.3027, 4.3027 * 10 / sqrt(3) = 24.841
    assert success["half"] == [0, pytest.approx(24.841, abs=1e-3), 0]
    assert crl["metrics"]["success_once"]["mean"] == [15, 30]  # as far as both seeds came
    assert [run["values"]["success_once"] for run in crl["runs"]] == [[10, 20, 30], [20, 40]]
    assert crl["metrics"]["time_near_goal"]["mean"] == [30, 60]


def test_a_nan_is_a_gap_and_one_seed_has_no_interval(page: Page):
    big = next(c for c in page.data["curves"] if page.data["environments"][c["environment"]] == "point_big_maze")
    dcp = big["groups"][0]["metrics"]["success_once"]
    assert dcp["mean"] == [30, None, 50]
    assert dcp["half"] == [None, None, None]


def test_what_is_not_whole_is_said_beside_the_curves(report: Report):
    u = " ".join(curve_notes(report.collection, "point_u_maze"))
    assert "crl's mean ends at 2k of 3k steps: seed 1 ended early." in u
    assert "dcp, crl: one seed, so no interval." in curve_notes(report.collection, "point_big_maze")


def test_seeds_that_share_no_evaluation_have_no_mean(tmp_path: Path):
    write_run(tmp_path, seed=0)
    other = write_run(tmp_path, seed=1)
    (other / "metrics.csv").write_text("env_steps,success_once,time_near_goal\n1500,0.5,1\n2500,0.5,1\n")
    collection = collect([tmp_path])
    [environment] = curve_data(collection, Names.of(collection))
    assert environment["groups"][0]["metrics"]["success_once"]["mean"] == []
    assert environment["groups"][0]["runs"][1]["seconds"] == [None, None]
    assert "never evaluated at the same step" in " ".join(curve_notes(collection, "point_u_maze"))


def test_the_state_of_every_run_comes_first(report: Report, page: Page):
    sections = [a["id"] for tag, a in page.tags if tag == "section"]
    assert sections[:2] == ["runs", "curves"]
    rows = {row.cells[3].text: row for row in runs_table(report.collection).rows}
    assert any(state.startswith("damaged") for state in rows)
    assert rows["no evaluation"].cells[6].text == DASH


def test_a_run_is_told_by_environment_and_method_numbers(page: Page):
    u, crl = page.data["environments"].index("point_u_maze"), [m["name"] for m in page.data["methods"]].index("crl")
    rows = [a for tag, a in page.tags if tag == "tr" and a.get("data-environment") == str(u)]
    assert any(row.get("data-method") == str(crl) for row in rows)
    panels = [a for tag, a in page.tags if tag == "article"]
    assert sorted(panel["data-environment"] for panel in panels) == ["0", "1", "2"]


def test_hostile_names_stay_text(report: Report, page: Page):
    assert HOSTILE in page.data["environments"]
    assert any(HOSTILE in method["name"] for method in page.data["methods"])
    assert not [tag for tag, a in page.tags if "onerror" in a]
    assert [a for tag, a in page.tags if tag == "script"] == [{"type": "application/json", "id": "data"}, {}]
    for path in report.page.parent.rglob("*"):
        assert re.fullmatch(r"[A-Za-z0-9_.-]+", path.name)


@pytest.mark.parametrize("hostile", ["</script>", "<!--<script>", "\u2028", "a & b"])
def test_data_in_a_script_cannot_end_it(hostile: str):
    text = script_json({hostile: [hostile, None]})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {hostile: [hostile, None]}


def test_numbers_that_are_not_finite_become_null():
    assert numbers([1.0, float("nan"), float("inf"), 2.34567], 3) == [1, None, None, 2.346]
    with pytest.raises(ValueError, match="not JSON compliant"):
        script_json(float("nan"))


def test_cells_carry_their_number_boldness_marker_and_hover():
    best = Cell("18.4 ± 5.4", 18.4, 5.4, bold=True, marker="†", hover="5 seeds <3")
    rows = (Row((Cell("<a>"), best), "point_u_maze", "dcp"), Row((Cell("b"), Cell(DASH, float("nan")))))
    names = Names(("point_big_maze", "point_u_maze"), ("dcp",))
    html = table_html(Table("t", "A & B", ("name", "success"), rows, ("† <note>",)), 3, names)
    assert '<tr data-environment="1" data-method="0"><td data-label="name" class="words">&lt;a&gt;</td>' in html
    assert 'data-value="18.4" title="5 seeds &lt;3"><b>18.4 ± 5.4</b><span class="marker">†</span></td>' in html
    assert f'<td data-label="success" class="missing">{DASH}</td>' in html  # nothing to sort by
    assert "<h3>A &amp; B</h3>" in html
    assert "<li>† &lt;note&gt;</li>" in html
    assert 'data-table="3" data-download="tex"' in html


def test_rows_of_one_environment_stand_together():
    names = Names(("u", "v"), ("dcp", "crl"))
    rows = [Row((Cell(env), Cell(method)), env, method) for env in ("u", "v") for method in ("dcp", "crl")]
    html = table_html(Table("t", "t", ("environment", "method"), tuple(rows)), 0, names)
    assert html.count('<tr class="first"') == 2
    assert 'class="words">u</td><td data-label="method" class="words"><i class="swatch m0"></i>dcp</td>' in html
    assert 'class="words again">u</td><td data-label="method" class="words"><i class="swatch m1"></i>crl</td>' in html


def test_names_of_files_are_plain_and_never_alike():
    figures = tuple(FigureSpec(name, "", Figure) for name in ("a/b", "a_b", "A_B", "../../etc", ""))
    [section] = with_safe_names([Section("t", "x y", figures)])
    assert [figure.name for figure in section.figures] == ["a_b", "a_b_2", "A_B_3", "etc", "part"]
    assert section.anchor == "x_y"


def lettered() -> Figure:
    figure = Figure(figsize=(1, 1))
    figure.text(0.5, 0.5, "a")
    return figure


def broken() -> Figure:
    raise UserError("the policy is damaged")


def test_a_figure_that_cannot_be_drawn_says_so_in_its_place(tmp_path: Path):
    figure = FigureSpec("f", "a <caption>", broken)
    said = draw(figure, tmp_path)
    assert said == "Not drawn: the policy is damaged."
    assert "the policy is damaged" in figure_html(figure, said, Names((), ()))
    assert list(tmp_path.iterdir()) == []


def test_a_figure_has_the_same_bytes_twice_and_fonts_that_journals_take(tmp_path: Path):
    spec = FigureSpec("f", "", lettered)
    for folder in ("a", "b"):
        draw(spec, tmp_path / folder)
    for name in ("f.png", "f.pdf"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert b"/Type3" not in (tmp_path / "a" / "f.pdf").read_bytes()


def test_a_dollar_in_a_name_is_a_dollar(tmp_path: Path):
    """Matplotlib takes what stands between two of them for mathematics, and this is none."""
    for at, method in enumerate(("dcp", "crl")):
        write_run(tmp_path / "runs", r"my$\frac$maze", method=method, seed=at)
    report = build_report([tmp_path / "runs"], tmp_path / "out", CHECKPOINTS)
    assert report.num_figures == len(list((tmp_path / "out" / "figures").glob("*.pdf"))) > 0


def test_a_colour_belongs_to_a_method_in_every_figure():
    names = Names(("e",), ("dcp", "crl", "mine"))
    assert names.colours["dcp"] == "#0072B2"
    assert "--m0: #0072B2;" in names.styles()
    assert "--m0: #4DA6E0;" in names.styles()  # on a dark ground


def test_each_method_shows_an_episode_of_its_first_seed_while_there_is_room(tmp_path: Path, monkeypatch):
    for method in ("dcp", "crl", "ssgc"):
        for seed in range(2):
            size = write_gif(write_run(tmp_path, method=method, seed=seed) / "plots" / "episode.gif").stat().st_size
    (tmp_path / "point_u_maze" / "dcp" / "seed_0" / "videos").mkdir()
    (tmp_path / "point_u_maze" / "dcp" / "seed_0" / "videos" / "javascript:x y.mp4").write_bytes(b"")
    (tmp_path / "point_u_maze" / "crl" / "seed_0" / "plots" / "episode.gif").write_bytes(b"no gif")
    monkeypatch.setattr("dcp.lab.build_report.GIF_BYTES", size)
    collection = collect([tmp_path])
    cards = episode_cards(collection, Names.of(collection), tmp_path / "out")
    assert cards.count('class="episode"') == 3 and "seed 1" not in cards
    assert cards.count('src="data:image/gif;base64,R0lGOD') == 1  # dcp's; crl's is none, and ssgc's no longer fits
    assert cards.count('href="../point_u_maze/crl/seed_0/plots/episode.gif"') == 1
    assert "../point_u_maze/dcp/seed_0/videos/javascript%3Ax%20y.mp4" in cards


def test_runs_without_any_evaluation_still_make_a_report(tmp_path: Path):
    write_run(tmp_path / "runs", success=())
    report = build_report([tmp_path / "runs"], tmp_path / "out", CHECKPOINTS)
    assert "No run has an evaluation yet." in report.page.read_text()
    assert report.collection.groups == {}
