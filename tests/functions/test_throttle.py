"""The function `throttle`: both runtimes tell the same of a clock, and say it in the same form."""

import json
import os
import stat
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from uncia.bandwidth import profiles
from uncia.errors import UnciaError
from uncia.functions import load, package

BOTH = pytest.mark.parametrize("runtime", ["python", "provided"])
MS = 1_000_000


@BOTH
def test_what_was_seen_lies_within_what_was_watched(runtime: str, call: Any) -> None:
    # A threshold so low that jumps are seen on every machine.
    first, second = call(
        "throttle",
        {"duration": 60, "threshold": 10},
        {"duration": "40ms", "threshold": "1ms"},
        runtime=runtime,
    )
    answer = first["answer"]
    assert answer["end_ns"] - answer["t0"] >= 60 * MS
    assert answer["iteration_counter"] > 0
    before = answer["t0"]
    for time, gap in answer["data"]:
        assert gap >= 10_000
        assert before <= time - gap
        before = time
    assert before <= answer["end_ns"]
    assert answer["parameters"] == {"duration": 60, "threshold": 10}
    later = second["answer"]
    assert later["end_ns"] - later["t0"] >= 40 * MS
    assert later["parameters"] == {"duration": 40, "threshold": 1_000}
    assert (answer["uncia"]["fresh"], later["uncia"]["fresh"]) == (True, False)


@BOTH
def test_spans_are_the_jumps_in_unix_time(runtime: str, call: Any) -> None:
    (reply,) = call("throttle", {"duration": 50, "threshold": 10}, runtime=runtime)
    answer, result = reply["answer"], reply["answer"]["uncia"]
    name, start, end = result["spans"][0]
    assert (name, end - start) == ("probe", answer["end_ns"] - answer["t0"])
    assert result["handler_start_ns"] - MS <= start <= end <= result["handler_end_ns"] + MS
    offset = start - answer["t0"]
    assert result["spans"][1:] == [
        ["throttle", time - gap + offset, time + offset] for time, gap in answer["data"]
    ]


@BOTH
@pytest.mark.parametrize(
    "event",
    [{"duration": 0.5}, {"duration": "x"}, {"threshold": 1}, {"threshold": "2s"}],
)
def test_a_wrong_parameter_is_named(runtime: str, event: dict[str, Any], call: Any) -> None:
    (reply,) = call("throttle", event, runtime=runtime)
    assert reply["error"] == "ValueError"
    assert next(iter(event)) in reply["message"]


@BOTH
def test_an_event_in_the_body_of_a_request(runtime: str, call: Any) -> None:
    event = {"requestContext": {}, "body": json.dumps({"duration": "30ms", "threshold": 700})}
    (reply,) = call("throttle", event, runtime=runtime)
    assert reply["answer"]["parameters"] == {"duration": 30, "threshold": 700}


@BOTH
def test_an_answer_is_a_profile_in_the_published_form(
    runtime: str, call: Any, tmp_path: Path
) -> None:
    (reply,) = call("throttle", {"duration": 50, "threshold": 500}, runtime=runtime)
    file = tmp_path / "answers.json"
    file.write_text(json.dumps([{"status_code": 200, "error": None, "data": reply["answer"]}]))
    # Few and short jumps tell no unit of themselves.
    profile = profiles.read(file, unit="ns")
    assert profile.runs[0].events == [tuple(jump) for jump in reply["answer"]["data"]]


def test_the_executable_is_static_and_the_only_file() -> None:
    made = package("throttle", "provided")
    assert made.handler == "bootstrap"
    with zipfile.ZipFile(made.path) as archive:
        (info,) = archive.infolist()
        content = archive.read(info)
    assert info.filename == "bootstrap"
    assert info.external_attr >> 16 & stat.S_IXUSR
    assert content.startswith(b"\x7fELF")
    # A dynamic executable has a segment that names its interpreter (PT_INTERP).
    (offset,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<2H", content, 54)
    kinds = [struct.unpack_from("<I", content, offset + size * i)[0] for i in range(count)]
    assert 1 in kinds
    assert 3 not in kinds
    assert package("throttle", "provided").sha256 == made.sha256


OWN = """\
name: own
description: Has a runtime of its own.
runtimes:
  provided: {}
parameters: {}
sizes: {test: {}, small: {}, large: {}}
answer: {text: nothing}
memory: 128MB
timeout: 3s
"""


def test_an_executable_of_ones_own(tmp_path: Path, cache: Path) -> None:
    del cache
    folder = tmp_path / "own"
    (folder / "provided").mkdir(parents=True)
    (folder / "function.yaml").write_text(OWN)
    assert load(folder).runtime_names == ["provided"]
    with pytest.raises(UnciaError, match="there is no executable"):
        package(folder)
    executable = folder / "provided" / "bootstrap"
    executable.write_text("#!/bin/sh\n")
    with pytest.raises(UnciaError, match="is not executable"):
        package(folder)
    executable.chmod(0o755)
    assert package(folder).runtime == "provided"


def test_what_the_compiler_says_is_told(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del cache
    folder = tmp_path / "own"
    (folder / "provided").mkdir(parents=True)
    (folder / "function.yaml").write_text(OWN.replace("{}\np", "{source: a.c}\np", 1))
    with pytest.raises(UnciaError, match=r"there is no file .*a\.c to compile"):
        package(folder)
    (folder / "provided" / "a.c").write_text("int main(void) { return nothing; }\n")
    with pytest.raises(UnciaError, match="nothing") as caught:
        package(folder)
    assert caught.value.exit_code == 1
    other = "arm64" if os.uname().machine == "x86_64" else "x86_64"
    with pytest.raises(UnciaError, match="is to be compiled for") as caught:
        package(folder, architecture=other)
    assert "CC=" in str(caught.value.hint)
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(UnciaError, match="there is no C compiler no-such-compiler"):
        package(folder)
    (folder / "function.yaml").write_text(OWN.replace("{}\np", "{source: ../a.c}\np", 1))
    with pytest.raises(UnciaError, match="is not a C file in the folder"):
        load(folder)
