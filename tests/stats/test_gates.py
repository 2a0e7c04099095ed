import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncia.errors import UnciaError
from uncia.stats.comparison import METRICS
from uncia.stats.gates import Gate, parse


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        ("p99>10%", Gate("p99>10%", None, "p99", None, True, 10.0, "change")),
        (" p50 < 5 % ", Gate("p50 < 5 %", None, "p50", None, False, 5.0, "change")),
        ("warm.p99>50ms", Gate("warm.p99>50ms", "warm", "p99", None, True, 50.0, "value")),
        ("warm.p99>+2s", Gate("warm.p99>+2s", "warm", "p99", None, True, 2000.0, "difference")),
        ("max>250us", Gate("max>250us", None, "max", None, True, 0.25, "value")),
        ("lag>1ms", Gate("lag>1ms", None, "lag", None, True, 1.0, "value")),
        ("cost:slim>5%", Gate("cost:slim>5%", None, "cost", "slim", True, 5.0, "change")),
        ("a.cost:s-*>1.5", Gate("a.cost:s-*>1.5", "a", "cost", "s-*", True, 1.5, "value")),
        ("cost>+2usd", Gate("cost>+2usd", None, "cost", None, True, 2.0, "difference")),
        ("failed>0", Gate("failed>0", None, "failed", None, True, 0.0, "value")),
        ("cold.cold<5%", Gate("cold.cold<5%", "cold", "cold", None, False, 5.0, "change")),
        (
            "warm.warmup.tmr>3x",
            Gate("warm.warmup.tmr>3x", "warm.warmup", "tmr", None, True, 3.0, "value"),
        ),
        ("pyaes-*.mean>1%", Gate("pyaes-*.mean>1%", "pyaes-*", "mean", None, True, 1.0, "change")),
    ],
)
def test_gates_that_are_right(text: str, gate: Gate) -> None:
    assert parse(text) == gate


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a gate"),
        ("p99", "not a gate"),
        ("p99>", "not a gate"),
        (">10%", "not a gate"),
        ("p99>=10%", "not a gate"),
        ("p99>ten%", "not a gate"),
        ("p99>1e3ms", "not a gate"),
        ("p99>10%%", "not a gate"),
        ("p99>10% and p50>5%", "not a gate"),
        ("p98>10%", "no metric 'p98'"),
        ("latency>10ms", "no metric 'latency'"),
        ("p99>10", "needs a unit"),
        ("p99>10x", "needs a unit"),
        ("lag>5", "needs a unit"),
        ("mr>3ms", "not a unit of mr"),
        ("cost>5ms", "not a unit of cost"),
        ("failed>3ms", "not a unit of failed"),
        ("failed>+3", "written in %"),
        ("p99:slim>10%", "only cost has a tariff"),
        ("p99>-10%", "disagree"),
        ("p99<+10ms", "disagree"),
    ],
)
def test_gates_that_are_wrong_say_why(text: str, says: str) -> None:
    with pytest.raises(UnciaError) as error:
        parse(text)
    assert says in error.value.message
    assert error.value.exit_code == 2
    assert error.value.hint


DOCS = Path(__file__).parents[2] / "docs"


def test_every_condition_in_the_docs_can_be_read() -> None:
    guide = (DOCS / "how-to" / "compare-in-ci.md").read_text(encoding="utf-8")
    reference = (DOCS / "reference" / "statistics.md").read_text(encoding="utf-8")
    table = reference.split("### Conditions")[1].split("| verdict |")[0]
    examples = re.findall(r"--fail-on '([^']+)'", guide)
    action = guide.split("conditions: |\n")[1].split("```")[0]
    examples += [line.strip() for line in action.splitlines() if line.strip()]
    examples += re.findall(r"`([^`\n]*[<>][^`\n]*)`", table)
    assert len(examples) >= 15
    for text in examples:
        parse(text)


@given(st.text(max_size=30))
def test_no_text_is_read_by_chance(text: str) -> None:
    try:
        gate = parse(text)
    except UnciaError:
        return
    assert gate.metric in METRICS
    assert (">" in text) == gate.rise
