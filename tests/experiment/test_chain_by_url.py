"""Nested chains of functions at URLs: where no platform says it, functions report their hops."""

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from run_helpers import Uncia, description, finish, rows

from uncia import functions
from uncia.errors import UnciaError
from uncia.functions import golang
from uncia.platforms.boto import client
from uncia.platforms.inquiries import fetch_page
from uncia.platforms.server import Server

ROLE = "arn:aws:iam::000000000000:role/any"

FILE = """\
name: urls
seed: 1
platform: {{kind: http, region: eu-central-1}}
functions:
  a: {{url: "{a}"}}
  b: {{url: "{b}"}}
chains:
  c: {{stages: {{first: {{function: a}}, then: {{function: b, repeat: 2}}}}}}
experiments:
  e: {{chain: c, kind: nested, arrivals: {{kind: burst, sizes: [1], bursts: 3, interval: 1s}}}}
"""


FAILING = """\
name: failing
seed: 1
platform: {{kind: http, region: eu-central-1}}
functions:
  a: {{url: "{a}"}}
  b: {{url: "{b}"}}
chains:
  c:
    stages:
      first: {{function: a}}
      good: {{function: b, after: first}}
      caller: {{function: b, after: first}}
      wrong: {{function: b, after: caller, parameters: {{nonsense: 1}}}}
experiments:
  e:
    chain: c
    kind: nested
    arrivals: {{kind: burst, sizes: [1]}}
    expect: {{function_error: allowed}}
"""

RUNTIMES = {"go": "provided.al2023", "node": "nodejs20.x", "python": "python3.11"}


def has_go() -> bool:
    try:
        golang.find()
    except UnciaError:
        return False
    return True


@contextmanager
def served(folder: Path, source: str, language: str) -> Iterator[tuple[Server, dict[str, str]]]:
    """A platform, and the URLs of two functions on it which invoke others by URL."""
    package = functions.package(source, language, invokes=True)
    server = Server(folder, {})
    try:
        lambdas = client(server.address)
        urls = {}
        for name in "ab":
            lambdas.create_function(
                FunctionName=name,
                Runtime=RUNTIMES[language],
                Handler=package.handler,
                Role=ROLE,
                Code={"ZipFile": package.read_bytes()},
                MemorySize=512,
                Timeout=60,
                Tags={"uncia:network": "host"},
            )
            created = lambdas.create_function_url_config(FunctionName=name, AuthType="NONE")
            urls[name] = created["FunctionUrl"]
        yield server, urls
    finally:
        server.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="functions on the host's network need root")
def test_functions_report_what_they_invoke(
    uncia: Uncia, engine_binary: Path, tmp_path: Path
) -> None:
    del engine_binary
    language = "go" if has_go() else "python"
    with served(tmp_path / "served", "hello", language) as (server, urls):
        file = tmp_path / "urls.yaml"
        file.write_text(FILE.format(**urls))
        out = tmp_path / "run"
        ended = finish(uncia("run", file, "--out", out, "--quiet"))
        assert ended.code == 0, ended.err
        assert description(out)["platform"] == {"kind": "http", "region": "eu-central-1"}
        page, _, _ = fetch_page(server.address, "invocations", 0, print)
    table: list[dict[str, Any]] = rows(out)
    roots = {row["invocation"]: row for row in table if row["parent"] is None}
    hops = {row["invocation"]: row for row in table if row["parent"]}
    stages = Counter((row["function"], row["stage"]) for row in hops.values())
    assert stages == {("b", "then-1"): 3, ("b", "then-2"): 3}
    for hop in hops.values():
        assert hop["experiment"] == "e"
        assert (hop["scheduled"], hop["sent"], hop["open_loop"]) == (None, None, None)
        assert hop["execution"] > 0
        is_first = hop["stage"] == "then-1"
        assert hop["parent"] in (roots if is_first else hops)
    # They are the invocations that were, each once.
    logged = [row["request_id"] for row in page.to_pylist()]
    assert sorted([*hops, *(row["request_id"] for row in roots.values())]) == sorted(logged)
    spans = Counter((row["name"], str(row["clock"])[:7]) for row in rows(out, "spans"))
    assert spans["call", "kernel-"] == spans["handler", "kernel-"] == 6


@pytest.mark.parametrize("language", RUNTIMES)
@pytest.mark.skipif(os.geteuid() != 0, reason="functions on the host's network need root")
def test_hops_of_a_chain_that_failed_are_rows(
    uncia: Uncia, engine_binary: Path, tmp_path: Path, language: str
) -> None:
    del engine_binary
    if language == "go" and not has_go():
        pytest.skip("there is no Go to build with")
    if language == "node" and not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("Node.js is not installed")
    with served(tmp_path / "served", "spin", language) as (server, urls):
        file = tmp_path / "failing.yaml"
        file.write_text(FAILING.format(**urls))
        out = tmp_path / "run"
        ended = finish(uncia("run", file, "--out", out, "--quiet"))
        assert ended.code == 0, ended.err
        page, _, _ = fetch_page(server.address, "invocations", 0, print)
    table: list[dict[str, Any]] = rows(out)
    assert {row["request_id"] for row in table} == set(page["request_id"].to_pylist())
    by_stage = {row["stage"]: row for row in table}
    assert by_stage.keys() == {"first", "good", "caller", "wrong"}
    failed = ("first", "caller", "wrong")
    assert {stage: row["outcome"] for stage, row in by_stage.items()} == {
        "good": "ok",
        **dict.fromkeys(failed, "function_error"),
    }
    # Each names the last that failed.
    message = 'stage wrong: HTTP 502: {"Message":"Internal Server Error"}'
    assert [by_stage[stage]["error"] for stage in ("caller", "wrong")] == [message] * 2
    parents = {stage: row["parent"] for stage, row in by_stage.items()}
    first, caller = (by_stage[stage]["invocation"] for stage in ("first", "caller"))
    assert parents == {"first": None, "good": first, "caller": first, "wrong": caller}
    assert all(by_stage[stage]["execution"] > 0 for stage in ("first", "good", "caller"))
