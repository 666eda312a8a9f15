"""docs/reproduce.md has the list that `dcp paper` prints."""

import jax
import pytest

from tools.docs.pages import DOCS
from tools.docs.paper_list import NAME, fresh_list


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="only CPUs have a forecast")
def test_the_page_has_the_list_of_the_ledgers_runs():
    page = (DOCS / "reproduce.md").read_text()
    written = page.partition(f"<!-- {NAME} -->\n")[2].partition(f"\n<!-- /{NAME} -->")[0]
    assert written == fresh_list()  # else: python -m tools.docs.paper_list
