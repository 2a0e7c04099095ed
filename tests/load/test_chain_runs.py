"""Chains and closed loops against a real server, from files to rows."""

import json
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import Any

import pyarrow.parquet
import pytest
from load_helpers import Request, Server, finish, wait_until

Uncia = Callable[..., "Popen[str]"]

EXPERIMENT = """\
name: sample
seed: 7
platform: {{kind: http}}
functions:
  f: {{url: "{url}"}}
chains:
  diamond:
    stages:
      split: {{function: f, parameters: {{stage: split}}}}
      left: {{function: f, parameters: {{stage: left, n: "{{{{answer.n}}}}"}}}}
      right:
        function: f
        after: split
        parameters: {{stage: right, text: "n={{{{answer.n}}}}", as_is: "{{{{{{{{number}}}} }}}}"}}
      join:
        function: f
        after: [left, right]
        parameters: {{stage: join, n: "{{{{answers.left.n}}}}", all: "{{{{answers.right}}}}"}}
experiments:
  chained:
    chain: diamond
    kind: client
    arrivals: {{kind: constant, rate: {rate}, duration: {duration}}}
    expect: {{function_error: allowed}}
  bursts: {{function: f, closed: {{clients: 3, requests: 9, think: 5ms, together: true}}}}
"""


def respond(request: Request) -> bytes:
    """Says what came; a stage asked for as many as it says fails."""
    event = json.loads(request.body or b"{}")
    body = json.dumps({"n": 5, "of": event}).encode()
    number = request.headers.get("x-uncia-invocation", "").rsplit("-", 1)[-1]
    fails = event.get("stage") == "left" and number == "3"
    status = b"500 No" if fails else b"200 OK"
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body)


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    return rows


def write(folder: Path, url: str, rate: str = "20/s", duration: str = "500ms") -> Path:
    path = folder / "experiment.yaml"
    path.write_text(EXPERIMENT.format(url=url, rate=rate, duration=duration))
    return path


def test_an_experiment_with_a_chain_and_one_with_bursts(uncia: Uncia, tmp_path: Path) -> None:
    with Server(respond) as server:
        path = write(tmp_path, server.url)
        ended = finish(uncia("run", str(path), "--out", str(tmp_path / "run")))
    assert ended.code == 0, ended.err
    rows = rows_of(tmp_path / "run" / "invocations.parquet")
    chained = [row for row in rows if row["experiment"] == "chained"]
    # Number 3 fails in `left`, so that its `join` is not sent.
    assert Counter(row["stage"] for row in chained) == {
        "split": 10,
        "left": 10,
        "right": 10,
        "join": 9,
    }
    assert Counter(row["outcome"] for row in chained) == {"ok": 38, "function_error": 1}
    by_id = {row["invocation"]: row for row in chained}
    for row in chained:
        if row["stage"] == "split":
            assert (row["open_loop"], row["parent"]) == (True, None)
            assert row["sent"] >= row["scheduled"]
            continue
        assert (row["open_loop"], row["scheduled"]) == (False, None)
        parent = by_id[row["parent"]]
        assert row["sent"] >= parent["received"]
        before = {"left": ["split"], "right": ["split"], "join": ["left", "right"]}[row["stage"]]
        assert parent["stage"] in before
    bodies = [json.loads(request.body) for request in server.requests]
    assert {"stage": "left", "n": 5} in bodies
    # Of braces, only those that open are written twice to be sent as they are.
    right = {"stage": "right", "text": "n=5", "as_is": "{{number}} }}"}
    assert right in bodies
    assert bodies.count({"stage": "join", "n": 5, "all": {"n": 5, "of": right}}) == 9
    bursts = [row for row in rows if row["experiment"] == "bursts"]
    assert Counter(row["burst"] for row in bursts) == {0: 3, 1: 3, 2: 3}
    for row in bursts:
        ends = [other["received"] for other in bursts if other["burst"] < row["burst"]]
        assert not row["open_loop"]
        assert not ends or row["scheduled"] >= max(ends) + 5_000_000


def test_an_interrupted_chain_has_all_its_rows(uncia: Uncia, tmp_path: Path) -> None:
    with Server(respond) as server:
        path = write(tmp_path, server.url, duration="10min")
        process = uncia("run", str(path), "--out", str(tmp_path / "run"))
        wait_until(lambda: len(server.requests) >= 40, process)
        process.send_signal(signal.SIGINT)
        ended = finish(process)
    assert ended.code == 130, ended.err
    rows = rows_of(tmp_path / "run" / "invocations.parquet")
    assert len(rows) == len(server.requests)
    assert {row["experiment"] for row in rows} == {"chained"}


WORKLOAD = """\
name: sample
functions:
  f: {{url: "{url}", body: {{text: '{{"stage": "one"}}'}}}}
chains:
  two:
    stages:
      one: {{function: f}}
      two:
        function: f
        think: 2ms
        body: {{template: '{{"stage": "two", "n": {{{{answer.n}}}}}}'}}
streams:
  - {{chain: two, arrivals: {{kind: constant, rate: 40/s, duration: 500ms}}}}
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_a_workload_with_a_chain(uncia: Uncia, tmp_path: Path, processes: int) -> None:
    path = tmp_path / "load.yaml"
    out = tmp_path / "rows.parquet"
    with Server(respond) as server:
        path.write_text(WORKLOAD.format(url=server.url))
        ended = finish(
            uncia("load", str(path), "--out", str(out), "--processes", str(processes), "--json")
        )
    assert ended.code == 0, ended.err
    rows = rows_of(out)
    assert Counter(row["stage"] for row in rows) == {"one": 20, "two": 20}
    assert len({row["invocation"] for row in rows}) == 40
    received = {row["invocation"]: row["received"] for row in rows}
    for row in rows:
        if row["stage"] == "two":
            assert row["sent"] - received[row["parent"]] >= 2_000_000
    assert json.loads(ended.out)["outcomes"] == {"ok": 40}
    bodies = Counter(request.body for request in server.requests)
    assert bodies == {b'{"stage": "one"}': 20, b'{"stage": "two", "n": 5}': 20}


def test_the_schedule_of_a_chain_is_that_of_its_first_stage(uncia: Uncia, tmp_path: Path) -> None:
    path = tmp_path / "load.yaml"
    path.write_text(WORKLOAD.format(url="http://127.0.0.1:1/"))
    out = tmp_path / "schedule.parquet"
    ended = finish(uncia("load", str(path), "--dry-run", "--out", str(out)))
    assert ended.code == 0, ended.err
    assert len(rows_of(out)) == 20


FAILING = """\
name: sample
seed: 7
platform: {{kind: http}}
functions:
  f: {{url: "{url}"}}
chains:
  sizes:
    stages:
      one: {{function: f}}
      left: {{function: f, parameters: {{stage: left}}}}
      two: {{function: f, after_failures: true}}
      three: {{function: f}}
experiments:
  sizes: {{chain: sizes, closed: {{clients: 1, requests: 5}}, expect: {{function_error: allowed}}}}
"""


def test_a_stage_that_follows_failures(uncia: Uncia, tmp_path: Path) -> None:
    path = tmp_path / "experiment.yaml"
    with Server(respond) as server:
        path.write_text(FAILING.format(url=server.url))
        ended = finish(uncia("run", str(path), "--out", str(tmp_path / "run")))
    assert ended.code == 0, ended.err
    rows = rows_of(tmp_path / "run" / "invocations.parquet")
    assert Counter(row["stage"] for row in rows) == dict.fromkeys(
        ("one", "left", "two", "three"), 5
    )
    assert Counter(row["outcome"] for row in rows) == {"ok": 19, "function_error": 1}
    (result,) = json.loads((tmp_path / "run" / "summary.json").read_text())["experiments"]["sizes"][
        "chains"
    ]
    assert (result["begun"], result["complete"]) == (5, 4)
    (line,) = [line for line in ended.out.splitlines() if "chains complete" in line]
    assert line.startswith("sizes: 4 of 5 chains complete, p50 ")
    report = (tmp_path / "run" / "report.html").read_text()
    chains = report.split('<section id="chains"')[1].split("</section>")[0]
    # A row for the chain; its stages are folded.
    assert chains.count("<tbody>") == 2
    assert chains.split("<details>")[0].count("<tr>") == 2
    assert "<summary>Stages of sizes: " in chains
