"""A user's mistake: one sentence that says what to do. The command line prints it and exits with code 2."""


class UserError(ValueError):
    pass
