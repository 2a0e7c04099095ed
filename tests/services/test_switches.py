"""The service `switches`: devices that functions switch over HTTP, and how they stand."""

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from uncia.services import MODULES
from uncia.services.switches import Options, Switches, connect


@pytest.fixture
def address() -> Iterator[str]:
    service: Switches = connect(Options(), None)  # type: ignore[arg-type]
    endpoint = service.start()
    yield endpoint.address
    service.close()
    service.close()
    with pytest.raises(ConnectionRefusedError):
        ask(endpoint.address, "GET", "/")


def ask(address: str, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_devices_stand_as_they_were_switched_last(address: str) -> None:
    assert "switches" in MODULES
    assert ask(address, "GET", "/") == (200, {})
    assert ask(address, "PUT", "/door", '{"switch": "ON"}') == (200, {"switch": "ON", "times": 1})
    assert ask(address, "PUT", "/light", '{"switch": "ON"}')[0] == 200
    assert ask(address, "PUT", "/door", '{"switch": "OFF"}') == (200, {"switch": "OFF", "times": 2})
    assert ask(address, "GET", "/door") == (200, {"switch": "OFF", "times": 2})
    stand = {"door": {"switch": "OFF", "times": 2}, "light": {"switch": "ON", "times": 1}}
    assert ask(address, "GET", "/") == (200, stand)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("GET", "/tv", None, 404, "switch it first"),
        ("GET", "/../tv", None, 404, "name is of"),
        ("PUT", "/", '{"switch": "ON"}', 404, "name is of"),
        ("PUT", "/tv", '{"switch": "on"}', 400, "body must be"),
        ("PUT", "/tv", "[", 400, "body must be"),
        ("PUT", "/tv", "[" * 1024, 400, "body must be"),
        ("PUT", "/tv", " " * 2_000, 400, "1024 at most"),
    ],
)
def test_other_requests_are_refused_and_switch_nothing(
    address: str, method: str, path: str, body: str | None, status: int, words: str
) -> None:
    answered, content = ask(address, method, path, body)
    assert answered == status
    assert words in content["error"]
    assert ask(address, "GET", "/") == (200, {})
