"""Starts that a connection begins, and the hosts by which it says for what function."""

import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from patience import scaled

from . import certificates
from .certificates import Certificate
from .conftest import Platform, Serve, package
from .test_serving import wait_for
from .test_url_auth import signed

KEY, SECRET = "AKIDEXAMPLE", "not/guessed+by/anybody"
EVENT = "def handler(event, context):\n    return event\n"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificates.make(tmp_path_factory.mktemp("certificate"))


class Secure:
    """A platform behind TLS, and a function with a URL."""

    def __init__(self, platform: Platform, certificate: Certificate, kind: str) -> None:
        self.context = ssl.create_default_context(cafile=str(certificate.authority))
        self.port = int(platform.address.rpartition(":")[2])
        client = boto3.client(
            "lambda",
            endpoint_url=f"https://localhost:{self.port}",
            region_name="eu-west-1",
            verify=str(certificate.authority),
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            config=Config(proxies={}, signature_version=UNSIGNED if kind == "NONE" else None),
        )
        client.create_function(
            FunctionName="f",
            Runtime="python3.11",
            Handler="handler.handler",
            Role="arn:aws:iam::000000000000:role/any",
            Code={"ZipFile": package(EVENT)},
            Timeout=int(scaled(50)),
        )
        url = client.create_function_url_config(FunctionName="f", AuthType=kind)["FunctionUrl"]
        self.host = url.rstrip("/").rpartition("/")[2] + ".lambda-url.localhost"

    @contextmanager
    def connected(self, host: str) -> Iterator[ssl.SSLSocket]:
        """A connection to a host, which has asked for nothing."""
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=scaled(60)) as plain,
            self.context.wrap_socket(plain, server_hostname=host) as connection,
        ):
            yield connection

    def ask(
        self, connection: ssl.SSLSocket, path: str, host: str | None = None, **headers: str
    ) -> tuple[int, dict[str, str], Any]:
        """The status, headers and body of the answer to a connection's request, its last."""
        named = {"Host": host or f"{self.host}:{self.port}", "Connection": "close", **headers}
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {text}" for name, text in named.items())]
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        head, _, body = answer.decode().partition("\r\n\r\n")
        status, *rest = head.split("\r\n")
        answered = dict(line.lower().split(": ", 1) for line in rest)
        return int(status.split()[1]), answered, json.loads(body)

    def instances(self) -> dict[str, int]:
        """How many instances do what."""
        with self.connected("localhost") as connection:
            _, _, health = self.ask(connection, "/uncia/v1/health", "localhost")
        counts: dict[str, int] = health["instances"]
        return counts


def secure(serve: Serve, certificate: Certificate, **config: Any) -> Secure:
    return Secure(serve(config, options=certificate.options), certificate, "NONE")


def test_a_start_begins_with_the_handshake(serve: Serve, certificate: Certificate) -> None:
    policies = {"connection": "start-at-handshake"}
    platform = secure(serve, certificate, policies=policies, pause_after_ms=3_600_000)
    # Of no function: neither the platform itself nor one that is not there.
    with (
        platform.connected("localhost"),
        platform.connected("0" * 32 + ".lambda-url.localhost"),
        platform.connected(platform.host) as first,
        platform.connected(platform.host) as second,
    ):
        wait_for(lambda: platform.instances()["idle"] == 2)
        for connection in (first, second):
            status, headers, event = platform.ask(connection, "/a%20b?x=1")
            assert (status, headers["x-uncia-start"]) == (200, "warm")
            assert (event["rawPath"], event["rawQueryString"]) == ("/a b", "x=1")
    # What is there already is enough for two more.
    with platform.connected(platform.host), platform.connected(platform.host) as connection:
        assert platform.ask(connection, "/")[1]["x-uncia-start"] == "warm"
    counts = platform.instances()
    assert sum(counts.values()) == counts["idle"] == 2, counts


def test_nothing_starts_before_the_request_otherwise(
    serve: Serve, certificate: Certificate
) -> None:
    platform = secure(serve, certificate)
    with platform.connected(platform.host) as connection:
        assert sum(platform.instances().values()) == 0
        # What is the platform's is not to be had at a function's host.
        status, headers, event = platform.ask(connection, "/2015-03-31/functions")
        assert (status, headers["x-uncia-start"]) == (200, "cold")
        assert event["rawPath"] == "/2015-03-31/functions"


def test_requests_to_a_functions_host_are_signed_as_they_are_sent(
    serve: Serve, certificate: Certificate, tmp_path: Path
) -> None:
    file = tmp_path / "credentials"
    file.write_text(f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    file.chmod(0o600)
    options = [*certificate.options, "--credentials", file]
    platform = Secure(serve(options=options), certificate, "AWS_IAM")

    def status(path: str, signed_path: str, secret: str = SECRET) -> int:
        address = f"https://{platform.host}:{platform.port}{signed_path}"
        with platform.connected(platform.host) as connection:
            return platform.ask(connection, path, **signed(address, KEY, secret))[0]

    assert status("/x", "/x") == 200
    assert status("/x", "/y") == 403
    assert status("/x", "/x", "another/secret") == 403
    assert status("/x", f"/url/{platform.host.partition('.')[0]}/x") == 403
