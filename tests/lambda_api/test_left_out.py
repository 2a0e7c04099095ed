"""The platform without metering, and with its log in memory: what rows lack then, and what not."""

import signal
import sqlite3

from .conftest import Platform, Serve
from .test_serving import log

USED = (
    "cpu_user",
    "cpu_system",
    "memory_avg",
    "memory_peak",
    "throttled_count",
    "throttled_time",
)
HUNGRY = """
def handler(event, context):
    return len(bytearray(event.get("mb", 0) << 20))
"""


def in_database(platform: Platform) -> int:
    path = platform.state / "meter.sqlite"
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        (count,) = database.execute("SELECT COUNT(*) FROM invocations").fetchone()
    return int(count)


def test_what_is_not_metered_is_null_and_all_else_is_there(serve: Serve) -> None:
    platform = serve({})
    platform.create("metered", HUNGRY)
    platform.create("unmetered", HUNGRY, Tags={"uncia:metering": "false"})
    for name in ("metered", "unmetered"):
        for _ in range(2):
            assert platform.invoke(name, {"mb": 1})[1] == 1 << 20
        platform.invoke(name, {"mb": 900})
    rows = log(platform)
    for row in rows:
        is_metered = row["function"] == "metered"
        assert all((row[name] is not None) == is_metered for name in USED[:4]), row
        assert all(row[name] is None for name in USED) != is_metered
        assert row["execution"] is not None
        assert row["billed"] is not None
    # That memory ran out is found out all the same.
    metered, unmetered = (
        [it for it in rows if it["function"] == name] for name in ("metered", "unmetered")
    )
    assert [it["outcome"] for it in metered] == [it["outcome"] for it in unmetered]
    assert metered[-1]["error"] == unmetered[-1]["error"] is not None


def test_a_log_in_memory_is_written_when_it_is_read(serve: Serve) -> None:
    platform = serve({"log": "memory"})
    platform.create("f")
    for _ in range(5):
        platform.invoke("f")
    assert in_database(platform) == 0
    assert len(log(platform)) == 5
    assert in_database(platform) == 5
    platform.invoke("f")
    platform.stop()
    assert in_database(platform) == 6


def test_a_durable_log_survives_what_one_in_memory_does_not(serve: Serve) -> None:
    for kind, left in (("memory", 0), ("durable", 3)):
        platform = serve({"log": kind}, state=kind)
        platform.create(kind)
        for _ in range(3):
            platform.invoke(kind)
        platform.stop(signal.SIGKILL)
        again = serve({}, state=kind)
        assert len([row for row in log(again) if row["function"] == kind]) == left
        again.stop()
