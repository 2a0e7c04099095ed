"""Functions that use more memory than the platform's capacity: the scheduler chooses who goes."""

import concurrent.futures
import time
import urllib.request
from concurrent.futures import Future
from typing import Any

import pytest
from patience import scaled

from .conftest import Platform, Serve
from .test_serving import log

MIB = 1 << 20
CORE = {"uncia:cpu-micro": "1000000"}
BATCH = {
    "uncia:cpu-micro": "1000000",
    "uncia:spot-cpu-micro": "1000000",
    "uncia:preemptible": "true",
    "uncia:qos": "batch",
}
# Holds so much memory for so long, or for good.
HOLD = """
import time

held = None

def handler(event, context):
    global held
    held = bytearray(event["mib"] << 20)
    held[::4096] = b"x" * len(held[::4096])
    end = time.monotonic() + event.get("s", 0)
    while event.get("burn") and time.monotonic() < end:
        pass
    time.sleep(max(0, end - time.monotonic()))
    if not event.get("keep"):
        held = None
    return event["n"]
"""


@pytest.fixture
def platform(serve: Serve) -> Platform:
    room = {"capacity_cpu_micro": 4_000_000, "capacity_memory_bytes": 300 * MIB}
    policies = {"admission": "leopard", "eviction": "least-lost-revenue"}
    return serve({**room, "policies": policies})


def create(platform: Platform, tags: dict[str, str], *names: str) -> None:
    for name in names:
        platform.create(name, HOLD, MemorySize=256, Tags=tags, Timeout=60)
        # What has no past is expected to use all that it may.
        assert platform.invoke(name, {"mib": 1, "n": 0})[1] == 0


def victims(platform: Platform) -> tuple[int, int]:
    with urllib.request.urlopen(f"http://{platform.address}/metrics", timeout=10) as answer:
        lines = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines())
    name = "uncia_memory_victims_total"
    cached, active = (int(lines[f'{name}{{state="{it}"}}']) for it in ("cached", "active"))
    # A decision takes time, and none takes longer than the longest.
    spent = float(lines["uncia_memory_decision_seconds_total"])
    longest = float(lines["uncia_memory_decision_longest_seconds"])
    decisions = int(lines["uncia_memory_decisions_total"])
    assert (spent > 0) == (decisions > 0) == (cached + active > 0)
    assert longest <= spent <= longest * decisions + 1e-9
    return cached, active


def begin(threads: Any, platform: Platform, name: str, event: dict[str, Any]) -> Future[Any]:
    """Begins an invocation, and waits until it should hold its memory."""
    call: Future[Any] = threads.submit(platform.invoke, name, event)
    time.sleep(scaled(0.7))
    assert not call.done()
    return call


def attempts(platform: Platform, function: str) -> list[str]:
    """How the attempts of a function's last invocation ended; what was stopped costs nothing."""
    rows = [row for row in log(platform) if row["function"] == function]
    rows = [row for row in rows if row["invocation"] == rows[-1]["invocation"]]
    assert [row["attempt"] for row in rows] == list(range(1, len(rows) + 1))
    preempted = [row for row in rows if row["outcome"] == "preempted"]
    assert all(row["billed"] == 0 for row in preempted)
    assert all("more memory than there is" in row["error"] for row in preempted)
    return [row["outcome"] for row in rows]


def test_the_active_one_with_least_to_lose_goes_and_runs_again(platform: Platform) -> None:
    create(platform, BATCH, "old", "young")
    s = scaled(2.5)
    # What is lost is the time by what is used now, most of all CPU.
    memory = {"mib": 180, "burn": True}
    with concurrent.futures.ThreadPoolExecutor() as threads:
        old = begin(threads, platform, "old", {**memory, "s": s, "n": 1})
        young = threads.submit(platform.invoke, "young", {**memory, "s": s / 4, "n": 2})
        assert (old.result()[1], young.result()[1]) == (1, 2)
    assert attempts(platform, "old") == ["ok"]
    taken, last = attempts(platform, "young")[:-1], attempts(platform, "young")[-1]
    assert (set(taken), last) == ({"preempted"}, "ok")
    assert victims(platform) == (0, len(taken))


def test_who_serves_nothing_goes_first(platform: Platform) -> None:
    create(platform, BATCH, "kept", "batch")
    assert platform.invoke("kept", {"mib": 180, "keep": True, "n": 1})[1] == 1
    assert platform.invoke("batch", {"mib": 180, "s": scaled(0.5), "n": 2})[1] == 2
    assert attempts(platform, "batch") == ["ok"]
    assert victims(platform) == (1, 0)
    rows = log(platform, "instances")
    (ended,) = [row["end_reason"] for row in rows if row["function"] == "kept"]
    assert ended == "evicted"
    assert platform.invoke("kept", {"mib": 1, "n": 3})[1] == 3


def test_who_is_not_preemptible_stays(platform: Platform) -> None:
    create(platform, BATCH, "batch")
    create(platform, CORE, "now")
    s = scaled(2)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        # It has more to lose.
        batch = begin(threads, platform, "batch", {"mib": 180, "s": s, "n": 1})
        now = threads.submit(platform.invoke, "now", {"mib": 180, "s": s / 2, "n": 2})
        assert (batch.result()[1], now.result()[1]) == (1, 2)
    assert attempts(platform, "now") == ["ok"]
    assert set(attempts(platform, "batch")[:-1]) == {"preempted"}


def test_many_that_want_too_much_all_end(platform: Platform) -> None:
    names = ("a", "b", "c", "d")
    create(platform, BATCH, *names)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        calls = [
            threads.submit(platform.invoke, names[n % 4], {"mib": 120, "s": 0.3, "n": n})
            for n in range(8)
        ]
        assert [call.result()[1] for call in calls] == list(range(8))
    rows = [row for row in log(platform) if row["outcome"] != "preempted"]
    assert [row["outcome"] for row in rows] == ["ok"] * 12
    assert len({row["invocation"] for row in rows}) == 12


def test_what_instances_leave_idle_lets_batch_work_in(serve: Serve) -> None:
    """Batch work that has a past runs beside one that leaves its CPU idle now."""
    room = {"capacity_cpu_micro": 1_000_000, "capacity_memory_bytes": 1024 * MIB}
    platform = serve({**room, "policies": {"admission": "leopard"}})
    create(platform, BATCH, "batch")
    create(platform, CORE, "now")
    burn = {"mib": 1, "s": scaled(0.3), "burn": True, "n": 1}
    for name in ("now", "batch"):
        for _ in range(3):
            assert platform.invoke(name, burn)[1] == 1
    # One that is there already may be used again, whatever others use.
    platform.client.update_function_configuration(
        FunctionName="batch", Environment={"Variables": {"other": "instances"}}
    )
    with concurrent.futures.ThreadPoolExecutor() as threads:
        now = begin(threads, platform, "now", {"mib": 1, "s": scaled(3), "n": 2})
        assert platform.invoke("batch", burn)[1] == 1
        assert now.result()[1] == 2
    rows = {row["function"]: row for row in log(platform)}
    assert rows["batch"]["started"] < rows["now"]["ended"]
