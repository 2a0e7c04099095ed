"""Words in messages."""

import difflib
from collections.abc import Iterable


def plural(count: int, noun: str) -> str:
    """Write a count with its noun: ``1 row``, ``1,200 rows``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The one of ``known`` that may have been meant by ``word``, which is none of them."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    # Two words of three letters are as near with one letter in common as with two.
    if close and len(word) <= 3 and word[:1] != close[0][:1]:
        return None
    return close[0] if close else None


def in_other_letters(name: str, known: Iterable[str]) -> str | None:
    """A hint where a name that is missing is there in letters of another case; else None."""
    alike = next((other for other in known if other.casefold() == name.casefold()), None)
    return None if alike is None else f"It has {alike}: rename that to {name}."


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about a word that is not known: ``, did you mean pmu?``, or nothing."""
    close = nearest(word, known)
    return f", did you mean {close}?" if close else ""
