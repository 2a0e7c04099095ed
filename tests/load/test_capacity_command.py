"""``uncia capacity``: a server's, through the load generator."""

from __future__ import annotations

import heapq
import json
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pyarrow as pa
import pytest
from load_helpers import ERROR, OK, Inside, Request, Server, finish, wait_until

from uncia import engine, record
from uncia.experiment import capacity, runner
from uncia.experiment.progress import Silent
from uncia.experiment.runner import Outcome

Uncia = Callable[..., "Popen[str]"]


class Workers:
    """So many workers, each of which takes the same time for a request."""

    def __init__(self, count: int, service_s: float) -> None:
        self._free = [0.0] * count
        self._service_s = service_s
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> bytes:
        del request
        with self._lock:
            end = max(time.monotonic(), heapq.heappop(self._free)) + self._service_s
            heapq.heappush(self._free, end)
        time.sleep(max(0.0, end - time.monotonic()))
        return OK


@pytest.mark.long
def test_the_capacity_of_a_server_and_the_rows_of_every_probe(
    inside: Inside, tmp_path: Path
) -> None:
    with Server(Workers(2, 0.04)) as server:
        ended = inside(
            *("capacity", server.url, "--out", tmp_path / "run", "--json", "--quiet"),
            *("--start", "30/s", "--tolerance", "10%", "--seed", "3"),
        )
    assert ended.code == 0, ended.err
    result = json.loads(ended.out)
    assert list(result) == ["capacity_per_s", "low_per_s", "high_per_s", "decided", "probes"]
    # It is 50/s; a machine that is busy with other things takes longer, never less.
    assert 0 < result["low_per_s"] <= 50.5
    assert result["low_per_s"] < result["capacity_per_s"] < result["high_per_s"]
    rates = [probe["rate"] for probe in result["probes"]]
    assert rates[0] == 30
    assert len(set(rates)) == len(rates)
    verdicts = {probe["verdict"] for probe in result["probes"]}
    assert {"sustained", "not"} <= verdicts <= {"sustained", "not", "undecided"}
    for probe in result["probes"]:
        assert probe["failed"] == 0
        assert probe["slope_low"] <= probe["slope"] <= probe["slope_high"]
    rows = record.read(tmp_path / "run")
    probes = sum(probe["requests"] for probe in result["probes"])
    assert rows.num_rows == 20 + probes
    assert (tmp_path / "run" / "report.html").exists()


def test_a_server_that_never_answers_right_is_a_sentence(inside: Inside, tmp_path: Path) -> None:
    with Server(lambda request: ERROR) as server:
        ended = inside("capacity", server.url, "--out", tmp_path / "run", "--quiet")
    assert ended.code == 1
    assert "it never answers right: of 20 single requests 20 " in ended.err
    assert record.read(tmp_path / "run").num_rows == 20


def test_a_server_that_fails_at_every_rate_is_a_sentence(inside: Inside, tmp_path: Path) -> None:
    count = 0

    def answer(request: Request) -> bytes:
        nonlocal count
        del request
        count += 1
        return OK if count <= 20 else ERROR

    with Server(answer) as server:
        ended = inside(
            *("capacity", server.url, "--out", tmp_path / "run", "--json", "--quiet"),
            *("--start", "4/s"),
        )
    assert ended.code == 1
    assert "requests fail at every rate: of " in ended.err
    result = json.loads(ended.out)
    assert result["capacity_per_s"] is None
    assert [probe["rate"] for probe in result["probes"]] == [4, 2, 1]


class OneRate:
    """A search that watches one rate again and again."""

    def __init__(self, *_: object, **__: object) -> None:
        self.rates: dict[float, object] = {}

    def add(self, *_: object) -> None: ...

    def next(self) -> float:
        return 10.0

    def found(self) -> None: ...


@pytest.mark.parametrize(("given", "again"), [(None, 9), (3, 5), (2**64 - 1, 1)])
def test_rates_are_watched_again_with_other_seeds_than_that_of_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: int | None, again: int
) -> None:
    rows = pa.table(
        {
            "experiment": [capacity.CHECK, "probe-01"],
            "outcome": ["ok"] * 2,
            "scheduled": [0, 0],
            "received": [1, 1],
        }
    )
    planned = []

    def execute(*_: object, seed: int | None, extend: runner.Extend, **__: object) -> Outcome:
        assert seed == given
        extend(rows)
        planned.append(extend(rows))
        return Outcome("run", tmp_path, {}, [])

    monkeypatch.setattr(runner, "execute", execute)
    monkeypatch.setattr(capacity, "Search", OneRate)
    monkeypatch.setattr(capacity, "see", lambda *_: None)
    document = {
        "name": "x",
        "seed": 7,
        "platform": {"kind": "http"},
        "functions": {"f": {"url": "http://127.0.0.1:1/"}},
    }
    finder = capacity.Finder(document, {"function": "f"}, tmp_path, 10.0, 0.02)
    finder.find(out=None, overwrite=False, reporter=Silent(), seed=given)
    (plan,) = planned
    assert plan is not None
    assert [experiment.seed for experiment in plan.experiments] == [None, None, again]


def test_an_interrupted_search_prints_what_it_has_tried(uncia: Uncia, tmp_path: Path) -> None:
    count = 0

    def answer(request: Request) -> bytes:
        nonlocal count
        del request
        count += 1
        # The first probe fails at once, the second one goes on.
        return ERROR if count == 21 else OK

    run = tmp_path / "run"
    with Server(answer) as server:
        process = uncia(
            *("capacity", server.url, "--out", str(run), "--json", "--quiet", "--start", "4/s")
        )
        wait_until(lambda: any(run.glob("*probe-02*")), process)
        process.send_signal(signal.SIGINT)
        ended = finish(process)
    assert ended.code == 130, ended.err
    result = ended.json()
    assert (result["decided"], result["capacity_per_s"]) == (False, None)
    assert [(probe["rate"], probe["verdict"]) for probe in result["probes"]] == [(4, "not")]


def test_what_cannot_be_searched_is_refused(inside: Inside, tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(
        """\
name: two
platform: {kind: http}
functions:
  one: {url: "http://127.0.0.1:1/"}
experiments:
  first: &first {function: one, arrivals: {kind: constant, rate: 1/s, duration: 1s}}
  second: *first
""",
        encoding="utf-8",
    )
    for arguments, message in (
        ((file,), "has several experiments, and a capacity is of one"),
        ((file, "--experiment", "third"), "has no experiment 'third'"),
        ((file, "--header", "a: b"), "--method and --header are of a URL"),
        (("ftp://x",), "is no URL of http or https"),
        (
            ("http://127.0.0.1:1/", "-X", "BAD METHOD"),
            "--method: 'BAD METHOD' is no method of HTTP",
        ),
        (("hello", "--experiment", "first"), "--experiment is of an experiment file"),
        (("hello", "--tolerance", "2"), "--tolerance: '2' is not a share"),
        (("hello", "--start", "2"), "--start"),
        (("hello", "--timeout", "soon"), "--timeout: "),
        (("hello", "--timeout", "0s"), "--timeout: "),
        ((file, "--timeout", "1s"), "--timeout is of a function or a URL"),
        (("nothing-here",), "nothing-here"),
    ):
        ended = inside("capacity", *arguments, "--out", tmp_path / "run")
        assert ended.code != 0
        assert message in ended.err
        assert not (tmp_path / "run").exists()


def test_a_warning_names_what_people_write(
    inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the engine's configuration the timeout has another name."""
    script = tmp_path / "few-files"
    script.write_text(f'#!/bin/sh\nulimit -n 64\nexec {engine.binary()} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("UNCIA_ENGINE", str(script))
    with Server(lambda request: OK) as server:
        load = ("load", server.url, "--rate", "40/s", "--duration", "2s")
        warned = inside(*load, "--out", tmp_path / "slow.arrows")
        calm = inside(*load, "--timeout", "100ms", "--out", tmp_path / "fast.arrows")
        failed = inside("capacity", server.url, "--timeout", "0.001ms", "--out", tmp_path / "run")
    assert "if answers take as long as the total timeout, 80 requests are in flight" in warned.err
    assert "shorten timeout, or lower max_connections" in warned.err
    assert "_ns" not in warned.err
    assert "ulimit" not in calm.err
    assert "20 timeout" in failed.err
