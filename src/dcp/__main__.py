"""`dcp` and `python -m dcp`: listen for Ctrl-C before anything heavy is imported, then run the command."""

import os
import sys

if __name__ == "__main__" and not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()):
    del sys.path[0]  # `python -m` puts the current folder first, where anything may lie

from dcp.machine.signals import stopped_at_once


def main() -> int:
    with stopped_at_once():
        from dcp.cli.main import main as run_command

        return run_command()


if __name__ == "__main__":
    sys.exit(main())
