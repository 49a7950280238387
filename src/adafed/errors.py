"""The one exception a user's mistake raises: a sentence that names the key, the value and what would be right."""


class AdafedError(ValueError):
    """Bad input, told in one sentence: the key, the value, what would be right. The command line prints it without a
    traceback and exits with 2."""


class NoClientLeft(AdafedError):
    """Every client of a round was dropped: the round can be skipped, the model is as it was."""


class OutOfRange(NoClientLeft):
    """The direction has numbers that the updates' type cannot hold, or cannot be found: the round can be skipped."""
