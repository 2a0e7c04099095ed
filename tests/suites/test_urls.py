"""Suites on functions that run elsewhere: what has a URL is measured, the rest is left out."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from uncia import record, yamlio
from uncia.errors import UnciaError
from uncia.suites import lacking, urls
from uncia.suites.target import Target

Command = Callable[..., tuple[int, str, str]]

SUITE = """\
title: Of ones own
citation: Nobody, 2026
url: https://example.org/
description: Two loads of one function
"""
ENTRY = """\
shows: Figure 1
title: Two loads
section: "1"
description: One function, with little and with much memory.
runs:
  only: {file: ./experiments/own.yaml}
claims:
  faster: {paper: Less memory is slower, place: page 1, claim: plain.p50 > large.p50}
  answers: {paper: It answers, place: page 1, claim: plain.failed < 50%}
"""
FILE = """\
name: own
platform: {kind: embedded, keep_alive: 1min}
functions:
  plain: {source: spin, memory: 128MB, parameters: {cpu: 5ms}}
  other: {source: hello, replicas: 2}
  stored: {source: relay, runtime: go, reach: [store]}
services: {store: {}}
chains:
  two:
    stages: {first: {function: plain}, second: {function: plain}}
experiments:
  plain: {function: plain, closed: {clients: 1, requests: 20}}
  large: {function: plain, closed: {clients: 1, requests: 20}, settings: {memory: 256MB}}
  swept: {function: plain, closed: {clients: 1, requests: 20}, sweep: {memory: [128MB, 1GB]}}
  others: {function: other, closed: {clients: 1, requests: 20}}
  stored: {function: stored, closed: {clients: 1, requests: 20}}
  sequence: {chain: two, kind: sequence, closed: {clients: 1, requests: 20}}
  client: {chain: two, closed: {clients: 1, requests: 20}}
"""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        event = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.events.append((self.headers.get("x-key"), event))  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: Any) -> None:
        """Nothing is to be printed."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.events = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def _url(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}/f"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "suite.yaml").write_text(SUITE)
    (folder / "loads.yaml").write_text(ENTRY)
    (folder / "experiments").mkdir()
    (folder / "experiments" / "own.yaml").write_text(FILE)
    return folder


def _addresses(folder: Path, functions: Any) -> Path:
    file = folder / "urls.yaml"
    file.write_text(yaml.safe_dump({"functions": functions}))
    return file


def test_what_takes_more_than_a_url_is_told_by_experiment(suite: Path, tmp_path: Path) -> None:
    known = _addresses(tmp_path, {"spin": "http://127.0.0.1:1/", "own.other": "http://[::1]/"})
    document = yamlio.load(suite / "experiments" / "own.yaml")
    changed = Target("http", urls=str(known)).apply(document)
    assert changed.data["functions"]["plain"] == {
        "url": "http://127.0.0.1:1/",
        "parameters_of": "spin",
        "parameters": {"cpu": "5ms"},
    }
    assert "services" not in changed.data
    why = lacking.of_experiments(changed)
    assert why["plain"] == why["client"] == ""
    for name in ("large", "swept"):
        assert why[name] == "settings of functions at URLs cannot be changed"
    assert "as own.other or hello, with 2 urls" in why["others"]
    assert "stored reaches services of the run" in why["stored"]
    assert "chains of the kind sequence need a platform" in why["sequence"]
    kept = lacking.without_lacking(changed).data
    assert list(kept["experiments"]) == ["plain", "client"]
    assert list(kept["functions"]) == ["plain"]


def test_functions_of_one_source_are_told_apart(tmp_path: Path) -> None:
    text = "functions:\n  a: {source: hello}\n  b: {source: hello, memory: 1GB}\n"
    (tmp_path / "two.yaml").write_text(text)
    document = yamlio.load(tmp_path / "two.yaml")
    known = {"hello": {"url": "http://x/"}, "two.b": {"url": "http://b/", "memory": "1GB"}}
    assert urls.apply(document, known).data["functions"] == {
        "a": {"source": "hello"},
        "b": {"url": "http://b/", "memory": "1GB", "parameters_of": "hello"},
    }


def test_a_suite_is_carried_out_as_far_as_there_are_urls(
    command: Command, suite: Path, server: ThreadingHTTPServer, tmp_path: Path
) -> None:
    known = _addresses(tmp_path, {"spin": {"url": _url(server), "headers": {"x-key": "k"}}})
    out = tmp_path / "out"
    words = ("suite", "run", suite, "--platform", "http", "--urls", known, "--out", out)
    code, _, err = command(*words)
    assert code == 0, err
    rows = record.read(out / "loads" / "only")
    assert set(rows["experiment"].cast("string").to_pylist()) == {"plain", "client"}
    assert set(rows["platform"].cast("string").to_pylist()) == {"http"}
    assert server.events == [("k", {"cpu": 5, "duration": 0, "memory": 0})] * 60  # type: ignore[attr-defined]
    found = {it["id"]: it for it in json.loads((out / "claims.json").read_text())}
    assert found["loads.answers"]["verdict"] == "reproduced"
    assert found["loads.faster"]["verdict"] == "cannot be checked here"
    assert "settings of functions at URLs cannot be changed" in found["loads.faster"]["why"]
    (tmp_path / "elsewhere").mkdir()
    other = _addresses(tmp_path / "elsewhere", {"spin": _url(server)})
    code, _, err = command(*words[:6], other, "--resume", "--out", out)
    assert code == 2
    assert "holds results of" in err
    code, _, err = command(*words, "--resume")
    assert code == 0, err
    assert len(server.events) == 60  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("functions", "sentence"),
    [
        ({"hello": "ftp://x/"}, "is not an http:// or https:// address"),
        ({"hello": {"memory": "1GB"}}, "a function has either url or urls"),
        ({"hello": {"url": "http://x/", "keep_alive": "1s"}}, "keep_alive"),
        ({}, "functions"),
    ],
)
def test_mistakes_in_the_file_are_told(tmp_path: Path, functions: Any, sentence: str) -> None:
    file = _addresses(tmp_path, functions)
    with pytest.raises(UnciaError) as error:
        Target("http", urls=str(file)).check()
    assert "urls.yaml:" in str(error.value)
    assert sentence in str(error.value)


def test_urls_are_of_functions_that_run_elsewhere(tmp_path: Path) -> None:
    file = _addresses(tmp_path, {"hello": "http://x/"})
    for platform in (None, "embedded"):
        with pytest.raises(UnciaError, match="add --platform http"):
            Target(platform, urls=str(file)).check()
    with pytest.raises(UnciaError, match=r"absent\.yaml"):
        Target("http", urls=str(tmp_path / "absent.yaml")).check()
