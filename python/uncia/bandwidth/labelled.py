"""Bills rows by a label that each was given, the fees apart from what resources cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from uncia.errors import UnciaError

if TYPE_CHECKING:
    import pyarrow as pa

    from uncia.tariffs import Line, Tariff

_LABEL: Final = "label"


@dataclass(frozen=True)
class Charge:
    """What a tariff charges for the rows of one label; US dollars.

    Attributes:
        label: the label.
        line: the line of the bill.
        resources_usd: the bill without invocation fees.
        fees_usd: invocation fees.
    """

    label: str
    line: Line
    resources_usd: Fraction
    fees_usd: Fraction

    @property
    def fee_usd(self) -> Fraction:
        """The fee of one invocation."""
        return self.fees_usd / self.line.rows


def charges(
    rows: pa.Table, labels: Mapping[str, str], tariffs: Sequence[Tariff]
) -> Iterator[Charge]:
    """Bill the rows that have a label, each label by itself.

    Args:
        rows: invocations.
        labels: by invocation id; rows without one are not billed.
        tariffs: what they are billed by.

    Raises:
        UnciaError: a tariff cannot price every row of a label.
    """
    import pyarrow as pa

    from uncia.tariffs import bill

    column = [labels.get(invocation) for invocation in rows.column("invocation").to_pylist()]
    labelled = rows.append_column(_LABEL, pa.array(column, pa.utf8()))
    labelled = labelled.filter(labelled.column(_LABEL).is_valid())
    for line in bill(labelled, list(tariffs), [_LABEL]):
        if line.rows != line.total_rows or line.exact_cost is None or line.fee_usd is None:
            reasons = ", ".join([*line.not_billable, *line.unpriced]) or "not priced"
            raise UnciaError(f"{line.tariff} cannot price every request: {reasons}")
        fees = Fraction(line.fee_usd)
        yield Charge(str(line.group[_LABEL]), line, line.exact_cost - fees, fees)
