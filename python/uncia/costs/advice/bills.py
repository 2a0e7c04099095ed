"""The bill of every configuration under every tariff, whole and in random blocks of its rows.

The whole is exact. The blocks tell how much the cost of a row varies: a bootstrap draws them anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import ibis
import numpy as np
from ibis.expr import types as ir

from uncia.backends import Backend
from uncia.costs.advice.rows import Configuration
from uncia.stats import bootstrap
from uncia.stats.quantiles import Floats, Ints
from uncia.tariffs import Line, bill
from uncia.tariffs.compare import FitRule
from uncia.tariffs.model import Tariff

BLOCKS: Final = 64
"""Random blocks of a configuration's rows; the spread of a mean over 64 is known to some 9 %."""

MAX_IN_BLOCKS: Final = 100
"""Configurations that are billed in blocks at most; of more, each is billed whole, and no interval
is given."""

MIN_BLOCKS: Final = 20
"""Fewer than so many blocks with rows tell nothing of how costs vary."""

_MILLION: Final = 1_000_000


@dataclass
class Price:
    """What a tariff charges for the rows of a configuration.

    Attributes:
        rows: priced.
        cost: their bill, USD.
        fee: the fees in it.
        rounding: what granularities and minimums add to it.
        beyond: priced rows that exceed what the platform allows.
        unpriced: rows that cannot be priced, by reason.
        block_costs, block_rows: of each block with rows, by the block's name.
    """

    rows: int = 0
    cost: Fraction = Fraction(0)
    fee: Fraction = Fraction(0)
    rounding: Fraction = Fraction(0)
    beyond: int = 0
    unpriced: dict[str, int] = field(default_factory=dict)
    block_costs: dict[str, float] = field(default_factory=dict)
    block_rows: dict[str, int] = field(default_factory=dict)

    @property
    def per_million(self) -> Fraction | None:
        """Dollars for a million rows like these; None if none could be priced."""
        return self.cost * _MILLION / self.rows if self.rows else None

    def add(self, line: Line, block: str | None) -> None:
        """Add a line of the bill, that of a block or of all."""
        self.beyond += line.beyond_limits
        for reason, n in line.unpriced.items():
            self.unpriced[reason] = self.unpriced.get(reason, 0) + n
        if line.exact_cost is None or not line.rows:
            return
        self.rows += line.rows
        self.cost += line.exact_cost
        self.fee += Fraction(line.fee_usd or 0)
        self.rounding += Fraction(line.rounding_usd or 0)
        if block is not None:
            self.block_costs[block] = float(line.exact_cost)
            self.block_rows[block] = line.rows


Prices = dict[tuple[Configuration, str], Price]
"""(configuration, tariff's id) -> price."""


def prices(
    backend: Backend,
    table: ir.Table,
    tariffs: Sequence[Tariff | str | Path],
    *,
    fit: FitRule,
    configurations: int,
) -> Prices:
    """Bill each configuration.

    Args:
        backend: where it is computed.
        table: of `source_table`.
        tariffs: each bills by request.
        fit: how allocations become sizes.
        configurations: how many there are; it decides whether they are billed in blocks.
    """
    groups = ["function", "advice_platform", "advice_memory", "advice_cpu"]
    in_blocks = configurations <= MAX_IN_BLOCKS and "invocation" in table.schema()
    if in_blocks:
        table = table.mutate(advice_block=_block(table["invocation"]))
        groups.append("advice_block")
    result: Prices = defaultdict(Price)
    for line in bill(table, tariffs, groups, backend, fit=fit):
        group: Mapping[str, Any] = line.group
        config = Configuration(
            group["function"],
            group["advice_platform"],
            int(group["advice_memory"]),
            int(group["advice_cpu"]),
        )
        result[config, line.tariff].add(line, group["advice_block"] if in_blocks else None)
    return result


def _block(invocation: Any) -> Any:
    """One of `BLOCKS` names by the digest of an identifier, the same on every engine.

    The second hexadecimal digit is taken modulo 4: 16 x 4 blocks.
    """
    digest = digest_of(invocation)
    last = ibis.literal("0123456789abcdef").find(digest.substr(1, 1)) % 4
    return digest.substr(0, 1) + last.cast("string")


def digest_of(identifier: Any) -> Any:
    """A random-looking text of 32 hexadecimal digits, the same on every engine."""
    return identifier.cast("string").fill_null("").hexdigest("md5")


def saving(
    price: Price, present: Price, *, same_rows: bool, level: Fraction, labels: Sequence[str]
) -> tuple[Fraction | None, tuple[float, float] | None]:
    """What a million requests cost less than at present, with its bootstrap interval.

    Args:
        price: of the choice.
        present: of what is in use.
        same_rows: whether both are of the same rows; then the same blocks are drawn for both.
        level: of the interval.
        labels: what sets the random numbers apart from those of other choices.
    """
    cost, present_cost = price.per_million, present.per_million
    if cost is None or present_cost is None:
        return None, None
    difference = present_cost - cost
    if difference == 0 and price is present:
        return difference, (0.0, 0.0)
    if same_rows:
        common = sorted(set(price.block_rows) & set(present.block_rows))
        blocks = _blocks(price, common), _blocks(present, common)
        if len(common) < MIN_BLOCKS:
            return difference, None
        rng = bootstrap.generator(bootstrap.SEED, *labels)
        picks = rng.integers(0, len(common), (bootstrap.RESAMPLES, len(common)))
        draws = _per_million(blocks[1], picks) - _per_million(blocks[0], picks)
        return difference, bootstrap.interval(draws, level)
    drawn = []
    for side, side_price in (("choice", price), ("present", present)):
        names = sorted(side_price.block_rows)
        if len(names) < MIN_BLOCKS:
            return difference, None
        rng = bootstrap.generator(bootstrap.SEED, side, *labels)
        picks = rng.integers(0, len(names), (bootstrap.RESAMPLES, len(names)))
        drawn.append(_per_million(_blocks(side_price, names), picks))
    return difference, bootstrap.interval(drawn[1] - drawn[0], level)


def _blocks(price: Price, names: Sequence[str]) -> tuple[Floats, Ints]:
    costs = np.array([price.block_costs[name] for name in names], np.float64)
    return costs, np.array([price.block_rows[name] for name in names], np.int64)


def _per_million(blocks: tuple[Floats, Ints], picks: Any) -> Floats:
    costs, rows = blocks
    drawn: Floats = _MILLION * costs[picks].sum(axis=1) / rows[picks].sum(axis=1)
    return drawn
