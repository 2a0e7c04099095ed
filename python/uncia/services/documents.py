"""The documents: JSON with a revision, over Redis' protocol, below a prefix of the run's own.

Without an address, a server is started for the run (`uncia.services.redis_server`), which nobody
else has the password of. What must happen at once is a script that the server keeps
(``documents.lua``) and clients in every language call by its digest.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from pydantic import Field, model_validator

from uncia.errors import RunFailedError, UnciaError
from uncia.forms import Form
from uncia.platforms import Context, ServiceEndpoint
from uncia.platforms.journal import Resource, state_home
from uncia.services import listening, redis_server
from uncia.services.resp import Connection, RefusedError
from uncia.units import Size

USER: Final = "UNCIA_DOCUMENTS_USER"
PASSWORD: Final = "UNCIA_DOCUMENTS_PASSWORD"
DATABASE: Final = "UNCIA_DOCUMENTS_DATABASE"
PREFIX: Final = "UNCIA_DOCUMENTS_PREFIX"
"""The variable with what the names of all of the run's keys begin with."""
SCRIPT: Final = "UNCIA_DOCUMENTS_SCRIPT"
"""The variable with the digest by which the server knows the script."""

# Of services' resources in the journal, as `uncia.services.PLATFORM` says, which imports this.
_PLATFORM: Final = "services"
_SERVICE: Final = {"service": "documents"}
# In the order in which the script takes them.
_KEYS: Final = ("documents", "order", "changes", "last")
_LUA: Final = Path(__file__).with_name("documents.lua")
_PORT: Final = 6379
_LAST_PORT: Final = 65_535
_MEMORY_BYTES: Final = 1 << 30
_LEAST_BYTES: Final = 4 << 20
_PAGE: Final = 1_000
_ADDRESS: Final = re.compile(
    r"redis://([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?::([1-9]\d{0,4}))?(?:/(\d{1,4})?)?"
)


class Options(Form):
    """Where the documents are; in a server of the run's own if nothing is said."""

    address: str | None = Field(
        None,
        description="Of a server that exists, such as redis://host:6379/0; only what the run put"
        " below its own prefix is removed",
    )
    user: str | None = Field(None, description="Of that server. Default: its default user")
    password_variable: str = Field(
        "REDIS_PASSWORD",
        description="The variable of this process that has the password; none is sent if it is"
        " not set",
    )
    memory: Size | None = Field(
        None,
        ge=_LEAST_BYTES,
        description="The most that a server of the run's own holds. Default: 1GB",
    )

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.address is None:
            if self.user is not None:
                raise ValueError("a user is of a server that exists; without an address, leave it")
            return self
        if self.memory is not None:
            raise ValueError("memory is of a server of the run's own; with an address, leave it")
        match = _ADDRESS.fullmatch(self.address)
        if match is None or int(match[2] or _PORT) > _LAST_PORT:
            raise ValueError(
                # Not repeated: a password may be in it.
                "this is no address of a server of documents: write redis://HOST:PORT, with"
                " /DATABASE if need be; the password is in a variable"
            )
        if self.user is not None and not os.environ.get(self.password_variable):
            raise ValueError(
                f"the user {self.user} needs a password, and {self.password_variable} is not set"
            )
        return self

    def located(self) -> tuple[str, dict[str, str]]:
        """``HOST:PORT`` of one that exists, and the variables with what it takes to use it.

        Raises:
            UnciaError: its user's password is not set.
        """
        if self.user is not None and not os.environ.get(self.password_variable):
            raise UnciaError(
                f"the user {self.user} of the documents' server at {self.address} needs a password,"
                f" and {self.password_variable} is not set"
            )
        match = _ADDRESS.fullmatch(self.address or "")
        assert match is not None, "it was checked"
        variables = {USER: self.user or "", DATABASE: match[3] or "0"}
        variables[PASSWORD] = os.environ.get(self.password_variable, "")
        return f"{match[1]}:{match[2] or _PORT}", variables


def connection(address: str, variables: Mapping[str, str]) -> Connection:
    """Return a connection to a server (``HOST:PORT``), as functions with these variables have it.

    Raises:
        RunFailedError: it cannot be reached, or refuses.
    """
    made = Connection(address)
    try:
        if variables.get(PASSWORD):
            made.call("AUTH", variables.get(USER) or "default", variables[PASSWORD])
        if variables.get(DATABASE, "0") != "0":
            made.call("SELECT", variables[DATABASE])
    except BaseException:
        made.__exit__(None, None, None)
        raise
    return made


def prepare(address: str, variables: Mapping[str, str]) -> ServiceEndpoint:
    """Give a server the script; returns where it is and what functions must know.

    Raises:
        RunFailedError: it cannot be reached, or refuses.
    """
    with connection(address, variables) as server:
        digest = server.call("SCRIPT", "LOAD", _LUA.read_text(encoding="utf-8"))
    return ServiceEndpoint(address, {**variables, SCRIPT: str(digest)})


def served(address: str) -> ServiceEndpoint:
    """Prepare a server (``HOST:PORT``) that a platform's functions reach beyond any run.

    What functions must know is in the variables of this process that are called as theirs.
    """
    given = {name: os.environ.get(name, "") for name in (USER, PASSWORD)}
    given[DATABASE] = os.environ.get(DATABASE, "0")
    given[PREFIX] = os.environ.get(PREFIX, "uncia:")
    try:
        return prepare(address, given)
    except RefusedError as error:
        if not _lacks_password(error):
            raise
        raise RunFailedError(
            error.message, hint=f"Set {PASSWORD} to the password, and {USER} to its user."
        ) from error


def _lacks_password(error: RefusedError) -> bool:
    """Whether a server refuses because of the password: none was sent, or a wrong one."""
    return any(word in error.message for word in ("NOAUTH", "WRONGPASS", "invalid password"))


def keys(prefix: str) -> list[str]:
    """Return the names of a run's keys at the server, as the script takes them."""
    return [prefix + name for name in _KEYS]


def seed(endpoint: ServiceEndpoint, contents: Mapping[str, Any]) -> None:
    """Put documents, whatever there is under their keys.

    Raises:
        RunFailedError: a key is empty, or the server does not take them.
    """
    if "" in contents:
        raise RunFailedError("a document's key must not be empty")
    variables = endpoint.environment
    steps = [("put", key, "", json.dumps(value)) for key, value in contents.items()]
    with connection(endpoint.address, variables) as server:
        for start in range(0, len(steps), _PAGE):
            words = [word for step in steps[start : start + _PAGE] for word in step]
            _evaluate(server, variables, "transact", "", *words)


def below(endpoint: ServiceEndpoint, prefix: str = "") -> Iterator[tuple[str, int, Any]]:
    """Yield the documents whose keys begin so: key, revision and contents, in the keys' order.

    Raises:
        RunFailedError: the server does not answer.
    """
    variables = endpoint.environment
    after = ""
    with connection(endpoint.address, variables) as server:
        while True:
            reply = _evaluate(server, variables, "list", prefix, after, _PAGE)
            words = [str(word) for word in reply] if isinstance(reply, list) else []
            if not words:
                return
            for key, held in zip(words[::2], words[1::2], strict=True):
                revision, _, text = held.partition(" ")
                yield key, int(revision), json.loads(text)
            after = words[-2]


def _evaluate(server: Connection, variables: Mapping[str, str], *words: str | int) -> Any:
    names = keys(variables[PREFIX])
    return server.call("EVALSHA", variables[SCRIPT], len(names), *names, *words)


class Documents:
    """One run's documents."""

    def __init__(self, options: Options, context: Context) -> None:
        self._options: Final = options
        self._context: Final = context
        self._server: redis_server.Server | None = None
        self._made: list[Resource] = []
        self.prefix: Final = f"uncia:{context.run}:"

    def start(self) -> ServiceEndpoint:
        if self._options.address is None:
            address, variables = self._serve()
        else:
            address, variables = self._options.located()
        try:
            endpoint = prepare(address, {**variables, PREFIX: self.prefix})
        except RefusedError as error:
            if not _lacks_password(error):
                raise
            variable = self._options.password_variable
            raise RunFailedError(
                error.message, hint=f"Set {variable} to the password of its user."
            ) from error
        if self._options.address is not None:
            detail = {**_SERVICE, "options": self._options.model_dump()}
            self._journal(Resource(_PLATFORM, "prefix", self.prefix, detail))
        return endpoint

    def close(self) -> None:
        try:
            if self._server is not None:
                listening.tell(self._server.stop(), "documents", self._context)
                self._server = None
            for resource in list(self._made):
                if _remove(resource, self._context.log):
                    self._context.journal.removed(resource)
                    self._made.remove(resource)
        except UnciaError as error:
            # What is left stays in the journal.
            self._context.log(error.message)

    def _serve(self) -> tuple[str, dict[str, str]]:
        folder = state_home() / "services" / f"{self._context.run}-documents"
        redis_server.PROGRAM.find()
        self._journal(Resource(_PLATFORM, "server", str(folder), _SERVICE))
        self._server = redis_server.Server(folder, self._options.memory or _MEMORY_BYTES)
        return self._server.address, {USER: "", PASSWORD: self._server.password, DATABASE: "0"}

    def _journal(self, resource: Resource) -> None:
        self._context.journal.created(resource)
        self._made.append(resource)


def empty(address: str, variables: Mapping[str, str], prefix: str) -> None:
    """Remove every key that begins with a prefix, and no other.

    Raises:
        RunFailedError: something is left.
    """
    # What has a meaning in a pattern has none behind a backslash.
    pattern = re.sub(r"([\\*?\[\]^])", r"\\\1", prefix) + "*"
    try:
        with connection(address, variables) as server:
            cursor = "0"
            while True:
                reply = server.call("SCAN", cursor, "MATCH", pattern, "COUNT", _PAGE)
                assert isinstance(reply, list), "SCAN replies with a cursor and keys"
                page = reply[1] if isinstance(reply[1], list) else []
                if names := [str(name) for name in page]:
                    server.call("UNLINK", *names)
                cursor = str(reply[0])
                if cursor == "0":
                    return
    except RefusedError as error:
        raise RunFailedError(f"documents of {prefix} cannot be removed: {error.message}") from error


def _remove(resource: Resource, log: Callable[[str], None]) -> bool:
    """End a server that was started, or remove a run's documents; returns whether it is gone."""
    if resource.kind == "server":
        folder = Path(resource.id)
        return listening.end(
            redis_server.configuration(folder),
            folder,
            redis_server.PROGRAM.name,
            "documents' server",
            log,
        )
    # It was checked when the run began; the password may not be set now.
    options = Options.model_construct(**resource.detail["options"])
    empty(*options.located(), resource.id)
    return True


def require() -> None:
    """Check that a server of a run's own can be started.

    Raises:
        UnciaError: there is none; its hint says what to install.
    """
    redis_server.PROGRAM.find()


def connect(options: Options, context: Context) -> Documents:
    """Return the documents of one run; their server is not started yet."""
    return Documents(options, context)


def clean(resources: Sequence[Resource], log: Callable[[str], None]) -> list[Resource]:
    """End the servers of a crashed run, and remove the documents that it left elsewhere."""
    return [resource for resource in resources if _remove(resource, log)]
