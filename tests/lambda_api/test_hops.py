"""Parents and stages of what functions invoke: by the platform's word, whatever they say."""

import json
import urllib.request
from typing import Any

from .conftest import Platform, Serve
from .test_http_server import ask, create, in_flight
from .test_serving import log, wait_for
from .test_state_machines import arn, client

INVOKE = """
import os, urllib.request

def invoke(name, **headers):
    url = os.environ["AWS_ENDPOINT_URL_LAMBDA"] + "/2015-03-31/functions/inner/invocations"
    headers = {"x-uncia-" + key: value for key, value in headers.items() if value is not None}
    headers["x-uncia-stage"] = name
    urllib.request.urlopen(urllib.request.Request(url, b"{}", headers), timeout=300).read()
"""

# Requests to /meet/HOW invoke once as many as HOW has letters have met, and go on when all have.
SERVER = (
    """
import http.server, threading
"""
    + INVOKE
    + """
tokens, invoked = {}, threading.Barrier(3)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        _, name, how = self.path.split("?")[0].split("/")
        token = self.headers["x-uncia-token"]
        tokens[how] = token
        if name == "meet":
            invoked.wait()
        shown = {"own": token, "none": None, "made-up": "x" * 36, "alone": None}[how]
        invoke(how, token=shown)
        if name == "meet":
            invoked.wait()
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments):
        pass

http.server.ThreadingHTTPServer(("", int(os.environ["PORT"])), Handler).serve_forever()
"""
)


def test_a_server_shows_for_which_of_its_requests_it_asks(platform: Platform) -> None:
    platform.create("inner")
    url = create(platform, SERVER, Tags={"uncia:network": "platform", "uncia:concurrency": "3"})
    paths = [f"{url}/meet/{how}" for how in ("own", "none", "made-up")]
    with in_flight(platform, *paths) as answers:
        pass
    assert [answer.result()[0].status for answer in answers] == [200] * 3
    assert ask(platform, f"{url}/go/alone")[0].status == 200
    rows = log(platform)
    parents = {row["stage"]: row["parent"] for row in rows if row["function"] == "inner"}
    outer = [row["invocation"] for row in rows if row["function"] == "f"]
    assert parents["own"] in outer
    # Three are served at once, and nothing sure says for which of them it is.
    assert (parents["none"], parents["made-up"]) == (None, None)
    # The only one that is served needs no token.
    assert parents["alone"] in outer
    assert parents["alone"] != parents["own"]


def test_events_have_parents_and_stages_across_attempts(serve: Serve) -> None:
    platform = serve({"event_retry_ms": 50})
    source = (
        INVOKE
        + """
def handler(event, context):
    url = os.environ["AWS_ENDPOINT_URL_LAMBDA"] + "/2015-03-31/functions/inner/invocations"
    headers = {"x-amz-invocation-type": "Event", "x-uncia-stage": "later",
               "x-uncia-parent": event["forged"], "x-uncia-invocation": event["forged"]}
    urllib.request.urlopen(urllib.request.Request(url, b"{}", headers), timeout=300).read()
"""
    )
    platform.create("inner", "def handler(event, context):\n    raise ValueError('no')\n")
    platform.create("outer", source, MemorySize=1769, Tags={"uncia:network": "platform"})
    platform.create("other")
    victim = platform.headers("other")["x-amzn-requestid"]
    platform.invoke("outer", {"forged": victim})
    wait_for(lambda: sum(row["function"] == "inner" for row in log(platform)) == 3)
    rows = log(platform)
    (outer,) = [row["invocation"] for row in rows if row["function"] == "outer"]
    inner = [row for row in rows if row["function"] == "inner"]
    assert [row["attempt"] for row in inner] == [1, 2, 3]
    assert {(row["parent"], row["stage"]) for row in inner} == {(outer, "later")}
    assert len({row["invocation"] for row in inner}) == 1
    assert victim not in {row["parent"] for row in rows}
    # Nobody waited for them, which is to be seen of each, and of nothing else.
    marked = [row for row in log(platform, "spans") if row["name"] == "event"]
    assert {span["invocation"] for span in marked} == {inner[0]["invocation"]}
    assert sorted(span["end"] for span in marked) == sorted(row["started"] for row in inner)
    assert all(span["start"] <= span["end"] for span in marked)


def test_hops_of_a_sequence_lead_to_the_request_that_began_it(platform: Platform) -> None:
    platform.create("add", "def handler(event, context):\n    return 1 / event['n']\n")
    task = {"Type": "Task", "Resource": arn("add")}
    definition: dict[str, Any] = {
        "StartAt": "first",
        "States": {
            "first": {**task, "Next": "second"},
            "second": {**task, "Parameters": {"n": 1}, "End": True},
        },
    }
    states = client(platform)
    machine = states.create_state_machine(
        name="two",
        definition=json.dumps(definition),
        roleArn="arn:aws:iam::000000000000:role/any",
        type="EXPRESS",
    )["stateMachineArn"]
    outcomes = []
    for number in (1, 0):
        body = json.dumps({"stateMachineArn": machine, "input": json.dumps({"n": number})})
        headers = {
            "x-amz-target": "AWSStepFunctions.StartSyncExecution",
            "x-uncia-invocation": f"run:e-0-{number}",
        }
        request = urllib.request.Request(f"http://{platform.address}/", body.encode(), headers)
        with urllib.request.urlopen(request) as answer:
            outcomes.append(answer.headers["x-uncia-outcome"])
    assert outcomes == ["ok", "function_error"]
    hops = [(row["parent"], row["stage"]) for row in log(platform)]
    assert hops == [("run:e-0-1", "first"), ("run:e-0-1", "second"), ("run:e-0-0", "first")]
