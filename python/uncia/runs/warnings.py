"""Which warnings of a run come first."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_LAST: Final = (
    # Few rows, or none to compare with: a property of the experiment, and in every run of it.
    re.compile(r"rests on fewer than the |^No experiment "),
    # What else ran on the machine.
    re.compile(
        r"^(During the run |Other processes used |The host kept |Tasks waited |A sleep of )"
    ),
    re.compile(r": the generator was late: "),
)
_FIRST: Final = re.compile(
    r"\b(failed|fails|dropped|lost|never sent|left out|no request|without a row|not written"
    r"|cannot|could not|not removed|refused|ended by itself|not closed|ended early|is missing"
    r"|not in the (?:tables|platform's log)|had not ended|did not log)\b",
    re.IGNORECASE,
)


def by_importance(warnings: Iterable[str]) -> list[str]:
    """Each warning once, those of lost work first, then others, noise and small samples last.

    Warnings are sentences, of platforms and programs as well, so what they are is told by words.
    """
    return sorted(dict.fromkeys(warnings), key=_rank)


def _rank(warning: str) -> int:
    for rank, pattern in enumerate(_LAST):
        if pattern.search(warning):
            return -rank + len(_LAST)
    return -1 if _FIRST.search(warning) else 0
