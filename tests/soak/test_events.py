"""Accepted events through throttling, stops and kills: each runs, and waiting leaves no rows."""

import json
import time
from contextlib import closing
from pathlib import Path

import pytest
from lambda_api.conftest import cgroups, instances, package

from .engine import Connection, Engine, creation

EVENTS = 300
# Long enough for what resubmits its events in vain to write thousands of rows.
WAIT_S = 2.0
DRAIN_TIMEOUT_S = 120.0
SOURCE = "def handler(event, context):\n    return event\n"
FUNCTION = "/2015-03-31/functions/f"
CONCURRENCY = "/2017-10-31/functions/f/concurrency"


@pytest.mark.parametrize("ends", [["stop"] * 3, ["kill"] * 3, ["stop", "kill", "stop", "kill"]])
def test_throttled_events_wait_through_restarts(
    engine_binary: Path, state: Path, ends: list[str]
) -> None:
    engine = Engine(engine_binary, state, {"max_instances": 4})
    try:
        engine.wait_ready()
        with closing(Connection()) as connection:

            def ask(method: str, path: str, body: bytes, headers: dict[str, str]) -> int:
                return connection.request(engine.address, method, path, body, headers).status

            body = creation("f", package(SOURCE))
            assert ask("POST", "/2015-03-31/functions", body, {}) == 201
            nothing = b'{"ReservedConcurrentExecutions": 0}'
            assert ask("PUT", CONCURRENCY, nothing, {}) == 200
            for number in range(EVENTS):
                headers = {"x-amz-invocation-type": "Event", "x-uncia-invocation": f"e-{number}"}
                event = json.dumps({"number": number}).encode()
                assert ask("POST", f"{FUNCTION}/invocations", event, headers) == 202
            for end in ends:
                time.sleep(WAIT_S / len(ends))
                assert engine.rows()[0] == [], "they wait, and that is no attempt"
                if end == "kill":
                    engine.kill()
                else:
                    assert engine.stop() == 0
                engine = Engine(engine_binary, state, {"max_instances": 4})
                engine.wait_ready()
            time.sleep(WAIT_S)
            assert engine.rows()[0] == []
            assert ask("DELETE", CONCURRENCY, b"", {}) == 204
            deadline = time.monotonic() + DRAIN_TIMEOUT_S
            while len(rows := engine.rows()[0]) < EVENTS and time.monotonic() < deadline:
                time.sleep(0.1)
        assert {row["outcome"] for row in rows} == {"ok"}
        assert sorted(row["invocation"] for row in rows) == sorted(
            f"e-{number}" for number in range(EVENTS)
        )
        assert {row["attempt"] for row in rows} == {1}
        assert engine.stop() == 0
        assert (instances(state), cgroups(state)) == ([], [])
    finally:
        engine.kill()


def test_events_are_done_once_however_often_it_is_killed(
    engine_binary: Path, state: Path, long: bool
) -> None:
    kills, count = (25, 15_000) if long else (5, 500)
    # A function has nine tenths of the places at most.
    config = {"max_instances": 4, "event_queue": 2 * count}
    engine = Engine(engine_binary, state, config)
    try:
        engine.wait_ready()
        with closing(Connection()) as connection:

            def ask(path: str, body: bytes, headers: dict[str, str]) -> int:
                return connection.request(engine.address, "POST", path, body, headers).status

            body = creation("f", package(SOURCE))
            assert ask("/2015-03-31/functions", body, {}) == 201
            for number in range(count):
                headers = {"x-amz-invocation-type": "Event", "x-uncia-invocation": f"e-{number}"}
                assert ask(f"{FUNCTION}/invocations", b"{}", headers) == 202
                if number % (count // kills) == 0:
                    engine.kill()
                    engine = Engine(engine_binary, state, config)
                    engine.wait_ready()
        last, rows = 0, []
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        while len(rows) < count and time.monotonic() < deadline:
            more, last = engine.rows(after=last)
            rows += more
            deadline = time.monotonic() + DRAIN_TIMEOUT_S if more else deadline
            time.sleep(0.1)
        names = [row["invocation"] for row in rows]
        assert len(set(names)) == len(names), "an event was done twice"
        assert set(names) == {f"e-{number}" for number in range(count)}
        assert engine.stop() == 0
    finally:
        engine.kill()
