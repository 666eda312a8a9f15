"""`dcp envs` and `dcp methods` list every row of the tables."""

from types import SimpleNamespace

from dcp.cli.main import main
from dcp.envs.registry import ENVIRONMENTS
from dcp.methods.table import COMMANDS as COMMAND_ROWS
from dcp.methods.table import CONDITIONS, CRITICS, METHODS
from dcp.types import EnvSpec


def test_envs_lists_every_environment_with_its_sizes(capsys):
    assert main(["envs"]) == 0
    shown = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines()]
    assert {row[0] for row in rows if row} == set(ENVIRONMENTS)
    assert ["point_u_maze_inertia", "none", "4", "2", "2", "0, 1", "0.125", "250", ""] in rows
    assert max(len(line) for line in shown.splitlines()) <= 105


def test_envs_explains_once_what_fixed_repairs(capsys, monkeypatch):
    def toy(fixes: tuple[str, ...]):
        spec = EnvSpec("toy", 1, 1, 1, (0,), 0.5, 10, physics="spring", fixes=fixes)
        return lambda: SimpleNamespace(spec=spec)

    both = {"a": toy(("the ball rolls",)), "b": toy(("the box stands", "the ball rolls")), "c": toy(())}
    monkeypatch.setattr("dcp.envs.registry.ENVIRONMENTS", both)
    assert main(["envs"]) == 0
    shown = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines()]
    assert [row[-1] for row in rows if row] == ["1", "2, 1", ""]
    assert [line.split(maxsplit=1) for line in shown.splitlines() if line.startswith(("  1", "  2"))] == [
        ["1", "the ball rolls"],
        ["2", "the box stands"],
    ]


def test_methods_shows_the_three_columns_of_each_row(capsys):
    assert main(["methods"]) == 0
    shown = capsys.readouterr().out
    for name, row in METHODS.items():
        parts = COMMAND_ROWS.find(row.command), CONDITIONS.find(row.condition)
        columns = (name, *(part.__name__ for part in parts), row.actor_goal)
        assert any(all(f" {column} " in line for column in columns) for line in shown.splitlines())


def test_methods_shows_what_each_critic_gives_and_each_condition_needs(capsys):
    assert main(["methods"]) == 0
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    given = {row[0]: row[1:] for row in rows if len(row) == 3}
    assert given.keys() == {*CRITICS}
    assert ["steps", "steps to the goal"] in rows and ["raw_goal", "nothing"] in rows
    assert given["contrastive"] == ["distance in psi-space, embedding psi", "any condition but steps"]
    assert "steps to the goal" in given["tmd"][0] and given["tmd"][1] == "any condition"
    assert given["srl"] == ["chances not to have arrived before each step", "raw_goal: it has no psi"]


def test_methods_says_what_each_part_is(capsys):
    assert main(["methods"]) == 0
    shown = capsys.readouterr().out.partition("┃ part")[2]
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if "│" in line]
    assert {row[0] for row in rows if row[0]} == {*CRITICS, *COMMAND_ROWS, *CONDITIONS}
    assert ["final_goal", "Ask for the environment's own goal, as CRL does"] in rows
    assert all(row[1] for row in rows)
