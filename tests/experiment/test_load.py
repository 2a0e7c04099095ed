"""Load on one URL, from Python and from the command line, against the real platform."""

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet
import pytest
from run_helpers import Uncia, finish, wait_until

import uncia as package
from uncia import functions
from uncia.errors import UnciaError
from uncia.platforms import boto
from uncia.platforms.server import Server
from uncia.workload.load import process


@pytest.fixture(scope="module")
def url(engine_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a function on an embedded platform."""
    server = Server(tmp_path_factory.mktemp("platform") / "state", {})
    try:
        client = boto.client(server.address)
        made = functions.package("hello", "python")
        client.create_function(
            FunctionName="hello",
            Runtime="python3.11",
            Role="arn:aws:iam::000000000000:role/any",
            Handler=made.handler,
            Code={"ZipFile": made.read_bytes()},
        )
        yield client.create_function_url_config(FunctionName="hello", AuthType="NONE")[
            "FunctionUrl"
        ]
    finally:
        server.stop()


@pytest.fixture
def nothing() -> Iterator[str]:
    """A URL on which nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/"


def test_rows_come_back_as_a_table(url: str) -> None:
    rows = package.load(url, rate="50/s", duration="400ms")
    assert rows.num_rows == 20
    assert set(rows.column("outcome").to_pylist()) == {"ok"}
    scheduled = rows.column("scheduled").to_pylist()
    assert sorted(scheduled) == [20_000_000 * number for number in range(20)]
    assert rows.column("sent").null_count == 0


@pytest.mark.parametrize(
    "arrivals",
    [
        {"arrivals": "constant", "rate": "7/s", "duration": "10s"},
        {"arrivals": "constant", "rate": "10/h", "duration": "1h"},
        {"arrivals": "constant", "rate": "0.3/s", "duration": "10s"},
        {"arrivals": "burst", "sizes": [1, 10, 50], "interval": "2s", "bursts": 5},
        {"arrivals": "burst", "sizes": [3]},
    ],
)
def test_the_engine_schedules_as_many_as_were_foretold(
    nothing: str, arrivals: dict[str, object]
) -> None:
    rows = package.load(nothing, dry_run=True, **arrivals)  # type: ignore[arg-type]
    given = dict(arrivals)
    message = process({"kind": given.pop("arrivals"), **given})
    assert rows.num_rows == message.expected_requests()
    assert max(rows.column("scheduled").to_pylist()) <= message.span_ns()
    assert "sent" not in rows.column_names


def test_a_seed_means_a_schedule(nothing: str) -> None:
    def schedule(seed: int) -> list[int]:
        rows = package.load(
            nothing, arrivals="poisson", rate="100/s", duration="5s", seed=seed, dry_run=True
        )
        times: list[int] = rows.column("scheduled").to_pylist()
        return times

    assert schedule(1) == schedule(1)
    assert schedule(1) != schedule(2)
    assert 350 < len(schedule(1)) < 650


def test_failed_requests_are_rows(nothing: str) -> None:
    rows = package.load(nothing, rate="20/s", duration="500ms")
    assert rows.column("outcome").to_pylist() == ["transport_error"] * 10
    assert all(rows.column("error").to_pylist())


def test_a_body_and_headers_arrive(url: str) -> None:
    rows = package.load(
        url, rate="5/s", duration="1s", body="{}", headers={"content-type": "application/json"}
    )
    assert set(rows.column("outcome").to_pylist()) == {"ok"}
    assert rows.column("request_bytes").to_pylist() == [2] * 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"rate": "100", "duration": "1s"},
            "rate: '100' is not a rate: write a number and one of /s",
        ),
        ({"rate": "100/s"}, "constant arrivals need a duration"),
        ({"rate": "1/s", "duration": "1s", "sizes": [1]}, "constant arrivals have no sizes"),
        ({"arrivals": "sometimes"}, "'sometimes' is not known"),
        ({"arrivals": "burst", "sizes": [1], "bursts": 2}, "2 bursts need an interval"),
        ({"rate": "1/s", "duration": "1s", "timeout": "60"}, "timeout: '60' is not a duration"),
        ({"rate": "1/s", "duration": "1s", "out": "rows.csv"}, r"\*.parquet or \*.arrows"),
        ({"rate": "1/s", "duration": "1s", "out": "/no/such/rows.parquet"}, "no folder /no/such"),
    ],
)
def test_wrong_arguments_are_told(nothing: str, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UnciaError, match=message):
        package.load(nothing, **arguments)  # type: ignore[arg-type]


def test_what_is_no_address_is_told() -> None:
    with pytest.raises(UnciaError, match="not a url"):
        package.load("not a url", rate="1/s", duration="1s")


def test_the_command_prints_a_summary(uncia: Uncia, url: str, tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    ended = finish(
        uncia("load", url, "--rate", "50/s", "--duration", "400ms", "--out", out, "--json")
    )
    assert ended.code == 0, ended.err
    summary = json.loads(ended.out)
    assert (summary["invocations"], summary["sent"], summary["failed"]) == (20, 20, 0)
    assert pyarrow.parquet.read_table(out).num_rows == 20
    assert [entry.name for entry in tmp_path.glob("rows.*")] == ["rows.parquet"]


def test_the_command_fails_when_requests_fail(uncia: Uncia, nothing: str) -> None:
    ended = finish(uncia("load", nothing, "--rate", "20/s", "--duration", "500ms"))
    assert ended.code == 1
    assert "10 of 10 requests failed: 10 transport_error" in ended.err


def test_ctrl_c_keeps_the_rows(uncia: Uncia, url: str, tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    stream = tmp_path / "rows.arrows"
    process = uncia("load", url, "--rate", "20/s", "--duration", "10min", "--out", out)
    wait_until(lambda: stream.exists() and stream.stat().st_size > 20_000, process)
    process.send_signal(signal.SIGINT)
    assert finish(process).code == 130
    table = pyarrow.parquet.read_table(out)
    assert table.num_rows > 10
    assert set(table.column("outcome").to_pylist()) == {"ok"}


def test_a_dry_run_writes_the_schedule(uncia: Uncia, nothing: str, tmp_path: Path) -> None:
    out = tmp_path / "schedule.parquet"
    arguments = ("load", nothing, "--rate", "6/min", "--duration", "1min", "--dry-run")
    ended = finish(uncia(*arguments, "--out", out))
    assert ended.code == 0, ended.err
    assert pyarrow.parquet.read_table(out).num_rows == 6
    ended = finish(uncia(*arguments))
    assert ended.code == 2
    assert "--out" in ended.err
