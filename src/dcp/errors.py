"""What ends a command with a sentence instead of a traceback."""


class UserError(ValueError):
    """A user's mistake: one sentence that says what to do. The command line prints it and exits with code 2."""


class RunError(RuntimeError):
    """A run could not continue, through no mistake of its user: what happened and what was kept. Exit code 1."""


# How a command ends. `dcp train` and the processes of `dcp grid` use the same numbers; cli/main.py has the sentences.
EXIT_FAULT, EXIT_MISTAKE, EXIT_INTERRUPTED = 1, 2, 130
EXIT_REQUEUE = 75  # sysexits' TEMPFAIL: stopped with a checkpoint
