"""Settings of a function by tag: what they do, what of them is in the rows."""

import time
from typing import Any

from patience import scaled

from .conftest import Serve
from .test_serving import log

PATIENCE_S = scaled(90)


def test_instances_are_kept_ready_without_a_request(serve: Serve) -> None:
    platform = serve({"pause_after_ms": 0, "keep_alive_ms": 1})
    made = platform.create("ready", Tags={"uncia:min-instances": "2"})
    deadline = time.monotonic() + PATIENCE_S
    while len(instances := log(platform, "instances")) < 2:
        assert time.monotonic() < deadline, "no instance was started"
        time.sleep(0.05)
    assert [row["invocations"] for row in instances] == [0, 0]
    headers = platform.headers("ready")
    assert headers["x-uncia-start"] in ("warm", "thawed")
    # They outlive the time to keep others; fewer are kept when fewer are asked for.
    platform.client.tag_resource(Resource=made["FunctionArn"], Tags={"uncia:min-instances": "0"})
    while any(row["ended"] is None for row in log(platform, "instances")):
        assert time.monotonic() < deadline, "an instance is kept that nobody asks for"
        time.sleep(0.05)


def test_rows_hold_what_the_function_reserves(serve: Serve) -> None:
    platform = serve()
    tags: dict[str, dict[str, str]] = {
        "plain": {},
        "batch": {
            "uncia:cpu-micro": "1000000",
            "uncia:spot-cpu-micro": "400000",
            "uncia:preemptible": "true",
            "uncia:qos": "batch",
        },
    }
    for name, its in tags.items():
        platform.create(name, Tags=its)
        platform.invoke(name)
    rows: dict[str, dict[str, Any]] = {row["function"]: row for row in log(platform)}
    columns = ("allocated_cpu", "reserved_cpu", "spot_cpu", "preemptible", "qos")
    assert [rows["batch"][it] for it in columns] == [1_000_000, 600_000, 400_000, True, "batch"]
    assert [rows["plain"][it] for it in columns[1:]] == [None, None, None, None]
