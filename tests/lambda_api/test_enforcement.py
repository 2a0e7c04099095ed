"""Event-driven enforcement as a setting, and what it leaves in the rows."""

import json
import signal
import urllib.request
from typing import Any

import pytest

from .conftest import Platform, Serve
from .test_serving import log

NS_PER_MS = 1_000_000
PERIOD_NS = 20 * NS_PER_MS
SHARE = 0.05

# Computes for about so many milliseconds without a look at any clock but the first and the last.
COMPUTE = """
import time
start = time.process_time_ns()
sum(range(1_000_000))
PER_MS = 1_000_000 * 1_000_000 // max(1, time.process_time_ns() - start)
def handler(event, context):
    for _ in range(event['ms']):
        sum(range(PER_MS))
"""


def health(platform: Platform) -> Any:
    with urllib.request.urlopen(f"http://{platform.address}/uncia/v1/health") as answer:
        return json.load(answer)


def create(platform: Platform, name: str, enforcement: str, vcpu: float) -> None:
    tags = {"uncia:enforcement": enforcement, "uncia:cpu-micro": str(round(vcpu * 1e6))}
    platform.create(name, COMPUTE, Tags=tags, Timeout=60)


def test_a_share_is_held_to_by_whoever_is_asked_to(serve: Serve) -> None:
    platform = serve({"pause_after_ms": 60_000})
    for name in ("kernel", "event-driven"):
        # So little that even on a busy machine the share, not the others, is what stops it.
        create(platform, name, name, SHARE)
        looks = health(platform)["enforcer"]["looks"]
        for _ in range(3):
            platform.invoke(name, {"ms": 30})
        assert (health(platform)["enforcer"]["looks"] > looks) == (name == "event-driven")
        rows = [row for row in log(platform) if row["function"] == name]
        assert len(rows) == 3
        for row in rows:
            assert row["throttled_count"] > 0
            assert 0 < row["throttled_time"] < row["execution"]
        # A tick's worth more than the periods that it touched have: neither gives away more, unless
        # the worker was late on a busy machine, which it is not each time.
        assert min(map(excess_ns, rows)) <= 8 * NS_PER_MS


def test_an_instance_without_a_quota_is_never_throttled(serve: Serve) -> None:
    platform = serve({"pause_after_ms": 60_000})
    create(platform, "free", "none", SHARE)
    platform.invoke("free", {"ms": 60})
    (row,) = log(platform)
    assert row["throttled_count"] == row["throttled_time"] == 0
    # What it is allocated is what it has set, all the same.
    assert row["allocated_cpu"] == round(SHARE * 1e6)


def excess_ns(row: dict[str, Any]) -> float:
    """CPU time beyond what the periods allow that an invocation touched."""
    used: int = row["cpu_user"] + row["cpu_system"]
    return used - (row["execution"] + PERIOD_NS) * SHARE


def test_the_platform_s_default_and_a_change_of_the_tag(serve: Serve) -> None:
    platform = serve({"enforcement": "event-driven", "pause_after_ms": 0})
    made = platform.create("f", COMPUTE)
    first = platform.headers("f", {"ms": 1})
    # Longer than its quota: the enforcer looks when that may be used up, and not before.
    platform.headers("f", {"ms": 30})
    assert health(platform)["enforcer"]["looks"] > 0
    arn = made["FunctionArn"]
    platform.client.tag_resource(Resource=arn, Tags={"uncia:enforcement": "kernel"})
    # What enforces is of the instance: the old one retires.
    assert platform.headers("f", {"ms": 1})["x-uncia-instance"] != first["x-uncia-instance"]
    with pytest.raises(platform.client.exceptions.InvalidParameterValueException) as message:
        platform.client.tag_resource(Resource=arn, Tags={"uncia:enforcement": "some"})
    assert "kernel, event-driven or none" in str(message.value)


def test_nothing_held_is_left_when_the_worker_is_killed(serve: Serve) -> None:
    platform = serve({"enforcement": "event-driven", "pause_after_ms": 60_000})
    # Works on in the background with a hundredth of a CPU, so that it is held almost all the time.
    work = (
        "import threading\n"
        "def work():\n    while True:\n        pass\n"
        "def handler(event, context):\n"
        "    threading.Thread(target=work, daemon=True).start()\n"
    )
    platform.create("f", work, Tags={"uncia:cpu-micro": "20000"}, Timeout=60)
    platform.invoke("f")
    platform.stop(signal.SIGKILL)
    # The next one sweeps what may be left before it listens; the fixture looks for the rest.
    assert serve().stop() == 0
