"""The report as a reader has it: opened from disk in a headless Chromium, and clicked."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dcp.lab.build_report import build_report
from dcp.lab.report_html import Names, make_page
from dcp.lab.result_tables import DASH, Cell, Row, Section, Table, number
from tests.support.browser import CHROMIUM, Browser
from tests.support.report_runs import HOSTILE, troubled, write_run

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")

ROWS = "#runs .table tbody tr"
VISIBLE = "(selector) => [...document.querySelectorAll(selector)].filter((n) => n.checkVisibility())"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    runs = troubled(folder / "runs")
    write_run(runs, HOSTILE)
    return build_report([runs], folder / "out", (1000, 3000)).page


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture
def page(chromium: Browser, report: Path) -> Iterator[Browser]:
    """Freshly opened. Whatever a test does, the console stays silent and nothing is fetched."""
    chromium.resize(1280, 900)
    chromium.prefer("light")
    chromium.open(report)
    yield chromium
    assert chromium.complaints == []
    assert [url for url in chromium.requests if url != report.resolve().as_uri()] == []


def texts(page: Browser, selector: str) -> list[str]:
    return page.run(f"({VISIBLE})('{selector}').map((n) => n.textContent.trim())")


def choose(page: Browser, kind: str, name: str) -> None:
    index = page.run(
        f"[...document.querySelectorAll('[data-choose={kind}]')].findIndex((n) => n.textContent === '{name}')"
    )
    page.click(f"[data-choose={kind}][data-index='{index}']")


def spread(picture: bytes) -> float:
    """How much is drawn: a blank picture has no spread."""
    return float(np.asarray(Image.open(io.BytesIO(picture)).convert("L"), float).std())


def test_every_chart_has_its_lines(page: Browser):
    charts = page.run("document.querySelectorAll('svg.chart').length")
    assert charts == 6  # three environments, two metrics
    lengths = page.run("[...document.querySelectorAll('svg.chart .mean')].map((p) => p.getTotalLength())")
    assert len(lengths) == 10
    assert sum(length > 50 for length in lengths) == 8  # all but the two with a gap between two points
    assert page.run("[...document.querySelectorAll('svg.chart')].every((s) => s.getBoundingClientRect().width > 200)")
    assert len(texts(page, "#curves .panel h3")) == 3


def test_a_gap_stays_a_gap(page: Browser):
    """point_big_maze, dcp: 30, NaN, 50."""
    paths = page.run(
        "[...document.querySelectorAll('#curves article')].find((a) => a.textContent.includes('point_big_maze'))"
        ".querySelector('svg .mean').getAttribute('d')"
    )
    assert paths.count("M") == 2
    assert "L" not in paths


def test_an_environment_is_chosen_and_chosen_no_longer(page: Browser):
    everything = texts(page, f"{ROWS} td:first-child")
    choose(page, "environment", "point_u_maze")
    assert texts(page, "#curves .panel h3") == ["point_u_maze"]
    assert set(texts(page, f"{ROWS} td:first-child")) == {"point_u_maze"}
    choose(page, "environment", "point_u_maze")
    assert len(texts(page, "#curves .panel h3")) == 3
    choose(page, "environment", "point_big_maze")
    choose(page, "environment", "point_u_maze")
    assert len(texts(page, "#curves .panel h3")) == 2
    page.click("[data-everything=environment]")
    assert len(texts(page, "#curves .panel h3")) == 3
    assert texts(page, f"{ROWS} td:first-child") == everything


def test_a_method_is_chosen_in_curves_and_tables(page: Browser):
    choose(page, "method", "crl")
    assert set(texts(page, "#curves svg .label")) == {"crl"}
    assert set(texts(page, f"{ROWS} td:nth-child(2)")) == {"crl"}
    choose(page, "method", "dcp")  # both of all: the same as none
    assert "dcp" in texts(page, "#curves svg .label")


def test_a_table_is_sorted_by_a_click_and_back(page: Browser):
    column = "#runs .table thead th:nth-child(7)"  # success once
    values = f"{ROWS} td:nth-child(7)"
    before = texts(page, values)
    page.click(f"{column} button")
    sorted_ = texts(page, values)
    numbers = [float(text) for text in sorted_ if text not in (DASH, "NaN")]
    assert numbers == sorted(numbers, reverse=True)
    assert len(set(numbers)) > 3
    assert set(sorted_[len(numbers) :]) == {DASH}  # what was not measured comes last
    assert page.run(f"document.querySelector('{column}').ariaSort") == "descending"
    page.click(f"{column} button")
    assert texts(page, values)[: len(numbers)] == sorted_[: len(numbers)][::-1]
    assert texts(page, values)[-1] == DASH
    page.click(f"{column} button")
    assert texts(page, values) == before
    page.click("#runs .table thead th:nth-child(2) button")
    assert texts(page, f"{ROWS} td:nth-child(2)") == sorted(texts(page, f"{ROWS} td:nth-child(2)"))


def test_pointing_at_a_curve_tells_its_values(page: Browser):
    choose(page, "environment", "point_u_maze")
    page.move("article:not([hidden]) svg", 0.6)
    told = page.run("document.getElementById('tip').innerText")
    assert "2k steps · 2 min" in told
    assert "50.0 ± 24.8" in told  # dcp: 40, 50, 60
    assert "40.0  50.0  60.0" in told
    assert page.run("document.querySelectorAll('.cursor circle').length") >= 5
    page.move("h1")
    assert page.run("document.getElementById('tip').hidden")


def test_the_arrow_keys_tell_values_too(page: Browser):
    page.run("document.querySelector('[data-chart] svg').focus()")
    for _ in range(2):
        page.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight")
    assert "2k steps" in page.run("document.getElementById('tip').innerText")


def test_the_axis_is_switched_to_time(page: Browser):
    before = page.run("document.querySelector('svg .mean').getAttribute('d')")
    assert "3k steps" in texts(page, "svg .tick")
    page.click("[data-switch=axis][data-value=seconds]")
    assert "3 min" in texts(page, "svg .tick")
    assert page.run("document.querySelector('svg .mean').getAttribute('d')") == before  # a minute for each 1,000 steps
    page.move("[data-chart='0'] svg", 0.6)
    assert "2 min · 2k steps" in page.run("document.getElementById('tip').innerText")


def test_seeds_are_hidden_and_the_range_fits(page: Browser):
    assert page.run("document.querySelectorAll('svg .seed').length") > 5
    page.click("[data-switch=seeds][data-value=false]")
    assert page.run("document.querySelectorAll('svg .seed').length") == 0
    before = texts(page, "svg .tick")
    page.click("[data-switch=range][data-value=fit]")
    assert texts(page, "svg .tick") != before


def test_light_and_dark_follow_the_reader_and_the_switch(page: Browser):
    def ground() -> str:
        return page.run("getComputedStyle(document.body).backgroundColor")

    light = ground()
    page.prefer("dark")
    dark = ground()
    assert dark != light
    page.click("#theme")
    assert ground() == light
    page.click("#theme")
    assert ground() == dark
    assert page.run("getComputedStyle(document.querySelector('.chart .mean')).stroke") != "none"


def test_figures_are_in_the_page_and_not_blank_and_open_large(chromium: Browser, tmp_path: Path):
    """Their pixels, read back from the page itself. A run of a pusher brings a figure that the page does not draw."""
    write_run(tmp_path / "runs", "pusher_easy")
    chromium.resize(1280, 900)
    chromium.open(build_report([tmp_path / "runs"], tmp_path / "out", (1000, 3000)).page)
    spreads = chromium.run(
        "Promise.all([...document.querySelectorAll('.figure img')].map(async (image) => { await image.decode();"
        "const canvas = document.createElement('canvas'); canvas.width = canvas.height = 64;"
        "const pen = canvas.getContext('2d'); pen.drawImage(image, 0, 0, 64, 64);"
        "const grey = pen.getImageData(0, 0, 64, 64).data.filter((_, i) => i % 4 === 0);"
        "return Math.max(...grey) - Math.min(...grey); }))"
    )
    assert len(spreads) == 1
    assert min(spreads) > 40
    chromium.click("button.picture")
    assert chromium.run("document.getElementById('large').open")
    assert chromium.run("document.querySelector('#large img').naturalWidth") > 300
    chromium.click("#large img")
    assert not chromium.run("document.getElementById('large').open")
    assert chromium.complaints == []


def test_a_table_is_handed_out_as_latex(page: Browser, report: Path):
    page.call("Browser.setDownloadBehavior", behavior="deny")
    page.run(
        "const make = URL.createObjectURL; URL.createObjectURL = (blob) => make.call(URL, (window.given = blob)); 0"
    )
    page.click("#checkpoints [data-download=tex]")
    assert page.run("window.given.text()") == (report.parent / "tables" / "checkpoints_success_once.tex").read_text()


def test_a_phone_shows_everything_without_scrolling_sideways(page: Browser):
    page.resize(390, 844, 2.0)
    page.wait("document.querySelector('svg.chart').getBoundingClientRect().width < 390")
    assert page.run("document.documentElement.scrollWidth") == 390
    assert page.run("document.querySelectorAll('svg.chart .mean').length") == 10


def wide_table(name: str) -> Table:
    """As the paper's checkpoints: 14 columns, whose widest cells are these."""
    heads = (
        "Environment",
        "Method",
        "Seeds",
        *(f"{at}M{who}" for at in (10, 25, 50, 75, 100) for who in ("", " paper")),
    )
    cells = [Cell("humanoid_u_maze"), Cell("dcp"), Cell("5", 5), *(number(131.8, 113.5) for _ in heads[3:])]
    return Table(name, f"Table {name}", heads, (Row(tuple(cells)),) * 3, ("Said once.", f"Of {name} alone."))


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    section = Section("Checkpoints", "checkpoints", tables=(wide_table("one"), wide_table("two")))
    page = tmp_path_factory.mktemp("wide") / "page.html"
    data = {"axis": "steps", "metrics": [], "curves": []}
    page.write_text(make_page("wide", "", "", Names((), ()), [section], {}, data))
    return page


def test_no_column_of_a_wide_table_is_cut_at_1300_pixels_or_on_a_phone(chromium: Browser, wide: Path):
    chromium.resize(1300, 900)
    chromium.open(wide)
    fits = "[...document.querySelectorAll('.table .scroll')].every((n) => n.scrollWidth <= n.clientWidth)"
    assert chromium.run(fits)
    chromium.resize(390, 844)
    chromium.wait("getComputedStyle(document.querySelector('.table td')).display === 'flex'")
    assert chromium.run(fits) and chromium.run("document.documentElement.scrollWidth") == 390
    heads = "getComputedStyle(document.querySelectorAll('.table td')[4], '::before').content"
    assert chromium.run(heads) == '"10M paper"'  # a card has its headings


def test_a_footnote_is_said_once_on_a_page(chromium: Browser, wide: Path):
    chromium.resize(1300, 900)
    chromium.open(wide)
    assert texts(chromium, ".notes li") == [
        "Said once.",
        "Of one alone.",
        "Of two alone.",
        "Other notes: see Table one.",
    ]


def test_the_page_is_not_blank_in_light_dark_and_on_a_phone(page: Browser):
    page.middle("#curves svg")
    assert spread(page.screenshot()) > 5
    page.prefer("dark")
    assert spread(page.screenshot()) > 5
    page.resize(390, 844)
    assert spread(page.screenshot()) > 5


def test_hostile_names_run_nothing(page: Browser):
    """An alert would block the page; a smuggled picture would be a complaint."""
    assert page.run("document.querySelectorAll('img[src=x]').length") == 0
    assert page.run("document.querySelectorAll('script').length") == 2
    assert page.run("document.body.textContent").count("onerror") > 2  # shown, as text
