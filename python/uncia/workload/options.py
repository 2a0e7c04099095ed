"""What is said on the command line or to ``uncia.load`` as a workload, every mistake by its option.

The sentences name the option that a person wrote, not the key of the form that it became.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.workload import model
from uncia.workload.arrivals import ArrivalProcess, Arrivals
from uncia.workload.client import Share
from uncia.workload.model import Overrides, Workload

NAME: Final = "load"
"""What a load on a URL is called in its rows: run, experiment and function."""

_SUFFIXES: Final = (".yaml", ".yml")
_OF_FUNCTION: Final = ("method", "headers", "query", "http", "unix_socket")
_OF_WORKLOAD: Final = ("max_connections", "timeout", "connect_timeout", "first_byte_timeout")
_OF_TLS: Final = ("insecure", "ca_file")
_OF_LOOP: Final = ("think", "requests")

# Keys of the form whose option has another name, and keys that no option is called by.
_RENAMED: Final = {
    "clients": "closed",
    "pool": "connections",
    "random": "random-body",
    "text": "body",
    "region": "sign-aws",
    "service": "sign-aws",
}
_STRUCTURE: Final = frozenset({"streams", "functions", NAME, "tls", "body", "sign", "aws_sigv4"})

_RFC_3339: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(?:\.(?P<fraction>\d{1,9}))?(?:[Zz]|[+-]\d{2}:\d{2})"
)


def is_file(target: str | Path | Mapping[str, Any]) -> bool:
    """Whether a target names a workload file, not a URL."""
    if isinstance(target, str):
        return "://" not in target and (target.endswith(_SUFFIXES) or Path(target).is_file())
    return isinstance(target, Path)


def read(target: str | Path | Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Workload, Path]:
    """The workload that a target and the options for a URL describe.

    Args:
        target: a URL, a workload file, or the content of one.
        given: the options of a load on a URL that were given (see :func:`from_url`).

    Returns:
        The workload, and the folder that names of files in it are relative to.

    Raises:
        UnciaError: the file is not right, an option is wrong, or belongs into the file.
    """
    if isinstance(target, str) and not is_file(target):
        return from_url(target, given), Path()
    if given:
        words = ", ".join(name.replace("_", "-") for name in given)
        raise UnciaError(
            f"{words}: of a workload file this is a key, not an option",
            hint="Beside a file go only options of how it is sent: seed, processes, out, ...",
        )
    if isinstance(target, Mapping):
        return model.check(yamlio.Document("workload", dict(target), {})), Path()
    path = Path(target)
    return model.load(path)[0], path.parent


def from_url(url: str, given: Mapping[str, Any]) -> Workload:
    """The workload of a load on one URL.

    Args:
        url: ``http://...`` or ``https://...``.
        given: options by name as in :func:`uncia.load`, without those that were not given; what
            has no name there is under ``set``, keys of the arrivals.

    Raises:
        UnciaError: an option is missing, unknown, or has a value that it can't have.
    """
    rest = dict(given)
    function: dict[str, Any] = {"url": url, **_taken(rest, _OF_FUNCTION)}
    for key in ("headers", "query"):
        if key in function:
            function[key] = {str(name): str(value) for name, value in function[key].items()}
    body = _body(rest)
    if body is not None:
        function["body"] = body
    if "sign_aws" in rest:
        function["sign"] = {"aws_sigv4": _sign(str(rest.pop("sign_aws")))}
    form: dict[str, Any] = {
        "name": NAME,
        "functions": {NAME: function},
        **_taken(rest, _OF_WORKLOAD),
    }
    if "connections" in rest:
        form["connections"] = connections(str(rest.pop("connections")))
    tls = _taken(rest, _OF_TLS)
    if tls:
        form["tls"] = {key: str(value) if key == "ca_file" else value for key, value in tls.items()}
    form["streams"] = [{"function": NAME, **_loop(rest)}]
    try:
        return Workload.model_validate(form)
    except ValidationError as error:
        raise _told(error) from error


def process(given: Mapping[str, Any]) -> ArrivalProcess:
    """The arrival process of options such as ``{"kind": "poisson", "rate": "100/s", ...}``.

    :raises UnciaError: one is missing, unknown for this kind, or has no or a wrong unit.
    """
    adapter: TypeAdapter[ArrivalProcess] = TypeAdapter(Arrivals)
    try:
        return adapter.validate_python(dict(given))
    except ValidationError as error:
        kind = str(given.get("kind"))
        sentences = [_arrivals_sentence(kind, detail) for detail in error.errors()]
        raise UnciaError("\n".join(dict.fromkeys(sentences))) from error


def override(workload: Workload, **given: Any) -> Workload:
    """A workload with its own seed, round-trip probes or stop rules, where they are not None.

    :raises UnciaError: a value is wrong.
    """
    try:
        over = Overrides.model_validate(given)
    except ValidationError as error:
        raise _told(error) from error
    rules = {
        "error_budget": over.error_budget,
        "lag_p99": over.max_lag,
        "slowdown": over.max_slowdown,
    }
    changed: dict[str, Any] = {"seed": over.seed, "rtt_probes": over.rtt_probes}
    changed["stop"] = workload.stop.model_copy(update=_given(rules))
    return workload.model_copy(update=_given(changed))


def connections(text: str) -> str | dict[str, Any]:
    """Read ``reuse``, ``fresh`` or ``pool:N``.

    :raises UnciaError: it is none of these.
    """
    word, colon, number = text.partition(":")
    if word == "pool" and colon and number.isdecimal() and int(number) > 0:
        return {"pool": int(number)}
    if text not in ("reuse", "fresh"):
        raise UnciaError(f"connections: {text!r} is not known (allowed: reuse, fresh, pool:N)")
    return text


def share(text: str) -> Share:
    """Read ``2/3``, the second of three.

    :raises UnciaError: it is not of this form, or beyond it (``4/3``).
    """
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text.strip())
    index, of = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= index <= of:
        raise UnciaError(f"share: {text!r} is not like 2/3, the second of three")
    return Share(index - 1, of)


def start(when: str | datetime) -> int:
    """A start time as Unix nanoseconds.

    Args:
        when: RFC 3339 text such as ``2026-05-01T12:00:00Z``, or a datetime with a time zone.

    Raises:
        UnciaError: it is no such time; without a zone, machines could take it differently.
    """
    fraction = ""
    if isinstance(when, str):
        match = _RFC_3339.fullmatch(when.strip())
        try:
            if match is None:
                raise ValueError
            fraction = match["fraction"] or ""
            moment = datetime.fromisoformat(re.sub(r"\.\d+", "", when.strip().upper()))
        except ValueError as error:
            raise UnciaError(
                f"start-at: {when!r} is not a time with its zone such as 2026-05-01T12:00:00Z"
            ) from error
    else:
        moment = when
    if moment.tzinfo is None:
        raise UnciaError(f"start-at: {when} has no time zone")
    nanoseconds = int(fraction.ljust(9, "0")) if fraction else moment.microsecond * 1_000
    return int(moment.replace(microsecond=0).timestamp()) * 1_000_000_000 + nanoseconds


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _taken(rest: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: rest.pop(key) for key in keys if key in rest}


def _body(rest: dict[str, Any]) -> dict[str, str] | None:
    body, size = rest.pop("body", None), rest.pop("random_body", None)
    if size is not None:
        if body is not None:
            raise UnciaError("body and random-body: a request has one body")
        return {"random": size}
    if isinstance(body, bytes):
        try:
            body = body.decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(body).decode("ascii")}
    return None if body is None else {"text": body}


def _sign(text: str) -> dict[str, str]:
    region, slash, service = text.partition("/")
    if not slash or not region or not service:
        raise UnciaError(f"sign-aws: {text!r} is not like us-east-1/lambda, region and service")
    return {"region": region, "service": service}


def _loop(rest: dict[str, Any]) -> dict[str, Any]:
    """The open or closed loop of what is left of the options."""
    for key, value in rest.pop("set", {}).items():
        if key in rest or key == "kind":
            raise UnciaError(f"set: {key!r} has an option of its own, or is given twice")
        rest[key] = value
    if "closed" in rest:
        loop = {"clients": rest.pop("closed"), **_taken(rest, ("duration", *_OF_LOOP))}
        if rest:
            words = ", ".join(key.replace("_", "-") for key in rest)
            raise UnciaError(f"{words}: a closed loop sends when answers come, not by arrivals")
        return {"closed": loop}
    early = [key for key in _OF_LOOP if key in rest]
    if early:
        raise UnciaError(f"{' and '.join(early)}: only a closed loop has this; say closed as well")
    kind = rest.pop("arrivals", "constant")
    if isinstance(kind, Mapping):
        if rest:
            raise UnciaError(f"{', '.join(rest)}: belongs into the mapping of the arrivals")
        return {"arrivals": process(kind)}
    return {"arrivals": process({"kind": kind, **rest})}


def _told(error: ValidationError) -> UnciaError:
    """A mistake in options, a sentence each: ``timeout: '60' is not a duration: ...``."""
    sentences = []
    for detail in error.errors():
        parts = [str(part) for part in detail["loc"] if isinstance(part, str)]
        words = [part for part in parts if part not in _STRUCTURE]
        # What stands in a list or mapping, such as a header's name, follows its option's name.
        where = ": ".join(_RENAMED.get(word, word).replace("_", "-") for word in words[:2])
        if words[:1] == ["closed"]:
            where = _RENAMED.get(words[-1], words[-1])
        elif words[:1] in (["connections"], ["http"]):
            where = words[0]
        message = str(detail["msg"]).removeprefix("Value error, ")
        if message.startswith("Input should be "):
            message = f"must be {message.removeprefix('Input should be ')}, not {detail['input']!r}"
        sentences.append(f"{where}: {message}" if where else message)
    return UnciaError("\n".join(dict.fromkeys(sentences)))


def _arrivals_sentence(kind: str, detail: Any) -> str:
    """A pydantic error about an arrival process as a sentence."""
    where = ".".join(str(part) for part in detail["loc"] if part != kind)
    match detail["type"]:
        case "union_tag_invalid":
            allowed = detail["ctx"]["expected_tags"]
            return f"arrivals: {kind!r} is not known (allowed: {allowed})"
        case "missing":
            return f"{kind} arrivals need a {where}"
        case "extra_forbidden":
            return f"{kind} arrivals have no {where}"
    message = str(detail["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}" if where else message
