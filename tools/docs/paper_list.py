"""Write the list of docs/reproduce.md: what `dcp paper` prints in a clone without runs, on two cores.

python -m tools.docs.paper_list
"""

import os
from unittest.mock import patch

from dcp.cli import paper
from dcp.lab.paper_artefacts import overview
from dcp.lab.result_tables import to_markdown
from dcp.lab.run_collection import collect
from tools.docs.pages import ROOT, put

NAME = "dcp paper"


def fresh_list() -> str:
    """Return the table and its notes, from the ledger alone."""
    collection = collect([ROOT / "ledger"])
    with patch.dict(os.environ, NPROC="2"):
        paper._whole.cache_clear()
        table = overview(collection, paper.hours_left, "paper")
    paper._whole.cache_clear()
    return to_markdown(table).split("\n\n", 1)[1].strip().replace("\\", "")


if __name__ == "__main__":
    put(NAME, fresh_list())
