"""Errors for people: a sentence that says what was wrong, and a hint that says what to do."""


class UnciaError(Exception):
    """A mistake in the input or the environment.

    Args:
        message: what was wrong and where (file, line, key, row), as a sentence.
        hint: what to do about it; shown on the next line.
        exit_code: of a command that ends with this error (2: bad input; 1: a run or a check
            failed).
    """

    def __init__(self, message: str, hint: str | None = None, *, exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"


class RunFailedError(UnciaError):
    """A run that began and failed; the process exits 1."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint, exit_code=1)
