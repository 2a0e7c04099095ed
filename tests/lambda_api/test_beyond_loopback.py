"""A platform that others than this machine's programs can reach: over TLS, and with credentials."""

import base64
import datetime
import json
import os
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import botocore.auth
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

from . import certificates
from .certificates import Certificate
from .conftest import Platform, Serve, package
from .test_url_auth import signed

KEY, SECRET = "AKIDEXAMPLE", "not/guessed+by/anybody"
TOKEN = "0123456789-of-the-page"
MAX_ARRIVALS = 256
EVENT = """
def handler(event, context):
    return event
"""

CHALLENGES = {
    "polls": """
def handler(event, context):
    headers = {"content-type": "text/html", "www-authenticate": "Basic realm=x"}
    return {"statusCode": 401, "headers": headers, "body": "x" * 100_000}
""",
    "serves": """
import http.server, os

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(401)
        self.send_header("WWW-Authenticate", "Basic realm=x")
        self.send_header("Content-Security-Policy", "default-src *")
        body = b"x" * (1 if self.path == "/short" else 1_000_000)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

http.server.ThreadingHTTPServer(("", int(os.environ["PORT"])), Handler).serve_forever()
""",
}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificates.make(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def credentials(tmp_path: Path) -> Path:
    file = tmp_path / "credentials"
    file.write_text(
        f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n\n"
        f"[page]\nuncia_token = {TOKEN}\n"
    )
    file.chmod(0o600)
    return file


@pytest.fixture
def guarded(serve: Serve, certificate: Certificate, credentials: Path) -> Platform:
    """A platform at every address of the machine."""
    return serve(
        options=["--listen", "0.0.0.0:0", *certificate.options, "--credentials", credentials]
    )


Connect = Callable[..., Any]


@pytest.fixture
def connect(guarded: Platform, certificate: Certificate) -> Connect:
    """Makes boto3 clients of the platform."""

    def make(service: str = "lambda", key: str = KEY, secret: str | None = SECRET) -> Any:
        return boto3.client(
            service,
            endpoint_url=url_of(guarded),
            region_name="eu-west-1",
            verify=str(certificate.authority),
            aws_access_key_id=key,
            aws_secret_access_key=secret or "any",
            config=Config(
                retries={"total_max_attempts": 1},
                proxies={},
                signature_version=UNSIGNED if secret is None else None,
            ),
        )

    return make


def url_of(platform: Platform) -> str:
    return f"https://localhost:{platform.address.rpartition(':')[2]}"


def code_of(call: Callable[..., Any], **arguments: Any) -> str:
    with pytest.raises(ClientError) as error:
        call(**arguments)
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    code: str = error.value.response["Error"]["Code"]
    return code


def test_boto3_is_answered_with_credentials_and_refused_without(
    guarded: Platform, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect()
    client.create_function(
        FunctionName="f",
        Runtime="python3.11",
        Handler="handler.handler",
        Role="arn:aws:iam::000000000000:role/any",
        Code={"ZipFile": package(EVENT)},
    )
    payload = json.dumps({"a": "x" * 200_000}).encode()
    answer = client.invoke(FunctionName="f", Payload=payload)
    assert json.loads(answer["Payload"].read()) == json.loads(payload)
    for service, operation in (
        ("lambda", "list_functions"),
        ("stepfunctions", "list_state_machines"),
    ):

        def refused(service: str = service, operation: str = operation, **wrong: Any) -> str:
            return code_of(getattr(connect(service, **wrong), operation))

        getattr(connect(service), operation)()
        assert refused(secret="another/secret") == "InvalidSignatureException"
        assert refused(key="AKIDOTHER") == "UnrecognizedClientException"
        assert refused(secret=None) == "MissingAuthenticationTokenException"
    for minutes in (-6, 6):
        moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=minutes)
        with monkeypatch.context() as patched:
            patched.setattr(botocore.auth, "get_current_datetime", lambda moment=moment: moment)
            with pytest.raises(ClientError, match=r"expired|not yet current") as error:
                client.list_functions()
        assert error.value.response["Error"]["Code"] == "InvalidSignatureException"
    client.list_functions()
    assert guarded.stop() == 0


def fetch(
    guarded: Platform,
    certificate: Certificate,
    path: str,
    body: bytes | None = None,
    **headers: str,
) -> tuple[int, Any, bytes]:
    """The status, headers and body of an answer."""
    url = path if path.startswith("https:") else url_of(guarded) + path
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    context = ssl.create_default_context(cafile=str(certificate.authority))
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, body, named), context=context, timeout=60
        ) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def test_presigned_addresses_are_answered_for_their_time(
    guarded: Platform, certificate: Certificate, connect: Connect
) -> None:
    def listed(secret: str, seconds: int = 60) -> tuple[int, bytes]:
        address = connect(secret=secret).generate_presigned_url("list_functions", ExpiresIn=seconds)
        status, _, body = fetch(guarded, certificate, address)
        return status, body

    status, body = listed(SECRET)
    assert (status, json.loads(body)["Functions"]) == (200, [])
    for words, (status, body) in (
        (b"does not match", listed("another/secret")),
        (b"X-Amz-Expires must be", listed(SECRET, 0)),
    ):
        assert (status, words in body) == (403, True), body


def test_the_page_and_the_metrics_take_the_token(
    guarded: Platform, certificate: Certificate
) -> None:
    def ask(path: str, **headers: str) -> tuple[int, Any]:
        status, answered, _ = fetch(guarded, certificate, path, **headers)
        return status, answered.get("WWW-Authenticate")

    bearer = f"Bearer {TOKEN}"
    basic = "Basic " + base64.b64encode(f"me:{TOKEN}".encode()).decode()
    manage = "/2015-03-31/functions"
    for path in ("/uncia/", "/uncia/page.js", "/uncia/v1/health", "/metrics"):
        status, challenge = ask(path)
        assert status == 401
        assert challenge.startswith("Basic ")
        assert ask(path, Authorization=bearer)[0] == 200
        assert ask(path, Authorization=basic)[0] == 200
        assert ask(path, Authorization="Bearer wrong") == (403, None)
        assert ask(path, Authorization=basic, Sec_Fetch_Site="cross-site")[0] == 403
    assert ask("/uncia/v1/live", Authorization="Basic eDp5")[0] == 401
    assert ask(manage, Authorization=bearer)[0] == 200
    # A browser sends it along with what any page asks for.
    assert ask(manage, Authorization=basic)[0] == 403
    assert ask(manage) == (403, None)
    assert ask("/nothing") == (403, None)
    assert ask("/uncia/v1/viewers", Authorization=bearer)[0] == 403


def test_urls_are_public_only_if_they_are_to_be(
    guarded: Platform, connect: Connect, certificate: Certificate
) -> None:
    client = connect()
    names = {"public": "NONE", "private": "AWS_IAM"}
    urls = {}
    for name, kind in names.items():
        client.create_function(
            FunctionName=name,
            Runtime="python3.11",
            Handler="handler.handler",
            Role="arn:aws:iam::000000000000:role/any",
            Code={"ZipFile": package(EVENT)},
        )
        made = client.create_function_url_config(FunctionName=name, AuthType=kind)
        assert made["FunctionUrl"].startswith(f"https://{socket.gethostname()}:")
        urls[name] = url_of(guarded) + "/url/" + made["FunctionUrl"].partition("/url/")[2]

    def ask(url: str, **headers: str) -> tuple[int, Any]:
        status, _, body = fetch(guarded, certificate, url, **headers)
        return status, json.loads(body)

    status, event = ask(urls["public"], Authorization="Bearer of-the-function")
    assert (status, event["headers"]["authorization"]) == (200, "Bearer of-the-function")
    assert event["requestContext"]["http"]["sourceIp"] == "127.0.0.1"
    # A browser that knows the platform's token repeats it to whatever asks for one at this address.
    basic = base64.b64encode(f"uncia:{TOKEN}".encode()).decode()
    for authorization in (f"Bearer {TOKEN}", f"Basic {basic}"):
        status, event = ask(urls["public"], Authorization=authorization)
        assert (status, "authorization" in event["headers"]) == (200, False)
    assert ask(urls["private"])[0] == 403
    headers = signed(urls["private"], KEY, SECRET)
    status, event = ask(urls["private"], **headers)
    assert (status, "authorization" in event["headers"]) == (200, False)
    assert ask(urls["private"], **signed(urls["private"], KEY, "other"))[0] == 403
    status, event = ask(urls["private"], Authorization=f"Bearer {TOKEN}")
    assert (status, TOKEN in str(event)) == (200, False)
    # Whether there is a function is nobody's business.
    assert ask(url_of(guarded) + "/url/none/")[0] == 403


def test_functions_ask_for_no_token_and_their_pages_are_not_the_platforms(
    guarded: Platform, connect: Connect, certificate: Certificate
) -> None:
    client = connect()
    for name, source in CHALLENGES.items():
        client.create_function(
            FunctionName=name,
            Runtime="python3.11",
            Handler="handler.py" if name == "serves" else "handler.handler",
            Role="arn:aws:iam::000000000000:role/any",
            Code={"ZipFile": package(source)},
            Tags={"uncia:architecture": "http"} if name == "serves" else {},
        )
        made = client.create_function_url_config(FunctionName=name, AuthType="NONE")
        url = "/url/" + made["FunctionUrl"].partition("/url/")[2]
        for path in ("short", "long"):
            status, headers, _ = fetch(guarded, certificate, url + path)
            assert (status, headers["www-authenticate"]) == (401, None), (name, path)
            *selected, policy = headers.get_all("content-security-policy")
            assert selected == (["default-src *"] if name == "serves" else [])
            assert policy.startswith("sandbox ")
            assert "allow-same-origin" not in policy


def test_secrets_are_told_to_nobody(
    guarded: Platform, connect: Connect, certificate: Certificate
) -> None:
    client = connect()
    with pytest.raises(ClientError):
        connect(secret="another/secret").list_functions()
    client.list_functions()
    fetch(guarded, certificate, "/metrics", Authorization=f"Bearer {TOKEN}")
    arguments = Path(f"/proc/{guarded.process.pid}/cmdline").read_bytes()
    guarded.process.terminate()
    _, errors = guarded.process.communicate(timeout=120)
    seen = arguments + errors
    for file in guarded.state.rglob("*"):
        if file.is_file() and "runtimes" not in file.relative_to(guarded.state).parts:
            seen += file.read_bytes()
    assert str(guarded.state).encode() in seen
    assert SECRET.encode() not in seen
    assert TOKEN.encode() not in seen


ENVIRONMENT = """
import glob, os

def handler(event, context):
    seen = [str(dict(os.environ))]
    for file in glob.glob("/proc/*/environ"):
        try:
            seen.append(open(file, errors="replace").read())
        except OSError:
            pass
    return seen
"""


@pytest.mark.parametrize("start_from", ["fresh", "prepared", "pool"])
def test_functions_see_no_credentials(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, start_from: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("UNCIA_TOKEN", TOKEN)
    platform = serve()
    platform.create("f", ENVIRONMENT, Tags={"uncia:start-from": start_from})
    _, seen = platform.invoke("f")
    assert "AWS_LAMBDA_FUNCTION_NAME" in str(seen)
    assert SECRET not in str(seen)
    assert TOKEN not in str(seen)


def test_whoever_says_nothing_keeps_nobody_out(
    guarded: Platform, connect: Connect, certificate: Certificate
) -> None:
    port = int(guarded.address.rpartition(":")[2])
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(MAX_ARRIVALS)]
    context = ssl.create_default_context(cafile=str(certificate.authority))
    agreed = [
        context.wrap_socket(
            socket.create_connection(("127.0.0.1", port)), server_hostname="localhost"
        )
        for _ in range(20)
    ]
    client = connect()
    assert client.list_functions()["Functions"] == []
    # The oldest have given way, those that came last have not.
    silent[0].settimeout(60)
    assert silent[0].recv(1) == b""
    agreed[-1].sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert agreed[-1].recv(1000).startswith(b"HTTP/1.1 401")
    # Whoever is refused keeps no connection.
    agreed[-1].settimeout(60)
    while agreed[-1].recv(65_536):
        pass
    plain = socket.create_connection(("127.0.0.1", port))
    plain.settimeout(60)
    plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"HTTP" not in plain.recv(1000)
    for connection in (*silent, *agreed, plain):
        connection.close()
    assert client.list_functions()["Functions"] == []


def test_what_would_let_anybody_in_is_refused(
    engine_binary: Path, certificate: Certificate, credentials: Path, tmp_path: Path
) -> None:
    state = tmp_path / "none"
    clean = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}

    def refused(*options: str | Path, code: int = 2, **environment: str) -> str:
        done = subprocess.run(
            [engine_binary, "serve", "--state", state, "--messages", "text", *options],
            capture_output=True,
            text=True,
            env=clean | environment,
        )
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert not state.exists()
        return done.stderr

    beyond = ("--listen", "0.0.0.0:0")
    assert "add --tls-cert FILE and --tls-key FILE" in refused(*beyond)
    assert "add --tls-cert FILE" in refused(*beyond, "--credentials", credentials)
    assert "add --credentials FILE" in refused(*beyond, *certificate.options)
    assert "--tls-key" in refused(*beyond, "--tls-cert", certificate.certificate)
    weak = refused(*beyond, *certificate.options, UNCIA_TOKEN="short")
    assert "fewer than 16 characters" in weak
    assert "short" not in weak
    swapped = ("--tls-cert", certificate.key, "--tls-key", certificate.certificate)
    assert f"{certificate.key} has no certificate in PEM in it" in refused(*beyond, *swapped)
    credentials.chmod(0o644)
    assert f"chmod 600 {credentials}" in refused("--credentials", credentials)
    credentials.chmod(0o600)
    credentials.write_text("[default]\nregion = here\n")
    assert "line 2: its key is none of" in refused("--credentials", credentials)


def test_credentials_may_be_asked_for_on_loopback_too(serve: Serve, credentials: Path) -> None:
    platform = serve(options=["--credentials", credentials])
    assert code_of(platform.client.list_functions) == "UnrecognizedClientException"
    request = urllib.request.Request(
        f"http://{platform.address}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200
