"""Instances that are restored from a checkpoint: what they share, bad images, and a kill."""

import json
import shutil
import signal
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from patience import scaled

from .conftest import Platform, Serve, instances

SOURCE = {
    "handler.rb": """
require "securerandom"
LOADED = SecureRandom.uuid
def handler(event:, context:)
  sleep(event.fetch("wait", 0))
  { loaded: LOADED, id: SecureRandom.uuid, number: rand, stream: ENV["AWS_LAMBDA_LOG_STREAM_NAME"] }
end
"""
}
TAGS = {"uncia:start-from": "checkpoint"}


@pytest.fixture(autouse=True)
def _needs_criu(engine_binary: Path) -> None:
    if not shutil.which("ruby"):
        pytest.skip("there is no Ruby")
    output = subprocess.run([engine_binary, "probe"], capture_output=True, check=True).stdout
    if "checkpoint" not in json.loads(output)["features"]["start_from"]:
        pytest.skip("there is no CRIU that works: see docs/explanation/cold-start.md")


def warnings(platform: Platform) -> list[str]:
    with urllib.request.urlopen(f"{platform.url}/uncia/v1/health") as answer:
        warnings: list[str] = json.load(answer)["warnings"]
    return warnings


def starts(platform: Platform) -> list[str]:
    """How its instances started, by the rows of all."""
    with urllib.request.urlopen(f"{platform.url}/uncia/v1/instances") as answer:
        rows = pa.ipc.open_stream(answer.read()).read_all().to_pylist()
    return sorted(row["start"] for row in rows)


def create(platform: Platform) -> None:
    platform.create("f", SOURCE, Runtime="ruby3.2", Tags=TAGS, MemorySize=128)


def serve_at_once(platform: Platform, count: int) -> list[Any]:
    """Answers of so many instances: each serves longer than all take to start."""
    with ThreadPoolExecutor(count) as threads:
        event = {"wait": scaled(1)}
        return list(threads.map(lambda _: platform.invoke("f", event)[1], range(count)))


def checkpoints(platform: Platform) -> list[Path]:
    """Folders of checkpoints, and of instances that are being restored."""
    return [it for it in (platform.state / "checkpoints").iterdir() if it.name != ".criu"]


def test_restored_instances_share_what_was_loaded_and_no_numbers(serve: Serve) -> None:
    platform = serve()
    create(platform)
    answers = serve_at_once(platform, 3)
    assert len({it["loaded"] for it in answers}) == 1
    for name in ("id", "number", "stream"):
        assert len({it[name] for it in answers}) == 3
    assert starts(platform) == ["restored"] * 3
    assert not any("checkpoint" in it for it in warnings(platform))
    assert len(checkpoints(platform)) == 1
    platform.client.delete_function(FunctionName="f")
    deadline = time.monotonic() + scaled(20)
    while checkpoints(platform) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert checkpoints(platform) == []


def test_images_that_somebody_has_cut_off_are_used_by_nobody(serve: Serve) -> None:
    platform = serve()
    create(platform)
    assert platform.headers("f")["x-uncia-start"] == "restored"
    [folder] = checkpoints(platform)
    images = folder / "core-100.img"
    images.write_bytes(images.read_bytes()[:-100])
    # The first goes on, and the second starts without them.
    answers = serve_at_once(platform, 2)
    assert len({it["loaded"] for it in answers}) == 2
    assert starts(platform) == ["cold", "restored"]
    [warning] = [it for it in warnings(platform) if "checkpoint" in it]
    assert "f has no checkpoint" in warning
    assert "was changed by somebody else" in warning


def test_a_kill_leaves_no_restored_instance_and_the_next_platform_makes_images_anew(
    serve: Serve,
) -> None:
    platform = serve()
    create(platform)
    before = {it["loaded"] for it in serve_at_once(platform, 3)}
    platform.stop(signal.SIGKILL)
    deadline = time.monotonic() + scaled(20)
    while instances(platform.state) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert instances(platform.state) == []
    again = serve()
    deadline = time.monotonic() + scaled(40)
    again.client.tag_resource(
        Resource=again.client.get_function(FunctionName="f")["Configuration"]["FunctionArn"],
        Tags={"uncia:keep-alive-ms": "1"},
    )
    start = ""
    while start != "restored":
        assert time.monotonic() < deadline
        time.sleep(0.2)
        answer, payload = again.invoke("f")
        start = answer["ResponseMetadata"]["HTTPHeaders"]["x-uncia-start"]
    assert {payload["loaded"]}.isdisjoint(before)
