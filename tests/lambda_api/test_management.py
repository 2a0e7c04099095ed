"""The management calls of Lambda's API, as stock boto3 makes them."""

import hashlib
import http.client
import io
import json
import stat
import subprocess
import urllib.error
import urllib.request
import zipfile
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from patience import scaled

from .conftest import OK, ROLE, Platform, Serve, names_below, package


def error_of(call: Callable[..., Any], **arguments: Any) -> tuple[str, int, str]:
    """The error's type, HTTP status and message."""
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    response = caught.value.response
    error = response["Error"]
    return error["Code"], response["ResponseMetadata"]["HTTPStatusCode"], error["Message"]


def test_the_life_of_a_function(platform: Platform) -> None:
    client = platform.client
    created = platform.create("greet", Description="says hello", Tags={"team": "blue"})
    assert created["ResponseMetadata"]["HTTPStatusCode"] == 201
    assert created["FunctionArn"] == "arn:aws:lambda:us-east-1:000000000000:function:greet"
    sha256 = hashlib.sha256(package(OK)).digest()
    assert created["CodeSha256"] == b64encode(sha256).decode()
    for waiter in ("function_exists", "function_active", "function_active_v2"):
        client.get_waiter(waiter).wait(FunctionName="greet")
    got = client.get_function(FunctionName=created["FunctionArn"])
    assert got["Tags"] == {"team": "blue"}
    with urllib.request.urlopen(got["Code"]["Location"]) as location:
        assert zipfile.ZipFile(io.BytesIO(location.read())).namelist() == ["handler.py"]
    updated = client.update_function_configuration(
        FunctionName="greet", MemorySize=512, Timeout=7, Environment={"Variables": {"A1": "x"}}
    )
    client.get_waiter("function_updated_v2").wait(FunctionName="greet")
    assert updated["RevisionId"] != created["RevisionId"]
    described = client.get_function_configuration(FunctionName="greet")
    assert (described["MemorySize"], described["Timeout"]) == (512, 7)
    assert described["Environment"] == {"Variables": {"A1": "x"}}
    source = "import os\ndef handler(event, context):\n    return os.environ['A1']\n"
    client.update_function_code(FunctionName="greet", ZipFile=package(source))
    assert platform.invoke("greet")[1] == "x"
    client.delete_function(FunctionName="greet")
    assert error_of(client.get_function, FunctionName="greet")[:2] == (
        "ResourceNotFoundException",
        404,
    )


def test_listing_has_pages(platform: Platform) -> None:
    for number in range(5):
        platform.create(f"f{number}")
    pages = platform.client.get_paginator("list_functions").paginate(
        PaginationConfig={"PageSize": 2}
    )
    names = [[function["FunctionName"] for function in page["Functions"]] for page in pages]
    assert names == [["f0", "f1"], ["f2", "f3"], ["f4"]]


def test_tags_and_concurrency(platform: Platform) -> None:
    client = platform.client
    arn = platform.create("tagged", Tags={"a": "1"})["FunctionArn"]
    client.tag_resource(Resource=arn, Tags={"b c": "2", "uncia:keep-alive-ms": "250"})
    client.untag_resource(Resource=arn, TagKeys=["a"])
    assert client.list_tags(Resource=arn)["Tags"] == {"b c": "2", "uncia:keep-alive-ms": "250"}
    kind, status, message = error_of(
        client.tag_resource, Resource=arn, Tags={"uncia:network": "internet"}
    )
    assert (kind, status) == ("InvalidParameterValueException", 400)
    assert "none, platform or host" in message
    client.put_function_concurrency(FunctionName="tagged", ReservedConcurrentExecutions=0)
    kind, status, _ = error_of(client.invoke, FunctionName="tagged")
    assert (kind, status) == ("TooManyRequestsException", 429)
    client.delete_function_concurrency(FunctionName="tagged")
    assert platform.invoke("tagged")[1] == {"got": {}}


def test_a_function_url_is_plain_http(platform: Platform) -> None:
    source = """
def handler(event, context):
    return {"statusCode": 201, "headers": {"x-path": event["rawPath"]},
            "body": event["requestContext"]["http"]["method"] + event.get("body", "")}
"""
    platform.create("web", source)
    url = platform.client.create_function_url_config(FunctionName="web", AuthType="NONE")
    request = urllib.request.Request(url["FunctionUrl"] + "some/path?x=1", b"!", method="PUT")
    with urllib.request.urlopen(request) as answer:
        assert (answer.status, answer.read()) == (201, b"PUT!")
        assert answer.headers["x-path"] == "/some/path"
        assert answer.headers["x-uncia-start"] == "cold"
    client = platform.client
    assert client.get_function_url_config(FunctionName="web")["AuthType"] == "NONE"
    assert len(client.list_function_url_configs(FunctionName="web")["FunctionUrlConfigs"]) == 1
    kind, status, _ = error_of(
        client.create_function_url_config, FunctionName="web", AuthType="NONE"
    )
    assert (kind, status) == ("ResourceConflictException", 409)
    client.delete_function_url_config(FunctionName="web")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(url["FunctionUrl"])
    kind, _, message = error_of(
        client.create_function_url_config, FunctionName="web", AuthType="OTHER"
    )
    assert kind == "InvalidParameterValueException"
    assert "NONE" in message


WRONG: dict[str, tuple[dict[str, Any], str, int, str]] = {
    "twice": ({}, "ResourceConflictException", 409, "already"),
    "memory": ({"MemorySize": 20_480}, "InvalidParameterValueException", 400, "10240"),
    "timeout": ({"Timeout": 1000}, "InvalidParameterValueException", 400, "900"),
    "runtime": ({"Runtime": "dotnet8"}, "InvalidParameterValueException", 400, "dotnet8"),
    "handler": ({"Handler": "other.handler"}, "InvalidParameterValueException", 400, "other.py"),
    "name": ({"FunctionName": "no/slash"}, "InvalidParameterValueException", 400, "no/slash"),
    "environment": (
        {"Environment": {"Variables": {"AWS_REGION": "x"}}},
        "InvalidParameterValueException",
        400,
        "AWS_REGION",
    ),
    "layers": (
        {"Layers": ["arn:aws:lambda:us-east-1:1:layer:x:1"]},
        "InvalidParameterValueException",
        400,
        "layer:x:1 does not exist",
    ),
    "image": (
        {"PackageType": "Image", "Code": {"ImageUri": "x"}},
        "InvalidParameterValueException",
        400,
        "PackageType is Image",
    ),
    "tag": (
        {"Tags": {"uncia:keep-alive": "1"}},
        "InvalidParameterValueException",
        400,
        "uncia:keep-alive-ms",
    ),
}


@pytest.fixture(scope="module")
def lasting(engine_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    platform = Platform(engine_binary, tmp_path_factory.mktemp("platform") / "state")
    platform.create("twice")
    yield platform
    assert platform.stop() == 0


@pytest.mark.parametrize("what", WRONG)
def test_wrong_settings_get_lambdas_errors(lasting: Platform, what: str) -> None:
    settings, kind, status, word = WRONG[what]
    name = settings.get("FunctionName", what)
    with pytest.raises(ClientError) as caught:
        lasting.create(name, **{k: v for k, v in settings.items() if k != "FunctionName"})
    error = caught.value.response
    assert error["Error"]["Code"] == kind
    assert error["ResponseMetadata"]["HTTPStatusCode"] == status
    assert word in error["Error"]["Message"]


def hostile_zip(name: str, content: bytes = b"x", mode: int = 0o644) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("handler.py", OK)
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        archive.writestr(info, content)
    return buffer.getvalue()


ZIPS = {
    "empty": b"",
    "not a zip": b"this is no zip file",
    "cut off": package(OK)[:-30],
    "climbs out": hostile_zip("../../escaped.txt"),
    "absolute": hostile_zip("/tmp/uncia-escaped.txt"),
    "symlink": hostile_zip("link", b"/etc/passwd", stat.S_IFLNK | 0o777),
    "backslash": hostile_zip("..\\..\\escaped.txt"),
    "no handler": package({"readme.txt": "nothing to run"}),
}


@pytest.mark.parametrize("what", ZIPS)
def test_bad_packages_are_refused_and_nothing_is_written(lasting: Platform, what: str) -> None:
    kind, status, message = error_of(
        lasting.client.create_function,
        FunctionName="bad",
        Runtime="python3.11",
        Handler="handler.handler",
        Role=ROLE,
        Code={"ZipFile": ZIPS[what]},
    )
    assert (kind, status) == ("InvalidParameterValueException", 400)
    assert message
    assert not Path("/tmp/uncia-escaped.txt").exists()
    assert "escaped.txt" not in names_below(lasting.state.parent)
    assert list((lasting.state / "staging").iterdir()) == []
    assert len(list((lasting.state / "code").iterdir())) == 1, "that of the good function"


def test_payload_limits(lasting: Platform) -> None:
    large = b'"' + b"x" * 6_300_000 + b'"'
    kind, status, _ = error_of(lasting.client.invoke, FunctionName="twice", Payload=large)
    assert (kind, status) == ("RequestTooLargeException", 413)
    kind, status, _ = error_of(lasting.client.invoke, FunctionName="twice", Payload=b"{no json")
    assert (kind, status) == ("InvalidRequestContentException", 400)
    kind, status, _ = error_of(
        lasting.client.invoke,
        FunctionName="twice",
        InvocationType="Event",
        Payload=b'"' + b"x" * 300_000 + b'"',
    )
    assert (kind, status) == ("RequestTooLargeException", 413)
    assert lasting.client.invoke(FunctionName="twice", InvocationType="DryRun")["StatusCode"] == 204


def raw(address: str, path: str, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection(address, timeout=scaled(60))
    try:
        connection.putrequest("GET", path, skip_host=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        return connection.getresponse().status
    finally:
        connection.close()


def test_only_programs_on_this_machine_are_answered(serve: Serve) -> None:
    platform = serve({"allowed_hosts": ["ci.internal"]})
    health = "/uncia/v1/health"
    for host in ("localhost", "127.0.0.1:80", "[::1]", "ci.internal:9000"):
        assert raw(platform.address, health, {"Host": host}) == 200, host
    for host in ("evil.example", "127.0.0.1.evil.example", "10.0.0.1"):
        assert raw(platform.address, health, {"Host": host}) == 403, host
    assert raw(platform.address, health, {}) == 400
    origin = {"Host": "localhost", "Origin": "http://evil.example"}
    assert raw(platform.address, health, origin) == 403
    assert raw(platform.address, "/no/such/operation", {"Host": "localhost"}) == 404


def test_bad_starts_are_sentences(serve: Serve, engine_binary: Path, tmp_path: Path) -> None:
    platform = serve()

    def start(*arguments: str | Path) -> tuple[int, str]:
        command = [engine_binary, "serve", *arguments]
        done = subprocess.run(command, capture_output=True, timeout=scaled(120), check=False)
        assert done.stdout == b""
        line = done.stderr.decode().strip().splitlines()[-1]
        event = json.loads(line)
        assert event["event"] == "error"
        return done.returncode, event["message"]

    fresh = tmp_path / "fresh"
    code, message = start("--listen", platform.address, "--state", fresh)
    assert code == 1
    assert platform.address in message
    assert not fresh.exists()
    code, message = start("--listen", "127.0.0.1:0", "--state", platform.state)
    assert code == 1
    assert "in use by another worker" in message
    code, message = start("--listen", "0.0.0.0:0", "--state", fresh)
    assert code == 2
    assert "loopback" in message
    file = tmp_path / "a-file"
    file.write_text("")
    code, message = start("--listen", "127.0.0.1:0", "--state", file)
    assert code == 1
    assert str(file) in message
    config = tmp_path / "config.json"
    config.write_text('{"keep_alive": 3}')
    code, message = start("--listen", "127.0.0.1:0", "--state", fresh, "--config", config)
    assert code == 2
    assert "keep_alive" in message
    assert not fresh.exists()
