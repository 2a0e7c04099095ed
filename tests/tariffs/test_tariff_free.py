"""Free tiers: off by default, taken off once when asked for."""

from fractions import Fraction

import pytest
from tariff_rows import GB, MB, MS, S, row, table

from uncia.errors import UnciaError
from uncia.tariffs import Line, bill, get
from uncia.tariffs.free import Credit, credit
from uncia.tariffs.model import FreeTier, Tariff


def with_tier(name: str, **amounts: int) -> Tariff:
    tier = FreeTier(source="pricing", **amounts)
    return get(name).model_copy(update={"free_tier": tier})


def test_by_default_nothing_is_free() -> None:
    (line,) = bill(table([row()]), ["aws-lambda-x86"])
    assert line.free_usd is None
    assert line.cost_usd


def test_within_the_tier_nothing_is_charged() -> None:
    (whole,) = bill(table([row()] * 3), ["aws-lambda-x86"])
    (line,) = bill(table([row()] * 3), ["aws-lambda-x86"], free_tier=True)
    assert line.free_usd == whole.cost_usd
    assert line.cost_usd == 0
    assert line.fee_usd == whole.fee_usd  # what was billed stays to be seen


def test_beyond_the_tier_the_rest_is_charged() -> None:
    # 2 vCPU and 4 GB for 10 s: 20 vCPU-s and 40 GB-s, three times
    rows = [
        row(execution=10 * S, initialization=None, start="warm", allocated_cpu=2_000_000)
        | {"allocated_memory": 4 * GB}
    ] * 3
    tariff = with_tier("gcp-run-request", requests=1, vcpu_seconds=50, gb_seconds=1000)
    (line,) = bill(table(rows), [tariff], free_tier=True)
    expected = 2 * Fraction("0.0000004") + 10 * Fraction("0.000024")
    assert line.exact_cost == expected
    assert line.free_usd is not None
    (whole,) = bill(table(rows), [tariff])
    assert whole.exact_cost == expected + Fraction(line.free_usd)


def test_free_fees_are_no_share_of_the_bill() -> None:
    rows = [row(allocated_memory=128 * MB, allocated_cpu=0)] * 10
    (whole,) = bill(table(rows), ["aws-lambda-x86"])
    (line,) = bill(table(rows), [with_tier("aws-lambda-x86", requests=9)], free_tier=True)
    fee = Fraction("0.0000002")
    assert whole.exact_cost is not None
    assert line.exact_cost == whole.exact_cost - 9 * fee
    assert line.fee_share == fee / line.exact_cost
    assert line.rounding_share == 0  # of 1 s at 128 MB nothing is rounded
    # All fees are free, and most of the memory: what is left is charged for memory alone.
    (line,) = bill(table(rows), [with_tier("aws-lambda-x86", requests=99, gb_seconds=1)],
                   free_tier=True)  # fmt: skip
    assert (line.fee_share, line.rounding_share) == (0, None)
    assert line.exact_cost is not None
    assert line.exact_cost > 0


def test_a_tariff_without_a_tier_is_as_it_was() -> None:
    (whole,) = bill(table([row()]), ["spfu"])
    (line,) = bill(table([row()]), ["spfu"], free_tier=True)
    assert (line.cost_usd, line.free_usd) == (whole.cost_usd, 0)


def test_what_cannot_be_priced_has_no_credit() -> None:
    (line,) = bill(table([row(execution=None)]), ["aws-lambda-x86"], free_tier=True)
    assert isinstance(line, Line)
    assert (line.cost_usd, line.free_usd) == (None, None)
    assert credit(get("aws-lambda-x86"), line) == Credit()


def test_groups_have_no_free_tier_of_their_own() -> None:
    with pytest.raises(UnciaError, match="not for each group"):
        bill(table([row()]), ["aws-lambda-x86"], ["function"], free_tier=True)


def test_several_prices_for_a_resource_have_no_free_part() -> None:
    tariff = with_tier("aws-lambda-x86", gb_seconds=1)
    twice = tariff.model_copy(update={"charges": [*tariff.charges, *tariff.charges]})
    with pytest.raises(UnciaError, match="several prices for memory"):
        bill(table([row(execution=MS, allocated_memory=128 * MB)]), [twice], free_tier=True)


def test_amounts_that_cost_nothing_are_not_taken_off_those_that_do() -> None:
    # 1 GB allocated for a second costs nothing, 1 MB used does: free is at most what is charged.
    tariff = with_tier("azure-consumption", gb_seconds=400_000)
    paid = next(charge for charge in tariff.charges if charge.resource == "memory")
    free = paid.model_copy(update={"basis": "allocated", "price": "0"})
    both = tariff.model_copy(update={"charges": [paid, free]})
    rows = table([row(allocated_memory=GB, memory_avg=MB)])
    with pytest.raises(UnciaError, match="several prices for memory"):
        bill(rows, [both], free_tier=True)
