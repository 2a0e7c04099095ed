"""What a function gets done in its keep-alive, and that nobody is billed for it."""

import json
import time
import urllib.request
from typing import Any

import pytest
from patience import scaled

from .conftest import Platform, Serve
from .test_serving import log, wait_for

NS_PER_MS = 1_000_000
REST_S = 2.0
PATIENCE_S = scaled(60.0)
MUCH_NS = 200 * NS_PER_MS

# Counts in the background from the first event on.
BACKGROUND = """
import threading
count = 0
def work():
    global count
    while True:
        count += 1
def handler(event, context):
    if event == 'begin':
        threading.Thread(target=work, daemon=True).start()
    return count
"""


def paused(platform: Platform, kind: str) -> bool:
    with urllib.request.urlopen(f"http://{platform.address}/uncia/v1/health") as answer:
        result: int = json.load(answer)["instances"][kind]
    return result == 1


def rest(platform: Platform, behaviour: str) -> dict[str, Any]:
    """Let a function work in its keep-alive; the row of the request after that, and its life."""
    platform.create(
        "f", BACKGROUND, MemorySize=1769, Tags={"uncia:keep_alive_cpu": behaviour}, Timeout=60
    )
    platform.invoke("f", "begin")
    kinds = {"freeze": "frozen", "scale-down": "scaled_down"}
    if behaviour in kinds:
        wait_for(lambda: paused(platform, kinds[behaviour]))
    deadline = time.monotonic() + PATIENCE_S
    while True:
        time.sleep(REST_S)
        _, done = platform.invoke("f", "look")
        rows = log(platform)
        instance = log(platform, "instances")[0]
        # If others have the CPUs, it gets as much as it should only sooner or later.
        if behaviour != "run" or instance["idle_cpu"] > MUCH_NS or time.monotonic() > deadline:
            break
    _, after = platform.invoke("f", "look")
    spans = [span["name"] for span in log(platform, "spans") if span["invocation"]]
    return {
        "row": rows[-1],
        "done": done,
        "after": after,
        "spans": spans,
        "instance": instance,
    }


@pytest.mark.parametrize(
    ("behaviour", "start", "span"),
    [("freeze", "thawed", "thaw"), ("scale-down", "warm", "scale_up"), ("run", "warm", None)],
)
def test_each_behaviour(serve: Serve, behaviour: str, start: str, span: str | None) -> None:
    result = rest(serve({"pause_after_ms": 0}), behaviour)
    assert result["row"]["start"] == start
    assert [name for name in result["spans"] if name in ("thaw", "scale_up")][:1] == (
        [span] if span else []
    )
    idle = result["instance"]["idle_cpu"]
    assert idle > 0
    # Of the seconds at rest: nothing, a hundredth, or as much as the machine had to give.
    if behaviour == "run":
        assert idle > MUCH_NS
        assert result["done"] > 0
    else:
        assert idle < 150 * NS_PER_MS
    row = result["row"]
    assert row["cpu_user"] + row["cpu_system"] < 200 * NS_PER_MS + row["execution"]
    assert row["billed"] < row["execution"] + NS_PER_MS


def test_the_platform_s_default_and_a_wrong_word(serve: Serve) -> None:
    platform = serve({"pause_after_ms": 0, "keep_alive_cpu": "scale-down"})
    platform.create("f")
    platform.invoke("f")
    wait_for(lambda: paused(platform, "scaled_down"))
    assert platform.headers("f")["x-uncia-start"] == "warm"
    with pytest.raises(platform.client.exceptions.InvalidParameterValueException) as message:
        platform.create("g", Tags={"uncia:keep_alive_cpu": "sleep"})
    assert "freeze, scale-down or run" in str(message.value)
