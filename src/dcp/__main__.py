"""`python -m dcp` is the command `dcp`."""

import sys

from dcp.cli.main import run_as_module

if __name__ == "__main__":
    sys.exit(run_as_module())
