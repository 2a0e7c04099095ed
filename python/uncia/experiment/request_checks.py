"""Checks of a table's rows before they are requests of a simulation.

Of what no request can be, an error says in how many rows it is, and which invocation is the first:
the table's own words, where the engine would know no more than the position of a request. What is
doubtful, yet can be simulated, is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from uncia.errors import Mistakes, UnciaError
from uncia.experiment.simulation import TraceOf
from uncia.text import plural
from uncia.units import MICRO_PER_VCPU, format_duration

_SCOPES: Final = ("run", "platform", "function")
"""Invocations have names of their own in each: regions of one provider have requests of the same
names, and some logs number them by function."""

COLUMNS: Final = (*_SCOPES, "invocation", "attempt")
"""Identify a row; the others that are checked make requests."""

_QUANTITIES: Final = (
    *("execution", "cpu_user", "cpu_system", "memory_avg", "memory_peak"),
    *("allocated_cpu", "allocated_memory", "spot_cpu"),
)
_OF_PHASES: Final = ("duration", "threads", "memory")
_MOST_VCPU: Final = 2**63 // MICRO_PER_VCPU
_ROUNDED_NS: Final = 500
"""What rounding to microseconds may change of a duration: so far may a sum of some be off."""

_SLOWER: Final = 1.01
"""Kernels end a slice of CPU time late, so that a little more than is allocated may be used."""

_Flags = npt.NDArray[np.bool_]


@dataclass
class _Flaw:
    """What is wrong with rows: a sentence about the first, and how many there are."""

    first: str
    count: int = 0


class Checks:
    """The checks of one table, some rows at a time.

    Attributes:
        above_spot: rows with more spot CPU than is allocated.
        above_cpu: rows that use more CPU than is allocated, and so take longer.
    """

    def __init__(self, path: Path, spec: TraceOf) -> None:
        self.above_spot = 0
        self.above_cpu = 0
        self._path = path
        self._spec = spec
        self._flaws: dict[str, _Flaw] = {}
        self._hashes: list[npt.NDArray[np.int64]] = []

    def add(self, rows: pa.Table) -> bool:
        """Check rows that are to be requests; whether all are right so far."""
        for name in _QUANTITIES:
            if (pc.min(rows[name]).as_py() or 0) < 0:
                below = pc.fill_null(pc.less(rows[name], 0), False).to_numpy()
                self._note(f"{name} is below 0", below, rows)
        self._add_phases(rows)
        self._add_cpu(rows)
        if self._spec.bb is None:  # those of a drawn trace are numbered
            self._hashes.append(_hashes(rows))
        return not self._flaws

    def compare(self, rows: pa.Table, phases: pa.Array) -> None:
        """Count rows that say or use more than is allocated to them; phases as the engine's."""
        allocated = pc.fill_null(rows["allocated_cpu"], self._spec.vcpu).to_numpy()
        spot = pc.fill_null(rows["spot_cpu"], 0).to_numpy()
        self.above_spot += int(np.count_nonzero(spot > allocated))
        lengths = pc.list_value_length(phases).to_numpy()
        some = lengths > 0
        if some.any():
            cpu = phases.flatten().field("cpu").to_numpy()
            most = np.maximum.reduceat(cpu, (np.cumsum(lengths) - lengths)[some])
            self.above_cpu += int(np.count_nonzero(most > allocated[some] * _SLOWER))

    def raise_flaws(self, again: Callable[[], Iterable[pa.Table]]) -> None:
        """Raise one error of all that is wrong.

        Args:
            again: reads the same rows once more, as two that may be the same are compared.

        Raises:
            UnciaError: something is; a sentence each.
        """
        mistakes = Mistakes()
        for what, flaw in self._flaws.items():
            with mistakes.collect():
                hint = None
                if what == _SUM:
                    hint = "Leave execution empty where the phases are right."
                raise UnciaError(
                    f"{self._path}: {what} in {plural(flaw.count, 'row')}, first {flaw.first}", hint
                )
        with mistakes.collect():
            self._check_once(again)
        mistakes.raise_all()

    def _note(self, what: str, flags: _Flags, rows: pa.Table, more: str = "") -> None:
        count = int(np.count_nonzero(flags))
        if not count:
            return
        if what not in self._flaws:
            name = rows["invocation"][int(np.argmax(flags))].as_py()
            self._flaws[what] = _Flaw(f"that of invocation {name!r}{more}")
        self._flaws[what].count += count

    def _add_phases(self, rows: pa.Table) -> None:
        lists = rows["phases"].combine_chunks()
        if lists.null_count == len(lists):
            return
        items = lists.flatten()
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()

        def note(what: str, flags: pa.Array) -> None:
            if pc.any(flags).as_py():
                parents = np.repeat(np.arange(len(lists)), lengths)
                of_rows: _Flags = np.zeros(len(lists), dtype=np.bool_)
                of_rows[parents[flags.to_numpy(zero_copy_only=False)]] = True
                self._note(what, of_rows, rows)

        for name in _OF_PHASES:
            note(f"{name} of a phase is below 0", pc.less(items.field(name), 0))
        above = pc.greater(items.field("threads"), _MOST_VCPU)
        note("threads of a phase are more than can be", above)
        ends = np.cumsum(lengths)
        sums = np.concatenate([[0], np.cumsum(items.field("duration").to_numpy())])
        sums = sums[ends] - sums[ends - lengths]
        known = pc.and_(pc.is_valid(lists), pc.is_valid(rows["execution"])).to_numpy()
        execution = pc.fill_null(rows["execution"], 0).to_numpy()
        is_off = known & (np.abs(sums - execution) > (lengths + 1) * _ROUNDED_NS)
        if is_off.any():
            first = int(np.argmax(is_off))
            total, execution_text = (
                format_duration(int(values[first])) for values in (sums, execution)
            )
            self._note(
                _SUM, is_off, rows, f": they last {total}, and its execution {execution_text}"
            )

    def _add_cpu(self, rows: pa.Table) -> None:
        """Check that the CPU of a row without phases is a number that the engine can take."""
        needed = pc.is_null(rows["phases"]).to_numpy()
        if not needed.any():
            return
        used = sum(
            pc.fill_null(rows[name], 0).to_numpy().astype(np.float64)
            for name in ("cpu_user", "cpu_system")
        )
        execution = pc.fill_null(rows["execution"], 0).to_numpy()
        absurd = needed & (used / np.maximum(execution, 1) >= _MOST_VCPU)
        self._note("CPU time is more than can be used in execution", absurd, rows)

    def _check_once(self, again: Callable[[], Iterable[pa.Table]]) -> None:
        """Check that no attempt of an invocation is there twice.

        Raises:
            UnciaError: one is.
        """
        if not self._hashes:
            return
        hashes = np.sort(np.concatenate(self._hashes))
        self._hashes.clear()
        suspects = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
        if not len(suspects):
            return
        # Others may have the same hash.
        seen: set[tuple[Any, ...]] = set()
        first: tuple[Any, ...] | None = None
        count = 0
        for rows in again():
            where = np.flatnonzero(np.isin(_hashes(rows), suspects))
            for key in _keys(rows.take(where)):
                if key in seen:
                    first = first or key
                    count += 1
                seen.add(key)
        if first is not None:
            *_, name, attempt = first
            raise UnciaError(
                f"{self._path}: the same attempt of the same invocation is there again in"
                f" {count:,} rows, first in that of invocation {name!r}, attempt {attempt}",
                "Rows that are requests of their own have an invocation of their own.",
            )


_SUM: Final = "phases do not add up to execution"


def _keys(rows: pa.Table) -> Iterable[tuple[Any, ...]]:
    """What identifies rows: in which run, platform and function, invocation and attempt."""
    scopes = (_words(rows[name]) for name in _SCOPES)
    names, attempts = rows["invocation"].to_numpy(), rows["attempt"].to_numpy().tolist()
    return zip(*scopes, names, attempts, strict=False)


def _words(column: pa.ChunkedArray) -> Iterable[Any]:
    """A column's texts; of one that has a single text, that again and again."""
    words = column.unique()
    if len(words) == 1:
        return repeat(words[0].as_py())
    texts: list[Any] = column.cast(pa.string()).to_pylist()
    return texts


def _hashes(rows: pa.Table) -> npt.NDArray[np.int64]:
    """Numbers that differ, but for chance, where rows are not the same: eight bytes a row."""
    return np.fromiter(map(hash, _keys(rows)), np.int64, rows.num_rows)
