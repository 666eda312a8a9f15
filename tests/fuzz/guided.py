"""Coverage-guided fuzzing of a loader by atheris (libFuzzer): python -m tests.fuzz.guided KIND RUNS

It begins with good files and with the mutations of `many_files`, keeps what reaches new lines of the readers, and ends
with an error at the first file that gives anything but a result or one sentence.
"""

import sys
import tempfile
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["dcp", "safetensors.numpy"], enable_loader_override=False):
    from dcp.errors import UserError
    from dcp.files import validation  # noqa: F401
    from dcp.policies import numpy_policy, policy_file  # noqa: F401
    from dcp.runs.training import train

from tests.fuzz.loaders import KINDS
from tests.support.tiny import tiny_config

FILES = {"policy": "policy.safetensors", "config": "config.json", "export": "policy.npz", "job": "job.json"}
SEEDS = 40


def main(argv: list[str]) -> None:
    kind, runs = argv[0], int(argv[1])
    folder = Path(tempfile.mkdtemp(prefix=f"dcp-guided-{kind}-"))
    run = train(tiny_config(), runs_dir=folder / "runs", display="none").folder
    assert run is not None
    loader = KINDS[kind](folder / kind, run)
    file, corpus = loader.folder / FILES[kind], folder / "corpus"
    corpus.mkdir()
    for number in range(SEEDS):
        if number:
            loader.write(Random(number))
        else:
            loader.write_good()
        (corpus / str(number)).write_bytes(file.read_bytes())
    loader.write_good()
    loader.load()

    def one(content: bytes) -> None:
        file.write_bytes(content)
        try:
            loader.load()
        except UserError as error:
            assert len(str(error).splitlines()) == 1

    # libFuzzer's limit counts the peak of the process that started this one: only single requests are limited.
    limits = ["-rss_limit_mb=0", "-malloc_limit_mb=1024", "-timeout=60"]
    atheris.Setup([sys.argv[0], f"-runs={runs}", "-seed=1", *limits, "-print_final_stats=1", str(corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
