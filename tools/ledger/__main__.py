"""Start the ledger's command: `python -m tools.ledger`, from the repository's root."""

import os
import sys

if __name__ == "__main__":
    # `python -m` puts the current folder first on the path: a file there must not replace a library.
    if not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]
    from tools.ledger.commands import main

    sys.exit(main(sys.argv[1:]))
