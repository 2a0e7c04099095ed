"""``uncia serve``: the embedded platform in the foreground."""

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from uncia import functions
from uncia.platforms import boto, inquiries, processes
from uncia.platforms.server import Server
from uncia.tariffs import bill
from uncia.tariffs.catalogue import path

Uncia = Callable[..., "subprocess.Popen[str]"]


def test_serve_in_the_foreground(uncia: Uncia, tmp_path: Path) -> None:
    process = uncia(
        *("serve", "--json", "--listen", "127.0.0.1:0", "--state", tmp_path / "deep" / "s"),
        *("--keep-alive", "1s", "--policy", "order=shortest-job-first", "--policy", "binding=late"),
    )
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    assert ready["event"] == "listening"
    with urllib.request.urlopen(f"http://{ready['address']}/uncia/v1/health") as answer:
        policies = json.load(answer)["policies"]
    assert (policies["order"], policies["binding"]) == ("shortest-job-first", "late")
    client = create(ready["address"])
    assert json.loads(client.invoke(FunctionName="hello")["Payload"].read())["message"] == "hello"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=120) == 0
    process.communicate()
    # The functions are still there after a restart.
    server = Server(tmp_path / "deep" / "s", {})
    try:
        functions = boto.client(server.address).list_functions()["Functions"]
        assert [function["FunctionName"] for function in functions] == ["hello"]
    finally:
        server.stop()


def create(address: str, name: str = "hello") -> Any:
    """A client of a platform, on which there is a function now."""
    client = boto.client(address)
    package = functions.package("hello", "python")
    client.create_function(
        FunctionName=name,
        Runtime="python3.11",
        Role="arn:aws:iam::000000000000:role/any",
        Handler=package.handler,
        MemorySize=512,
        Code={"ZipFile": package.read_bytes()},
    )
    client.get_waiter("function_active_v2").wait(FunctionName=name)
    return client


def test_serve_prints_a_line_for_each_invocation(uncia: Uncia, tmp_path: Path) -> None:
    options = ("serve", "--listen", "127.0.0.1:0", "--state", tmp_path / "s")
    process = uncia(*options)
    assert process.stdout is not None
    line = process.stdout.readline()
    match = re.fullmatch(r"Serving AWS Lambda's API on http://(\S+) until Ctrl-C\.\n", line)
    assert match is not None, line
    assert process.stdout.readline().startswith(f"Functions and logs: {tmp_path / 's'}.")
    assert process.stdout.readline() == f"What runs, live: http://{match[1]}/uncia/\n"
    assert "no functions yet" in process.stdout.readline()
    client = create(match[1])
    for starts in (["cold"], ["warm", "thawed"]):
        client.invoke(FunctionName="hello")
        words = process.stdout.readline().split()
        assert words[1] == "hello"
        assert words[2] in starts
        assert words[4] == "ms"
        assert words[6:10] == ["USD", "a", "million", "on"]
        assert words[10] in {"aws-lambda-x86", "aws-lambda-arm"}
        assert float(words[5]) > 0.2  # The fee alone is 0.2 USD a million.
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 0
    process.communicate()
    # The next platform on this folder names its function, and nothing of earlier invocations.
    process = uncia(*options)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(4)]
    assert lines[3].split()[:1] == ["hello"]
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=120)
    assert (process.returncode, rest) == (0, "")


def test_the_json_of_serve_has_the_costs_of_a_bill(uncia: Uncia, tmp_path: Path) -> None:
    process = uncia(
        *("serve", "--json", "--listen", "127.0.0.1:0", "--state", tmp_path / "s", "-t", "spfu")
    )
    assert process.stdout is not None
    address = json.loads(process.stdout.readline())["address"]
    create(address).invoke(FunctionName="hello")
    entry = json.loads(process.stdout.readline())
    assert (entry["event"], entry["function"], entry["outcome"]) == ("invocation", "hello", "ok")
    assert entry["allocated_memory_bytes"] == 512 * 2**20
    page, _, _ = inquiries.fetch_page(address, "invocations", 0, print)
    file = tmp_path / "rows.parquet"
    pq.write_table(page, file)
    (line,) = bill(str(file), ["spfu"])
    assert entry["cost_usd"] == pytest.approx(float(line.cost_usd or 0), rel=1e-12)
    # Whatever ends the command, the platform ends too.
    (child,) = children(process.pid)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 60
    while processes.identify(child) is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes.identify(child) is None


@pytest.mark.parametrize("form", [(), ("--json", "--quiet")])
def test_the_end_of_a_platform_that_is_killed_is_said(
    form: tuple[str, ...], uncia: Uncia, tmp_path: Path
) -> None:
    process = uncia("serve", *form, "--listen", "127.0.0.1:0", "--state", tmp_path / "s")
    assert process.stdout is not None
    assert "http://127.0.0.1:" in process.stdout.readline()
    (child,) = children(process.pid)
    os.kill(child, signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGKILL
    assert f"error: the platform's process (uncia-engine, {child}) was killed by SIGKILL" in errors
    assert "Traceback" not in errors


def test_costs_are_shown_by_the_platforms_own_tariff(uncia: Uncia, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        path("spfu").read_text(encoding="utf-8").replace("id: spfu", "id: mine"), encoding="utf-8"
    )
    for given, named in (("spfu", "spfu"), (str(file), "mine")):
        options = ("--listen", "127.0.0.1:0", "--state", tmp_path / "s", "--tariff", given)
        process = uncia("serve", "--json", *options)
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
        if named == "spfu":
            create(address)
        for tariff, shown in (((), named), (("--tariff", "slim"), "slim")):
            answered = uncia("invoke", "hello", "--endpoint", address, *tariff)
            _, line = answered.communicate(timeout=60)
            assert f"USD a million on {shown}" in line
            logs = uncia("logs", "--last", "1", "--endpoint", address, *tariff)
            assert f"USD a million on {shown}" in logs.communicate(timeout=60)[0]
        # One who has no such file is told so.
        if named == "mine":
            file.rename(tmp_path / "elsewhere.yaml")
            logs = uncia("logs", "--endpoint", address)
            _, errors = logs.communicate(timeout=60)
            assert logs.returncode != 0
            assert "the tariff that the platform was started with is not known here" in errors
            assert "--tariff" in errors
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)


def children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--capacity", "2vCPU"], "--capacity: CPU/MEMORY, such as 2vCPU/2GB, not '2vCPU'"),
        (["--capacity", "2/2GB"], "2"),
        (["--capacity", "1vCPU/1GB", "--capacity-cpu", "1vCPU"], "give only one of them"),
        (["--capacity-memory", "0B"], "must be at least 1B, not 0B"),
    ],
)
def test_serve_refuses_a_capacity_that_is_none(
    uncia: Uncia, tmp_path: Path, options: list[str], sentence: str
) -> None:
    process = uncia("serve", "--state", tmp_path / "s", *options)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert sentence in err
    assert not (tmp_path / "s").exists()


def test_serve_refuses_a_tariff_that_bills_no_requests(uncia: Uncia, tmp_path: Path) -> None:
    for tariff in ("gcp-run-instance", "nothing"):
        process = uncia("serve", "--state", tmp_path / "s", "--tariff", tariff)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 2
        assert tariff in err
    assert not (tmp_path / "s").exists()


def test_serve_on_what_is_no_folder_is_a_sentence(uncia: Uncia, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    process = uncia("serve", "--listen", "127.0.0.1:0", "--state", tmp_path / "file" / "s")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err.startswith(f"error: the state folder {tmp_path / 'file' / 's'} cannot be made")


def test_serve_on_what_is_damaged_is_a_sentence(uncia: Uncia, tmp_path: Path) -> None:
    file = tmp_path / "s" / "meter.sqlite"
    file.parent.mkdir()
    file.write_text("not a database " * 100)
    process = uncia("serve", "--listen", "127.0.0.1:0", "--state", tmp_path / "s")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    assert err.startswith(f"error: the log cannot be opened: {file} is not")


def test_serve_goes_on_without_a_journal_that_is_none(uncia: Uncia, tmp_path: Path) -> None:
    file = tmp_path / "s" / "journal" / "00000000000000000001.records"
    file.parent.mkdir(parents=True)
    file.write_text("of another log")
    process = uncia("serve", "--listen", "127.0.0.1:0", "--state", tmp_path / "s")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("Serving AWS Lambda's API")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert err.count(f"warning: {file} is not of this log's journal") == 1, err
    assert not file.exists()
    assert [it.read_text() for it in file.parent.glob("*.set-aside")] == ["of another log"]


def test_serve_refuses_a_wrong_unit(uncia: Uncia) -> None:
    process = uncia("serve", "--keep-alive", "5")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "--keep-alive: '5' is not a duration" in err
