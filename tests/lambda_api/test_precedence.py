"""``precedence``: what uses all the CPU it may yields, and the thread that answers goes first."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .conftest import OK, Platform, Serve, cgroups
from .test_serving import wait_for

# Works or waits as it is asked to, in pieces of some ms.
SOURCE = """
import time

def handler(event, context):
    end = time.monotonic() + event["seconds"]
    while time.monotonic() < end:
        if not event["works"]:
            time.sleep(0.01)
"""
IDLE = "cpu.idle"


def yields(platform: Platform) -> bool:
    """Whether a group of the platform runs only where no other one wants to."""
    files = [file for folder in cgroups(platform.state) for file in folder.rglob(IDLE)]
    if not files:
        pytest.skip(f"the kernel has no {IDLE} (Linux 5.15), or there is no group for CPUs")
    return any(_read(file) == "1" for file in files)


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # the group has gone
        return ""


def policy(platform: Platform) -> int:
    """That of the thread that answers, whatever becomes of what it starts."""
    return os.sched_getscheduler(platform.process.pid) & ~os.SCHED_RESET_ON_FORK


@contextmanager
def busy(platform: Platform, name: str, works: bool) -> Iterator[None]:
    """Has a function work, or wait, over and over."""
    over = threading.Event()
    answers: list[Any] = []

    def call() -> None:
        while not over.is_set():
            answers.append(platform.invoke(name, {"seconds": 0.5, "works": works})[0])

    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert answers
    assert all("FunctionError" not in answer for answer in answers)


@pytest.mark.parametrize("start_from", ["fresh", "prepared"])
def test_what_uses_all_it_may_yields_until_it_does_not(serve: Serve, start_from: str) -> None:
    platform = serve()
    platform.create("f", SOURCE, Tags={"uncia:start_from": start_from})
    platform.invoke("f", {"seconds": 0, "works": False})
    with busy(platform, "f", works=False):
        wait_for(lambda: policy(platform) == os.SCHED_FIFO)
        assert not yields(platform)
    with busy(platform, "f", works=True):
        wait_for(lambda: yields(platform))
    with busy(platform, "f", works=False):
        wait_for(lambda: not yields(platform))


def test_the_platform_goes_first_while_invocations_run_and_what_it_starts_does_not(
    serve: Serve,
) -> None:
    platform = serve()
    platform.create(
        "policy", "import os\ndef handler(e, c):\n    return os.sched_getscheduler(0)\n"
    )
    platform.create("f", SOURCE)
    wait_for(lambda: policy(platform) == os.SCHED_OTHER)
    with busy(platform, "f", works=False):
        wait_for(lambda: policy(platform) == os.SCHED_FIFO)
        assert platform.invoke("policy")[1] == os.SCHED_OTHER
    wait_for(lambda: policy(platform) == os.SCHED_OTHER)


@pytest.mark.parametrize("config", [{"precedence": False}, {"policies": {"cpu": "weights"}}])
def test_otherwise_the_kernel_alone_or_the_policy_decides(
    serve: Serve, config: dict[str, Any]
) -> None:
    platform = serve(config)
    platform.create("f", SOURCE)
    with busy(platform, "f", works=True):
        # Long enough for it to yield ten times over.
        platform.invoke("f", {"seconds": 2, "works": True})
        assert not yields(platform)
        assert policy(platform) == os.SCHED_OTHER


def test_a_share_that_was_asked_for_is_kept(serve: Serve) -> None:
    platform = serve()
    platform.create("f", SOURCE, Tags={"uncia:cpu_shares": "512"})
    platform.create("g", OK)
    with busy(platform, "f", works=True):
        platform.invoke("f", {"seconds": 2, "works": True})
        platform.invoke("g")
        assert not yields(platform)
