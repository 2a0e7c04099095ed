"""A load that is kept: its folder works wherever a run does, and so do its rows alone."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from load_helpers import OK, Inside, Server, engines, finish, wait_until

from uncia import record
from uncia.platforms.boto import client
from uncia.platforms.server import Server as Platform
from uncia.units import MIB

Uncia = Callable[..., "Popen[str]"]

HANDLER = """\
import uuid

served = 0


def handler(event, context):
    global served
    served += 1
    print("request", served)
    if served == 3:
        raise ValueError(f"there is no user {uuid.uuid4()}")
    return {"served": served}
"""

# A server that says nothing of what it runs on.
QUIET = ("--rate", "40/s", "--duration", "500ms", "--rtt-probes", "0", "--quiet")
# Five providers that bill by what was allocated.
PRICED = tuple(
    word
    for name in (
        "aws-lambda-x86",
        "gcp-run-request",
        "alibaba-fc",
        "huawei-functiongraph",
        "oracle-functions",
    )
    for word in ("--tariff", name)
)
SIZES = ("--memory", "512MB", "--vcpu", "0.5", "--execution", "response")


def deploy(platform: Platform, source: str) -> str:
    """Create a function of 256 MB, and return its URL."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("handler.py", source)
    lambda_ = client(platform.address)
    lambda_.create_function(
        FunctionName="f",
        Runtime=f"python3.{sys.version_info.minor}",
        Role="arn:aws:iam::000000000000:role/any",
        Handler="handler.handler",
        Code={"ZipFile": buffer.getvalue()},
        MemorySize=256,
    )
    lambda_.get_waiter("function_active_v2").wait(FunctionName="f")
    url = lambda_.create_function_url_config(FunctionName="f", AuthType="NONE")["FunctionUrl"]
    return str(url)


@pytest.fixture(scope="module")
def url(engine_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a function on a platform of its own, whose third request fails."""
    del engine_binary
    platform = Platform(tmp_path_factory.mktemp("platform") / "state", {})
    try:
        yield deploy(platform, HANDLER)
    finally:
        platform.stop()


@pytest.fixture(scope="module")
def kept(
    engine_binary: Path, url: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str, str]:
    """A load that is kept, and what the command printed: its folder, output and errors."""
    folder = tmp_path_factory.mktemp("loads")
    environment = {
        "UNCIA_ENGINE": str(engine_binary),
        "XDG_STATE_HOME": str(folder / "state"),
        "COLUMNS": "120",
    }
    command = (url, "--closed", "1", "--requests", "12", "--quiet", "--out", str(folder / "run"))
    process: Popen[str] = Popen(
        [sys.executable, "-m", "uncia", "load", *command, "--header", "authorization: secret"],
        stdout=-1,
        stderr=-1,
        text=True,
        env={**os.environ, **environment},
    )
    ended = finish(process)
    assert ended.code == 1, ended.err
    return folder / "run", ended.out, ended.err


def test_a_load_into_a_folder_is_billed_reported_compared_and_exported(
    kept: tuple[Path, str, str], inside: Inside, tmp_path: Path
) -> None:
    folder, out, _ = kept
    assert f"Report: {folder / 'report.html'}" in out
    rows = record.read(folder)
    assert set(rows.column("allocated_memory").to_pylist()) == {256 * MIB}
    assert set(rows.column("allocated_cpu").to_pylist()) == {-(-256_000_000 // 1769)}
    bills = inside("bill", folder, "--strict", "--json")
    assert bills.code == 0, bills.out + bills.err
    lines = {line["tariff"]: line for line in bills.json()}
    assert {lines[name]["rows"] for name in ("aws-lambda-x86", "gcp-run-request", "sim")} == {12}
    for command in (
        ("report", folder),
        ("compare", folder, folder, "--tariff", "sim"),
        ("export", folder, "--csv", "--out", tmp_path / "csv"),
        ("cost", "inflation", folder, "--tariff", "sim"),
    ):
        ended = inside(*command)
        assert ended.code == 0, (command, ended.err)
    run = (folder / "run.yaml").read_text()
    described = yaml.safe_load(run)
    assert described["status"] == "failed"
    assert described["platform"] == {"kind": "http"}
    assert described["failures"] == ["1 of 12 requests failed: 1 function_error"]
    assert "secret" not in run


def test_a_failed_request_is_explained_with_trace_and_output(
    kept: tuple[Path, str, str],
) -> None:
    folder, out, err = kept
    assert "1 x function_error of load: ValueError: there is no user <id>" in out
    assert 'File "/var/task/handler.py", line 11, in handler' in out
    assert "request 3" in out
    assert "request 2" not in out
    assert "1 of 12 requests failed: 1 function_error" in err
    summary = json.loads((folder / "summary.json").read_text())
    (error,) = summary["errors"]
    assert (error["type"], error["message"]) == ("ValueError", "there is no user <id>")
    assert (error["count"], error["functions"]) == (1, ["load"])
    report = (folder / "report.html").read_text()
    errors = report.split('<section id="errors"')[1].split("</section>")[0]
    assert "there is no user &lt;id&gt;" in errors
    assert "line 11, in handler" in errors
    assert "request 3" in errors


def test_the_summary_counts_starts_and_says_how_late_the_slowest_were(
    kept: tuple[Path, str, str],
) -> None:
    _, out, _ = kept
    starts = next(line for line in out.splitlines() if line.startswith("Starts: "))
    assert "1 cold (p50 " in starts
    assert "The handler got HTTP events" in out
    # A client of a closed loop sends when it may: there is no schedule to be late for.
    assert "The slowest request (" in out


def test_rows_alone_work_wherever_a_run_does(
    kept: tuple[Path, str, str], inside: Inside, tmp_path: Path
) -> None:
    rows = record.read(kept[0])
    parquet = record.write(rows, tmp_path / "rows.parquet")
    stream = tmp_path / "more.arrows"
    with pa.OSFile(str(stream), "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    for file in (parquet, stream):
        report = inside("report", file)
        assert report.code == 0, report.err
        page = file.with_suffix(".html")
        assert report.out.strip() == str(page)
        assert "aws-lambda-x86" in page.read_text()
        assert inside("export", file, "--csv").code == 0
        exported = (tmp_path / f"{file.stem}-csv" / "invocations.csv").read_text()
        assert len(exported.splitlines()) == 13
        assert inside("bill", file, "--strict", "--tariff", "sim").code == 0
    assert inside("compare", parquet, stream, "--tariff", "sim").code == 0


def test_a_stream_without_its_end_is_refused(
    kept: tuple[Path, str, str], inside: Inside, tmp_path: Path
) -> None:
    rows = record.read(kept[0])
    stream = tmp_path / "half.arrows"
    with pa.OSFile(str(stream), "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows.slice(0, 5))
        writer.write_table(rows.slice(5))
    whole = stream.read_bytes()
    for cut in (8, 100):
        stream.write_bytes(whole[:-cut])
        for command in (("bill", stream), ("report", stream), ("export", stream, "--csv")):
            ended = inside(*command)
            assert ended.code == 2
            assert f"{stream} has no end: it holds {12 if cut == 8 else 5} whole rows" in ended.err
    assert inside("recover", stream).code == 0
    assert inside("bill", stream.with_suffix(".parquet"), "--tariff", "sim").code == 0
    stream.write_bytes(whole[:10])
    ended = inside("bill", stream)
    assert ended.code == 2
    assert "its writer was cut off before the first row" in ended.err


def test_a_load_without_sizes_says_what_to_add(inside: Inside, tmp_path: Path) -> None:
    rows = tmp_path / "rows.parquet"
    with Server() as server:
        assert inside("load", server.url, *QUIET, "--out", rows).code == 0
    bills = inside("bill", rows)
    assert bills.code == 0
    first, second = bills.out.splitlines()[:2]
    assert first.startswith("None of 20 rows has a price under any of these ")
    assert first.endswith("execution is null.")
    assert "--execution response" in second
    assert inside("bill", rows, "--strict").code == 1
    strict = inside("bill", rows, "--strict", "--json")
    assert strict.code == 1
    assert json.loads(strict.out)[0]["rows"] == 0
    assert "None of 20 rows" in strict.err
    with Server() as server:
        known = inside(
            "load", server.url, *QUIET, "--execution", "response", "--out", tmp_path / "b.arrows"
        )
    assert known.code == 0, known.err
    bills = inside("bill", tmp_path / "b.arrows", "--tariff", "sim", "--strict")
    assert bills.code == 1
    assert "--memory 512MB" in bills.out
    assert "--vcpu 0.5" in bills.out


def test_sizes_that_are_said_are_billed(inside: Inside, tmp_path: Path) -> None:
    with Server() as server:
        ended = inside("load", server.url, *QUIET, *SIZES, "--out", tmp_path / "run")
        assert ended.code == 0, ended.err
        workload = tmp_path / "workload.yaml"
        workload.write_text(
            f"name: w\nfunctions:\n  f: {{url: '{server.url}', memory: 512MB, vcpu: 0.5,"
            " execution: response}\nstreams:\n"
            "  - {function: f, arrivals: {kind: constant, rate: 40/s, duration: 500ms}}\n"
        )
        assert inside("load", workload, "--quiet", "--out", tmp_path / "of-file").code == 0
        experiment = tmp_path / "experiment.yaml"
        experiment.write_text(
            f"name: e\nplatform: {{kind: http}}\nfunctions:\n  f: {{url: '{server.url}',"
            " memory: 512MB, vcpu: 0.5, execution: response}\nexperiments:\n"
            "  e: {function: f, arrivals: {kind: constant, rate: 40/s, duration: 500ms}}\n"
        )
        assert inside("run", experiment, "--quiet", "--out", tmp_path / "of-run").code == 0
    for name in ("run", "of-file", "of-run"):
        rows = record.read(tmp_path / name)
        assert set(rows.column("allocated_memory").to_pylist()) == {512 * MIB}
        assert set(rows.column("allocated_cpu").to_pylist()) == {500_000}
        for row in rows.to_pylist():
            began = max(row["sent"], row["connected"] or 0)
            assert row["execution"] == row["received"] - began
        bills = inside("bill", tmp_path / name, "--strict", *PRICED)
        assert bills.code == 0, bills.out
    # What was used nobody knows.
    bills = inside("bill", tmp_path / "run", "--strict")
    assert bills.code == 1
    assert "azure-consumption: memory_avg is null" in bills.out
    assert "Rows need what the function used" in bills.out


def test_rows_without_cpu_time_need_it_and_no_execution(inside: Inside, tmp_path: Path) -> None:
    columns: dict[str, list[object]] = {
        "function": ["f"],
        "outcome": ["ok"],
        "execution": [10**7],
        "memory_avg": [64 * MIB],
    }
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    bills = inside("bill", tmp_path / "rows.parquet", "--fit", "used-peak", "-t", "sim")
    assert "CPU time over execution is not known" in bills.out
    assert "Rows need what the function used" in bills.out
    assert "Rows need how long" not in bills.out


def test_contradicting_sizes_fail_and_the_rows_keep_the_answers(
    inside: Inside, tmp_path: Path
) -> None:
    answer = OK.replace(b"\r\n\r\n", b"\r\nx-uncia-allocated-memory: 268435456\r\n\r\n")
    rows = tmp_path / "rows.parquet"
    with Server(answer=lambda _request: answer) as server:
        ended = inside("load", server.url, *QUIET, *SIZES, "--out", rows)
    assert ended.code == 1
    assert "load: its answers say 256MB (20 rows), but memory is given as 512MB" in ended.err
    assert set(record.read(rows).column("allocated_memory").to_pylist()) == {256 * MIB}
    experiment = tmp_path / "experiment.yaml"
    with Server(answer=lambda _request: answer) as server:
        experiment.write_text(
            f"name: e\nplatform: {{kind: http}}\nfunctions:\n  f: {{url: '{server.url}',"
            " memory: 512MB}\nexperiments:\n"
            "  e: {function: f, arrivals: {kind: constant, rate: 40/s, duration: 500ms}}\n"
        )
        ended = inside("run", experiment, "--quiet", "--out", tmp_path / "run")
    assert ended.code == 1
    assert "f: its answers say 256MB (20 rows), but memory is given as 512MB" in ended.err


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--memory", "512"), "memory: '512' is not a size"),
        (("--memory", "0MB"), "memory: "),
        (("--vcpu", "half"), "vcpu: 'half' is not a CPU allocation"),
        (("--vcpu", "-1"), "vcpu: "),
        (("--execution", "guess"), "execution: must be 'response'"),
    ],
)
def test_sizes_that_cannot_be_are_refused(
    option: tuple[str, str], message: str, inside: Inside, tmp_path: Path
) -> None:
    ended = inside("load", "http://127.0.0.1:9/", *QUIET, *option, "--out", tmp_path / "run")
    assert ended.code == 2
    assert message in ended.err
    assert not (tmp_path / "run").exists()


def test_a_folder_is_refused_or_left_out_when_it_should_be(inside: Inside, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine.txt").touch()
    ended = inside("load", "http://127.0.0.1:9/", *QUIET, "--out", taken)
    assert (ended.code, (taken / "mine.txt").exists()) == (2, True)
    ended = inside("load", "http://127.0.0.1:9/", *QUIET, "--out", tmp_path / "rows.csv")
    assert ended.code == 2
    assert "*.parquet or *.arrows, or into a folder" in ended.err
    # Nobody can be asked where the name has no address: nothing is sent, nothing is kept.
    ended = inside("load", "http://no-such-host.invalid/", *QUIET, "--out", tmp_path / "run")
    assert ended.code == 2
    assert not (tmp_path / "run").exists()


def test_a_killed_load_is_cleaned_and_billed(uncia: Uncia, inside: Inside, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with Server() as server:
        command = (server.url, "--rate", "50/s", "--duration", "10min", *SIZES, "--quiet")
        process = uncia("load", *command, "--out", folder)
        stream = folder / "invocations.arrows"
        wait_until(lambda: stream.exists() and stream.stat().st_size > 20_000, process)
        # Nobody takes the tables away from a load that goes on.
        busy = inside("recover", folder)
        assert (busy.code, stream.exists()) == (2, True)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        cleaned = inside("clean")
        assert cleaned.code == 0, cleaned.out
    assert engines(folder) == []
    assert yaml.safe_load((folder / "run.yaml").read_text())["status"] == "crashed"
    assert not stream.exists()
    assert inside("bill", folder, "--strict", "--tariff", "sim").code == 0
    assert inside("report", folder).code == 0
