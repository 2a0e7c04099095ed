"""The Telemetry API: what extensions subscribe to reaches them, bounded."""

import json
import time
from typing import Any

import pytest

from .conftest import Platform, Serve
from .test_extensions import tail, wait_for_end
from .test_layers import archive, publish
from .test_serving import log
from .test_versions import PATIENCE_S

# An extension that subscribes and writes down what it is sent. What it does besides is in PLAN.
EXTENSION = """#!/var/lang/bin/python3 -S
import http.client, http.server, json, os, socket, sys, threading, time

PLAN = %r
name = os.path.basename(sys.argv[0])
port = PLAN.get("port", 8200)

def ask(method, path, body=None, **headers):
    connection = http.client.HTTPConnection(os.environ["AWS_LAMBDA_RUNTIME_API"])
    headers = {key.replace("_", "-"): value for key, value in headers.items()}
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read().decode()

class Listener(http.server.BaseHTTPRequestHandler):
    failures = PLAN.get("failures", 0)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(PLAN.get("slow", 0))
        if Listener.failures:
            Listener.failures -= 1
            self.send_error(500)
            return
        for event in json.loads(body):
            with open("/tmp/telemetry", "a") as file:
                file.write(json.dumps(event) + "\\n")
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass

print(name, "starts", flush=True)
status, headers, text = ask("POST", "/2020-01-01/extension/register",
    json.dumps({"events": ["INVOKE", "SHUTDOWN"]}), Lambda_Extension_Name=name)
identifier = headers["Lambda-Extension-Identifier"]
how = PLAN.get("listen", "serve")
if how == "serve":
    server = http.server.ThreadingHTTPServer(("sandbox.localdomain", port), Listener)
    threading.Thread(target=server.serve_forever, daemon=True).start()
elif how != "nothing":
    deaf = socket.create_server(("127.0.0.1", port))
    def close():
        while True:
            deaf.accept()[0].close()
    if how == "close":
        threading.Thread(target=close, daemon=True).start()
subscription = {
    "schemaVersion": "2022-12-13",
    "types": PLAN.get("types", ["platform", "function", "extension"]),
    "buffering": {"timeoutMs": PLAN.get("timeoutMs", 25), "maxItems": 1000, "maxBytes": 262144},
    "destination": {"protocol": "HTTP", "URI": "http://sandbox.localdomain:%%d/a" %% port},
}
subscription.update(PLAN.get("subscription", {}))
answer = ask("PUT", "/2022-07-01/telemetry", json.dumps(subscription),
             Lambda_Extension_Identifier=PLAN.get("id", identifier))
print("subscribed:", answer[0], answer[2], flush=True)
open("/tmp/subscribed", "w").write(f"subscribed: {answer[0]} {answer[2]}")
while True:
    _, _, event = ask("GET", "/2020-01-01/extension/event/next",
                      Lambda_Extension_Identifier=identifier)
    if json.loads(event)["eventType"] == "SHUTDOWN":
        for line in open("/tmp/telemetry"):
            print("SENT", line.strip(), flush=True)
        break
    time.sleep(PLAN.get("work", 0.1))
"""

READER = """
import json, time
print("imported")

def handler(event, context):
    if event.get("fail"):
        raise ValueError("on purpose")
    for number in range(event.get("lines", 0)):
        print("line", number, "x" * event.get("width", 0))
    print("no end of line", end="")
    time.sleep(event.get("sleep", 0))
    try:
        return [json.loads(line) for line in open("/tmp/telemetry")]
    except OSError:
        return []
"""


def deploy(platform: Platform, code: str = READER, **plan: Any) -> None:
    zipped = archive(("extensions/agent", EXTENSION % (plan,), 0o100755))
    layer = publish(platform, "agent", zipped)["LayerVersionArn"]
    platform.create("f", code, Layers=[layer], MemorySize=512, Timeout=20)


def of(events: list[dict[str, Any]], name: str) -> list[Any]:
    return [event["record"] for event in events if event["type"] == name]


def until(platform: Platform, wanted: str, count: int = 1) -> list[dict[str, Any]]:
    """What the listener has been sent, once there are so many events of a type."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        events: list[dict[str, Any]] = platform.invoke("f")[1]
        if len(of(events, wanted)) >= count:
            return events
    raise AssertionError(f"{count} of {wanted} were not sent: {events}")


def test_a_subscriber_learns_of_all_that_happens(platform: Platform) -> None:
    deploy(platform)
    platform.invoke("f", {"lines": 3})
    _, failure = platform.invoke("f", {"fail": True})
    assert failure["errorType"] == "ValueError"
    events = until(platform, "platform.report", 2)
    assert all(event["time"][-1] == "Z" and len(event["time"]) == 24 for event in events)
    kinds = [event["type"] for event in events if event["type"].startswith("platform.")]
    assert kinds[0] == "platform.initStart"
    order = ["initStart", "initRuntimeDone", "initReport", "start", "runtimeDone", "report"]
    positions = [kinds.index("platform." + name) for name in order]
    assert positions == sorted(positions), kinds

    (start,) = of(events, "platform.initStart")
    assert (start["initializationType"], start["phase"]) == ("on-demand", "init")
    assert (start["functionName"], start["functionVersion"]) == ("f", "$LATEST")
    assert of(events, "platform.initRuntimeDone")[0]["status"] == "success"
    subscribed = {"name": "agent", "state": "Subscribed"}
    types = ["platform", "function", "extension"]
    assert of(events, "platform.telemetrySubscription") == [subscribed | {"types": types}]
    ready = {"name": "agent", "state": "Ready", "events": ["INVOKE", "SHUTDOWN"]}
    assert of(events, "platform.extension") == [ready]
    assert of(events, "extension")[:2] == ["agent starts", 'subscribed: 200 "OK"']
    lines = ["imported", *(f"line {number} " for number in range(3)), "no end of line"]
    assert of(events, "function")[:5] == lines

    # What is reported is what the platform's own log says.
    rows = log(platform)
    reports = of(events, "platform.report")
    for row, report in zip(rows, reports, strict=False):
        metrics = report["metrics"]
        assert report["requestId"] == row["request_id"]
        assert metrics["durationMs"] == pytest.approx(row["execution"] / 1e6, abs=0.002)
        assert metrics["billedDurationMs"] == row["billed"] // 1_000_000
        assert metrics["memorySizeMB"] == 512
        peak = max(it["memory_peak"] for it in rows[: rows.index(row) + 1])
        assert metrics["maxMemoryUsedMB"] == -(-peak // 2**20)
    cold = rows[0]["initialization"] / 1e6
    assert reports[0]["metrics"]["initDurationMs"] == pytest.approx(cold, abs=0.002)
    assert of(events, "platform.initReport")[0]["metrics"]["durationMs"] == pytest.approx(
        cold, abs=0.002
    )
    assert "initDurationMs" not in reports[1]["metrics"]
    done = of(events, "platform.runtimeDone")
    assert [it["status"] for it in done[:2]] == ["success", "error"]
    assert done[1]["errorType"] == "ValueError"
    assert done[0]["metrics"]["producedBytes"] == rows[0]["response_bytes"]
    latency, duration = done[0]["spans"]
    assert (latency["name"], duration["name"]) == ("responseLatency", "responseDuration")
    both = latency["durationMs"] + duration["durationMs"]
    assert both == pytest.approx(done[0]["metrics"]["durationMs"], abs=0.002)
    starts = of(events, "platform.start")
    assert [it["requestId"] for it in starts[:2]] == [row["request_id"] for row in rows[:2]]
    assert starts[0]["tracing"]["spanId"] in starts[0]["tracing"]["value"]


def test_only_what_is_subscribed_to_is_sent_and_the_end_sends_the_rest(serve: Serve) -> None:
    platform = serve({"keep_alive_ms": 300})
    # Nothing would be sent before the end if that did not send what there is.
    deploy(platform, types=["function"], timeoutMs=30_000)
    platform.client.update_function_configuration(FunctionName="f", Timeout=1)
    platform.invoke("f", {"lines": 2})
    # What the extension prints at an end is in the output of the invocation that it ends.
    answer, failure = platform.invoke("f", {"sleep": 30}, LogType="Tail")
    assert failure["errorType"] == "Sandbox.Timedout"
    lines = [line.partition("SENT ")[2] for line in tail(answer).splitlines()]
    sent = [json.loads(event) for event in lines if event]
    assert {event["type"] for event in sent} == {"function"}
    lines = ["imported", "line 0 ", "line 1 ", "no end of line", "no end of line"]
    assert [event["record"] for event in sent] == lines
    platform.invoke("f")
    wait_for_end(platform)
    assert log(platform, "instances")[-1]["end_reason"] == "keep_alive"


@pytest.mark.parametrize("plan", [{"listen": "nothing"}, {"listen": "close"}, {"listen": "deaf"}])
def test_a_listener_that_takes_nothing_holds_nobody_up(serve: Serve, plan: dict[str, Any]) -> None:
    platform = serve({"keep_alive_ms": 500})
    deploy(platform, work=0, **plan)
    platform.invoke("f")
    began = time.monotonic()
    for _ in range(4):
        platform.invoke("f", {"lines": 2_000, "width": 100})
    assert time.monotonic() - began < PATIENCE_S / 2
    assert [row["outcome"] for row in log(platform)] == ["ok"] * 5
    wait_for_end(platform)


def test_what_comes_too_fast_is_dropped_and_counted(platform: Platform) -> None:
    deploy(platform, slow=0.3, types=["platform", "function"])
    platform.invoke("f", {"lines": 5_000, "sleep": 1.0})
    platform.invoke("f", {"sleep": 1.0})
    events = until(platform, "platform.report", 2)
    dropped = of(events, "platform.logsDropped")
    lost = sum(it["droppedRecords"] for it in dropped)
    lines = [line for line in of(events, "function") if line.startswith("line")]
    assert dropped
    assert dropped[0]["droppedBytes"] > dropped[0]["droppedRecords"]
    # Nothing is lost without being counted, whatever else was dropped beside it.
    assert 5_000 <= len(lines) + lost <= 5_100


def test_a_batch_that_is_refused_is_sent_again(platform: Platform) -> None:
    deploy(platform, failures=2)
    events = until(platform, "platform.report")
    assert len(of(events, "platform.initStart")) == 1
    assert not of(events, "platform.logsDropped")


def test_a_slow_listener_is_sent_nothing_twice(platform: Platform) -> None:
    deploy(platform, slow=1.3)
    first = of(until(platform, "platform.report"), "platform.report")
    # By the next batch all of the first has come, however often.
    events = until(platform, "platform.report", len(first) + 1)
    assert len(of(events, "platform.initStart")) == 1
    reported = [report["requestId"] for report in of(events, "platform.report")]
    assert len(reported) == len(set(reported))


@pytest.mark.parametrize(
    ("plan", "status", "words"),
    [
        ({"id": "other"}, 403, "Extension.UnknownExtensionIdentifier"),
        ({"timeoutMs": 5}, 400, "buffering.timeoutMs must be 25 to 30000, not 5"),
        ({"types": ["all"]}, 400, 'there is no \\"all\\"'),
        ({"port": 9001, "listen": "nothing"}, 400, "port 9001 is the platform's own"),
        ({"subscription": {"schemaVersion": None}}, 400, "ValidationError"),
    ],
)
def test_a_wrong_subscription_is_refused(
    platform: Platform, plan: dict[str, Any], status: int, words: str
) -> None:
    # The first event comes when the extension has asked for it, after all else.
    code = "def handler(event, context):\n    return open('/tmp/subscribed').read()\n"
    deploy(platform, code, **plan)
    message = platform.invoke("f")[1]
    assert message.startswith(f"subscribed: {status} ")
    assert words in message
