"""What a stop, or a loss, at an unlucky moment means for requests and functions."""

import threading
import time
from contextlib import closing
from pathlib import Path

from lambda_api.conftest import cgroups, instances, package

from .engine import Answer, Connection, Engine, creation

FUNCTIONS = "/2015-03-31/functions"
START_TIMEOUT_S = 30.0


def test_a_stop_during_a_start_is_not_the_functions_failure(
    engine_binary: Path, state: Path
) -> None:
    source = "import time\ntime.sleep(8)\ndef handler(event, context):\n    return 1\n"
    engine = Engine(engine_binary, state, {"shutdown_grace_ms": 100})
    answers: list[Answer] = []
    try:
        engine.wait_ready()

        def ask(path: str, body: bytes) -> Answer:
            with closing(Connection()) as connection:
                return connection.request(engine.address, "POST", path, body)

        assert ask(FUNCTIONS, creation("slow", package(source))).status == 201
        call = f"{FUNCTIONS}/slow/invocations"
        client = threading.Thread(target=lambda: answers.append(ask(call, b"{}")))
        client.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not instances(state, made_ahead=False):
            assert time.monotonic() < deadline, "no instance was started"
            time.sleep(0.01)
        assert engine.stop() == 0
        client.join()
        assert (instances(state), cgroups(state)) == ([], [])
        (answer,) = answers
        assert answer.status == 503, answer
        engine = Engine(engine_binary, state, {})
        engine.wait_ready()
        (row,) = engine.rows()[0]
        assert row["request_id"] == answer.headers["x-amzn-requestid"]
        assert row["outcome"] == answer.headers["x-uncia-outcome"] == "transport_error"
        assert row["billed"] is None
        assert engine.stop() == 0
    finally:
        engine.kill()


def test_journals_that_are_lost_whole_take_only_what_was_in_them(
    engine_binary: Path, state: Path
) -> None:
    engine = Engine(engine_binary, state, {})
    try:
        for name in ("first", "second"):
            engine.wait_ready()
            with closing(Connection()) as connection:
                for path, body in [
                    (FUNCTIONS, creation(name, package("def handler(e, c):\n    return 1\n"))),
                    (f"{FUNCTIONS}/{name}/invocations", b"{}"),
                ]:
                    answer = connection.request(engine.address, "POST", path, body)
                    assert answer.status in (200, 201), answer
            engine.kill()
            for journal in state.glob("*.sqlite-wal"):
                journal.write_bytes(b"")
            engine = Engine(engine_binary, state, {})
        engine.wait_ready()
        assert engine.stop() == 0
    finally:
        engine.kill()
