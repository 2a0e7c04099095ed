"""The meter on the platform's page: what the invocations so far would have cost under each tariff.

Bills are computed here, by `uncia.tariffs`, from the rows of the platform's log, and only while
somebody has the page open. What then takes time is the number of refreshes, not of rows; so they
come as often as leaves their share of a CPU small.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Self

from uncia.errors import RunFailedError, UnciaError
from uncia.platforms.inquiries import fetch_page
from uncia.platforms.page import show_bills, wait_for_viewers
from uncia.report.numbers import count, usd

if TYPE_CHECKING:
    from uncia.tariffs import Line, Tariff
    from uncia.tariffs.running import RunningBill

_WAIT_S: Final = 30
"""Seconds after which it asks again whether somebody watches."""

_MIN_PAUSE_S: Final = 1.0
_MAX_PAUSE_S: Final = 10.0
_PAUSE_PER_CPU_S: Final = 60.0
"""Seconds between two refreshes for each second of CPU time that one takes."""

_CATCH_UP_PAUSE_PER_CPU_S: Final = 3.0
"""The same while there are older rows to bill: of the time before somebody watched."""

_RETRY_S: Final = 5.0
"""After a failure, seconds until the platform is asked again."""

_FAILURES_TOLD: Final = 3
"""So many failures in a row are reported: a platform that ends answers no more."""

_MAX_FUNCTIONS: Final = 40
"""Functions whose bills are shown: those with the most rows."""

_STOP_S: Final = 5.0


class Meter:
    """Bills a platform's invocations for its page, in a thread of its own.

    The thread ends with the platform; what it cannot compute it says on the page and to `warn`.
    """

    def __init__(
        self,
        address: str,
        after: int,
        chosen: Tariff,
        warn: Callable[[str], object],
    ) -> None:
        """Make the meter; it starts when it is entered.

        Args:
            address: a unix socket on which the platform listens.
            after: the id of the last invocation before the first that is billed.
            chosen: the tariff that the user has chosen; all others that can bill are shown, too.
            warn: receives the reason why there are no bills.
        """
        self._address: Final = address
        self._warn: Final = warn
        self._tally: Final = _Tally(chosen, after)
        self._ended: Final = threading.Event()
        self._failures = 0
        self._thread: Final = threading.Thread(target=self._run, name="meter", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._ended.wait(self._turn())
        except UnciaError as error:
            self._give_up(error.message)
        except Exception as error:  # noqa: BLE001 - a thread's errors are seen nowhere else
            self._give_up(f"{type(error).__name__}: {error}")
        finally:
            self._tally.close()

    def _turn(self) -> float:
        """Wait for somebody to watch, show bills, and return how long to wait, in seconds."""
        try:
            pause = self._refresh() if wait_for_viewers(self._address, _WAIT_S) else 0.0
        except RunFailedError as error:
            # The platform is busy, or ends: what was not fetched or shown is, the next time.
            self._tally.is_shown = False
            self._failures += 1
            if self._failures == _FAILURES_TOLD and not self._ended.is_set():
                self._warn(f"the page's bills are late: {error.message}")
            return _RETRY_S
        self._failures = 0
        return pause

    def _refresh(self) -> float:
        """Bill what is new, show it, and return how long to wait for the next time, in seconds."""
        is_first = self._tally.bill is None  # it takes a second of CPU time, and once
        started = time.thread_time()
        is_complete = self._tally.take(self._address)
        if is_complete is not None:
            show_bills(self._address, self._tally.bills(is_complete))
        used = time.thread_time() - started
        if is_complete is False:
            return min(_MIN_PAUSE_S, used * _CATCH_UP_PAUSE_PER_CPU_S)
        return (
            _MIN_PAUSE_S if is_first else min(_MAX_PAUSE_S, _MIN_PAUSE_S + used * _PAUSE_PER_CPU_S)
        )

    def _give_up(self, message: str) -> None:
        """Say on the page and to the user why there are no bills, unless the platform has ended."""
        if self._ended.is_set():
            return
        try:
            show_bills(self._address, {"error": message})
        except RunFailedError:
            return  # it has ended
        self._warn(f"the page shows no more bills: {message}")


@dataclass
class _Tally:
    """The rows that are billed, and their bills.

    Attributes:
        chosen: the tariff that the user has chosen.
        after: the id of the last row that was taken.
        missing: rows that the log had removed before they were billed.
        bill: made with the first rows, since it takes a second.
        is_shown: whether the bills were shown once.
    """

    chosen: Tariff
    after: int
    missing: int = 0
    bill: RunningBill | None = field(default=None)
    is_shown: bool = False

    def take(self, address: str) -> bool | None:
        """Bill a page of new rows.

        Returns:
            Whether that were all; None: there were none, and nothing is to be shown.
        """
        rows, last, more = fetch_page(address, "invocations", self.after, _ignore)
        self.missing += last - self.after - rows.num_rows
        self.after = last
        if self.bill is None:
            from uncia.tariffs.catalogue import resolve
            from uncia.tariffs.running import RunningBill

            others = [tariff for tariff in resolve(None) if tariff.id != self.chosen.id]
            self.bill = RunningBill(rows.schema, [self.chosen, *others])
        self.bill.add(rows)
        if rows.num_rows == 0 and not more and self.is_shown:
            return None
        self.is_shown = True
        return not more

    def bills(self, is_complete: bool) -> dict[str, Any]:
        """The bills as the page shows them."""
        assert self.bill is not None, "rows were taken"
        total, by_function = self.bill.lines()
        shown = sorted(by_function, key=lambda name: -by_function[name][0].total_rows)
        return {
            "rows": self.bill.rows,
            "is_complete": is_complete,
            "missing": self.missing,
            "tariffs": [_describe(tariff, self.chosen.id) for tariff in self.bill.tariffs],
            "total": [_entry(line) for line in total],
            "functions": [
                {"name": name, "lines": [_entry(line) for line in by_function[name]]}
                for name in shown[:_MAX_FUNCTIONS]
            ],
            "functions_left_out": max(0, len(shown) - _MAX_FUNCTIONS),
        }

    def close(self) -> None:
        """Release the engine that computes the bills."""
        if self.bill is not None:
            self.bill.close()


def _ignore(message: str) -> None:
    """Rows that a full disk holds up come later; who prints the invocations says so."""
    del message


def _describe(tariff: Tariff, chosen: str) -> dict[str, Any]:
    return {
        "id": tariff.id,
        "provider": tariff.provider,
        "summary": tariff.summary,
        "is_sold": tariff.sold,
        "is_chosen": tariff.id == chosen,
    }


def _entry(line: Line) -> dict[str, Any]:
    """A line in words: exact amounts as text, and shares of the bill to draw."""
    cost, fee = line.exact_cost, line.fee_usd
    parts: Mapping[str, Fraction] = line.exact_parts or {}
    amounts = {"fee": None if fee is None else Fraction(fee), **parts}
    entry: dict[str, Any] = {
        "cost": usd(cost),
        "exact": None if line.cost_usd is None else f"{line.cost_usd:f}",
        "million": usd(line.cost_usd_per_million),
        "parts": [
            {"name": name, "amount": usd(amount), "share": _share(amount, cost)}
            for name, amount in amounts.items()
        ],
        "rounding": usd(line.rounding_usd),
        "rows": count(line.rows),
    }
    notes = [f"{count(n)} not priced: {why}" for why, n in line.unpriced.items()]
    notes += [f"{count(n)} not charged for: {why}" for why, n in line.not_billable.items()]
    if line.beyond_limits:
        notes.append(f"{count(line.beyond_limits)} beyond the platform's limits")
    if notes:
        entry["notes"] = notes
    return entry


def _share(amount: Fraction | None, cost: Fraction | None) -> float:
    """A part of the bill between 0 and 1, to draw; a credit has none."""
    return round(float(amount / cost), 4) if amount and cost and amount > 0 else 0.0
