"""What the kernel counts of invocations, and in which control group it counts an instance."""

import os
from pathlib import Path
from typing import Any

import pytest

from .conftest import Platform, Serve
from .test_serving import log

HANDLER = """
import mmap, os, threading, time

def handler(event, context):
    for _ in range(event.get("sleeps", 0)):
        time.sleep(0.001)
    pages = event.get("pages", 0)
    if pages:
        memory = mmap.mmap(-1, pages * mmap.PAGESIZE)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(pages):
            memory[page * mmap.PAGESIZE] = 1
    end = time.process_time() + event.get("s", 0)
    while time.process_time() < end:
        pass
    return open("/proc/self/schedstat").read().split()[1]
"""
UNIFIED = next(
    (
        Path(line.split()[4])
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if " - cgroup2 " in line
    ),
    None,
)
COUNTED = {"uncia:counters": "true", "uncia:cpu-micro": "1000000"}

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or UNIFIED is None, reason="needs root and control groups of version 2"
)


def rows_of(platform: Platform, *events: dict[str, Any]) -> list[dict[str, Any]]:
    platform.create("f", HANDLER, Tags=COUNTED)
    platform.invoke("f", {})
    for event in events:
        platform.invoke("f", event)
    return log(platform)[1:]


def test_an_instance_has_a_group_with_pressure_and_events(serve: Serve) -> None:
    platform = serve({})
    platform.create("f", HANDLER)
    platform.invoke("f", {})
    (row,) = log(platform, "instances")
    assert UNIFIED is not None
    group = UNIFIED / row["cgroup"].lstrip("/")
    used = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    assert int(used["usage_usec"]) > 0
    assert len((group / "cgroup.procs").read_text().split()) == 1
    # Nobody asked for counters.
    (invocation,) = log(platform)
    assert invocation["page_faults"] is invocation["cpu_wait"] is None


def test_what_is_counted_is_what_the_function_did(serve: Serve) -> None:
    kinds = [{}, {"sleeps": 100}, {"pages": 5_000}, {"s": 0.1}]
    rows = rows_of(serve({}), *kinds, *kinds, *kinds)
    none, slept, touched, alone = rows[:4]
    # On a busy machine others push it aside now and then, too.
    fewest = [min(row["context_switches"] for row in rows[kind::4]) for kind in (0, 1)]
    assert 98 <= fewest[1] - fewest[0] <= 120
    assert abs(touched["page_faults"] - none["page_faults"] - 5_000) <= 50
    for row in (none, slept, touched, alone):
        assert row["cpu_wait"] >= 0
    if not Path("/sys/bus/event_source/devices/cpu").exists():
        assert alone["cycles"] is alone["instructions"] is alone["llc_misses"] is None


def test_waiting_for_a_cpu_is_what_the_kernel_says(serve: Serve) -> None:
    """Beside a program on each CPU."""
    platform = serve({})
    platform.create("f", HANDLER, Tags=COUNTED)
    platform.invoke("f", {})
    pids = []
    for cpu in os.sched_getaffinity(0):
        pid = os.fork()
        if pid == 0:
            os.sched_setaffinity(0, {cpu})
            while True:
                pass
        pids.append(pid)
    try:
        before = int(platform.invoke("f", {})[1])
        after = int(platform.invoke("f", {"s": 0.3})[1])
    finally:
        for pid in pids:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    row = log(platform)[-1]
    assert row["cpu_wait"] > 0
    # The function's own readings lie in the two invocations, and the kernel counts throttles, too.
    waited = row["cpu_wait"] + row["throttled_time"]
    assert waited == pytest.approx(after - before, rel=0.1, abs=20e6)
