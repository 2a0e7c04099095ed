"""URLs whose requests must be signed, and the policies of functions."""

import json
import urllib.error
import urllib.request
from typing import Any

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from .conftest import Platform, Serve, package
from .test_versions import refusal

KEY, SECRET = "AKIDEXAMPLE", "secret/with+signs"
ECHO = """
def handler(event, context):
    return {"path": event["rawPath"], "query": event["rawQueryString"], "body": event.get("body")}
"""


@pytest.fixture
def signing(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Platform:
    """A platform with credentials of its own."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    return serve()


def signed(url: str, key: str, secret: str) -> dict[str, str]:
    """The headers of a request for a URL, signed."""
    request = AWSRequest("GET", url)
    SigV4Auth(Credentials(key, secret), "lambda", "eu-west-1").add_auth(request)
    return dict(request.headers.items())


def ask(
    url: str,
    secret: str | None = SECRET,
    body: bytes | None = None,
    sent_to: str | None = None,
    sent_body: bytes | None = None,
    **later: str,
) -> tuple[int, Any]:
    """The answer to a request as botocore signs it: with another address, body or headers than it
    signed, if these are given."""
    method = "GET" if body is None else "POST"
    request = AWSRequest(method, url, data=body, headers={"X-Own": "  two   words "})
    if secret is not None:
        SigV4Auth(Credentials(KEY, secret), "lambda", "eu-west-1").add_auth(request)
    headers = dict(request.headers.items())
    headers |= {name.replace("_", "-"): value for name, value in later.items()}
    sent = urllib.request.Request(sent_to or url, sent_body or body, headers, method=method)
    try:
        with urllib.request.urlopen(sent) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["Message"]


def test_a_signed_url_answers_who_has_the_credentials(signing: Platform) -> None:
    client = signing.client
    signing.create("f", ECHO)
    made = client.create_function_url_config(FunctionName="f", AuthType="AWS_IAM")
    assert made["AuthType"] == "AWS_IAM"
    url = made["FunctionUrl"]
    for path in ("", "a%20b/c", "x/../y", "q?b=2&a=%2F+1&c", "%C3%A4?%C3%A4=%7E"):
        status, answer = ask(url + path)
        assert (status, answer["query"]) == (200, path.partition("?")[2]), (path, answer)
    assert ask(url, body=b"the body")[1]["body"] == "the body"
    mismatch = "does not match the signature you provided"
    for words, (status, message) in (
        ("Missing Authentication Token", ask(url, secret=None)),
        (mismatch, ask(url, secret="other")),
        (mismatch, ask(url, sent_to=url + "other")),
        (mismatch, ask(url + "?a=1", sent_to=url + "?a=2")),
        (mismatch, ask(url, body=b"one", sent_body=b"two")),
        ("does not match YYYYMMDD", ask(url, X_Amz_Date="20200101T000000Z")),
        ("header x-amz-target must be signed", ask(url, X_Amz_Target="x")),
        ("must be AWS4-HMAC-SHA256", ask(url, Authorization="Basic eDp5")),
    ):
        assert (status, words in message) == (403, True), message
    # Invoke itself is the API's affair.
    assert signing.invoke("f", {"rawPath": "", "rawQueryString": ""})[0]["StatusCode"] == 200
    client.update_function_url_config(FunctionName="f", AuthType="NONE")
    assert ask(url, secret=None)[0] == 200
    client.update_function_url_config(FunctionName="f", AuthType="AWS_IAM")
    signing.stop()


def presigned(url: str, seconds: int = 60, method: str = "GET", secret: str = SECRET) -> str:
    """An address that is signed in its query, as botocore does it."""
    request = AWSRequest(method, url)
    credentials = Credentials(KEY, secret, "a/session")
    SigV4QueryAuth(credentials, "lambda", "eu-west-1", expires=seconds).add_auth(request)
    return str(request.url)


def test_a_presigned_address_is_as_good_as_a_signature(signing: Platform) -> None:
    signing.create("f", ECHO)
    made = signing.client.create_function_url_config(FunctionName="f", AuthType="AWS_IAM")
    url = made["FunctionUrl"]
    signing.create("g", ECHO)
    made = signing.client.create_function_url_config(FunctionName="g", AuthType="AWS_IAM")
    other = made["FunctionUrl"]
    for path, query in (("", ""), ("a%20b/c", ""), ("q?b=2&a=%2F1", "b=2&a=%2F1")):
        status, answer = ask(presigned(url + path), secret=None)
        # What signs it is not for the function to see.
        assert (status, answer["query"]) == (200, query), answer
    posted = ask(presigned(url, method="POST"), secret=None, body=b"")
    assert posted[0] == 200, posted
    address = presigned(url)
    for words, (status, message) in (
        ("does not match", ask(presigned(url, secret="other"), secret=None)),
        ("does not match", ask(address.replace("Expires=60", "Expires=61"), secret=None)),
        ("does not match", ask(address + "&a=b", secret=None)),
        ("does not match", ask(address, secret=None, body=b"any")),
        ("does not match", ask(presigned(url, method="POST"), secret=None, body=b"any")),
        ("X-Amz-Expires must be", ask(presigned(url, 604_801), secret=None)),
        ("must have X-Amz-Credential", ask(address.split("&X-Amz-Signature")[0], secret=None)),
        # A signature for one function's address is none for another's.
        ("does not match", ask(url, sent_to=other + "../" + url.split("/url/")[1])),
    ):
        assert (status, words in message) == (403, True), message


def test_a_platform_without_credentials_has_no_signed_urls(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    platform = serve()
    platform.create("f", ECHO)
    url = {"FunctionName": "f", "AuthType": "AWS_IAM"}
    code, message = refusal(platform.client.create_function_url_config, **url)
    assert code == "InvalidParameterValueException"
    assert "start the platform with AWS_ACCESS_KEY_ID set" in message


def test_policies_are_kept(serve: Serve) -> None:
    platform = serve()
    client = platform.client
    platform.create("f", Publish=True)
    client.create_alias(FunctionName="f", Name="live", FunctionVersion="1")
    assert refusal(client.get_policy, FunctionName="f")[0] == "ResourceNotFoundException"
    made = client.add_permission(
        FunctionName="f",
        StatementId="bucket",
        Action="lambda:InvokeFunction",
        Principal="s3.amazonaws.com",
        SourceArn="arn:aws:s3:::b",
        SourceAccount="123456789012",
    )
    statement = json.loads(made["Statement"])
    assert statement == {
        "Sid": "bucket",
        "Effect": "Allow",
        "Principal": {"Service": "s3.amazonaws.com"},
        "Action": "lambda:InvokeFunction",
        "Resource": "arn:aws:lambda:us-east-1:000000000000:function:f",
        "Condition": {
            "StringEquals": {"AWS:SourceAccount": "123456789012"},
            "ArnLike": {"AWS:SourceArn": "arn:aws:s3:::b"},
        },
    }
    url = {
        "FunctionName": "f",
        "Qualifier": "live",
        "StatementId": "url",
        "Action": "lambda:InvokeFunctionUrl",
        "Principal": "*",
        "FunctionUrlAuthType": "NONE",
    }
    client.add_permission(**url)
    assert refusal(client.add_permission, **url)[0] == "ResourceConflictException"
    bad = url | {"StatementId": "s", "Action": "s3:GetObject"}
    assert "Action must be" in refusal(client.add_permission, **bad)[1]
    platform.stop()
    platform = serve()
    client = platform.client
    policy = client.get_policy(FunctionName="f")
    assert json.loads(policy["Policy"])["Statement"] == [statement]
    (of_alias,) = json.loads(client.get_policy(FunctionName="f:live")["Policy"])["Statement"]
    assert of_alias["Resource"].endswith(":function:f:live")
    # Code and configuration are none of its affair.
    platform.client.update_function_code(
        FunctionName="f", ZipFile=package("def handler(e, c): pass")
    )
    stale = {"FunctionName": "f", "StatementId": "bucket", "RevisionId": "x"}
    assert refusal(client.remove_permission, **stale)[0] == "PreconditionFailedException"
    client.remove_permission(
        FunctionName="f", StatementId="bucket", RevisionId=policy["RevisionId"]
    )
    again = {"FunctionName": "f", "StatementId": "bucket"}
    assert refusal(client.remove_permission, **again)[0] == "ResourceNotFoundException"
    assert refusal(client.get_policy, FunctionName="f")[0] == "ResourceNotFoundException"
    client.delete_alias(FunctionName="f", Name="live")
    gone = {"FunctionName": "f", "Qualifier": "live"}
    assert refusal(client.get_policy, **gone)[0] == "ResourceNotFoundException"
