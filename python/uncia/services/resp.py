"""Redis' protocol, as much as the service of documents needs: one connection, one reply a command.

Source: https://redis.io/docs/latest/develop/reference/protocol-spec/ (RESP2).
"""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Final, Self, TypeAlias

from uncia.errors import RunFailedError

Reply: TypeAlias = "str | int | list[Reply] | None"

_TIMEOUT_S: Final = 10.0


class RefusedError(RunFailedError):
    """The server answered with an error."""


class Connection:
    """A connection to a server."""

    def __init__(self, address: str) -> None:
        """Connect.

        Args:
            address: ``HOST:PORT``.

        Raises:
            RunFailedError: nothing listens there.
        """
        self._address: Final = address
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise RunFailedError(f"{address!r} is no address of documents: write HOST:PORT")
        try:
            self._socket = socket.create_connection((host, int(port)), _TIMEOUT_S)
        except (OSError, OverflowError) as error:
            raise RunFailedError(
                f"the documents' server at {address} cannot be reached: {error}"
            ) from error
        self._file: Final = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        self._socket.close()

    def call(self, *words: str | int) -> Reply:
        """Send a command and return its reply.

        Raises:
            RefusedError: the reply is an error.
            RunFailedError: the server does not answer, or not in its protocol.
        """
        encoded = [str(word).encode() for word in words]
        pieces = [b"*%d\r\n" % len(encoded)]
        pieces += [b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded]
        try:
            self._socket.sendall(b"".join(pieces))
            return self._reply()
        except (OSError, ValueError) as error:
            raise RunFailedError(
                f"the documents' server at {self._address} does not answer: {error}"
            ) from error

    def _reply(self) -> Reply:
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise OSError("it has closed the connection")
        kind, rest = line[:1], line[1:-2].decode("utf-8", "replace")
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"$":
            if (size := int(rest)) < 0:
                return None
            content = self._file.read(size + 2)
            if len(content) < size + 2:
                raise OSError("it has closed the connection")
            return content[:-2].decode("utf-8", "replace")
        if kind == b"*":
            # All are read, also behind an error.
            return None if int(rest) < 0 else [self._reply() for _ in range(int(rest))]
        if kind == b"-":
            raise RefusedError(f"the documents' server at {self._address} refuses: {rest}")
        raise ValueError(f"{line[:50]!r} is not Redis' protocol")
