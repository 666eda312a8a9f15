"""How figures are saved."""

from pathlib import Path

from matplotlib.figure import Figure

from dcp.lab.style import save


def test_a_figure_replaces_a_link_of_its_name_and_what_it_points_to_stays(tmp_path: Path):
    victim, link = tmp_path / "victim", tmp_path / "plots" / "curve.png"
    victim.write_text("mine")
    link.parent.mkdir()
    link.symlink_to(victim)
    save(Figure(), link)
    assert victim.read_text() == "mine" and not link.is_symlink()
    assert link.read_bytes().startswith(b"\x89PNG")
