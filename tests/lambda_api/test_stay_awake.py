"""``stay_awake``: CPUs do not sleep while requests come, and do afterwards."""

import json
import urllib.request
from pathlib import Path
from typing import Final

import pytest

from .conftest import OK, Platform, Serve
from .test_metering import LONG_MS, REPETITIONS, create, measure, too_much_in_the_best_round
from .test_serving import wait_for

LATENCY: Final = "/dev/cpu_dma_latency"


def keeps_awake(platform: Platform) -> bool:
    """Whether the platform asks the kernel to keep idle CPUs awake."""
    names = []
    for file in Path(f"/proc/{platform.process.pid}/fd").iterdir():
        try:
            names.append(str(file.readlink()))
        except FileNotFoundError:  # closed meanwhile
            continue
    return LATENCY in names


def warnings(platform: Platform) -> list[str]:
    with urllib.request.urlopen(f"http://{platform.address}/uncia/v1/health") as answer:
        message: list[str] = json.load(answer)["warnings"]
    return [warning for warning in message if "awake" in warning]


def kept_awake(platform: Platform) -> Platform:
    """The platform, where this machine's CPUs can be kept awake; else the test ends."""
    if answer := warnings(platform):
        # A sentence that names what is missing, and everything else works.
        assert LATENCY in answer[0] or "driver" in answer[0]
        platform.create("f", OK)
        platform.invoke("f")
        assert not keeps_awake(platform)
        pytest.skip(answer[0])
    return platform


def test_cpus_are_kept_awake_while_requests_come(serve: Serve) -> None:
    platform = kept_awake(serve({"stay_awake_ms": 1_000}))
    platform.create("f", OK)
    assert not keeps_awake(platform), "there was no request"
    for _ in range(2):
        # Again if the test is so late that they sleep already.
        wait_for(lambda: bool(platform.invoke("f")) and keeps_awake(platform))
        wait_for(lambda: not keeps_awake(platform))


def test_without_the_setting_they_sleep(serve: Serve) -> None:
    platform = serve()
    platform.create("f", OK)
    platform.invoke("f")
    assert not keeps_awake(platform)
    assert warnings(platform) == []


def test_cpu_time_agrees_with_getrusage_while_cpus_are_awake(serve: Serve) -> None:
    platform = kept_awake(serve({"stay_awake_ms": 60_000, "pause_after_ms": 60_000}))
    create(platform, "python", "cpu")
    for kind in ("user", "system"):
        measure(platform, [{"kind": kind, "ms": 20}])
        events = [{"kind": kind, "ms": ms} for ms in LONG_MS[:1] * REPETITIONS]
        assert not too_much_in_the_best_round(platform, events)
    assert keeps_awake(platform)
