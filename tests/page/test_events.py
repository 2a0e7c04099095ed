"""The events that the page is kept up to date with."""

import time
import urllib.error
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from events import Stream

from uncia.platforms import inquiries, wire
from uncia.platforms.server import Server
from uncia.tariffs import bill, bill_with_total, billable

MAX_VIEWERS = 64


def has_billed(rows: int) -> Callable[[dict[str, Any]], bool]:
    return lambda bills: bool(bills["is_complete"]) and bills["rows"] == rows


def test_the_first_event_has_all_and_the_next_what_is_new(serving: Any) -> None:
    with Stream(serving.address) as stream:
        state = stream.wait("state")
        assert [function["name"] for function in state["functions"]] == ["works", "fails"]
        works, fails = state["functions"]
        assert (works["invocations"], works["failures"], works["memory_mb"]) == (5, 0, 256)
        assert (fails["invocations"], fails["failures"]) == (2, 2)
        assert works["cpu_ns"] > 0
        assert [row["number"] for row in state["rows"]] == list(range(1, 8))
        cold = state["rows"][0]
        assert (cold["function"], cold["start"], cold["outcome"]) == ("works", "cold", "ok")
        assert {name for name, _ in cold["phases"]}
        assert cold["initialization"] > 0
        assert state["rows"][-1]["error"].startswith("ValueError: <img")
        serving.invoke("works")
        rows: list[int] = []
        seconds = {point["second"]: point["invocations"] for point in state["points"]}

        def has_all(tick: dict[str, Any]) -> bool:
            rows.extend(row["number"] for row in tick["rows"])
            seconds.update({point["second"]: point["invocations"] for point in tick["points"]})
            return bool(rows) and sum(seconds.values()) == 8

        stream.wait("tick", has_all)
        assert rows == [8]


def test_bills_are_those_of_the_rows_of_the_log(serving: Any, tmp_path: Path) -> None:
    with Stream(serving.address) as stream:
        rows, _, _ = inquiries.fetch_page(serving.address, "invocations", 0, print)
        bills = stream.wait("bills", has_billed(rows.num_rows))
        serving.invoke("fails", 3)
        bills = stream.wait("bills", has_billed(rows.num_rows + 3))
    rows, _, _ = inquiries.fetch_page(serving.address, "invocations", 0, print)
    pq.write_table(rows, tmp_path / "rows.parquet")
    total, of_each = bill_with_total(tmp_path / "rows.parquet", None, ["function"])
    assert {tariff["id"] for tariff in bills["tariffs"]} == set(billable())
    expected = {line.tariff: line for line in total}
    for tariff, shown in zip(bills["tariffs"], bills["total"], strict=True):
        line = expected[tariff["id"]]
        assert shown["exact"] == f"{line.cost_usd:f}", tariff["id"]
        assert line.exact_parts is not None
        assert line.exact_cost == sum(line.exact_parts.values(), Fraction(line.fee_usd or 0))
    expected_of = {(line.tariff, line.group["function"]): line.cost_usd for line in of_each}
    assert {function["name"] for function in bills["functions"]} == {"works", "fails"}
    for function in bills["functions"]:
        for tariff, shown in zip(bills["tariffs"], function["lines"], strict=True):
            cost = expected_of[tariff["id"], function["name"]]
            assert shown["exact"] == f"{cost:f}"
    assert bills["missing"] == 0
    (chosen,) = [tariff["id"] for tariff in bills["tariffs"] if tariff["is_chosen"]]
    assert chosen.startswith("aws-lambda-")


def test_only_rows_since_the_start_are_billed(start_serving: Any) -> None:
    first = start_serving()
    first.create("f", "def handler(event, context):\n    return 1\n")
    first.invoke("f", 3)
    state = first.process.args[first.process.args.index("--state") + 1]
    first.stop()
    second = start_serving("--state", state, "--tariff", "spfu")
    second.invoke("f", 2)
    rows, _, _ = inquiries.fetch_page(second.address, "invocations", 0, print)
    assert rows.num_rows == 5
    with Stream(second.address) as stream:
        bills = stream.wait("bills", has_billed(2))
    assert bills["tariffs"][0]["id"] == "spfu"
    (line,) = bill(rows.slice(3), ["spfu"])
    assert bills["total"][0]["exact"] == f"{line.cost_usd:f}"
    second.stop()


def test_without_the_command_the_page_says_that_there_are_no_bills(
    engine_binary: Path, tmp_path: Path
) -> None:
    path = tmp_path / "socket"
    socket = f"unix:{path}"
    server = Server(tmp_path / "s", {}, options=["--socket", str(path)])
    try:
        with Stream(server.address) as stream:
            assert stream.wait("state")["has_biller"] is False
            stream.wait("tick")
            put(socket, b'{"error": "a\\nb",\n\n"x": 1}')
            assert stream.wait("bills") == {"error": "a\nb", "x": 1}
            with Stream(server.address) as late:
                assert late.wait("bills")["x"] == 1
            for refused in (b"", b"[]", b'{"a": 1, "a": 2}', b'{"a": "\xff"}'):
                with pytest.raises(urllib.error.HTTPError, match="400"):
                    put(socket, refused)
            with pytest.raises(urllib.error.HTTPError, match="413"):
                put(socket, b'{"a": "' + b"x" * 1_100_000 + b'"}')
            with pytest.raises(urllib.error.HTTPError, match="403"):
                put(server.address, b"{}")
    finally:
        server.stop()


def put(address: str, body: bytes) -> None:
    with wire.open_path(address, "/uncia/v1/bills", 60, body=body, method="PUT") as answer:
        assert answer.status == 204


def test_viewers_are_bounded_and_slow_ones_hold_nobody_up(serving: Any) -> None:
    streams = [Stream(serving.address) for _ in range(MAX_VIEWERS)]
    try:
        assert [stream.response.status for stream in streams] == [200] * MAX_VIEWERS
        with Stream(serving.address) as refused:
            assert refused.response.status == 503
            assert b"64 pages are open already" in refused.response.read()
        # Nobody reads but the last, which is up to date all the same.
        serving.invoke("works")
        last = streams[-1].wait("tick", lambda tick: bool(tick["rows"]))
        assert last["rows"][0]["function"] == "works"
    finally:
        for stream in streams:
            stream.close()
    deadline = time.monotonic() + 60
    while viewers(serving) > 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def viewers(serving: Any) -> int:
    lines = serving.get("/metrics").read().decode().splitlines()
    (line,) = [line for line in lines if line.startswith("uncia_page_viewers ")]
    return int(line.split()[1])


@pytest.mark.parametrize("path", ["/uncia/", "/uncia/v1/live", "/metrics"])
def test_pages_of_others_get_nothing(serving: Any, path: str) -> None:
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            serving.get(path, headers)


@pytest.mark.parametrize("path", ["/uncia/v1/live", "/uncia/v1/viewers?wait=60", "/metrics"])
def test_a_page_of_another_site_has_nothing_done(serving: Any, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="403"):
        serving.get(path, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"})


def test_the_files_of_the_page_may_run_nothing_from_elsewhere(serving: Any) -> None:
    for path in ("/uncia/", "/uncia/page.js", "/uncia/page.css"):
        with serving.get(path) as answer:
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
    # urllib follows the redirect to where the relative addresses of its files hold.
    with serving.get("/uncia") as answer:
        assert answer.url.endswith("/uncia/")


def test_streams_end_with_the_platform(start_serving: Any) -> None:
    served = start_serving()
    with Stream(served.address) as stream:
        stream.wait("state")
        started = time.monotonic()
        served.stop()
        assert all(name == "tick" or name == "bills" for name, _ in stream.events())
    assert time.monotonic() - started < 60
