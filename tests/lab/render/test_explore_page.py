"""What the page of `dcp explore` holds, without a browser: test_explore_browser.py opens it."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from dcp.cli.main import main
from dcp.envs.registry import make_env
from dcp.errors import EXIT_MISTAKE
from dcp.lab.pages import content_policy, script, script_json
from dcp.lab.paths import TruePaths
from dcp.lab.render.explore_page import LARGEST

U = make_env("point_u_maze_eval")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("explore") / "page.html"
    assert main(["explore", "zoo/point_u_maze/dcp", "zoo/point_u_maze/crl", "--out", str(out)]) == 0
    return out.read_text()


def inside(html: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_page_is_one_small_file_that_loads_nothing(page):
    assert len(page.encode()) < LARGEST
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|src=|@import|url\(|fetch\(|import\(|\{\{", page)
    assert "Permission to use, copy, modify" in page  # the licence of d3-contour goes where its code goes
    assert "script-src &#x27;sha256-" in page


def test_the_page_holds_both_policies_the_walls_and_the_pool(page):
    data = inside(page)
    assert [p["name"] for p in data["policies"]] == ["dcp", "crl"]
    assert [p["sees_direction"] for p in data["policies"]] == [True, False]
    assert data["plane"]["maze"]["rows"] == ["#####", "#...#", "###.#", "#...#", "#####"]
    assert (data["plane"]["low"], data["plane"]["high"]) == ([0.25, 0.25], [3.75, 3.75])
    assert data["state"] == [1.0, 1.0] and data["goal"] == [3.0, 1.0]  # the farthest goal by path
    pools = [p["pool"] for p in data["policies"]]
    assert np.shape(pools[0]["states"]) == (512, 2) and pools[0]["score"] == "inner_product" and pools[1] is None


def test_the_paths_in_the_page_are_those_of_the_maze(page):
    """Around the U maze's only inner wall, cell (2, 1) to (2, 2): its end has two corners, at y = 2.5."""
    paths = inside(page)["paths"]
    assert sorted(map(tuple, paths["corners"])) == [(1.5, 2.5), (2.5, 2.5)]
    np.testing.assert_allclose(paths["between"], [[0.0, 1.0], [1.0, 0.0]])
    assert np.shape(paths["boxes"]) == TruePaths(U.spec.maze).boxes.shape


@pytest.mark.parametrize(
    "arguments, said",
    [
        ([], "nothing to explore"),
        (["zoo/point_u_maze/dcp"] * 5, "5 policies do not fit side by side"),
        (["zoo/point_u_maze/dcp", "--out", "page.png"], "let its name end in .html"),
        (["zoo/point_u_maze/dcp", "zoo/ant_u_maze/dcp"], "sizes"),
        (["zoo/point_u_maze/dcp", "--episodes", "0"], "--episodes is 0"),
    ],
)
def test_a_mistake_gets_one_sentence(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["explore", *arguments]) == EXIT_MISTAKE
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1 and not list(tmp_path.iterdir())


def test_a_script_is_its_modules_in_the_order_of_their_imports():
    whole = script("explore/main.js")
    assert not re.search(r"^(import|export)\b", whole, re.MULTILINE)
    at = [whole.index(f"// {name}\n") for name in ("shared/packing.js", "explore/network.js", "explore/policy.js")]
    assert at == sorted(at)
    assert "contours: gn" in whole or re.search(r"return \{ contours: \w+ \};", whole)  # of a minified library


@pytest.mark.parametrize("name", ["explore", "viewer", "report"])
def test_every_module_of_a_page_is_in_it(name):
    whole, folder = script(f"{name}/main.js"), Path(script.__code__.co_filename).parent
    missing = [path.name for path in (folder / name).glob("*.js") if f"// {name}/{path.name}\n" not in whole]
    assert missing == []


def test_data_cannot_end_its_script_and_no_other_script_runs():
    assert "</script>" not in script_json({"name": "</script><script>alert(1)</script>"})
    assert json.loads(script_json({"name": "</b>&"})) == {"name": "</b>&"}
    assert "'unsafe-inline'" not in content_policy(["x"]).split("script-src")[1]
