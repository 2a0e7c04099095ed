"""What a shell completes as values of options and arguments: names that ship with Uncia.

Each function takes the beginning of a word, of which Typer keeps the names that continue it.
Modules are imported in them, as commands do without them elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable


def tariffs(incomplete: str) -> list[str]:
    """The ids of tariffs; files may stand in their place, which the shell completes itself."""
    del incomplete
    from uncia.tariffs import catalogue

    return list(catalogue.ids())


def traces(incomplete: str) -> list[str]:
    """The kinds of traces, and the word by which files tell theirs."""
    del incomplete
    from uncia.traces import AUTO, known

    return [AUTO, *known()]


def suites(incomplete: str) -> list[str]:
    """The names of suites."""
    del incomplete
    from uncia.suites import catalogue

    return list(catalogue.names())


def words(listed: str) -> Callable[[str], list[str]]:
    """A completion of words with ``|`` between them, as an option's help shows them."""

    def complete(incomplete: str) -> list[str]:
        del incomplete
        return listed.split("|")

    return complete
