"""Cells as exact integers: decimal text in, int64 out, no floating point between.

Common forms are converted a column at a time; what has another form goes through `decimal` one by
one. Both give the same numbers. (The quickest way reads doubles, but only to find the digits of
texts that have few of them; see `_by_digits`.) A quantity finer than its unit (a timestamp of
twelve decimals, in ns) is rounded to the nearest, halves away from zero.
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

from uncia.traces.base import Issues
from uncia.traces.csv import Block
from uncia.traces.rejected import Problem

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
_MAX_IDENTIFIER: Final = 200
_NAME: Final = f"a name of 1 to {_MAX_IDENTIFIER} characters without space or slash"
_IDENTIFIER: Final = (
    rf"^[!#-.0-~]{{1,{_MAX_IDENTIFIER}}}$"  # printable, without space, quotation mark and slash
)

# What the column-wise conversions take: 15 digits fit in int64 with any decimals that follow.
_FAST_COUNT_DIGITS: Final = 15
_WHOLE_WITH_POINT: Final = r"^[0-9]{1,15}\.0*$"
_FEW_CHARS: Final = 16  # 15 digits and a point: such numbers are far enough apart for a double

# See `_by_digits`: by factor, the bound below which six decimals tell the product.
_SIXTH: Final = 1e6
_TOLD_BY_SIX: Final = {10**9: 2.0**22, 10**6: 2.0**32, 1 << 20: 2.0**17}


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
    if (parsed := _whole_doubles(texts)) is not None:
        numbers, done = parsed
        return _one_by_one(texts, numbers, done, count)
    whole = pc.match_substring_regex(texts, _WHOLE_WITH_POINT)
    plain = pc.if_else(digits, texts, "0")
    plain = pc.if_else(whole, pc.replace_substring_regex(texts, r"\..*$", ""), plain)
    numbers = _numpy(plain.cast(pa.int64()))
    done = pc.or_(digits, whole).to_numpy(zero_copy_only=False).astype(bool)
    return _one_by_one(texts, numbers, done, count)


def _whole_doubles(texts: pa.StringArray) -> tuple[Ints, Bools] | None:
    """Whole numbers by way of doubles, and where that is sure; None if some text is no number.

    Of at most 15 digits and without an exponent, only a whole number is read as a whole double: any
    other differs from it by more than the double's rounding.
    """
    values = _doubles(texts)
    if values is None or _holds(texts, b"e", b"E"):
        return None
    short = _numpy(pc.binary_length(texts)) <= _FEW_CHARS
    done = short & (values >= 0) & (values <= MAX_COUNT)
    values[~done] = 0
    done &= np.rint(values) == values
    return values.astype(np.int64), done


def quantities(texts: pa.StringArray, factor: int) -> tuple[Ints, Bools]:
    """:func:`scaled` of every cell; returns the numbers and whether each is one (else -1)."""
    if (parsed := _by_digits(texts, factor)) is not None:
        numbers, done = parsed
        if done.all():
            return parsed
        left = np.flatnonzero(~done)
        numbers[left], done[left] = _by_decimals(texts.take(pa.array(left)), factor)
        return numbers, done
    return _by_decimals(texts, factor)


def _by_digits(texts: pa.StringArray, factor: int) -> tuple[Ints, Bools] | None:
    """Products of numbers with at most six decimals, and where that is sure.

    The double ``x`` nearest to a text is also the nearest to ``k / 10^6``, where ``k`` is the whole
    number nearest to ``x x 10^6``. So the text is within half a step of doubles of ``k / 10^6``,
    and its product is within ``2^-53 x factor`` of that of ``k / 10^6``. With factors 10^9 and
    10^6 the latter is whole, and stays the nearest while that is below a half, for ``x`` up to
    2^22. With 2^20 it is at least 2^-15 from a half (``k x 2^15 / 5^6`` is no odd number), which
    ``x`` up to 2^17 does not bridge.

    Returns:
        Numbers, and where they are right; None if the factor is another, or some text is no number.
    """
    values = _doubles(texts) if factor in _TOLD_BY_SIX else None
    if values is None:
        return None
    done = (values >= 0) & (values < _TOLD_BY_SIX[factor])
    if not done.all():
        values[~done] = 0
    sixths = np.rint(values * _SIXTH)
    done &= sixths / _SIXTH == values
    numbers = sixths.astype(np.int64)
    if factor == 1 << 20:
        return (numbers * (2 * factor) + 10**6) // (2 * 10**6), done
    return numbers * (factor // 10**6), done


def _doubles(texts: pa.StringArray) -> npt.NDArray[np.float64] | None:
    """The texts as doubles; None if some is no number."""
    try:
        values: npt.NDArray[np.float64] = texts.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return None
    return values.copy()  # the array itself is not to be written to


def _holds(texts: pa.StringArray, *parts: bytes) -> bool:
    """Whether any of the texts may hold one of the parts."""
    data = texts.buffers()[2]
    return data is not None and any(part in data.to_pybytes() for part in parts)


def _by_decimals(texts: pa.StringArray, factor: int) -> tuple[Ints, Bools]:
    fine = pc.match_substring_regex(texts, r"^-?[0-9]{1,8}(\.[0-9]{1,18})?$")
    simple = pc.if_else(fine, texts, "0")
    done = fine.to_numpy(zero_copy_only=False).astype(bool)
    quick = _by_digits(simple, factor)
    numbers = quick[0] if quick is not None and quick[1].all() else _products(simple, factor)
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
    # Not by dividing decimals: Arrow 26 has 137438953470 as the floor of 137438953471.99.
    before = pc.replace_substring_regex(texts, r"^-?([0-9]+).*$", r"\1")
    after = pc.replace_substring_regex(texts, r"^-?[0-9]+\.?", "")
    whole = _numpy(before.cast(pa.int64()))
    high, low = np.divmod(_numpy(pc.ascii_rpad(after, 18, "0").cast(pa.int64())), 10**9)
    more, rest = np.divmod(high * factor, 10**9)
    up = (rest * 10**9 + low * factor + 5 * 10**17) // 10**18
    nearest: Ints = whole * factor + more + up
    negative = pc.starts_with(texts, "-").to_numpy(zero_copy_only=False).astype(bool)
    nearest[negative] *= -1
    return nearest


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
    _findings: list[_Finding] = field(default_factory=list)

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
            self._findings.append(_Finding(column, ~ok, expected, why))

    def bad(self) -> Bools:
        """The rows found bad so far."""
        bad = np.zeros(self.rows, dtype=bool)
        for finding in self._findings:
            bad |= finding.bad
        return bad

    def identifier(self, column: str, *, optional: bool = False) -> pa.StringArray:
        """A name: printable ASCII without spaces, quotation marks and slashes.

        Args:
            column: which.
            optional: whether it may be empty or NaN.
        """
        texts = self.block.cells[column]
        ok = identifiers(texts)
        if optional and not ok.all():
            ok = ok | self.absent(column)
        self.require(column, ok, _NAME)
        return texts

    def names(
        self, column: str, distinct: pa.StringArray, codes: pa.Array, *, optional: bool = False
    ) -> None:
        """:meth:`identifier` of a column in which few texts repeat.

        Args:
            column: which.
            distinct: its texts.
            codes: which of them each row has; null where there is no data.
            optional: whether there may be none.
        """
        good = pa.array(identifiers(distinct)).take(codes).fill_null(optional)
        ok = good.to_numpy(zero_copy_only=False).astype(bool)
        self.require(column, ok, _NAME)

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
        present = ~_absent(texts) if optional else _all(self.rows)
        if not present.all():
            texts = pc.if_else(pa.array(present), texts, "0")
        numbers, ok = quantities(texts, factor)
        self.require(column, ok if negative else ok & (numbers >= 0), expected)
        return numbers, present

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
        cells = [self.block.cells[column] for column in columns]
        texts = cells[0] if len(cells) == 1 else pa.concat_arrays(cells)
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
        rows = np.flatnonzero(bad)
        for problem in self._problems(rows) if len(rows) else ():
            issues.add(problem)
        issues.take(self.rows - len(rows))
        return ~bad

    def _problems(self, rows: Ints) -> list[Problem]:
        """The leftmost bad cell of each of some bad rows."""
        order = {column: index for index, column in enumerate(self.block.cells)}
        findings = sorted(self._findings, key=lambda finding: order[finding.column])
        leftmost = np.argmax([finding.bad[rows] for finding in findings], axis=0)
        lines, raw = self.block.lines[rows].tolist(), self.block.rows(rows)
        problems: dict[int, Problem] = {}
        for index, finding in enumerate(findings):
            mine = np.flatnonzero(leftmost == index)
            texts = self.block.cells[finding.column].take(pa.array(rows[mine])).to_pylist()
            for row, text in zip(mine.tolist(), texts, strict=True):
                problems[row] = Problem(
                    self.block.path,
                    lines[row],
                    finding.column,
                    text,
                    finding.expected,
                    finding.why,
                    raw[row],
                )
        return [problems[row] for row in range(len(rows))]


def identifiers(texts: pa.StringArray) -> Bools:
    """Where a text is a name: printable ASCII without spaces, quotation marks and slashes."""
    if len(texts) and texts.offset == 0:
        lengths = np.diff(np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1))
        if lengths.min() > 0 and lengths.max() <= _MAX_IDENTIFIER:
            data = np.frombuffer(texts.buffers()[2], np.uint8, int(lengths.sum()))
            if data.min() > ord(" ") and data.max() <= ord("~") and not _holds(texts, b"/", b'"'):
                return _all(len(texts))
    matches: Bools = pc.match_substring_regex(texts, _IDENTIFIER).to_numpy(zero_copy_only=False)
    return matches.astype(bool)


def _absent(texts: pa.StringArray) -> Bools:
    shortest = pc.min(pc.binary_length(texts)).as_py()
    if shortest and not _holds(texts, b"N", b"n"):  # as in most columns of numbers
        return np.zeros(len(texts), dtype=bool)
    known = pa.array(NO_DATA, pa.utf8())
    absent: Bools = pc.is_in(texts, value_set=known).to_numpy(zero_copy_only=False).astype(bool)
    return absent
