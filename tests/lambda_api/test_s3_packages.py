"""Packages from S3: a server of objects that recomputes each signature with botocore."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from .conftest import OK, ROLE, Join, Serve, instances, package
from .test_serving import log, wait_for

KEY, SECRET, TOKEN, REGION = "AKIDEXAMPLE", "secret/with+signs", "the token", "eu-north-1"
INVALID = "InvalidParameterValueException"


class Objects(http.server.ThreadingHTTPServer):
    """Objects by path and version; an answer with a number for a size has so many bytes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, bytes | int] = {}


def signature(handler: http.server.BaseHTTPRequestHandler) -> str:
    """The authorization that botocore gives the request."""
    names = handler.headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    url = f"http://{handler.headers['host']}{handler.path}"
    request = AWSRequest("GET", url, {name: handler.headers[name] for name in names})
    request.context["timestamp"] = handler.headers["x-amz-date"]
    auth = S3SigV4Auth(Credentials(KEY, SECRET, TOKEN), "s3", REGION)
    canonical = auth.canonical_request(request)
    signed = auth.signature(auth.string_to_sign(request, canonical), request)
    scope = f"{KEY}/{handler.headers['x-amz-date'][:8]}/{REGION}/s3/aws4_request"
    return (
        f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={';'.join(names)}, Signature={signed}"
    )


class Handler(http.server.BaseHTTPRequestHandler):
    server: Objects

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        version = f"?{unquote(parts.query)}" if parts.query else ""
        result = self.server.objects.get(unquote(parts.path) + version)
        if self.headers["authorization"] != signature(self):
            status, body = 403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>"
        elif self.headers["x-amz-security-token"] != TOKEN:
            status, body = 403, b"<Error><Code>InvalidToken</Code></Error>"
        elif result is None:
            status = 404
            body = (
                b"<?xml version='1.0'?><Error><Code>NoSuchKey</Code>"
                b"<Message>The specified key does not exist.</Message></Error>"
            )
        elif isinstance(result, int):
            # Chunked, so that its size is not known before.
            self.protocol_version = "HTTP/1.1"
            self.send_response(200)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            try:
                for _ in range(result >> 20):
                    self.wfile.write(b"100000\r\n" + bytes(1 << 20) + b"\r\n")
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                pass  # the client has seen enough
            return
        else:
            status, body = 200, result
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Objects]:
    server = Objects()
    threading.Thread(target=server.serve_forever).start()
    for name, value in {
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{server.server_port}",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": TOKEN,
        "AWS_REGION": REGION,
    }.items():
        monkeypatch.setenv(name, value)
    yield server
    server.shutdown()
    server.server_close()


def test_packages_come_from_s3(serve: Serve, store: Objects) -> None:
    first, second = package(OK), package("def handler(event, context):\n    return 'second'\n")
    store.objects = {
        "/code/a folder/f+1~ä.zip": first,
        "/code/f.zip?versionId=a/b c": second,
    }
    platform = serve()
    code = {"S3Bucket": "code", "S3Key": "a folder/f+1~ä.zip"}
    made = platform.create("f", Code=code)
    assert made["CodeSize"] == len(first)
    assert platform.invoke("f", {"a": 1})[1] == {"got": {"a": 1}}
    platform.client.update_function_code(
        FunctionName="f", S3Bucket="code", S3Key="f.zip", S3ObjectVersion="a/b c"
    )
    assert platform.invoke("f")[1] == "second"
    # Layers are fetched in the same way.
    layer = platform.client.publish_layer_version(
        LayerName="l", Content={"S3Bucket": "code", "S3Key": "a folder/f+1~ä.zip"}
    )
    assert layer["Content"]["CodeSize"] == len(first)


def refusal(serve: Serve, code: dict[str, Any]) -> tuple[str, str]:
    platform = serve()
    with pytest.raises(ClientError) as caught:
        platform.client.create_function(
            FunctionName="f", Runtime="python3.11", Handler="handler.handler", Role=ROLE, Code=code
        )
    assert platform.client.list_functions()["Functions"] == []
    for folder in ("code", "packages", "staging"):
        assert list(Path(platform.state, folder).iterdir()) == []
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


def test_what_s3_does_not_give_is_a_sentence(serve: Serve, store: Objects) -> None:
    missing = refusal(serve, {"S3Bucket": "code", "S3Key": "../none"})
    assert missing == (
        INVALID,
        "Error occurred while GetObject. S3 Error Code: NoSuchKey. S3 Error Message: The "
        "specified key does not exist.",
    )


def test_an_object_that_is_no_package_or_too_large_is_refused(serve: Serve, store: Objects) -> None:
    store.objects = {
        "/bucket/text": b"no zip",
        "/bucket/large": 80 << 20,
        "/bucket/long": bytes(51 << 20),
    }
    platform = serve()
    for key, code, part in [
        ("text", INVALID, "Could not unzip uploaded file"),
        ("large", "RequestTooLargeException", "Zipped size must be smaller"),
        ("long", "RequestTooLargeException", "Zipped size must be smaller"),
    ]:
        with pytest.raises(ClientError) as caught:
            platform.create("f", Code={"S3Bucket": "bucket", "S3Key": key})
        error = caught.value.response["Error"]
        assert (error["Code"], part in error["Message"]) == (code, True), error
    assert list(Path(platform.state, "staging").iterdir()) == []


def test_what_the_platform_was_not_given_is_named(
    serve: Serve, store: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://localhost")
    platform = serve(state="tls")
    code = {"S3Bucket": "bucket", "S3Key": "k"}

    def message(platform: Any, code: dict[str, Any]) -> str:
        with pytest.raises(ClientError) as caught:
            platform.create("f", Code=code)
        assert caught.value.response["Error"]["Code"] == INVALID
        text: str = caught.value.response["Error"]["Message"]
        return text

    assert "'https://localhost'" in message(platform, code).replace('"', "'")
    assert "S3Key together" in message(platform, {"S3Bucket": "bucket"})
    assert "S3Key together" in message(platform, code | {"ZipFile": package(OK)})
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    assert "AWS_ENDPOINT_URL_S3 set" in message(serve(state="none"), code)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{store.server_port}")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    assert "SignatureDoesNotMatch" in message(serve(state="secret"), code)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "AWS_SECRET_ACCESS_KEY set" in message(serve(state="anonymous"), code)


@pytest.mark.parametrize("cache", [0, 1 << 30])
def test_workers_that_joined_fetch_packages_themselves(
    serve: Serve, store: Objects, join: Join, cache: int
) -> None:
    controller = serve(options=["--controller"])
    worker = join(controller, "a", code_cache_bytes=cache)
    first, second = package(OK), package("def handler(event, context):\n    return 'second'\n")
    store.objects = {"/code/f.zip": first}
    code = {"S3Bucket": "code", "S3Key": "f.zip"}
    tags = {"uncia:code": "fetched", "uncia:keep-alive-ms": "0"}
    controller.create("f", Code=code, Tags=tags)
    assert not list(Path(controller.state, "code").iterdir())
    fetched = []
    for n in range(2):
        assert controller.invoke("f", {"n": n})[1] == {"got": {"n": n}}
        wait_for(lambda: not instances(worker.state, made_ahead=False))
        spans = [span["name"] for span in log(controller, "spans")]
        fetched.append((spans.count("fetch"), spans.count("unpack")))
    assert fetched == ([(1, 1), (1, 1)] if cache else [(1, 1), (2, 2)])
    folder = worker.state / "fetched/layers"
    wait_for(lambda: len(list(folder.iterdir())) == (1 if cache else 0))
    # What is not what it was any more does not start.
    controller.client.update_function_code(FunctionName="f", S3Bucket="code", S3Key="f.zip")
    store.objects = {"/code/f.zip": second}
    if not cache:
        with pytest.raises(ClientError) as changed:
            controller.invoke("f")
        assert "is not the one that the function was made with" in str(changed.value)
        assert log(controller)[-1]["outcome"] == "transport_error"
    controller.client.update_function_code(FunctionName="f", S3Bucket="code", S3Key="f.zip")
    assert controller.invoke("f")[1] == "second"
