"""Requests to a platform, wherever it listens: an address, the same over TLS, or a unix socket.

An address is ``127.0.0.1:9001``, ``https://build.lan:9001`` or ``unix:/run/uncia.sock``. Over TLS
requests carry what the environment has: a token (``UNCIA_TOKEN``), or a signature made with
``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``; and ``AWS_CA_BUNDLE`` names the certificates to
trust, as for AWS's own clients.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import urllib.request
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from uncia.errors import UnciaError

UNIX: Final = "unix:"
HTTPS: Final = "https://"

TOKEN_VARIABLE: Final = "UNCIA_TOKEN"
KEY_VARIABLES: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")

REGION: Final = "us-east-1"
"""What signatures are scoped to; the platform takes any."""

_SERVICE: Final = "lambda"


def open_path(
    address: str,
    path: str,
    timeout_s: float,
    *,
    body: bytes | None = None,
    method: str | None = None,
) -> Any:
    """Send a request to a platform, past any proxy, and return its answer, to be closed.

    Args:
        address: where the platform listens.
        path: with its query, beginning with ``/``.
        timeout_s: between two bytes, in seconds.
        body: what is sent.
        method: GET, or POST with a body, unless another is named.

    Raises:
        UnciaError: the address is over TLS, and there are no credentials to show.
        urllib.error.URLError: nobody answers; as `urllib.error.HTTPError`, the answer is an error.
        OSError: the connection breaks.
    """
    request = urllib.request.Request(url_of(address) + path, body, method=method)
    if address.startswith(UNIX):
        return _UNIX.open(request, timeout=timeout_s)
    if not address.startswith(HTTPS):
        return _PLAIN.open(request, timeout=timeout_s)
    _authorize(request)
    secure = urllib.request.HTTPSHandler(context=_context())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), secure)
    return opener.open(request, timeout=timeout_s)


def url_of(address: str) -> str:
    """The URL of a platform, without a slash at its end."""
    if address.startswith(UNIX):
        return f"unix://{quote(address.removeprefix(UNIX), safe='')}"
    return address if address.startswith(HTTPS) else f"http://{address}"


def token() -> str | None:
    """The token of the environment, if it has one.

    Raises:
        UnciaError: it has characters that no header can carry, such as the end of a line.
    """
    value = os.environ.get(TOKEN_VARIABLE) or None
    if value is not None and not (value.isascii() and value.isprintable()):
        raise UnciaError(
            f"{TOKEN_VARIABLE} has characters that no request can carry",
            "A token is made of letters, digits and signs of ASCII, without the end of a line.",
        )
    return value


def keys() -> tuple[str, str, str | None] | None:
    """The access key, its secret and its session's token of the environment, if it has them."""
    key, secret, session = (os.environ.get(name) or None for name in KEY_VARIABLES)
    return None if key is None or secret is None else (key, secret, session)


def no_credentials(address: str) -> UnciaError:
    """The error that there is nothing to show at an address over TLS."""
    return UnciaError(
        f"{address} needs credentials",
        f"Set {TOKEN_VARIABLE}, or {KEY_VARIABLES[0]} and {KEY_VARIABLES[1]}, to the platform's.",
    )


def _authorize(request: urllib.request.Request) -> None:
    """Put a token or a signature into a request's headers."""
    known, pair = token(), keys()
    if known is not None:
        request.add_unredirected_header("Authorization", f"Bearer {known}")
        return
    if pair is None:
        raise no_credentials(f"{request.type}://{request.host}")
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    body = request.data if isinstance(request.data, bytes) else None
    signed = AWSRequest(request.get_method(), request.full_url, data=body)
    SigV4Auth(Credentials(*pair), _SERVICE, REGION).add_auth(signed)
    for name, value in signed.headers.items():
        request.add_unredirected_header(name, value)


def _context() -> ssl.SSLContext:
    bundle = os.environ.get("AWS_CA_BUNDLE") or None
    try:
        return ssl.create_default_context(cafile=bundle)
    except (OSError, ssl.SSLError) as error:
        raise UnciaError(f"AWS_CA_BUNDLE: {bundle} has no certificates: {error}") from error


class _UnixConnection(http.client.HTTPConnection):
    """A connection to a unix socket, whose path stands for the host."""

    def __init__(self, host: str, **arguments: Any) -> None:
        super().__init__("localhost", **arguments)
        self._path: Final = Path(host)

    def connect(self) -> None:
        # By way of its folder, since an address has room for 107 bytes.
        folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(self.timeout)
            connection.connect(f"/proc/self/fd/{folder}/{self._path.name}")
        except OSError:
            connection.close()
            raise
        finally:
            os.close(folder)
        self.sock = connection


class _UnixHandler(urllib.request.AbstractHTTPHandler):
    """Opens ``unix://PATH/...``, where slashes of the path are quoted."""

    def unix_request(self, request: urllib.request.Request) -> urllib.request.Request:
        """Complete a request's headers."""
        request.add_unredirected_header("Host", "localhost")
        return self.do_request_(request)

    def unix_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Send a request."""
        return self.do_open(_UnixConnection, request)

    def unix_response(self, request: urllib.request.Request, answer: Any) -> Any:
        """Raise the answers that are errors, as for HTTP."""
        if 200 <= answer.status < 300:
            return answer
        return self.parent.error(
            "http", request, answer, answer.status, answer.reason, answer.headers
        )


_PLAIN: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_UNIX: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}), _UnixHandler)
