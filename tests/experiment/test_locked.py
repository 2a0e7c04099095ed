"""Arrivals in step with the CPU quota's period are warned of: by the plan, and by the rows."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from uncia import record, yamlio
from uncia.experiment import checks, locked
from uncia.experiment.plan import Plan
from uncia.experiment.planning import plan
from uncia.experiment.sources import Sources

MS = 1_000_000


def planned(arrivals: dict[str, Any], **file: Any) -> tuple[Plan, Sources]:
    data = {
        "name": "sample",
        "seed": 1,
        "platform": {"kind": "embedded"},
        "functions": {"spin": {"source": "spin", "memory": "512MB"}},
        "experiments": {"only": {"function": "spin", "arrivals": arrivals}},
        **file,
    }
    document = yamlio.load(yaml.safe_dump(data), "e.yaml")
    sources = Sources(document, Path())
    return plan(checks.check(document), sources), sources


def constant(rate: str, kind: str = "constant") -> dict[str, Any]:
    return {"kind": kind, "rate": rate, "duration": "10s"}


@pytest.mark.parametrize(
    ("arrivals", "is_in_step"),
    [
        (constant("5/s"), True),
        (constant("50/s"), True),
        (constant("5/s", "random_phase"), True),
        ({"kind": "burst", "sizes": [3], "bursts": 4, "interval": "60ms"}, True),
        (constant("7/s"), False),
        (constant("100/s"), False),
        (constant("5/s", "poisson"), False),
        ({"kind": "burst", "sizes": [3], "bursts": 4, "interval": "70ms"}, False),
        ({"kind": "burst", "sizes": [3], "bursts": 1}, False),
    ],
)
def test_a_plan_warns_of_gaps_of_whole_periods(arrivals: dict[str, Any], is_in_step: bool) -> None:
    message = locked.expected(*planned(arrivals))
    assert bool(message) == is_in_step
    assert all("only: requests of spin come every " in text for text in message)


def test_nobody_reads_the_durations_of_warm_ups() -> None:
    warmup = {"warmup": constant("5/s")}
    result, sources = planned(constant("7/s"))
    only = {"function": "spin", "arrivals": constant("7/s"), **warmup}
    warmed, _ = planned({}, experiments={"only": only})
    assert [it.name for it in warmed.experiments] == ["only.warmup", "only"]
    assert locked.expected(warmed, sources) == []
    prepared = rows(6, 200).set_column(
        rows(6, 200).column_names.index("experiment"), "experiment", pa.array(["only.warmup"] * 12)
    )
    assert locked.observed(warmed, prepared) == []
    assert locked.observed(result, rows(6, 200)) != []


def test_only_where_a_quota_holds_a_thread_back() -> None:
    whole = {"functions": {"spin": {"source": "spin", "memory": "1769MB"}}}
    assert not locked.expected(*planned(constant("5/s"), **whole))
    share = {"functions": {"spin": {"source": "spin", "memory": "2GB", "cpu": "0.5vCPU"}}}
    assert locked.expected(*planned(constant("5/s"), **share))
    longer = {"platform": {"kind": "embedded", "period": "150ms"}}
    assert not locked.expected(*planned(constant("5/s"), **longer))
    assert locked.expected(*planned(constant("20/min"), **longer))
    url = {
        "platform": {"kind": "http"},
        "functions": {"spin": {"url": "http://127.0.0.1:1/"}},
    }
    assert not locked.expected(*planned(constant("5/s"), **url))


def rows(cpu_ms: float, gap_ms: int, count: int = 12) -> pa.Table:
    columns = {
        "experiment": ["only"] * count,
        "function": ["spin"] * count,
        "invocation": [str(number) for number in range(count)],
        "attempt": [1] * count,
        "outcome": ["ok"] * count,
        "scheduled": [number * gap_ms * MS for number in range(count)],
        "cpu_user": [int(cpu_ms * MS)] * (count - 1) + [None],
        "cpu_system": [0] * count,
        "allocated_cpu": [289_429] * count,
    }
    return record.conform(pa.table(columns), "invocations", 0)


def test_a_run_warns_when_its_requests_used_the_quota_up() -> None:
    result, _ = planned(constant("5/s"))
    (message,) = locked.observed(result, rows(6, 200))
    assert "came at multiples of 200 ms" in message
    assert "11 of 12 needed more CPU time than the quota of one" in message
    # 0.289 of 20 ms are 5.79 ms.
    assert not locked.observed(result, rows(5, 200))
    assert not locked.observed(result, rows(6, 190))
    assert not locked.observed(result, rows(6, 200, count=5))
