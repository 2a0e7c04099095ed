"""Errors for people: a sentence that says what was wrong, and a hint that says what to do."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


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


class Mistakes:
    """Collects errors in what a person wrote, so that all of them are reported at once.

    >>> mistakes = Mistakes()
    >>> for name in names:
    ...     with mistakes.collect():
    ...         check(name)
    >>> mistakes.raise_all()
    """

    def __init__(self) -> None:
        self._errors: list[UnciaError] = []

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Keep an error that is raised inside, and go on."""
        try:
            yield
        except UnciaError as error:
            self._errors.append(error)

    def raise_all(self) -> None:
        """Raise one error with a line for each that was collected, if there are any.

        :raises UnciaError: with the hints, each once.
        """
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            messages = dict.fromkeys(error.message for error in self._errors)
            hints = dict.fromkeys(error.hint for error in self._errors if error.hint)
            raise UnciaError("\n".join(messages), hint="\n".join(hints) or None)


def failures(checks: Iterable[Callable[[], object]]) -> str:
    """A sentence for each check that raises an :class:`UnciaError`, each once; "" if none does."""
    sentences = []
    for check in checks:
        try:
            check()
        except UnciaError as error:
            sentences.append(f"{error.message} ({error.hint})" if error.hint else error.message)
    return "; ".join(dict.fromkeys(sentences))
