"""A platform whose CPU and memory are counted: what does not fit waits, or is refused."""

import concurrent.futures
import itertools
from typing import Any

import botocore.exceptions
import pytest
from patience import scaled

from .conftest import OK, Serve
from .test_serving import log, wait_for

MIB = 1 << 20
ROOM = {"capacity_cpu_micro": 1_000_000, "capacity_memory_bytes": 512 * MIB}
WHOLE = {"uncia:cpu-micro": "1000000"}
SLEEP = """
import time

def handler(event, context):
    time.sleep(event.get("s", 0))
    return event.get("n")
"""


def test_what_does_not_fit_waits(serve: Serve) -> None:
    platform = serve(ROOM)
    for name in ("f", "g"):
        platform.create(name, SLEEP, Tags=WHOLE)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        calls = [threads.submit(platform.invoke, "fg"[n % 2], {"s": 0.2, "n": n}) for n in range(4)]
        assert [call.result()[1] for call in calls] == [0, 1, 2, 3]
    rows = sorted(log(platform), key=lambda row: int(row["started"]))
    assert [row["outcome"] for row in rows] == ["ok"] * 4
    for before, after in itertools.pairwise(rows):
        assert after["started"] >= before["ended"]


def test_an_interactive_request_takes_the_room_of_batch_work(serve: Serve) -> None:
    platform = serve({**ROOM, "policies": {"admission": "two-class"}})
    batch = {"uncia:qos": "batch", "uncia:preemptible": "true", **WHOLE}
    platform.create("batch", SLEEP, Tags=batch)
    platform.create("now", SLEEP, Tags=WHOLE)
    # Long enough for the other to come while it runs, however busy the machine is.
    with concurrent.futures.ThreadPoolExecutor() as threads:
        call = threads.submit(platform.invoke, "batch", {"s": scaled(4), "n": 1})
        wait_for(lambda: any(row["initialized"] for row in log(platform, "instances")))
        assert platform.invoke("now", {"n": 2})[1] == 2
        assert call.result()[1] == 1
    rows = {(row["function"], row["attempt"]): row for row in log(platform)}
    taken, again = rows["batch", 1], rows["batch", 2]
    assert (taken["outcome"], taken["billed"], again["outcome"]) == ("preempted", 0, "ok")
    assert taken["error"] == "stopped for the sake of another request"
    assert taken["invocation"] == again["invocation"]
    assert rows["now", 1]["outcome"] == "ok"
    assert again["started"] >= rows["now", 1]["ended"]


def refused(what: Any, *arguments: Any, **settings: Any) -> str:
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        what(*arguments, **settings)
    error = caught.value.response["Error"]
    assert error["Code"] == "InvalidParameterValueException"
    return str(error["Message"])


def test_what_is_larger_than_the_platform_is_refused(serve: Serve) -> None:
    platform = serve(ROOM)
    sentence = refused(platform.create, "f", OK, MemorySize=513)
    assert "has 513 MB of memory, and the platform 512 MB (capacity_memory)" in sentence
    sentence = refused(platform.create, "f", OK, Tags={"uncia:cpu-micro": "1500000"})
    assert "has 1.5 vCPU, and the platform 1 vCPU (capacity_cpu)" in sentence
    platform.create("f", OK, MemorySize=512)
    configure = platform.client.update_function_configuration
    assert "1024 MB" in refused(configure, FunctionName="f", MemorySize=1024)
    assert platform.invoke("f", {})[1] == {"got": {}}
    platform.stop()
    smaller = serve({**ROOM, "capacity_memory_bytes": 256 * MIB})
    assert "larger than the platform's capacity" in refused(smaller.invoke, "f")
    assert "256 MB" in refused(smaller.invoke, "f", InvocationType="Event")
    row = log(smaller)[-1]
    assert (row["outcome"], row["instance"]) == ("transport_error", None)
    # It can be made to fit, and changed otherwise before that.
    smaller.client.update_function_configuration(FunctionName="f", Description="large")
    smaller.client.update_function_configuration(FunctionName="f", MemorySize=256)
    assert smaller.invoke("f", {})[1] == {"got": {}}


def test_an_event_that_does_not_fit_any_more_ends(serve: Serve) -> None:
    platform = serve({**ROOM, "policies": {"admission": "reservations"}})
    platform.create("f", SLEEP, MemorySize=512)
    for _ in range(2):
        platform.invoke("f", {"s": scaled(60)}, InvocationType="Event")
    wait_for(lambda: len(log(platform, "instances")) > 0)
    platform.stop(9)
    smaller = serve({**ROOM, "capacity_memory_bytes": 256 * MIB})

    def ends() -> list[Any]:
        return [row["error"] for row in log(smaller) if row["outcome"] == "transport_error"]

    wait_for(lambda: sum("larger than" in (error or "") for error in ends()) >= 2)
