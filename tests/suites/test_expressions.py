"""The grammar of claims: what it reads, and what it says of what it cannot read."""

from pathlib import Path

import pytest

from uncia.errors import UnciaError
from uncia.suites.expressions import parse, parse_value
from uncia.suites.metrics import all_metrics


@pytest.mark.parametrize(
    ("text", "terms", "operator", "above", "bound"),
    [
        ("warm.p50<5ms", ["warm.p50"], "", False, 5.0),
        ("warm.p99 > 1s", ["warm.p99"], "", True, 1000.0),
        ("idle-60.cold < 5%", ["idle-60.cold"], "", False, 5.0),
        ("a.mean / b.mean > 1.5", ["a.mean", "b.mean"], "/", True, 1.5),
        ("a.mean/b.mean > 50%", ["a.mean", "b.mean"], "/", True, 1.5),
        ("a.mean / b.mean < -20%", ["a.mean", "b.mean"], "/", False, 0.8),
        ("a.mean - b.mean > 2ms", ["a.mean", "b.mean"], "-", True, 2.0),
        ("a.mean - b.mean < -2ms", ["a.mean", "b.mean"], "-", False, -2.0),
        ("a.cold - b.cold > 5%", ["a.cold", "b.cold"], "-", True, 5.0),
        (
            "a.execution_mean > b.execution_mean",
            ["a.execution_mean", "b.execution_mean"],
            "/",
            True,
            1.0,
        ),
        ("a.cold < b.cold", ["a.cold", "b.cold"], "-", False, 0.0),
        ("a.tmr > 10", ["a.tmr"], "", True, 10.0),
        ("idle.idle_vcpu < 0.02vCPU", ["idle.idle_vcpu"], "", False, 0.02),
        ("a.cost:aws-lambda-x86 < 2USD", ["a.cost:aws-lambda-x86"], "", False, 2.0),
    ],
)
def test_a_claim_is_read(
    text: str, terms: list[str], operator: str, above: bool, bound: float
) -> None:
    comparison = parse(text)
    assert [str(term) for term in comparison.value.terms] == terms
    assert comparison.value.operator == operator
    assert comparison.above is above
    assert comparison.bound == pytest.approx(bound)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("warm.p50", "needs one < or >"),
        ("warm.p50 = 5ms", "needs one < or >"),
        ("1ms < warm.p50 < 5ms", "needs one < or >"),
        ("p50 < 5ms", "not an expression"),
        ("warm.p51 < 5ms", "there is no metric 'p51'"),
        ("warm.p50 < 5", "needs a unit"),
        ("warm.p50 < 5%", "needs a unit"),
        ("warm.cold < 5", "is not a unit of cold"),
        ("a.cold / b.cold > 2", "ratio of shares"),
        ("a.p50 - b.cold > 2ms", "different units"),
        ("a.p50 / b.cold > 2", "ratio of shares"),
        ("a.p50 / b.p50 > 2ms", "is not a unit of a ratio"),
        ("a.p50 / b.p50 > c.p50", "one of the two sides is a number"),
        ("a.cost > 2USD", "cost needs a tariff"),
        ("a.p50:slim > 2ms", "only cost has a tariff"),
    ],
)
def test_what_is_no_claim_is_refused(text: str, problem: str) -> None:
    with pytest.raises(UnciaError, match=problem):
        parse(text)


def test_a_misspelt_metric_is_told_the_nearest() -> None:
    with pytest.raises(UnciaError) as refused:
        parse_value("warm.execution_men")
    assert refused.value.hint == "Did you mean execution_mean?"


def test_every_metric_of_gates_is_one_of_claims() -> None:
    from uncia.stats.comparison import METRICS

    assert set(METRICS) <= set(all_metrics())


def test_every_metric_is_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "suites.md").read_text()
    table = page[page.index("| metric |") : page.index("## The listener")]
    assert [name for name in all_metrics() if f"`{name}`" not in table] == []
