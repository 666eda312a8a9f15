"""What ends a command with a sentence instead of a traceback."""


class UserError(ValueError):
    """A user's mistake: one sentence that says what to do. The command line prints it and exits with code 2."""


class RunError(RuntimeError):
    """A run could not continue, through no mistake of its user: what happened and what was kept. Exit code 1."""


PACKAGE = "dcp-rl"  # the distribution's name. No package index has it yet, and `dcp` there is another project.


def install_hint(extra: str = "") -> str:
    """Return how to install dcp with an extra: from the repository that pyproject's urls name, or from a clone."""
    from importlib import metadata

    part = f"[{extra}]" if extra else ""
    try:
        urls = metadata.metadata(PACKAGE).get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        urls = []
    for url in urls:
        name, _, address = url.partition(", ")
        if name == "Repository":
            return f"pip install '{PACKAGE}{part} @ git+{address}'"
    return f"pip install '.{part}' in a clone of dcp" if extra else "pip install . in a clone of dcp"


# How a command ends. `dcp train` and the processes of `dcp grid` use the same numbers; cli/main.py has the sentences.
EXIT_FAULT, EXIT_MISTAKE, EXIT_INTERRUPTED = 1, 2, 130
EXIT_REQUEUE = 75  # sysexits' TEMPFAIL: stopped with a checkpoint
