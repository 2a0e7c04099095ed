"""The capacity that was found for a run: ``capacity.json`` in its folder.

Rates that are shares of a capacity are as sure as it is: anywhere between the highest rate that was
sustained and the lowest that was not.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from uncia.errors import RunFailedError, UnciaError

FILE: Final = "capacity.json"


@dataclass(frozen=True)
class KnownCapacity:
    """A capacity, between two rates.

    Attributes:
        search: which search it was; runs of the same functions on the same platform share one.
        per_s: the capacity, requests a second.
        low_per_s: the highest rate that is sustained.
        high_per_s: the lowest that is not.
        decided: whether every rate in between was judged, and both ends were confirmed.
    """

    search: str
    per_s: float
    low_per_s: float
    high_per_s: float
    decided: bool

    @classmethod
    def of(cls, search: str, known: dict[str, Any]) -> Self:
        """Of what `uncia capacity` says, as data; it has a capacity."""
        low, high = float(known["low_per_s"]), float(known["high_per_s"])
        return cls(search, float(known["capacity_per_s"]), low, high, bool(known["decided"]))

    def write(self, run: Path) -> None:
        """Write it into the folder of a run.

        Raises:
            RunFailedError: it cannot be written.
        """
        path = run / FILE
        try:
            path.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise RunFailedError(f"{path}: cannot be written: {error}") from error

    @classmethod
    def read(cls, run: Path) -> Self | None:
        """Read it from the folder of a run; None: none was searched.

        Raises:
            UnciaError: the file is damaged.
        """
        path = run / FILE
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, TypeError) as error:
            raise UnciaError(f"{path} is damaged: {error}") from error
