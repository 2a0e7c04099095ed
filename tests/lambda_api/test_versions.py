"""Versions, aliases and provisioned concurrency, as boto3 asks for them."""

import signal
import time
from typing import Any

import pytest
from botocore.exceptions import ClientError
from patience import scaled

from .conftest import Platform, Serve, package
from .test_serving import log

PATIENCE_S = scaled(90)
ARN = "arn:aws:lambda:us-east-1:000000000000:function:f"

SOURCE = """
import os

def handler(event, context):
    return [%r, context.function_version, context.invoked_function_arn, context.function_name,
            os.environ["AWS_LAMBDA_FUNCTION_NAME"], os.environ.get("COLOUR")]
"""


def refusal(call: Any, **arguments: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


def update(platform: Platform, text: str, **settings: Any) -> Any:
    code = package(SOURCE % text)
    return platform.client.update_function_code(FunctionName="f", ZipFile=code, **settings)


def invoke(platform: Platform, name: str = "f", **settings: Any) -> tuple[str, list[str]]:
    """The version that ran, by the platform's word, and what the function answered."""
    answer, payload = platform.invoke(name, **settings)
    assert answer["StatusCode"] == 200
    return answer["ExecutedVersion"], payload


def test_a_version_stays_as_it_was_published(serve: Serve) -> None:
    platform = serve()
    client = platform.client
    made = platform.create("f", SOURCE % "one", Environment={"Variables": {"COLOUR": "red"}})
    assert (made["Version"], made["FunctionArn"]) == ("$LATEST", ARN)
    first = client.publish_version(FunctionName="f", Description="the first")
    assert [first[it] for it in ("Version", "FunctionArn", "Description")] == [
        "1",
        f"{ARN}:1",
        "the first",
    ]
    # Nothing has changed: the same version.
    again = client.publish_version(FunctionName="f")
    assert (again["Version"], again["RevisionId"]) == ("1", first["RevisionId"])
    second = update(platform, "two", Publish=True)
    assert (second["Version"], second["FunctionArn"]) == ("2", f"{ARN}:2")
    client.update_function_configuration(
        FunctionName="f", Environment={"Variables": {"COLOUR": "blue"}}, MemorySize=512
    )
    update(platform, "three")
    expected = {
        "f": ("$LATEST", ["three", "$LATEST", ARN, "f", "f", "blue"]),
        "f:1": ("1", ["one", "1", f"{ARN}:1", "f", "f", "red"]),
        f"{ARN}:2": ("2", ["two", "2", f"{ARN}:2", "f", "f", "red"]),
        "f:$LATEST": ("$LATEST", ["three", "$LATEST", f"{ARN}:$LATEST", "f", "f", "blue"]),
    }
    assert {name: invoke(platform, name) for name in expected} == expected
    assert invoke(platform, Qualifier="2") == expected[f"{ARN}:2"]
    # The rows are the function's, each with what its version is allocated.
    rows = log(platform)
    assert {row["function"] for row in rows} == {"f"}
    assert sorted(row["allocated_memory"] >> 20 for row in rows) == [256, 256, 256, 512, 512]
    listed = client.list_versions_by_function(FunctionName="f")["Versions"]
    assert [it["Version"] for it in listed] == ["$LATEST", "1", "2"]
    pages = client.get_paginator("list_versions_by_function").paginate(
        FunctionName="f", PaginationConfig={"PageSize": 1}
    )
    assert [it["Version"] for page in pages for it in page["Versions"]] == ["$LATEST", "1", "2"]
    got = client.get_function(FunctionName="f", Qualifier="1")["Configuration"]
    assert (got["MemorySize"], got["CodeSha256"]) == (256, made["CodeSha256"])
    client.get_waiter("published_version_active").wait(FunctionName="f", Qualifier="1")
    everything = client.list_functions(FunctionVersion="ALL")["Functions"]
    assert [it["FunctionArn"] for it in everything] == [ARN, f"{ARN}:1", f"{ARN}:2"]
    assert [it["FunctionArn"] for it in client.list_functions()["Functions"]] == [ARN]

    # Whoever holds the platform's state finds them again, even after a crash.
    platform.stop(signal.SIGKILL)
    platform = serve()
    assert {name: invoke(platform, name) for name in expected} == expected
    client = platform.client
    client.delete_function(FunctionName="f", Qualifier="2")
    assert refusal(platform.client.invoke, FunctionName="f:2")[0] == "ResourceNotFoundException"
    # Its number is not given again.
    assert client.publish_version(FunctionName="f")["Version"] == "3"
    client.delete_function(FunctionName="f")
    assert refusal(client.invoke, FunctionName="f:1")[0] == "ResourceNotFoundException"
    platform.create("f", SOURCE % "anew", Publish=True)
    assert invoke(platform, "f:1")[1][0] == "anew"


def test_an_alias_names_versions_by_weight(serve: Serve) -> None:
    platform = serve()
    client = platform.client
    platform.create("f", SOURCE % "one", Publish=True)
    update(platform, "two", Publish=True)
    made = client.create_alias(FunctionName="f", Name="live", FunctionVersion="1")
    assert (made["AliasArn"], made["FunctionVersion"]) == (f"{ARN}:live", "1")
    assert "RoutingConfig" not in made
    version, answer = invoke(platform, "f:live")
    assert (version, answer[:3]) == ("1", ["one", "1", f"{ARN}:live"])
    for weight, expected in ((1.0, {"2"}), (0.0, {"1"}), (0.5, {"1", "2"})):
        routing = {"AdditionalVersionWeights": {"2": weight}}
        client.update_alias(FunctionName="f", Name="live", RoutingConfig=routing)
        # By 60 fair draws one version is missing once in 10^18 runs.
        versions = [invoke(platform, "f:live")[0] for _ in range(60 if weight == 0.5 else 3)]
        assert set(versions) == expected
    got = client.get_alias(FunctionName="f", Name="live")
    assert got["RoutingConfig"] == {"AdditionalVersionWeights": {"2": 0.5}}
    revision = got["RevisionId"]
    moved = client.update_alias(
        FunctionName="f",
        Name="live",
        FunctionVersion="2",
        RoutingConfig={"AdditionalVersionWeights": {}},
        RevisionId=revision,
    )
    assert (moved["FunctionVersion"], "RoutingConfig" in moved) == ("2", False)
    stale = {"FunctionName": "f", "Name": "live", "RevisionId": revision, "Description": "d"}
    assert refusal(client.update_alias, **stale)[0] == "PreconditionFailedException"
    client.create_alias(FunctionName="f", Name="newest", FunctionVersion="$LATEST")
    names = [it["Name"] for it in client.list_aliases(FunctionName="f")["Aliases"]]
    assert names == ["live", "newest"]
    listed = client.list_aliases(FunctionName="f", FunctionVersion="2")["Aliases"]
    assert [it["Name"] for it in listed] == ["live"]
    # An event is of the version that the alias named when it was accepted.
    answer = client.invoke(FunctionName="f:live", InvocationType="Event", Payload=b"{}")
    assert answer["StatusCode"] == 202
    platform.stop()
    platform = serve()
    assert invoke(platform, "f:live")[0] == "2"
    code, message = refusal(platform.client.delete_function, FunctionName="f", Qualifier="2")
    assert (code, "live" in message) == ("ResourceConflictException", True)
    platform.client.delete_alias(FunctionName="f", Name="live")
    assert refusal(platform.client.invoke, FunctionName="f:live")[0] == "ResourceNotFoundException"
    platform.client.delete_function(FunctionName="f", Qualifier="2")


def test_what_cannot_be_published_is_refused(serve: Serve) -> None:
    platform = serve()
    client = platform.client
    made = platform.create("f", SOURCE % "one", Publish=True)
    update(platform, "two", Publish=True)
    missing, invalid, conflict = (
        "ResourceNotFoundException",
        "InvalidParameterValueException",
        "ResourceConflictException",
    )
    weights = {"AdditionalVersionWeights": {"2": 0.5}}
    alias = {"FunctionName": "f", "Name": "a", "FunctionVersion": "1"}
    for expected, call, arguments in [
        (missing, client.publish_version, {"FunctionName": "g"}),
        (invalid, client.publish_version, {"FunctionName": "f", "CodeSha256": made["CodeSha256"]}),
        (missing, client.create_alias, alias | {"FunctionVersion": "9"}),
        (missing, client.create_alias, alias | {"FunctionVersion": "01"}),
        (invalid, client.create_alias, alias | {"Name": "12"}),
        (invalid, client.create_alias, alias | {"Name": "a.b"}),
        (invalid, client.create_alias, alias | {"FunctionVersion": "2", "RoutingConfig": weights}),
        (
            invalid,
            client.create_alias,
            alias | {"FunctionVersion": "$LATEST", "RoutingConfig": weights},
        ),
        (
            invalid,
            client.create_alias,
            alias | {"RoutingConfig": {"AdditionalVersionWeights": {"2": 1.5}}},
        ),
        (
            missing,
            client.create_alias,
            alias | {"RoutingConfig": {"AdditionalVersionWeights": {"7": 0.5}}},
        ),
        (missing, client.update_alias, {"FunctionName": "f", "Name": "a", "Description": "d"}),
        (missing, client.get_alias, {"FunctionName": "f", "Name": "a"}),
        (missing, client.get_function, {"FunctionName": "f", "Qualifier": "a"}),
        (invalid, client.get_function, {"FunctionName": "f:1", "Qualifier": "2"}),
        (invalid, client.delete_function, {"FunctionName": "f", "Qualifier": "$LATEST"}),
        (invalid, client.tag_resource, {"Resource": f"{ARN}:1", "Tags": {"a": "b"}}),
        (
            invalid,
            client.create_function_url_config,
            {"FunctionName": "f", "Qualifier": "live", "AuthType": "NONE"},
        ),
        (missing, client.invoke, {"FunctionName": "f:3"}),
    ]:
        assert refusal(call, **arguments)[0] == expected, arguments
    client.create_alias(**alias)
    assert refusal(client.create_alias, **alias) == (conflict, f"Alias already exists: {ARN}:a")
    assert len(client.list_aliases(FunctionName="f")["Aliases"]) == 1


def ready(platform: Platform, qualifier: str) -> Any:
    """The provision of a version or alias once its instances are ready."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        got = platform.client.get_provisioned_concurrency_config(
            FunctionName="f", Qualifier=qualifier
        )
        if got["Status"] != "IN_PROGRESS":
            return got
        assert time.monotonic() < deadline, got
        time.sleep(0.05)


def living(platform: Platform) -> int:
    return sum(row["ended"] is None for row in log(platform, "instances"))


def test_provisioned_instances_are_ready_before_the_first_request(serve: Serve) -> None:
    platform = serve({"pause_after_ms": 0, "keep_alive_ms": 1})
    client = platform.client
    platform.create("f", SOURCE % "one", Publish=True)
    update(platform, "two", Publish=True)
    client.create_alias(FunctionName="f", Name="live", FunctionVersion="1")
    put = client.put_provisioned_concurrency_config
    made = put(FunctionName="f", Qualifier="live", ProvisionedConcurrentExecutions=2)
    assert made["RequestedProvisionedConcurrentExecutions"] == 2
    got = ready(platform, "live")
    assert (got["Status"], got["AllocatedProvisionedConcurrentExecutions"]) == ("READY", 2)
    answer, payload = platform.invoke("f:live")
    assert payload[:2] == ["one", "1"]
    headers = answer["ResponseMetadata"]["HTTPHeaders"]
    assert headers["x-uncia-start"] in ("warm", "thawed")
    # What is ready is of the version, whose other name may not provision it again.
    code, message = refusal(put, FunctionName="f", Qualifier="1", ProvisionedConcurrentExecutions=1)
    assert (code, "alias" in message) == ("ResourceConflictException", True)
    # They follow the alias, and come back with the platform.
    client.update_alias(FunctionName="f", Name="live", FunctionVersion="2")
    assert ready(platform, "live")["Status"] == "READY"
    assert platform.invoke("f:live")[1][:2] == ["two", "2"]
    platform.stop(signal.SIGKILL)
    platform = serve({"pause_after_ms": 0, "keep_alive_ms": 1})
    client = platform.client
    assert ready(platform, "live")["Status"] == "READY"
    listed = client.list_provisioned_concurrency_configs(FunctionName="f")
    (config,) = listed["ProvisionedConcurrencyConfigs"]
    assert (config["FunctionArn"], config["Status"]) == (f"{ARN}:live", "READY")
    client.delete_provisioned_concurrency_config(FunctionName="f", Qualifier="live")
    deadline = time.monotonic() + PATIENCE_S
    while living(platform):
        assert time.monotonic() < deadline, "an instance is kept that nobody asks for"
        time.sleep(0.05)
    missing = refusal(client.get_provisioned_concurrency_config, FunctionName="f", Qualifier="live")
    assert missing == (
        "ProvisionedConcurrencyConfigNotFoundException",
        "No Provisioned Concurrency Config found for this function",
    )


def test_no_more_is_provisioned_than_the_platform_keeps(serve: Serve) -> None:
    platform = serve({"max_instances": 10})
    client = platform.client
    platform.create("f", SOURCE % "one", Publish=True)
    platform.create("other", Tags={"uncia:min-instances": "1"})

    def put(count: int, qualifier: str = "1") -> Any:
        return client.put_provisioned_concurrency_config(
            FunctionName="f", Qualifier=qualifier, ProvisionedConcurrentExecutions=count
        )

    code, message = refusal(put, count=9)
    assert code == "InvalidParameterValueException"
    assert "UnreservedConcurrentExecution below its minimum value of [1]" in message
    assert refusal(put, count=1, qualifier="$LATEST") == (
        code,
        "Provisioned Concurrency Configs cannot be applied to unpublished function version.",
    )
    assert refusal(put, count=1, qualifier="7")[0] == "ResourceNotFoundException"
    client.put_function_concurrency(FunctionName="f", ReservedConcurrentExecutions=2)
    assert refusal(put, count=3) == (
        code,
        "Requested Provisioned Concurrency should not be greater than the "
        "reservedConcurrentExecution for function",
    )
    put(2)
    lower = {"FunctionName": "f", "ReservedConcurrentExecutions": 1}
    assert refusal(client.put_function_concurrency, **lower)[0] == code
    assert ready(platform, "1")["Status"] == "READY"
    assert (
        refusal(client.get_provisioned_concurrency_config, FunctionName="f", Qualifier="$LATEST")[0]
        == code
    )


def test_a_version_that_cannot_start_says_so(serve: Serve) -> None:
    platform = serve()
    platform.create("f", "raise ValueError('no such luck')\n", Publish=True)
    platform.client.put_provisioned_concurrency_config(
        FunctionName="f", Qualifier="1", ProvisionedConcurrentExecutions=1
    )
    got = ready(platform, "1")
    assert (got["Status"], got["AllocatedProvisionedConcurrentExecutions"]) == ("FAILED", 0)
    assert "no such luck" in got["StatusReason"]


def test_the_tag_keeps_instances_of_the_latest_version_by_every_name(serve: Serve) -> None:
    platform = serve()
    tags = {"uncia:min-instances": "1"}
    platform.create("f", SOURCE % "one", Publish=True, Tags=tags)
    platform.client.create_alias(FunctionName="f", Name="newest", FunctionVersion="$LATEST")
    deadline = time.monotonic() + PATIENCE_S
    while not any(row["initialized"] for row in log(platform, "instances")):
        assert time.monotonic() < deadline, "no instance was started"
        time.sleep(0.05)
    assert platform.headers("f:newest")["x-uncia-start"] in ("warm", "thawed")
    # The version had the tag when it was published, and keeps none ready all the same.
    headers = platform.headers("f:1")
    assert (headers["x-uncia-start"], headers["x-amz-executed-version"]) == ("cold", "1")
    # A new version of the code takes the kept instance's place.
    kept = platform.headers("f")["x-uncia-instance"]
    update(platform, "two")
    while platform.headers("f:newest")["x-uncia-start"] == "cold":
        assert time.monotonic() < deadline, "no instance is kept of the new code"
    answer, payload = platform.invoke("f:newest")
    assert payload[0] == "two"
    assert answer["ResponseMetadata"]["HTTPHeaders"]["x-uncia-instance"] != kept
