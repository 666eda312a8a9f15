"""A display of one's own."""

from dcp.runs.display import Display
from dcp.runs.seeds import train_seeds
from tests.support.tiny import tiny_config


def test_your_own_display_hears_of_every_seed(tmp_path):
    seen = []

    class Seen(Display):
        def joined(self, seeds, unrolls, evaluations):
            seen.append(("joined", *seeds))

        def progress(self, progress):
            seen.append((progress.unrolls, progress.metrics and len(progress.metrics)))

        def evaluated(self, rows):
            seen.append(tuple(row["env_steps"] for row in rows))

    train_seeds(tiny_config(), (0, 7), runs_dir=tmp_path, display=lambda config, folder: Seen())
    assert seen[:4] == [("joined", 0, 7), (1, None), (2, None), (3, 2)]
    assert (2_400, 2_400) in seen and seen[-1] == (4_000, 4_000)
