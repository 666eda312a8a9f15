"""What ends a command with a sentence instead of a traceback."""


class UserError(ValueError):
    """A user's mistake: one sentence that says what to do. The command line prints it and exits with code 2."""


class RunError(RuntimeError):
    """A run could not go on, through no mistake of its user: what happened and what was kept. Exit code 1."""
