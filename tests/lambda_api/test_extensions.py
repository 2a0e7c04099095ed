"""Extensions: they start before the runtime, learn of invocations and the end, and are bounded."""

import base64
import json
import time
from typing import Any

import pytest

from .conftest import Platform, Serve
from .test_layers import archive, publish
from .test_serving import log
from .test_versions import PATIENCE_S

# An external extension. What it does besides what each does is in PLAN, a list of words.
EXTENSION = """#!/var/lang/bin/python3 -S
import http.client, json, os, signal, sys, time

PLAN = %r
name = os.path.basename(sys.argv[0])
host = os.environ["AWS_LAMBDA_RUNTIME_API"]
signal.signal(signal.SIGTERM, lambda *_: None)

def ask(method, path, body=None, **headers):
    connection = http.client.HTTPConnection(host)
    headers = {key.replace("_", "-"): value for key, value in headers.items()}
    connection.request(method, "/2020-01-01/extension/" + path, body, headers)
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read().decode()

def say(**words):
    print(json.dumps({"extension": name} | words), flush=True)

if "never-register" in PLAN:
    time.sleep(600)
if "exit-early" in PLAN:
    sys.exit(7)
events = ["INVOKE", "SHUTDOWN"] if "no-invoke" not in PLAN else ["SHUTDOWN"]
body = json.dumps({"events": events})
status, headers, text = ask("POST", "register", body, Lambda_Extension_Name=name)
assert status == 200, text
own = headers["Lambda-Extension-Identifier"]
hidden = [it for it in ("_HANDLER", "LAMBDA_TASK_ROOT") if it in os.environ]
say(registered=json.loads(text), hidden=hidden, uid=os.getuid())
if "init-error" in PLAN:
    answer = ask("POST", "init/error", "{}", Lambda_Extension_Identifier=own,
               Lambda_Extension_Function_Error_Type="Mine.Unready")
    say(reported=answer[0])
    time.sleep(600)
while True:
    status, _, text = ask("GET", "event/next", Lambda_Extension_Identifier=own)
    event = json.loads(text)
    say(event=event)
    if event["eventType"] == "SHUTDOWN":
        if "slow-end" in PLAN:
            time.sleep(600)
        say(ends=event["shutdownReason"])
        sys.exit(0)
    if "work" in PLAN:
        # After the answer: the file is there when the runtime is asked next.
        time.sleep(0.3)
        begun = time.process_time()
        while time.process_time() < begun + 0.1:
            pass
        open("/tmp/worked", "a").write("x")
    if "never-return" in PLAN:
        time.sleep(600)
    if "exit-late" in PLAN:
        ask("POST", "exit/error", "{}", Lambda_Extension_Identifier=own,
            Lambda_Extension_Function_Error_Type="Mine.Broken")
        sys.exit(3)
"""

HANDLER = """
import os, time
print("imported")

def handler(event, context):
    if event.get("exit"):
        os._exit(9)
    time.sleep(event.get("sleep", 0))
    try:
        return len(open("/tmp/worked").read())
    except OSError:
        return 0
"""


def extension(platform: Platform, name: str, *plan: str) -> str:
    """The ARN of a layer with one extension."""
    zipped = archive((f"extensions/{name}", EXTENSION % (plan,), 0o100755))
    arn: str = publish(platform, name, zipped)["LayerVersionArn"]
    return arn


def events_of(text: str) -> list[dict[str, Any]]:
    """What extensions have printed."""
    lines = [line for line in text.splitlines() if line.startswith('{"extension"')]
    return [json.loads(line) for line in lines]


def tail(answer: Any) -> str:
    return base64.b64decode(answer["LogResult"]).decode()


def test_extensions_work_beside_the_function(platform: Platform) -> None:
    layers = [
        extension(platform, "worker", "work"),
        extension(platform, "sleeper", "no-invoke"),
    ]
    platform.create("f", HANDLER, Layers=layers, MemorySize=1769)
    answer, count = platform.invoke("f", LogType="Tail")
    assert count == 0
    words = events_of(tail(answer))
    (event,) = (it["event"] for it in words if "event" in it)
    assert event["eventType"] == "INVOKE"
    assert event["requestId"] == answer["ResponseMetadata"]["RequestId"]
    assert event["invokedFunctionArn"].endswith(":function:f")
    assert event["deadlineMs"] > time.time() * 1000
    assert event["tracing"]["value"].startswith("Root=1-")
    # The next event waits until all of them have done their work, which is part of the invocation.
    assert [platform.invoke("f")[1] for _ in range(2)] == [1, 2]
    rows = log(platform)
    assert [row["outcome"] for row in rows] == ["ok"] * 3
    for row in rows:
        assert row["execution"] >= 400_000_000
        assert row["cpu_user"] + row["cpu_system"] >= 95_000_000
        assert row["billed"] >= row["execution"]
    spans = log(platform, "spans")
    names = [it["name"] for it in spans if it["invocation"] == rows[0]["invocation"]]
    # They start before the runtime, and are ready after it; and work on after the answer.
    assert names[-3:] == ["handler", "extensions", "extensions"]
    assert names.index("extensions") < names.index("exec")


def test_extensions_learn_of_the_end(serve: Serve) -> None:
    platform = serve({"keep_alive_ms": 200})
    platform.create(
        "f", HANDLER, Layers=[extension(platform, "quick"), extension(platform, "slow", "slow-end")]
    )
    platform.invoke("f")
    began = time.monotonic()
    wait_for_end(platform)
    # The slow one has two seconds, and no more.
    assert 1.5 < time.monotonic() - began < PATIENCE_S
    assert log(platform, "instances")[-1]["end_reason"] == "keep_alive"


def wait_for_end(platform: Platform) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        last = {row["instance"]: row for row in log(platform, "instances")}
        if last and all(row["ended"] is not None for row in last.values()):
            return
        time.sleep(0.05)
    raise AssertionError("the instance has not ended")


@pytest.mark.parametrize(
    ("plan", "kind", "words"),
    [
        ("never-register", "Sandbox.Timedout", "the extension bad has not registered"),
        ("exit-early", "Extension.Crash", "The extension bad has ended: exit status 7"),
        ("init-error", "Extension.InitError", "could not initialize: Mine.Unready"),
        ("never-return", "Sandbox.Timedout", "the extension bad had not done its work"),
        ("exit-late", "Extension.Crash", "after it had reported Mine.Broken: exit status 3"),
    ],
)
def test_an_extension_that_fails_is_named(serve: Serve, plan: str, kind: str, words: str) -> None:
    platform = serve({"init_timeout_ms": 3000})
    platform.create("f", HANDLER, Timeout=2, Layers=[extension(platform, "bad", plan)])
    answer, failure = platform.invoke("f")
    assert answer["FunctionError"] == "Unhandled"
    assert (failure["errorType"], words in failure["errorMessage"]) == (kind, True), failure
    assert words in log(platform)[0]["error"]
    wait_for_end(platform)


def test_a_runtime_that_ends_takes_its_extensions_with_it(platform: Platform) -> None:
    platform.create("f", HANDLER, Layers=[extension(platform, "quick")])
    answer, failure = platform.invoke("f", {"exit": True}, LogType="Tail")
    assert failure["errorType"] == "Runtime.ExitError"
    assert {"extension": "quick", "ends": "failure"} in events_of(tail(answer))
    platform.client.update_function_configuration(FunctionName="f", Timeout=1)
    answer, failure = platform.invoke("f", {"sleep": 30}, LogType="Tail")
    assert failure["errorType"] == "Sandbox.Timedout"
    assert {"extension": "quick", "ends": "timeout"} in events_of(tail(answer))


INTERNAL = """
import http.client, json, os, threading

HOST = os.environ["AWS_LAMBDA_RUNTIME_API"]
EVENTS = []

def ask(method, path, body=None, **headers):
    connection = http.client.HTTPConnection(HOST)
    headers = {key.replace("_", "-"): value for key, value in headers.items()}
    connection.request(method, "/2020-01-01/extension/" + path, body, headers)
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read().decode()

def register(name, events):
    return ask("POST", "register", json.dumps({"events": events}), Lambda_Extension_Name=name)

REFUSED = [
    json.loads(register("inside", ["SHUTDOWN"])[2]),
    json.loads(register("", ["INVOKE"])[2]),
    json.loads(register("inside", ["OTHER"])[2]),
    json.loads(ask("GET", "event/next")[2]),
    json.loads(ask("GET", "event/next", Lambda_Extension_Identifier="x")[2]),
]
OWN = register("inside", ["INVOKE"])[1]["Lambda-Extension-Identifier"]
REFUSED.append(json.loads(register("inside", ["INVOKE"])[2]))

def follow():
    while True:
        event = json.loads(ask("GET", "event/next", Lambda_Extension_Identifier=OWN)[2])
        EVENTS.append(event["requestId"])

threading.Thread(target=follow, daemon=True).start()

def handler(event, context):
    late = json.loads(register("late", ["INVOKE"])[2])
    return {"own": context.aws_request_id, "events": EVENTS,
            "refused": [it["errorType"] for it in [*REFUSED, late]]}
"""


def test_extensions_within_the_runtime(platform: Platform) -> None:
    platform.create("f", INTERNAL)
    first, second = (platform.invoke("f")[1] for _ in range(2))
    assert first["own"] in second["events"]
    assert first["refused"] == [
        "Extension.InvalidEventType",
        "Extension.InvalidExtensionName",
        "Extension.InvalidEventType",
        "Extension.MissingExtensionIdentifier",
        "Extension.UnknownExtensionIdentifier",
        "Extension.AlreadyRegistered",
        "Extension.RegistrationClosed",
    ]


def test_a_program_that_is_none_is_named(platform: Platform) -> None:
    zipped = archive(
        ("extensions/text", "#!/no/such/program\n", 0o100755), ("extensions/data", "x", 0o100644)
    )
    arn = publish(platform, "broken", zipped)["LayerVersionArn"]
    platform.create("f", HANDLER, Layers=[arn])
    _, failure = platform.invoke("f")
    assert failure["errorType"] == "Extension.LaunchError", failure
    assert "The extension text cannot be started" in failure["errorMessage"]


@pytest.mark.parametrize("kind", ["zygote", "function_zygote", "pool"])
def test_however_an_instance_starts_its_extensions_start_first(serve: Serve, kind: str) -> None:
    platform = serve({"pool": 1})
    layers = [extension(platform, "worker", "work")]
    platform.create("f", HANDLER, Layers=layers, Tags={"uncia:start-from": kind})
    assert [platform.invoke("f")[1] for _ in range(2)] == [0, 1]
    platform.client.update_function_configuration(
        FunctionName="f", Description="anew", MemorySize=300
    )
    assert platform.invoke("f")[1] == 0
