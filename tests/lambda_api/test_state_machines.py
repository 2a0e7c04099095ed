"""AWS Step Functions' API, through boto3, on a real platform."""

import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from patience import scaled

from uncia.platforms.inquiries import fetch_page

from .conftest import ROLE, Platform, Serve

ADD = """
import time

def handler(event, context):
    time.sleep(event.get("sleep", 0))
    if "fail" in event:
        raise ValueError(event["fail"])
    return {"n": event["n"] + 1}
"""


@pytest.fixture
def platform(serve: Serve) -> Platform:
    platform = serve()
    platform.create("add", ADD)
    return platform


def parents(platform: Platform) -> list[tuple[str, str]]:
    """Of each invocation what caused it, and its outcome."""
    page, _, _ = fetch_page(platform.address, "invocations", 0, print)
    return [(row["parent"], row["outcome"]) for row in page.to_pylist()]


def client(platform: Platform) -> Any:
    return boto3.client(
        "stepfunctions",
        endpoint_url=f"http://{platform.address}",
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
        # StartSyncExecution else goes to another host.
        config=Config(
            retries={"total_max_attempts": 1},
            read_timeout=scaled(60),
            proxies={},
            inject_host_prefix=False,
        ),
    )


def arn(name: str) -> str:
    return f"arn:aws:lambda:us-east-1:000000000000:function:{name}"


def task(**keys: Any) -> dict[str, Any]:
    return {"Type": "Task", "Resource": arn("add"), "End": True} | keys


def create(states: Any, kind: str, name: str, definition: dict[str, Any]) -> str:
    made = states.create_state_machine(
        name=name, definition=json.dumps(definition), roleArn=ROLE, type=kind
    )
    machine: str = made["stateMachineArn"]
    return machine


def wait(states: Any, execution: str) -> Any:
    deadline = time.monotonic() + scaled(60)
    while True:
        described = states.describe_execution(executionArn=execution)
        if described["status"] != "RUNNING":
            return described
        assert time.monotonic() < deadline
        time.sleep(0.05)


SEQUENCE = {
    "StartAt": "First",
    "States": {
        "First": {"Type": "Task", "Resource": arn("add"), "Next": "Second"},
        "Second": {
            "Type": "Task",
            "Resource": "arn:aws:states:::lambda:invoke",
            "Parameters": {"FunctionName": "add", "Payload.$": "$"},
            "ResultSelector": {"n.$": "$.Payload.n"},
            "Next": "Fan",
        },
        "Fan": {
            "Type": "Map",
            "ItemsPath": "$$.Execution.Input.items",
            "ItemProcessor": {"StartAt": "Item", "States": {"Item": task()}},
            "ResultPath": "$.items",
            "End": True,
        },
    },
}


def test_a_synchronous_execution_hands_each_answer_on(platform: Platform) -> None:
    states = client(platform)
    machine = create(states, "EXPRESS", "sequence", SEQUENCE)
    answer = states.start_sync_execution(
        stateMachineArn=machine,
        name="run-1",
        input=json.dumps({"n": 1, "items": [{"n": 10}, {"n": 20}]}),
    )
    assert answer["status"] == "SUCCEEDED"
    assert json.loads(answer["output"]) == {"n": 3, "items": [{"n": 11}, {"n": 21}]}
    assert answer["billingDetails"]["billedDurationInMilliseconds"] % 100 == 0
    # Each hop is a row of the platform's, caused by the execution.
    assert parents(platform) == [("run-1", "ok")] * 4


def test_a_standard_execution_is_kept_with_its_history(platform: Platform) -> None:
    states = client(platform)
    machine = create(states, "STANDARD", "kept", {"StartAt": "A", "States": {"A": task()}})
    begun = states.start_execution(stateMachineArn=machine, name="one", input='{"n": 1}')
    described = wait(states, begun["executionArn"])
    assert (described["status"], json.loads(described["output"])) == ("SUCCEEDED", {"n": 2})
    assert described["stopDate"] >= described["startDate"]
    history = states.get_execution_history(executionArn=begun["executionArn"])["events"]
    assert [event["type"] for event in history] == [
        "ExecutionStarted",
        "TaskStateEntered",
        "LambdaFunctionScheduled",
        "LambdaFunctionSucceeded",
        "TaskStateExited",
        "ExecutionSucceeded",
    ]
    assert json.loads(history[3]["lambdaFunctionSucceededEventDetails"]["output"]) == {"n": 2}
    pages = states.get_paginator("get_execution_history").paginate(
        executionArn=begun["executionArn"], reverseOrder=True, PaginationConfig={"PageSize": 4}
    )
    assert [event["id"] for page in pages for event in page["events"]] == [6, 5, 4, 3, 2, 1]
    with pytest.raises(states.exceptions.ExecutionAlreadyExists):
        states.start_execution(stateMachineArn=machine, name="one", input="{}")
    listed = states.list_executions(stateMachineArn=machine, statusFilter="SUCCEEDED")
    assert [row["name"] for row in listed["executions"]] == ["one"]
    assert not states.list_executions(stateMachineArn=machine, statusFilter="FAILED")["executions"]


def test_errors_of_functions_are_tried_again_caught_and_reported(platform: Platform) -> None:
    states = client(platform)
    retried = task(
        Retry=[{"ErrorEquals": ["ValueError"], "BackoffRate": 1, "MaxAttempts": 2}],
        Catch=[{"ErrorEquals": ["KeyError"], "Next": "Caught"}],
    )
    definition = {"StartAt": "A", "States": {"A": retried, "Caught": {"Type": "Succeed"}}}
    machine = create(states, "EXPRESS", "errors", definition)
    failed = states.start_sync_execution(stateMachineArn=machine, input='{"n": 1, "fail": "no"}')
    assert (failed["status"], failed["error"]) == ("FAILED", "ValueError")
    assert json.loads(failed["cause"])["errorMessage"] == "no"
    assert [outcome for _, outcome in parents(platform)] == ["function_error"] * 3
    caught = states.start_sync_execution(stateMachineArn=machine, input="{}")
    assert json.loads(caught["output"])["Error"] == "KeyError"
    missing = {"StartAt": "A", "States": {"A": task(Resource=arn("nowhere"))}}
    machine = create(states, "EXPRESS", "missing", missing)
    failed = states.start_sync_execution(stateMachineArn=machine)
    assert failed["error"] == "Lambda.ResourceNotFoundException"


def test_an_execution_can_be_stopped_and_times_out(platform: Platform) -> None:
    states = client(platform)
    slow = {"StartAt": "A", "States": {"A": {"Type": "Wait", "Seconds": 1000, "End": True}}}
    machine = create(states, "STANDARD", "slow", slow)
    begun = states.start_execution(stateMachineArn=machine, name="once", input="{}")
    again = states.start_execution(stateMachineArn=machine, name="once", input="{}")
    assert again["executionArn"] == begun["executionArn"]
    states.stop_execution(executionArn=begun["executionArn"], error="Own", cause="enough")
    described = wait(states, begun["executionArn"])
    assert (described["status"], described["error"]) == ("ABORTED", "Own")
    late = {"StartAt": "A", "TimeoutSeconds": 1, "States": slow["States"]}
    machine = create(states, "EXPRESS", "late", late)
    answer = states.start_sync_execution(stateMachineArn=machine)
    assert (answer["status"], answer["error"]) == ("TIMED_OUT", "States.Timeout")


def test_what_was_accepted_is_not_gone_after_a_kill(serve: Serve) -> None:
    platform = serve()
    states = client(platform)
    slow = {"StartAt": "A", "States": {"A": {"Type": "Wait", "Seconds": 1000, "End": True}}}
    machine = create(states, "STANDARD", "slow", slow)
    arns = [states.start_execution(stateMachineArn=machine)["executionArn"] for _ in range(20)]
    platform.stop(signal.SIGKILL)
    platform = serve()
    states = client(platform)
    (kept,) = states.list_state_machines()["stateMachines"]
    assert (kept["name"], kept["type"]) == ("slow", "STANDARD")
    for execution in arns:
        described = states.describe_execution(executionArn=execution)
        assert described["status"] == "FAILED"
        assert "platform ended" in described["cause"]
        began, failed = states.get_execution_history(executionArn=execution)["events"]
        assert (began["type"], began["executionStartedEventDetails"]["input"]) == (
            "ExecutionStarted",
            "{}",
        )
        assert (failed["type"], failed["previousEventId"]) == ("ExecutionFailed", 1)
        assert "platform ended" in failed["executionFailedEventDetails"]["cause"]


def test_data_has_a_limit_that_can_be_set(serve: Serve) -> None:
    platform = serve({"data_limit": 32_768})
    states = client(platform)
    definition = {"StartAt": "A", "States": {"A": {"Type": "Pass", "End": True}}}
    machine = create(states, "EXPRESS", "limited", definition)

    def run(size: int) -> Any:
        text = json.dumps("x" * (size - 2))
        return states.start_sync_execution(stateMachineArn=machine, input=text)

    assert run(32_768)["status"] == "SUCCEEDED"
    # What is larger is neither begun nor stored.
    for start, kind in (
        (states.start_sync_execution, "EXPRESS"),
        (states.start_execution, "STANDARD"),
    ):
        machine = create(states, kind, f"limited-{kind}", definition)
        with pytest.raises(ClientError, match="has 32769 bytes, and the limit is 32768") as error:
            start(stateMachineArn=machine, input=json.dumps("x" * 32_767))
        assert error.value.response["Error"]["Code"] == "InvalidExecutionInput"
    assert states.list_executions(stateMachineArn=machine)["executions"] == []
    # A function's answer counts as it is without spaces and escapes.
    for count, status in ((16_383, "SUCCEEDED"), (16_384, "FAILED")):
        name = f"spaced-{count}"
        platform.create(name, f"def handler(event, context):\n    return [1] * {count}\n")
        asks = {"StartAt": "A", "States": {"A": task(Resource=arn(name))}}
        spaced = create(states, "EXPRESS", name, asks)
        ended = states.start_sync_execution(stateMachineArn=spaced, input="{}")
        assert ended["status"] == status
    assert ended["error"] == "States.DataLimitExceeded"


def test_one_name_begins_once_however_many_ask_at_once(platform: Platform) -> None:
    slow = {"StartAt": "A", "States": {"A": {"Type": "Wait", "Seconds": 1000, "End": True}}}
    machine = create(client(platform), "STANDARD", "slow", slow)

    def start(states: Any) -> str:
        begun: str = states.start_execution(stateMachineArn=machine, name="once", input="{}")[
            "executionArn"
        ]
        return begun

    clients = [client(platform) for _ in range(16)]
    with ThreadPoolExecutor(len(clients)) as threads:
        assert len(set(threads.map(start, clients))) == 1
    states = clients[0]
    pages = states.get_paginator("list_executions").paginate(
        stateMachineArn=machine, PaginationConfig={"PageSize": 1}
    )
    assert [row["name"] for page in pages for row in page["executions"]] == ["once"]
    # An execution that has no name of its own gets one.
    quick = {"StartAt": "A", "States": {"A": {"Type": "Succeed"}}}
    machine = create(states, "EXPRESS", "quick", quick)
    assert states.start_sync_execution(stateMachineArn=machine)["name"]


def test_mistakes_are_the_apis_errors(platform: Platform) -> None:
    states = client(platform)
    definition = {"StartAt": "A", "States": {"A": task()}}
    machine = create(states, "STANDARD", "m", definition)
    assert create(states, "STANDARD", "m", definition) == machine
    unsupported = {"StartAt": "A", "States": {"A": task(HeartbeatSeconds=3)}}

    def refused(kind: str, operation: str, **arguments: Any) -> str:
        with pytest.raises(ClientError) as error:
            getattr(states, operation)(**arguments)
        assert error.value.response["Error"]["Code"] == kind
        message: str = error.value.response["Error"]["Message"]
        return message

    common = {"roleArn": ROLE, "name": "n"}
    message = refused(
        "InvalidDefinition",
        "create_state_machine",
        definition=json.dumps(unsupported),
        **common,
    )
    assert "state A: HeartbeatSeconds is not supported" in message
    refused("InvalidDefinition", "create_state_machine", definition="{", **common)
    refused("InvalidName", "create_state_machine", definition="{}", roleArn=ROLE, name="a b")
    other = json.dumps({"StartAt": "B", "States": {"B": {"Type": "Succeed"}}})
    refused(
        "StateMachineAlreadyExists",
        "create_state_machine",
        definition=other,
        roleArn=ROLE,
        name="m",
    )
    refused("StateMachineTypeNotSupported", "start_sync_execution", stateMachineArn=machine)
    for unreadable in ("{", "[" * 200 + "]" * 200, "1e999"):
        refused(
            "InvalidExecutionInput", "start_execution", stateMachineArn=machine, input=unreadable
        )
    refused("StateMachineDoesNotExist", "start_execution", stateMachineArn=machine + "x")
    refused("ExecutionDoesNotExist", "describe_execution", executionArn=machine)
    refused("InvalidToken", "list_state_machines", nextToken="x")
    refused("UnknownOperationException", "list_activities")
    states.update_state_machine(stateMachineArn=machine, definition=other)
    assert json.loads(
        states.describe_state_machine(stateMachineArn=machine)["definition"]
    ) == json.loads(other)
    states.delete_state_machine(stateMachineArn=machine)
    states.delete_state_machine(stateMachineArn=machine)
    assert states.list_state_machines()["stateMachines"] == []
