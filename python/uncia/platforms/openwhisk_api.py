"""OpenWhisk's REST API: where it is, with which credentials, and what its answers say.

Host and credentials are found as Apache's own clients find them: in variables of the environment,
or in the file ``~/.wskprops`` of the command ``wsk``.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from uncia.errors import RunFailedError, UnciaError
from uncia.platforms import Response

HOST_VARIABLE: Final = "__OW_API_HOST"
KEY_VARIABLE: Final = "__OW_API_KEY"
_PROPERTIES: Final = ".wskprops"
# Names another file.
_PROPERTIES_VARIABLE: Final = "WSK_CONFIG_FILE"

_TIMEOUT_S: Final = 90.0  # above the 60 s that a blocking invocation may wait
FIRST_TIMEOUT_S: Final = 10.0
"""Of the first question, which a host answers at once, if it is there and an OpenWhisk."""


def url_of(host: str) -> str:
    """The URL of a host's API, without a slash at its end; ``https`` unless it says otherwise.

    Raises:
        ValueError: it is none of a host, or has credentials in it.
    """
    url = (host if "://" in host else f"https://{host}").rstrip("/").removesuffix("/api/v1")
    parts = urllib.parse.urlsplit(url)
    if parts.username is not None:
        raise ValueError("it holds credentials, which would be in the results: leave them out")
    try:
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        has_port = False
    if not has_port:
        raise ValueError(f"the port of {host!r} is no number from 1 to 65535")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise ValueError(f"{host!r} is no host such as https://openwhisk.example")
    return url


def _properties() -> dict[str, str]:
    """What the file of the command ``wsk`` says, if there is one."""
    path = Path(os.environ.get(_PROPERTIES_VARIABLE) or Path.home() / _PROPERTIES)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if not line.lstrip().startswith("#"))
    return {key.strip(): value.strip().strip('"') for key, _, value in pairs if value}


@dataclass(frozen=True)
class Api:
    """The REST API of a namespace, with the credentials that the environment has for it."""

    url: str
    namespace: str
    authorization: str = field(repr=False)

    @classmethod
    def of(cls, host: str | None, namespace: str) -> Api:
        """The API at a host, or at the one that the environment names.

        Raises:
            UnciaError: there is no host, or there are no credentials.
        """
        known = _properties()
        host = host or os.environ.get(HOST_VARIABLE) or known.get("APIHOST")
        if not host:
            raise UnciaError(
                "no OpenWhisk is named",
                f"Give the platform its host, or set {HOST_VARIABLE}, or APIHOST in ~/.wskprops.",
            )
        try:
            url = url_of(host)
        except ValueError as error:
            raise UnciaError(f"OpenWhisk's host: {error}") from error
        key = os.environ.get(KEY_VARIABLE) or known.get("AUTH")
        if not key or ":" not in key:
            wrong = "are no credentials" if not key else "is a key that is not UUID:KEY"
            raise UnciaError(
                f"there {wrong} for the OpenWhisk at {url}",
                f"Set {KEY_VARIABLE}, or AUTH in ~/.wskprops, to UUID:KEY, as `wsk property get"
                " --auth` prints it.",
            )
        return cls(url, namespace, f"Basic {base64.b64encode(key.encode()).decode()}")

    def at(self, path: str, **query: object) -> str:
        """The URL of something in the namespace."""
        namespace = urllib.parse.quote(self.namespace)
        question = f"?{urllib.parse.urlencode(query)}" if query else ""
        return f"{self.url}/api/v1/namespaces/{namespace}/{path}{question}"

    def action(self, name: str, **query: object) -> str:
        """The URL of an action."""
        return self.at(f"actions/{urllib.parse.quote(name)}", **query)

    def ask(
        self, method: str, url: str, body: Any = None, *, timeout_s: float = _TIMEOUT_S
    ) -> Response:
        """Send a request and return its answer, whatever its status.

        Args:
            method: such as ``GET``.
            url: with its query.
            body: sent as JSON.
            timeout_s: for connecting, and for each wait for bytes, in seconds.

        Raises:
            RunFailedError: nothing answers, or it refuses the credentials.
        """
        request = urllib.request.Request(
            url,
            data=None if body is None else json.dumps(body).encode(),
            headers={"authorization": self.authorization, "content-type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                response = Response(answer.status, dict(answer.headers), answer.read())
        except urllib.error.HTTPError as error:
            with error:
                response = Response(error.code, dict(error.headers), error.read())
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise RunFailedError(
                f"no OpenWhisk answers at {self.url}: {getattr(reason, 'strerror', None) or reason}"
            ) from error
        if response.status in (401, 403):
            raise RunFailedError(
                f"the OpenWhisk at {self.url} refuses the credentials: {message_of(response)}",
                f"{KEY_VARIABLE}, or AUTH in ~/.wskprops, must be a key of that namespace.",
            )
        return response

    def json(self, method: str, url: str, problem: str, *, timeout_s: float = _TIMEOUT_S) -> Any:
        """The content of an answer that says that it went well.

        Raises:
            RunFailedError: it does not, or is not JSON.
        """
        answer = self.ask(method, url, timeout_s=timeout_s)
        try:
            if 200 <= answer.status < 300:
                return json.loads(answer.body)
        except ValueError:
            pass
        raise RunFailedError(f"OpenWhisk: {problem}: {message_of(answer)}")

    def delete(self, name: str) -> None:
        """Delete an action; one that is gone already is no error.

        Raises:
            RunFailedError: OpenWhisk refuses, or cannot be reached.
        """
        answer = self.ask("DELETE", self.action(name))
        if answer.status not in (200, 204, 404):
            raise RunFailedError(
                f"OpenWhisk: cannot delete the action {name}: {message_of(answer)}"
            )


def message_of(answer: Response) -> str:
    """What an answer says is wrong."""
    try:
        text = str(json.loads(answer.body)["error"])
    except (ValueError, KeyError, TypeError):
        text = answer.body.decode(errors="replace")[:200]
    text = " ".join(text.split())
    return f"HTTP {answer.status}: {text}" if text else f"HTTP {answer.status}"
