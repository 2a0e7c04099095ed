"""What a platform that does without something says in its health."""

import hashlib
import json
import os
import signal
import time
import urllib.request
from pathlib import Path

import pytest
from patience import scaled

from .conftest import Platform, Serve

FOREIGN = "something else that is long enough to hold a head of a journal's file"


def warnings(platform: Platform) -> list[str]:
    with urllib.request.urlopen(f"http://{platform.address}/uncia/v1/health") as answer:
        sentences: list[str] = json.load(answer)["warnings"]
    return sentences


def said(platform: Platform, text: str) -> list[str]:
    """What there is of warnings with this text, once there is any."""
    deadline = time.monotonic() + scaled(60)
    while time.monotonic() < deadline:
        sentences = [it for it in warnings(platform) if text in it]
        if sentences:
            return sentences
        time.sleep(0.05)
    raise AssertionError(f"{text!r} is not in {warnings(platform)}")


def test_a_foreign_journal_is_set_aside_and_the_platform_serves(serve: Serve) -> None:
    platform = serve()
    platform.create("f")
    platform.invoke("f", {"n": 1})
    journal, state = platform.state / "journal", platform.state
    assert platform.stop(signal.SIGKILL) != 0
    before = {path.name for path in journal.iterdir()}
    (journal / "00000000000000000000.records").write_text(FOREIGN)
    (journal / "99999999999999999999.records").mkdir()
    platform = serve()
    assert platform.invoke("f", {"n": 2})[1] == {"got": {"n": 2}}
    (sentence,) = said(platform, "is not of this log's journal")
    place = journal / "00000000000000000000.records.set-aside"
    assert str(place) in sentence
    assert place.read_text() == FOREIGN
    assert said(platform, "is not a file")
    assert platform.stop() == 0
    left = {path.name for path in journal.iterdir()} - before
    assert left == {place.name, "99999999999999999999.records.set-aside"}
    platform = serve()
    (sentence,) = said(platform, "set aside at an earlier start")
    assert "and 1 more files were" in sentence
    assert state == platform.state


def test_a_torn_journal_is_said(serve: Serve) -> None:
    platform = serve()
    platform.create("f")
    platform.invoke("f")
    assert platform.stop(signal.SIGKILL) != 0
    file = max((platform.state / "journal").iterdir(), key=lambda it: it.stat().st_size)
    file.write_bytes(file.read_bytes()[:-1])
    assert len(said(serve(), "of a record that was being written")) == 1


def zygotes(state: Path) -> list[int]:
    """The processes of the platform's zygotes."""
    name = "uncia-" + hashlib.sha256(str(state.resolve()).encode()).hexdigest()
    numbers = []
    for folder in Path("/proc").iterdir():
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue
        for variable in environment.split(b"\0"):
            label = variable.removeprefix(b"UNCIA_ZYGOTE=").decode(errors="replace")
            if variable.startswith(b"UNCIA_ZYGOTE=") and name.startswith(label.split("/")[0]):
                numbers.append(int(folder.name))
    return numbers


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has zygotes")
def test_a_zygote_that_has_ended_is_said(serve: Serve) -> None:
    platform = serve()
    platform.create("f", Tags={"uncia:start-from": "zygote", "uncia:keep-alive-ms": "1"})
    platform.invoke("f")
    deadline = time.monotonic() + scaled(60)
    while not zygotes(platform.state) and time.monotonic() < deadline:
        time.sleep(0.01)
    for process in zygotes(platform.state):
        os.kill(process, signal.SIGKILL)
    (sentence,) = said(platform, "The zygote of python has ended")
    assert platform.invoke("f")[1] == {"got": {}}
    assert said(platform, "The zygote of python has ended") == [sentence]
