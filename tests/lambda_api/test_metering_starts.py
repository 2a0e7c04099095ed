"""An invocation's CPU time and memory in its row, whatever its instance was started from.

A copy of another process has the counters of its own control group: what the other used and has in
its memory is not the copy's.
"""

import statistics
import time
from typing import Any, Final

import pytest
from patience import scaled

from .conftest import Platform, Serve, instances
from .test_metering import (
    KINDS,
    LONG_MS,
    MIB,
    REPETITIONS,
    SHORT_MS,
    SLACK_BYTES,
    both_runtimes,
    create,
    measure,
    too_much_cpu,
    too_much_in_the_best_round,
)
from .test_serving import log, wait_for
from .test_starts import started_runtimes

ROUNDS: Final = 5
# What the runtime uses around the handler is a fraction of it, where nothing disturbs it.
AROUND_NS: Final = 1_000_000

STARTS: Final = [
    ("python", "pool"),
    ("python", "zygote"),
    ("python", "function_zygote"),
    ("node", "pool"),
]

MAXIMUM_SET: Final = {
    "python": {
        "handler.py": """
import resource

def memory(event, context):
    text = b"x" * (event["mib"] * 2**20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
"""
    },
    "node": {
        "handler.js": """
const kept = [];
exports.memory = async (event) => {
  kept.push(Buffer.alloc(event.mib * 2 ** 20, 1));
  return process.resourceUsage().maxRSS * 1024;
};
"""
    },
}


# So long that what Node.js does once, at its first request, stays below a hundredth: 2 ms on one
# machine, 6 ms on another.
FIRST_MS = 1_000


def create_from(platform: Platform, runtime: str, start: str, keep_alive_ms: int) -> None:
    tags = {"uncia:start-from": start, "uncia:keep-alive-ms": str(keep_alive_ms)}
    create(platform, runtime, "cpu", MemorySize=1769, Tags=tags)
    if start == "pool":
        # Runtimes wait once there is who wants them.
        measure(platform, [{"kind": "rest", "ms": 1}])


def wait_for_a_copy(platform: Platform, start: str) -> None:
    """Until the next instance will be one that does not start from nothing."""
    deadline = time.monotonic() + scaled(60)
    label = b"/pool" if start == "pool" else b"/prepared"
    while len(started_runtimes(platform, label)) < 2:
        assert time.monotonic() < deadline, "none is made ahead"
        time.sleep(0.02)


def copied(platform: Platform, start: str, event: dict[str, Any]) -> Any:
    """An event whose instance is a copy, its row, and what the function said."""
    for _ in range(20):
        if start == "pool":
            # The first began before any runtime waited, and is there for a while.
            wait_for(lambda: not instances(platform.state, made_ahead=False))
        wait_for_a_copy(platform, start)
        (result,) = measure(platform, [event])
        if result[1]["start"] == "restored":
            return result
        # It had to be quick, and began with a new process.
    raise AssertionError(f"no instance is a copy: {log(platform)[-1]}")


@pytest.mark.parametrize(("runtime", "start"), STARTS)
def test_cpu_time_of_a_copys_first_invocation_agrees_with_getrusage(
    serve: Serve, runtime: str, start: str
) -> None:
    platform = serve({"pool": 1})
    create_from(platform, runtime, start, keep_alive_ms=1)
    event = {"kind": "user", "ms": FIRST_MS}
    for _ in range(ROUNDS):
        rows = [copied(platform, start, event) for _ in range(REPETITIONS)]
        excesses = too_much_cpu(rows, "restored")
        if not excesses:
            break
    assert not excesses


@pytest.mark.parametrize(("runtime", "start"), STARTS)
def test_cpu_time_of_its_later_ones_too(serve: Serve, runtime: str, start: str) -> None:
    platform = serve({"pool": 1, "pause_after_ms": 60_000})
    create_from(platform, runtime, start, keep_alive_ms=5_000)
    copied(platform, start, {"kind": "user", "ms": 20})
    for kind in KINDS[runtime]:
        times = [*LONG_MS[:1] * REPETITIONS, *SHORT_MS]
        events = [{"kind": kind, "ms": ms} for ms in times]
        assert not too_much_in_the_best_round(platform, events)


@both_runtimes
def test_short_work_is_more_by_the_runtimes_own_alone(serve: Serve, runtime: str) -> None:
    platform = serve({"pause_after_ms": 60_000})
    create(platform, runtime, "cpu")
    for ms in (1, 5, 20):
        events = [{"kind": "user", "ms": ms}] * 20
        for _ in range(ROUNDS):
            rows = measure(platform, events)[1:]
            around = [row["cpu_user"] + row["cpu_system"] - inside for _, row, inside in rows]
            # What a tick of the kernel's account would be off shows in some of so many.
            assert min(around) > -10_000 - ms * 10_000
            if statistics.median(around) < AROUND_NS:
                break
        assert statistics.median(around) < AROUND_NS


@both_runtimes
def test_peak_memory_grows_as_the_maximum_resident_set(serve: Serve, runtime: str) -> None:
    platform = serve({"pause_after_ms": 60_000})
    create(platform, runtime, "memory", source=MAXIMUM_SET[runtime])
    # The first ones load what every other one needs as well.
    measure(platform, [{"mib": 1}] * 3)
    # The set is that of the process's life, so each is larger than all before.
    rows = measure(platform, [{"mib": mib} for mib in (16, 64, 128, 256)])
    (_, first, least), *others = rows
    for event, row, most in others:
        assert most - least >= (event["mib"] - 16) * MIB * 0.99
        difference = (row["memory_peak"] - first["memory_peak"]) - (most - least)
        assert abs(difference) <= (most - least) * 0.01 + SLACK_BYTES, (event, row, most)
