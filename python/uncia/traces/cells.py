"""Cells as exact integers: decimal text in, int64 out, no floating point between.

Common forms are converted a column at a time; what has another form goes through `decimal` one by
one. Both give the same numbers. A quantity finer than its unit (a timestamp of twelve decimals, in
ns) is rounded to the nearest, halves away from zero.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from uncia.traces.base import Issues, Problem
from uncia.traces.csv import Block

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

NO_DATA: Final = ("", "NaN", "nan", "NA")
"""How the files write that there is nothing, as R and pandas do."""

MAX_QUANTITY: Final = 4 * 10**18
"""Largest time (127 years in ns) or size; the difference of two fits in int64."""

MAX_COUNT: Final = 10**15
"""Largest count of a cell; a thousand of them sum without overflow."""

_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_MAX_NUMBER_CHARS: Final = 1000
_IDENTIFIER: Final = r"^[!#-.0-~]{1,200}$"  # printable, without space, quotation mark and slash

# What the column-wise conversions take: 15 digits fit in int64 with any decimals that follow.
_FAST_COUNT_DIGITS: Final = 15
_WHOLE_WITH_POINT: Final = r"^[0-9]{1,15}\.0*$"


def count(text: str) -> int | None:
    """A number of invocations as ``12``, ``12.0`` or ``1.2e1``; None if it is no such number."""
    parts = _parts(text)
    if parts is None:
        return None
    negative, digits, exponent = parts
    if digits == 0:
        return 0
    if negative or len(str(digits)) + exponent > len(str(MAX_COUNT)):
        return None
    number, rest = divmod(digits, 10**-exponent) if exponent < 0 else (digits * 10**exponent, 0)
    return number if rest == 0 and number <= MAX_COUNT else None


def scaled(text: str, factor: int) -> int | None:
    """``text x factor`` to the nearest integer, halves away from zero; None if it is no number.

    A number above :data:`MAX_QUANTITY` is None too.
    """
    parts = _parts(text)
    if parts is None:
        return None
    negative, digits, exponent = parts
    if digits == 0:
        return 0
    if len(str(digits)) + exponent > len(str(MAX_QUANTITY)):
        return None
    number = digits * factor
    if exponent < 0:
        divisor = 10**-exponent
        number = (2 * number + divisor) // (2 * divisor)
    else:
        number *= 10**exponent
    return None if number > MAX_QUANTITY else -number if negative else number


def _parts(text: str) -> tuple[bool, int, int] | None:
    """Sign, digits and exponent of a decimal number, whose value is ``digits x 10^exponent``."""
    if len(text) > _MAX_NUMBER_CHARS or not _NUMBER.fullmatch(text):
        return None
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)  # the pattern lets no NaN or infinity pass
    return bool(sign), int("".join(map(str, digits))), exponent


def counts(texts: pa.StringArray) -> tuple[Ints, Bools]:
    """:func:`count` of every cell; returns the numbers and whether each is one (else -1)."""
    digits = pc.and_(
        pc.ascii_is_decimal(texts), pc.less_equal(pc.binary_length(texts), _FAST_COUNT_DIGITS)
    )
    if pc.all(digits, min_count=0).as_py():
        numbers = texts.cast(pa.int64())
        return _numpy(numbers), _all(len(texts))
    whole = pc.match_substring_regex(texts, _WHOLE_WITH_POINT)
    plain = pc.if_else(digits, texts, "0")
    plain = pc.if_else(whole, pc.replace_substring_regex(texts, r"\..*$", ""), plain)
    numbers = _numpy(plain.cast(pa.int64()))
    done = pc.or_(digits, whole).to_numpy(zero_copy_only=False).astype(bool)
    return _one_by_one(texts, numbers, done, count)


def quantities(texts: pa.StringArray, factor: int) -> tuple[Ints, Bools]:
    """:func:`scaled` of every cell; returns the numbers and whether each is one (else -1)."""
    fine = pc.match_substring_regex(texts, r"^-?[0-9]{1,8}(\.[0-9]{1,18})?$")
    simple = pc.if_else(fine, texts, "0")
    numbers = _products(simple, factor)
    done = fine.to_numpy(zero_copy_only=False).astype(bool)
    return _one_by_one(texts, numbers, done, lambda text: scaled(text, factor))


def _products(texts: pa.StringArray, factor: int) -> Ints:
    """``texts x factor``, of texts of at most 8 digits before and 18 after the point."""
    places = len(str(factor)) - 1
    if (
        factor == 10**places
        and not pc.any(
            pc.match_substring_regex(texts, rf"\.[0-9]{{{places + 1},}}"), min_count=0
        ).as_py()
    ):
        # The unscaled integer of such a decimal is the product; its high half is only the sign.
        exact = texts.cast(pa.decimal128(8 + places, places))
        halves = np.frombuffer(exact.buffers()[1], dtype="<i8")
        start = 2 * exact.offset
        return halves[start : start + 2 * len(exact) : 2].astype(np.int64)
    exact = texts.cast(pa.decimal128(26, 18))
    by = pa.scalar(Decimal(factor), pa.decimal128(11, 0))
    product = pc.round(pc.multiply(exact, by), 0, "half_towards_infinity")
    return _numpy(product.cast(pa.int64()))


def _one_by_one(
    texts: pa.StringArray, numbers: Ints, done: Bools, convert: Callable[[str], int | None]
) -> tuple[Ints, Bools]:
    if done.all():
        return numbers, done
    numbers, done = numbers.copy(), done.copy()
    left = np.flatnonzero(~done)
    for index, text in zip(left, texts.take(pa.array(left)).to_pylist(), strict=True):
        number = convert(text)
        numbers[index] = -1 if number is None else number
        done[index] = number is not None
    return numbers, done


def _numpy(array: pa.Array) -> Ints:
    numbers: Ints = array.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _all(length: int) -> Bools:
    return np.ones(length, dtype=bool)


@dataclass(frozen=True)
class _Finding:
    column: str
    bad: Bools
    expected: str
    why: str


@dataclass
class Checks:
    """Converts the cells of a block, and remembers which rows hold a cell that cannot be.

    Every method returns a value for every row; those of bad rows mean nothing, and
    :meth:`good` says which rows are left.
    """

    block: Block
    _found: list[_Finding] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Rows of the block."""
        return len(self.block.lines)

    def require(self, column: str, ok: Bools, expected: str, why: str = "") -> None:
        """Mark the rows as bad where ``ok`` is false.

        Args:
            column: the column that is to blame.
            ok: where it is good.
            expected: what a good cell is.
            why: the reason by which the rows are counted, if not made of column and expectation.
        """
        if not ok.all():
            self._found.append(_Finding(column, ~ok, expected, why))

    def bad(self) -> Bools:
        """The rows found bad so far."""
        bad = np.zeros(self.rows, dtype=bool)
        for finding in self._found:
            bad |= finding.bad
        return bad

    def identifier(self, column: str, *, optional: bool = False) -> pa.StringArray:
        """A name: printable ASCII without spaces, quotation marks and slashes.

        Args:
            column: which.
            optional: whether it may be empty or NaN.
        """
        texts = self.block.cells[column]
        ok = pc.match_substring_regex(texts, _IDENTIFIER).to_numpy(zero_copy_only=False)
        ok = ok.astype(bool) | self.absent(column) if optional else ok.astype(bool)
        self.require(column, ok, "a name of 1 to 200 characters without space or slash")
        return texts

    def absent(self, column: str) -> Bools:
        """Where the cell says that there is no data."""
        cells = self.block.cells[column]
        return _absent(cells)

    def quantity(
        self,
        column: str,
        factor: int,
        expected: str,
        *,
        negative: bool = False,
        optional: bool = False,
    ) -> tuple[Ints, Bools]:
        """Decimal cells times ``factor``.

        Args:
            column: which.
            factor: base units in the cell's unit, such as 10^9 ns in a second.
            expected: what a good cell is, for errors.
            negative: whether it may be negative.
            optional: whether it may be empty or NaN.

        Returns:
            The numbers, and where there is one: where the cell has data.
        """
        texts = self.block.cells[column]
        there = ~_absent(texts) if optional else _all(self.rows)
        if not there.all():
            texts = pc.if_else(pa.array(there), texts, "0")
        numbers, ok = quantities(texts, factor)
        self.require(column, ok if negative else ok & (numbers >= 0), expected)
        return numbers, there

    def whole(self, column: str, expected: str, *, optional: bool = False) -> tuple[Ints, Bools]:
        """Cells that hold a whole number from 0; returned as :meth:`quantity` does."""
        numbers, there = self.grid([column], expected, optional=optional)
        return numbers[:, 0], there[:, 0]

    def grid(
        self, columns: Sequence[str], expected: str, *, optional: bool = False
    ) -> tuple[Ints, Bools]:
        """Whole numbers from 0 in many columns at once.

        Returns:
            The numbers and where the cells have data, both of shape (rows, columns).
        """
        texts = pa.concat_arrays([self.block.cells[column] for column in columns])
        shape = (len(columns), self.rows)
        there = _all(len(texts))
        if optional:
            there = ~_absent(texts)
            if not there.all():
                texts = pc.if_else(pa.array(there), texts, "0")
        numbers, ok = counts(texts)
        if not ok.all():
            for index in np.flatnonzero(~ok.reshape(shape).all(axis=1)).tolist():
                self.require(columns[index], ok.reshape(shape)[index], expected)
        return numbers.reshape(shape).T, there.reshape(shape).T

    def good(self, issues: Issues) -> Bools:
        """The rows without a bad cell, which are counted; the others go to ``issues``, by line.

        Raises:
            UnciaError: there is a bad row, and the import is strict.
        """
        bad = self.bad()
        rows = np.flatnonzero(bad).tolist()
        for row, text in zip(rows, self.block.rows(rows), strict=True):
            issues.add(self._problem(row, text))
        issues.take(self.rows - len(rows))
        return ~bad

    def _problem(self, row: int, raw: str) -> Problem:
        """The leftmost bad cell of a bad row."""
        order = list(self.block.cells)
        finding = min(
            (finding for finding in self._found if finding.bad[row]),
            key=lambda finding: order.index(finding.column),
        )
        text = self.block.cells[finding.column][row].as_py()
        line = int(self.block.lines[row])
        return Problem(
            self.block.path, line, finding.column, text, finding.expected, finding.why, raw
        )


def _absent(texts: pa.StringArray) -> Bools:
    known = pa.array(NO_DATA, pa.utf8())
    found: Bools = pc.is_in(texts, value_set=known).to_numpy(zero_copy_only=False).astype(bool)
    return found
