"""The Python of docs/deployment.md runs as it stands there, one block after the other."""

import re
import shutil
from pathlib import Path

import numpy as np

from dcp.deploy import numpy_policy
from dcp.deploy.export.write import export_policy
from tests.deploy.exports import ANT, ENDINGS, maze_inputs, saved, untrained

DOCS = Path(__file__).parents[2] / "docs" / "deployment.md"


def test_every_block_of_the_document_runs(tmp_path: Path, monkeypatch, capsys):
    folder = saved(tmp_path)
    for form in ENDINGS:
        export_policy(folder, form)
    shutil.copy(numpy_policy.__file__, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    state, goal = maze_inputs(ANT, 1)
    names = {"observation": state[0], "goal": goal[0]}
    want, actions = untrained("dcp")(state, goal)[0], []
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    for block in blocks:
        exec(compile(block, str(DOCS), "exec"), names)
        actions.append(np.array(names["action"]).reshape(-1))
    assert len(actions) == 7
    for action in actions[:-1]:  # the last block ends in a burst
        np.testing.assert_allclose(action, want, rtol=0, atol=1e-5)
    assert np.abs(actions[-1] - want).max() > 0.01
    assert "(0, 1) {'env': 'ant_u_maze'" in capsys.readouterr().out
