"""Nested chains of functions at URLs: where no platform says it, functions report their hops."""

import os
from collections import Counter
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


@pytest.mark.skipif(os.geteuid() != 0, reason="functions on the host's network need root")
def test_functions_report_what_they_invoke(
    uncia: Uncia, engine_binary: Path, tmp_path: Path
) -> None:
    del engine_binary
    try:
        golang.find()
        language, runtime = "go", "provided.al2023"
    except UnciaError:
        language, runtime = "python", "python3.11"
    package = functions.package("hello", language, invokes=True)
    server = Server(tmp_path / "served", {})
    try:
        lambdas = client(server.address)
        urls = {}
        for name in "ab":
            lambdas.create_function(
                FunctionName=name,
                Runtime=runtime,
                Handler=package.handler,
                Role=ROLE,
                Code={"ZipFile": package.read_bytes()},
                MemorySize=512,
                Timeout=60,
                Tags={"uncia:network": "host"},
            )
            created = lambdas.create_function_url_config(FunctionName=name, AuthType="NONE")
            urls[name] = created["FunctionUrl"]
        file = tmp_path / "urls.yaml"
        file.write_text(FILE.format(**urls))
        out = tmp_path / "run"
        ended = finish(uncia("run", file, "--out", out, "--quiet"))
        assert ended.code == 0, ended.err
        assert description(out)["platform"] == {"kind": "http", "region": "eu-central-1"}
        page, _, _ = fetch_page(server.address, "invocations", 0, print)
    finally:
        server.stop()
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
