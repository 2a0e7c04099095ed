"""What scripts and runtime clients that were written for Lambda count on."""

import http.client
import shutil
from typing import Any

import pytest

from .conftest import Platform, Serve
from .test_layers import archive, publish
from .test_serving import log

# As AWS's guide to custom runtimes has it.
BOOTSTRAP = """#!/bin/bash
set -euo pipefail
source "$LAMBDA_TASK_ROOT/$(echo "$_HANDLER" | cut -d. -f1).sh"
while true; do
  HEADERS="$(mktemp)"
  EVENT=$(curl -sS -LD "$HEADERS" "http://$AWS_LAMBDA_RUNTIME_API/2018-06-01/runtime/invocation/next")
  ID=$(grep -Fi Lambda-Runtime-Aws-Request-Id "$HEADERS" | tr -d '[:space:]' | cut -d: -f2)
  RESPONSE=$($(echo "$_HANDLER" | cut -d. -f2) "$EVENT")
  URL="http://$AWS_LAMBDA_RUNTIME_API/2018-06-01/runtime/invocation/$ID/response"
  curl -sS "$URL" -d "$RESPONSE" >&2
  rm "$HEADERS"
done
"""
FUNCTION = """function handler () {
  echo "{\\"got\\": $(echo "$1" | sed 's/before/after/'), \\"date\\": $(date +%s)}"
}
"""

EXTENSION = """#!/usr/bin/env python3
import json, os, urllib.request
base = "http://" + os.environ["AWS_LAMBDA_RUNTIME_API"] + "/2020-01-01/extension/"
request = urllib.request.Request(base + "register", json.dumps({"events": ["INVOKE"]}).encode(),
                                 {"Lambda-Extension-Name": os.path.basename(__file__)})
own = urllib.request.urlopen(request).headers["Lambda-Extension-Identifier"]
while True:
    headers = {"Lambda-Extension-Identifier": own}
    event = urllib.request.urlopen(urllib.request.Request(base + "event/next", headers=headers))
    open("/tmp/seen", "a").write(json.load(event)["eventType"])
"""
WRAPPER = """#!/bin/bash
export WRAPPED="$(basename "$0")"
exec "$@"
"""

# A client of the Runtime API that says in a header, too, what has gone wrong: so do those of AWS.
CLIENT = """
import http.client, json, os

host = os.environ["AWS_LAMBDA_RUNTIME_API"]
connection = http.client.HTTPConnection(host)
while True:
    connection.request("GET", "/2018-06-01/runtime/invocation/next")
    answer = connection.getresponse()
    size = json.loads(answer.read())["size"]
    path = f"/2018-06-01/runtime/invocation/{answer.headers['Lambda-Runtime-Aws-Request-Id']}"
    body = json.dumps({"errorType": "ValueError", "errorMessage": "x" * size})
    headers = {
        "Lambda-Runtime-Function-Error-Type": "ValueError",
        "Lambda-Runtime-Function-XRay-Error-Cause": json.dumps({"message": "x" * size}),
    }
    connection.request("POST", path + "/error", body, headers)
    answer = connection.getresponse()
    print("status", answer.status, flush=True)
    answer.read()
"""


@pytest.mark.skipif(shutil.which("curl") is None, reason="the platform's roots have no curl here")
def test_a_bootstrap_in_bash_works_as_on_lambda(platform: Platform) -> None:
    code = archive(("bootstrap", BOOTSTRAP, 0o100755), ("function.sh", FUNCTION, 0o100644))
    platform.create(
        "f", Runtime="provided.al2023", Handler="function.handler", Code={"ZipFile": code}
    )
    for _ in range(2):
        answer, payload = platform.invoke("f", {"word": "before"})
        assert (answer.get("FunctionError"), payload["got"]) == (None, {"word": "after"})
    assert payload["date"] > 1_700_000_000


def test_extensions_and_wrappers_are_scripts_by_env_and_bash(platform: Platform) -> None:
    layer = archive(("extensions/watch", EXTENSION, 0o100755), ("wrap", WRAPPER, 0o100755))
    source = """
import os, time
def handler(event, context):
    return os.environ["WRAPPED"]
"""
    platform.create(
        "f",
        source,
        Layers=[publish(platform, "l", layer)["LayerVersionArn"]],
        Environment={"Variables": {"AWS_LAMBDA_EXEC_WRAPPER": "/opt/wrap"}},
    )
    assert platform.invoke("f")[1] == "wrap"


def test_errors_with_a_long_header_are_the_functions_and_end_nothing(platform: Platform) -> None:
    # While it is imported, in place of the platform's own client.
    platform.create("f", CLIENT)
    for size in (10, 70_000, 1_500_000):
        answer, payload = platform.invoke("f", {"size": size})
        assert answer["FunctionError"] == "Unhandled"
        assert (payload["errorType"], len(payload["errorMessage"])) == ("ValueError", size)
    rows = log(platform)
    assert [row["outcome"] for row in rows] == ["function_error"] * 3
    assert len({row["instance"] for row in rows}) == 1
    assert rows[1]["error"].startswith("ValueError: xxx")


def test_a_page_at_a_functions_own_host_has_that_origin(platform: Platform) -> None:
    source = """
def handler(event, context):
    return {"statusCode": 200, "headers": {"content-type": "text/html"}, "body": "<p>page</p>"}
"""
    platform.create("f", source)
    url = platform.client.create_function_url_config(FunctionName="f", AuthType="NONE")
    identifier = url["FunctionUrl"].rstrip("/").rpartition("/")[2]

    def policy(path: str, host: str) -> str | None:
        connection = http.client.HTTPConnection(platform.address)
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"<p>page</p>")
        return answer.headers["Content-Security-Policy"]

    confined = policy(f"/url/{identifier}/", "localhost")
    assert confined is not None
    assert confined.startswith("sandbox ")
    assert policy("/", f"{identifier}.lambda-url.localhost") is None


def test_memory_brings_as_much_cpu_as_the_platform_says(serve: Serve) -> None:
    def allocated(config: dict[str, Any], state: str) -> list[int]:
        platform = serve(config, state)
        platform.create("f", MemorySize=1024)
        platform.create("set", MemorySize=1024, Tags={"uncia:cpu-micro": "250000"})
        for name in ("f", "set"):
            platform.invoke(name)
        return [row["allocated_cpu"] for row in log(platform)]

    assert allocated({"memory_per_vcpu_bytes": 2048 << 20}, "half") == [500_000, 250_000]
    assert allocated({"memory_per_vcpu_bytes": 1024 << 20}, "whole") == [1_000_000, 250_000]
    assert allocated({}, "lambda") == [578_858, 250_000]
