"""Several generator processes: one schedule among them, one table, one end."""

import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from load_helpers import Server, engines, finish, wait_until

import uncia as package
from uncia import engine, record
from uncia.errors import UnciaError
from uncia.workload.client import Share

Uncia = Callable[..., "Popen[str]"]
SCHEDULE = {"arrivals": "poisson", "rate": "500/s", "duration": "4s", "dry_run": True}


def schedule(**how: object) -> list[tuple[int, str]]:
    rows = package.load("http://127.0.0.1:1/", **SCHEDULE, **how)  # type: ignore[arg-type]
    return list(
        zip(
            rows.column("scheduled").to_pylist(), rows.column("invocation").to_pylist(), strict=True
        )
    )


@given(st.integers(1, 7), st.data(), st.integers(1, 5), st.integers(0, 10_000))
def test_shares_of_shares_meet_in_no_number_and_miss_none(
    of: int, data: st.DataObject, parts: int, number: int
) -> None:
    share = Share(data.draw(st.integers(0, of - 1)), of)
    takers = [part for part in share.split(parts) if number % part.of == part.index]
    assert len(takers) == (1 if number % of == share.index else 0)


def test_processes_and_machines_partition_the_schedule() -> None:
    whole = schedule()
    assert whole == sorted(whole, key=lambda row: row[0])
    assert 1500 < len(whole) < 2500
    assert sorted(schedule(processes=3)) == sorted(whole)
    shares = [
        schedule(share="1/3"),
        schedule(share="2/3", processes=2),
        schedule(share="3/3"),
    ]
    assert sorted(row for share in shares for row in share) == sorted(whole)
    assert all(len(share) > 400 for share in shares)


def test_rows_of_all_processes_are_one_table(tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    with Server() as server:
        rows = package.load(server.url, rate="200/s", duration="1s", processes=3, out=out)
        assert len(server.requests) == 200
    assert rows.column("scheduled").to_pylist() == [5_000_000 * number for number in range(200)]
    assert len(set(rows.column("invocation").to_pylist())) == 200
    assert set(rows.column("outcome").to_pylist()) == {"ok"}
    assert rows.equals(record.read(out))
    assert record.epoch_unix_ns(rows) > 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.parquet"]


def test_the_table_may_stay_a_stream(tmp_path: Path) -> None:
    out = tmp_path / "rows.arrows"
    with Server() as server:
        rows = package.load(server.url, rate="100/s", duration="1s", processes=2, out=out)
    assert rows.num_rows == record.read(out).num_rows == 100
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.arrows"]


def test_limits_on_connections_are_divided() -> None:
    with Server() as server:
        rows = package.load(
            server.url, arrivals="burst", sizes=[40], max_connections=4, processes=2, rtt_probes=0
        )
        assert server.connections <= 4
    assert rows.num_rows == 40
    with pytest.raises(UnciaError, match="1 max connections cannot be divided among 2 processes"):
        package.load(
            "http://127.0.0.1:1/", rate="1/s", duration="1s", max_connections=1, processes=2
        )


def sending(folder: Path, names: list[str]) -> Callable[[], bool]:
    """Whether rows of every process have reached the disk."""

    def condition() -> bool:
        parts = [folder / name for name in names]
        # The stream's head alone is smaller than this.
        return all(part.exists() and part.stat().st_size > 20_000 for part in parts)

    return condition


TWO = ["rows.1-of-2.arrows", "rows.2-of-2.arrows"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_all_and_keeps_the_rows(
    uncia: Uncia, tmp_path: Path, number: int, code: int
) -> None:
    out = tmp_path / "rows.parquet"
    with Server() as server:
        process = uncia(
            "load", server.url, "--rate", "50/s", "--duration", "10min", "--processes", "2",
            "--out", out, "--json",
        )  # fmt: skip
        wait_until(sending(tmp_path, TWO), process)
        process.send_signal(number)
        ended = finish(process)
        assert ended.code == code, ended.err
        sent = len(server.requests)
    assert ended.json()["interrupted"] is True
    assert pyarrow.parquet.read_table(out).num_rows == sent
    assert engines(tmp_path) == []
    assert [entry.name for entry in tmp_path.glob("rows*")] == ["rows.parquet"]


def test_a_killed_process_stops_the_others(uncia: Uncia, tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    with Server() as server:
        process = uncia(
            "load", server.url, "--rate", "50/s", "--duration", "10min", "--processes", "2",
            "--out", out,
        )  # fmt: skip
        wait_until(sending(tmp_path, TWO), process)
        os.kill(engines(tmp_path)[0], signal.SIGKILL)
        ended = finish(process)
    assert ended.code == 1
    assert " of 2: uncia-engine load was killed by signal 9" in ended.err
    assert engines(tmp_path) == []
    assert pyarrow.parquet.read_table(out).num_rows > 20


@pytest.mark.parametrize(
    ("processes", "names"),
    [(1, ["rows.arrows"]), (2, TWO)],
)
def test_after_kill_9_the_rows_are_readable_and_nothing_goes_on(
    uncia: Uncia, tmp_path: Path, processes: int, names: list[str]
) -> None:
    shape = ("--rate", "50/s", "--duration", "10min", "--processes", str(processes))
    with Server() as server:
        process = uncia("load", server.url, *shape, "--out", tmp_path / "rows.parquet")
        wait_until(sending(tmp_path, names), process)
        numbers = engines(tmp_path)
        assert len(numbers) == processes
        process.kill()
        # One of two is killed as well; the other ends by itself when its parent is gone.
        os.kill(numbers[0], signal.SIGKILL)
        process.communicate()
        wait_until(lambda: engines(tmp_path) == [])
    parts = sorted(tmp_path.glob("rows*"))
    assert [part.name for part in parts] == names
    assert all(record.read(part).num_rows > 5 for part in parts)
    ended = finish(uncia("recover", parts[0]))
    assert ended.code == 0, ended.err
    assert pyarrow.parquet.read_table(parts[0].with_suffix(".parquet")).num_rows > 5


def test_one_that_is_not_ready_in_time_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "slow-engine"
    slow.write_text(
        f"#!/bin/sh\nmkdir '{tmp_path}/first' 2>/dev/null || sleep 6\n"
        f"exec '{engine.binary()}' \"$@\"\n"
    )
    slow.chmod(slow.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("UNCIA_ENGINE", str(slow))
    with (
        Server() as server,
        pytest.raises(UnciaError, match=r"generator process \d of 2: .*start"),
    ):
        package.load(server.url, rate="10/s", duration="1s", processes=2)


def test_a_start_in_the_past_is_refused() -> None:
    with pytest.raises(UnciaError, match="the start time has passed"):
        package.load(
            "http://127.0.0.1:1/", rate="1/s", duration="1s", start_at="2020-01-01T00:00:00+01:00"
        )


def test_rows_of_an_earlier_load_are_never_overwritten(tmp_path: Path) -> None:
    part = tmp_path / "rows.1-of-2.arrows"
    part.write_bytes(b"precious")
    with pytest.raises(UnciaError, match="an earlier load ended before"):
        package.load(
            "http://127.0.0.1:1/", rate="1/s", duration="1s", processes=2,
            out=tmp_path / "rows.parquet",
        )  # fmt: skip
    out = tmp_path / "taken.parquet"
    out.write_bytes(b"precious")
    with pytest.raises(UnciaError, match="exists already"):
        package.load("http://127.0.0.1:1/", rate="1/s", duration="1s", out=out)
    assert part.read_bytes() == out.read_bytes() == b"precious"
