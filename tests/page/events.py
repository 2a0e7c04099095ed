"""Reads a stream of server-sent events as a browser does."""

import http.client
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

_TIMEOUT_S = 60.0


class Stream:
    """The events of the page, over a connection of its own."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._connection = http.client.HTTPConnection(host, int(port), timeout=_TIMEOUT_S)
        self._connection.request("GET", "/uncia/v1/live")
        self.response = self._connection.getresponse()

    def events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The name and the data of each event, until the stream ends."""
        name = ""
        for line in self.response:
            text = line.decode().rstrip("\n")
            if text.startswith("event: "):
                name = text.removeprefix("event: ")
            elif text.startswith("data: "):
                yield name, json.loads(text.removeprefix("data: "))

    def wait(
        self, name: str, condition: Callable[[dict[str, Any]], bool] = lambda data: True
    ) -> dict[str, Any]:
        """The first event of this name for which the condition holds."""
        deadline = time.monotonic() + _TIMEOUT_S
        for item, data in self.events():
            if item == name and condition(data):
                return data
            assert time.monotonic() < deadline, f"no {name}; the last was {item}: {data}"
        raise AssertionError("the stream has ended")

    def close(self) -> None:
        self.response.close()
        self._connection.close()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
