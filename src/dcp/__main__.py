"""`dcp` and `python -m dcp`: listen for Ctrl-C before anything heavy is imported, then run the command."""

import _signal  # pyright: ignore[reportMissingImports]  # built in: other imports could swallow a KeyboardInterrupt
import sys

# Until the thread of machine/signals.py listens, the system ends the process at Ctrl-C.
if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import os

if __name__ == "__main__" and not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()):
    del sys.path[0]  # `python -m` puts the current folder first, where anything may lie

from dcp.machine.signals import stopped_at_once


def main() -> int:
    with stopped_at_once():
        from dcp.cli.main import main as run_command

        return run_command()


if __name__ == "__main__":
    sys.exit(main())
