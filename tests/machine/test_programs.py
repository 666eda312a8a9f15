"""One algorithm is compiled once on a machine, whatever its seed and budget."""

from dcp.algorithm import make_algorithm
from dcp.machine.programs import Programs
from tests.support.tiny import tiny_config


def test_runs_that_differ_only_in_seed_or_budget_share_their_programs():
    one, other = (Programs(make_algorithm(tiny_config(**settings))) for settings in ({"seed": 3}, {"steps": 12_000}))
    assert one.jitted is other.jitted
    assert one.jitted is not Programs(make_algorithm(tiny_config(discount=0.9))).jitted
    assert one.jitted is not Programs(make_algorithm(tiny_config()), donate=False).jitted
