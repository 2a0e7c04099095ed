"""Errors that a person sees: a sentence that says what was wrong, and what to do."""


class UnciaError(Exception):
    """A mistake in the input or the environment, as a sentence.

    Args:
        message: what was wrong and where (file, line, key, row).
        hint: what to do about it; shown on a line of its own.
        exit_code: the process exit code of a command that ends with this error
            (2 for bad input, 1 for a run or check that failed).
    """

    def __init__(self, message: str, hint: str | None = None, *, exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"


class RunFailedError(UnciaError):
    """Something ran and did not succeed; the process exits 1."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint, exit_code=1)
